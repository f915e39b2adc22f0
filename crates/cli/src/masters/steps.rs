//! Steps: from what the masters show to what a command does next. Pure.
//!
//! A command looks at all masters, does one thing, and looks again. So it can be killed anywhere,
//! and the next one goes on from what the masters show. Two rules make that safe:
//!
//! * **Clients of the old masters and those of the new ones are never admitted within one window.**
//!   Before a first master admits clients of the new masters, no quorum of the old masters may
//!   admit their clients for a whole window: the longest lease and its drift. What cannot be read
//!   counts as admitting. On the way back the two sets change places.
//! * **Some clients always have a quorum that admits them.** No step begins before the clients of
//!   the step behind it have a quorum.
//!
//! Of [shards](redquorum::Shards), "a quorum" is that of any shard in the first rule, and of every
//! shard in the second: all shards take each step together.
//!
//! The tests check both for all orders of writes, failures, kills and pauses.

use redquorum_protocol::{NodeSet, Quorum};

/// The masters that clients use on one side of a move: those of one lock, or of each shard.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Side(Vec<Quorum>);

impl Side {
    pub(crate) fn new(shards: Vec<Quorum>) -> Self {
        debug_assert!(shards.iter().all(|shard| shard.moves().is_none()));
        Self(shards)
    }

    /// All masters.
    pub(crate) fn masters(&self) -> NodeSet {
        self.0.iter().fold(NodeSet::EMPTY, |all, shard| all.or(shard.all()))
    }

    /// Whether clients can have any lease from these masters.
    pub(crate) fn any_is_in(&self, set: NodeSet) -> bool {
        self.0.iter().any(|shard| shard.is_in(set))
    }

    /// Whether clients can have all leases from these masters.
    pub(crate) fn every_is_in(&self, set: NodeSet) -> bool {
        self.0.iter().all(|shard| shard.is_in(set))
    }
}

/// What one master shows.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum MasterStep {
    /// It could not be read.
    Unreached,
    /// It has no marker.
    Unmarked,
    /// It is at this step of the move.
    At(usize),
}

/// Clients by the masters that they use.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum ClientGroup {
    /// The old masters alone.
    Old,
    /// Both.
    Moving,
    /// The new masters alone.
    New,
}

impl ClientGroup {
    pub(crate) const ALL: [Self; 3] = [Self::Old, Self::Moving, Self::New];

    /// The options of these clients.
    pub(crate) const fn options(self) -> &'static str {
        match self {
            Self::Old => "the old masters alone",
            Self::Moving => "`moving-to`",
            Self::New => "the new masters alone",
        }
    }
}

/// Where a command takes the masters.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Goal {
    /// Step 1: clients of the old masters, and those that move.
    Begin,
    /// Step 3: clients that move, and those of the new masters.
    Switch,
    /// Step 4: clients of the new masters.
    Finish,
    /// Step 1 again.
    BackToFirst,
    /// Step 0 again, and no marker on the masters that are only new.
    BackToStart,
}

impl Goal {
    /// The goal of `back`: it stops at step 1, where clients are restarted with the old masters.
    pub(crate) fn back(sides: &[Side; 2], steps: &[MasterStep]) -> Self {
        let view = View { sides, steps, steady: NodeSet::EMPTY, connected: [false; 3] };
        let [old, _] = sides;
        // A master that was away on the way to the start may still be at a later step.
        let is_behind = old.every_is_in(view.at(|step| step <= 1)) && view.need_moving().is_err();
        match view.at(|step| step >= 2).is_empty() || is_behind {
            true => Self::BackToStart,
            false => Self::BackToFirst,
        }
    }
}

/// What a command knows when it decides.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a> {
    /// The old masters and the new ones.
    pub(crate) sides: &'a [Side; 2],
    pub(crate) steps: &'a [MasterStep],
    /// The masters that have shown the same marker for a whole window.
    pub(crate) steady: NodeSet,
    /// Whether clients of [`ClientGroup::ALL`] are connected.
    pub(crate) connected: [bool; 3],
}

/// What a command does next.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Next {
    /// Write this step on these masters; `None` removes the marker.
    Write(NodeSet, Option<usize>),
    /// Wait until the masters have shown the same for a whole window.
    Wait,
    /// There is nothing left to do.
    Done,
    /// It cannot go on.
    Refuse(Refusal),
}

/// Why a command cannot go on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Refusal {
    /// These masters could not be read, and are too many.
    Unreached(NodeSet),
    /// These masters have no marker, and are too many.
    Unmarked(NodeSet),
    /// Such clients are connected.
    Connected(ClientGroup),
    /// The masters are at a step from which this command does not lead on.
    WrongStep,
}

impl View<'_> {
    fn which(&self, is: impl Fn(MasterStep) -> bool) -> NodeSet {
        NodeSet::which(self.steps, |step| is(*step))
    }

    /// The masters at one of these steps.
    pub(crate) fn at(&self, steps: impl Fn(usize) -> bool) -> NodeSet {
        self.which(|it| matches!(it, MasterStep::At(step) if steps(step)))
    }

    pub(crate) fn unreached(&self) -> NodeSet {
        self.which(|it| it == MasterStep::Unreached)
    }

    pub(crate) fn unmarked(&self) -> NodeSet {
        self.which(|it| it == MasterStep::Unmarked)
    }

    /// The masters that are new and not old.
    pub(crate) fn only_new(&self) -> NodeSet {
        let [old, new] = self.sides;
        new.masters().without(old.masters())
    }

    fn is_connected(&self, group: ClientGroup) -> bool {
        ClientGroup::ALL.iter().zip(self.connected).any(|(it, connected)| *it == group && connected)
    }

    /// Refuses if the masters that can be read are no quorum of each shard of `needed`.
    fn need_reached(&self, needed: &Side) -> Result<(), Refusal> {
        let unreached = self.unreached();
        match needed.every_is_in(needed.masters().without(unreached)) {
            true => Ok(()),
            false => Err(Refusal::Unreached(unreached.and(needed.masters()))),
        }
    }

    fn need_both_reached(&self) -> Result<(), Refusal> {
        self.sides.iter().try_for_each(|side| self.need_reached(side))
    }

    /// Refuses if the masters whose step is not known contain a quorum of a shard of `side`,
    /// whatever this command writes on the others.
    fn need_known(&self, side: &Side) -> Result<(), Refusal> {
        let (unreached, unmarked, of) = (self.unreached(), self.unmarked(), side.masters());
        if !side.any_is_in(unreached.or(unmarked)) {
            Ok(())
        } else if unmarked.and(of).is_empty() {
            Err(Refusal::Unreached(unreached.and(of)))
        } else {
            Err(Refusal::Unmarked(unmarked.and(of)))
        }
    }

    /// Refuses if clients that move have no quorum that admits them.
    fn need_moving(&self) -> Result<(), Refusal> {
        let admit = self.at(|step| (1..=3).contains(&step));
        if self.are_both_in(admit) {
            return Ok(());
        }
        // Marked by clients after a quarantine, the others may be enough.
        let unmarked = self.unmarked();
        match self.are_both_in(admit.or(unmarked)) {
            true => Err(Refusal::Unmarked(unmarked)),
            false => Err(Refusal::WrongStep),
        }
    }

    /// Whether clients that move can have all leases from these masters.
    pub(crate) fn are_both_in(&self, set: NodeSet) -> bool {
        self.sides.iter().all(|side| side.every_is_in(set))
    }

    fn need_gone(&self, group: ClientGroup) -> Result<(), Refusal> {
        if self.is_connected(group) { Err(Refusal::Connected(group)) } else { Ok(()) }
    }
}

/// What a command does next.
pub(crate) fn next(goal: Goal, view: &View<'_>) -> Next {
    let next = match goal {
        Goal::Begin => begin(view),
        Goal::Switch => switch(view),
        Goal::Finish => finish(view),
        Goal::BackToFirst => back_to_first(view),
        Goal::BackToStart => back_to_start(view),
    };
    next.unwrap_or_else(Next::Refuse)
}

fn begin(view: &View<'_>) -> Result<Next, Refusal> {
    let [old, _] = view.sides;
    view.need_both_reached()?;
    if !view.at(|step| step >= 3).is_empty() || old.any_is_in(view.at(|step| step >= 2)) {
        return Err(Refusal::WrongStep);
    }
    let start = view.at(|step| step == 0);
    let unknown = view.unreached().or(view.unmarked());
    // While no quorum of the old masters can have admitted a client that moves, none has a lease
    // that a new master may have forgotten. New masters come first: once the old ones admit such
    // clients, an unmarked master is one that lost its data, and clients watch it for a quarantine.
    let fresh = view.unmarked().and(view.only_new());
    if !fresh.is_empty() && !old.any_is_in(view.at(|step| step >= 1).or(unknown)) {
        return Ok(Next::Write(fresh, Some(1)));
    }
    if !old.every_is_in(view.at(|step| step <= 2)) {
        return Err(Refusal::Unmarked(view.unmarked().and(old.masters())));
    }
    Ok(if start.is_empty() { Next::Done } else { Next::Write(start, Some(1)) })
}

/// A way across step 2, which admits neither the clients of the old masters nor those of the new
/// ones.
struct Crossing<'a> {
    /// The masters whose clients are admitted no more.
    closes: &'a Side,
    /// These clients.
    group: ClientGroup,
    /// Whether a step admits them.
    admits: fn(usize) -> bool,
    /// The step behind it.
    to: usize,
}

fn cross(
    view: &View<'_>,
    Crossing { closes, group, admits, to }: Crossing<'_>,
) -> Result<Next, Refusal> {
    view.need_both_reached()?;
    view.need_moving()?;
    view.need_known(closes)?;
    let open = view.at(admits);
    if !open.is_empty() {
        view.need_gone(group)?;
        return Ok(Next::Write(open, Some(2)));
    }
    let between = view.at(|step| step == 2);
    if between.is_empty() {
        return Ok(Next::Done);
    }
    // The clients may have a lease that a quorum granted a moment ago. It does not show whether a
    // master came to step 2 from above or from below.
    let closed = view.at(|step| !admits(step)).and(view.steady);
    if closes.any_is_in(closes.masters().without(closed)) {
        return Ok(Next::Wait);
    }
    Ok(Next::Write(between, Some(to)))
}

fn switch(view: &View<'_>) -> Result<Next, Refusal> {
    let [closes, _] = view.sides;
    cross(view, Crossing { closes, group: ClientGroup::Old, admits: |step| step <= 1, to: 3 })
}

fn back_to_first(view: &View<'_>) -> Result<Next, Refusal> {
    let [_, closes] = view.sides;
    cross(view, Crossing { closes, group: ClientGroup::New, admits: |step| step >= 3, to: 1 })
}

fn finish(view: &View<'_>) -> Result<Next, Refusal> {
    let [old, new] = view.sides;
    // The old masters may be gone already.
    view.need_reached(new)?;
    if !new.every_is_in(view.at(|step| step >= 3)) || old.any_is_in(view.at(|step| step <= 1)) {
        return Err(Refusal::WrongStep);
    }
    // Also on the masters that are only old: no client that is late finds one that admits it, and
    // a later move that has such a master finds there the marker with which it begins.
    let rest = view.at(|step| step <= 3);
    if rest.is_empty() {
        return Ok(Next::Done);
    }
    view.need_gone(ClientGroup::Moving)?;
    Ok(Next::Write(rest, Some(4)))
}

fn back_to_start(view: &View<'_>) -> Result<Next, Refusal> {
    let [old, new] = view.sides;
    // The new masters may be gone: this may be why the move is taken back.
    view.need_reached(old)?;
    if !old.every_is_in(view.at(|step| step <= 1)) {
        return Err(match view.at(|step| step >= 2).is_empty() {
            true => Refusal::Unmarked(view.unmarked().and(old.masters())),
            false => Refusal::WrongStep,
        });
    }
    if new.any_is_in(view.at(|step| step >= 3)) {
        return Err(Refusal::WrongStep);
    }
    // Clients of the old masters have their quorums already, so no master adds one.
    let first = view.at(|step| step >= 1).and(old.masters());
    if !first.is_empty() {
        view.need_gone(ClientGroup::Moving)?;
        return Ok(Next::Write(first, Some(0)));
    }
    // Once no quorum of the old masters admits clients that move.
    let fresh = view.at(|_| true).and(view.only_new());
    Ok(if fresh.is_empty() { Next::Done } else { Next::Write(fresh, None) })
}

#[cfg(test)]
mod tests;
