//! One claim, its effects, and the parts of the oracle: products and orders.

use std::sync::Arc;
use std::time::Duration;

use redquorum_protocol::{
    Acquire, Cause, Claim, Drift, Effect, Extension, Holder, Input, LockConfig, Loss, NodeId,
    Outcome, QueueEvent, Reply, RoundId, Time, Turn, VoteRequest, WaitPolicy, WaiterId, WakeUp,
};
pub(crate) use redquorum_protocol::{Hold, Reply::*, RoundId::*};

use crate::support::Count;
pub(crate) use crate::support::{MS, token};

pub(crate) const START: Time = Time::from_millis(1_000);
pub(crate) const ONCE: WaitPolicy = WaitPolicy {
    wait: Duration::ZERO,
    explain: false,
    wake_ups: false,
    fair: false,
    turn: Turn::First,
};
pub(crate) const TAKEN: Reply = Taken(Holder::NotAsked);
pub(crate) const ALL: [usize; 5] = [0, 1, 2, 3, 4];
/// The first waiter of each claim.
pub(crate) const WAITER: WaiterId = WaiterId::new(0);

/// The outcome of one command on one master.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum CommandOutcome {
    Grants,
    Refuses,
    Error,
    Never,
    Late,
}
pub(crate) use CommandOutcome::{Error, Grants, Late, Never, Refuses};

/// All combinations of these for `masters` masters.
pub(crate) fn combinations<T: Copy>(kinds: &[T], masters: usize) -> impl Iterator<Item = Vec<T>> {
    let power = |at: usize| kinds.len().pow(u32::try_from(at).unwrap());
    let of = move |number| (0..masters).map(|at| kinds[number / power(at) % kinds.len()]).collect();
    (0..power(masters)).map(of)
}

pub(crate) fn product(masters: usize) -> impl Iterator<Item = Vec<CommandOutcome>> {
    combinations(&[Grants, Refuses, Error, Never, Late], masters)
}

/// All orders in which the replies that come in time can arrive.
pub(crate) fn orders(outcomes: &[CommandOutcome]) -> Vec<Vec<usize>> {
    fn grow(rest: &[usize], so_far: &mut Vec<usize>, all: &mut Vec<Vec<usize>>) {
        if rest.is_empty() {
            all.push(so_far.clone());
        }
        for (at, master) in rest.iter().enumerate() {
            so_far.push(*master);
            grow(&[&rest[..at], &rest[at + 1..]].concat(), so_far, all);
            so_far.pop();
        }
    }
    let in_time: Vec<usize> =
        (0..outcomes.len()).filter(|at| !matches!(outcomes[*at], Never | Late)).collect();
    let mut all = Vec::new();
    grow(&in_time, &mut Vec::new(), &mut all);
    all
}

pub(crate) fn late(outcomes: &[CommandOutcome]) -> impl Iterator<Item = usize> {
    (0..outcomes.len()).filter(|at| outcomes[*at] == Late)
}

/// The values in the effects with this pattern, since the last look.
macro_rules! found {
    ($play:expr, $pattern:pat => $value:expr) => {
        $play
            .effects
            .iter()
            .filter_map(|effect| if let $pattern = effect { Some($value) } else { None })
            .collect::<Vec<_>>()
    };
}
pub(crate) use found;

/// One claim and all its effects. Tokens count up, and pauses are 5 ms.
#[derive(Clone)]
pub(crate) struct Play {
    pub(crate) claim: Claim,
    pub(crate) rng: Count,
    pub(crate) effects: Vec<Effect>,
    pub(crate) now: Time,
}

impl Play {
    pub(crate) fn acquire(masters: usize, policy: WaitPolicy) -> Self {
        Self::acquire_on(config(masters), policy)
    }

    pub(crate) fn acquire_fenced(masters: usize) -> Self {
        Self::acquire_on(config(masters).with_fencing(60_000 * MS).unwrap(), ONCE)
    }

    pub(crate) fn acquire_on(config: LockConfig, policy: WaitPolicy) -> Self {
        Self::acquire_by(Count::new(5 * MS), config, policy)
    }

    pub(crate) fn acquire_by(mut rng: Count, config: LockConfig, policy: WaitPolicy) -> Self {
        let mut effects = Vec::new();
        let claim = Claim::acquire(START, config, policy, &mut rng, &mut effects);
        Self { claim, rng, effects, now: START }
    }

    /// A collected lease whose masters had these outcomes.
    pub(crate) fn hold(outcomes: &[CommandOutcome]) -> Self {
        Self::hold_on(config(outcomes.len()), outcomes)
    }

    pub(crate) fn hold_on(config: LockConfig, outcomes: &[CommandOutcome]) -> Self {
        let mut play = Self::acquire_on(config, ONCE);
        (0..outcomes.len()).for_each(|at| play.reply(Attempt(1), at, vote(outcomes[at], at)));
        play.handle(Input::Collect);
        play.held();
        play.effects.clear();
        play
    }

    /// A copy that starts without effects.
    pub(crate) fn fork(&self) -> Self {
        Self { effects: Vec::new(), ..self.clone() }
    }

    pub(crate) fn handle(&mut self, input: Input) {
        self.claim.handle(self.now, input, &mut self.rng, &mut self.effects);
    }

    pub(crate) fn reply(&mut self, step: RoundId, at: usize, reply: Option<Reply>) {
        if let Some(reply) = reply {
            self.handle(Input::Replied { node: NodeId::new(at), step, reply });
        }
    }

    /// These masters give the same reply.
    pub(crate) fn reply_all(
        &mut self,
        step: RoundId,
        masters: impl IntoIterator<Item = usize>,
        reply: Reply,
    ) {
        masters.into_iter().for_each(|at| self.reply(step, at, Some(reply.clone())));
    }

    /// The links of these masters report the same event.
    pub(crate) fn event(&mut self, masters: impl IntoIterator<Item = usize>, event: QueueEvent) {
        let events = masters.into_iter().map(NodeId::new);
        events.for_each(|node| self.handle(Input::QueueEvent { node, event }));
    }

    /// These masters wake the waiter.
    pub(crate) fn woken(&mut self, masters: impl IntoIterator<Item = usize>) {
        self.event(masters, QueueEvent::Free(WAITER));
    }

    pub(crate) fn wake_at(&mut self, time: Time) {
        self.now = time;
        self.handle(Input::Wake);
    }

    /// Wakes the claim when it asks for it.
    pub(crate) fn wake(&mut self) {
        self.wake_at(self.claim.next_wake());
    }

    /// How often each master received the clean-up of the token with this number.
    pub(crate) fn cleaned_up(&self, masters: usize, number: u64) -> Vec<usize> {
        let clean_ups = found!(self, Effect::CleanUp { node, token, .. } => (*node, *token));
        let count = |node| clean_ups.iter().filter(|it| **it == (node, token(number))).count();
        NodeId::all(masters).map(count).collect()
    }

    /// The masters that clean up, and the waiter that each of them wakes.
    pub(crate) fn cleans_up(&self) -> Vec<(usize, WakeUp)> {
        found!(self, Effect::CleanUp { node, wake_up, .. } => (node.index(), *wake_up))
    }

    /// The waiter that leaves the queue of each master with the clean-up there.
    pub(crate) fn left_with(&self) -> Vec<Option<WaiterId>> {
        found!(self, Effect::CleanUp { leave, .. } => *leave)
    }

    /// The masters whose queues the waiter leaves, and whether they wake the next waiter.
    pub(crate) fn leaves(&self) -> Vec<(usize, bool)> {
        found!(self, Effect::Dequeue { node, wake, .. } => (node.index(), *wake))
    }

    /// The time until which each master leaves the key alone: one effect for each master.
    pub(crate) fn left(&self) -> Vec<Time> {
        found!(self, Effect::Leave { until, .. } => *until)
    }

    pub(crate) fn asked(&self) -> Vec<(usize, VoteRequest)> {
        found!(self, Effect::Send { node, request, .. } => (node.index(), *request))
    }

    /// The masters that received a request for the key since the last look.
    pub(crate) fn asks(&mut self) -> Vec<usize> {
        let asked = self.asked().into_iter().map(|(at, _)| at).collect();
        self.effects.clear();
        asked
    }

    /// `Some(won)` once the acquire is decided.
    pub(crate) fn verdict(&self) -> Option<bool> {
        let acquire = self.acquiring();
        if acquire.is_won() { Some(true) } else { acquire.failure().map(|_| false) }
    }

    pub(crate) fn acquiring(&self) -> &Acquire {
        let Claim::Acquiring(acquire) = &self.claim else { panic!("{:?}", self.claim) };
        acquire
    }

    pub(crate) fn held(&self) -> &Hold {
        let Claim::Holding(hold) = &self.claim else { panic!("{:?}", self.claim) };
        hold
    }

    pub(crate) fn outcome(&self) -> Option<Outcome> {
        let Claim::Releasing(release) = &self.claim else { panic!("{:?}", self.claim) };
        release.outcome()
    }

    pub(crate) fn extension(&self) -> Extension {
        self.held().extension().1
    }

    pub(crate) fn deadline(&self) -> Time {
        self.held().deadline()
    }

    pub(crate) fn lost(&self) -> Option<Loss> {
        self.held().lost()
    }
}

pub(crate) fn config(masters: usize) -> LockConfig {
    LockConfig::new(masters, 1_000 * MS, Drift::default(), 50 * MS).unwrap()
}

pub(crate) fn unknown(at: usize) -> Reply {
    let causes = [Cause::Error(Arc::from("ERR")), Cause::Disconnected, Cause::Stalled];
    Unknown(causes[at % 3].clone())
}

pub(crate) fn refusal(at: usize) -> Reply {
    if at.is_multiple_of(2) { Absent } else { Taken(Holder::NoExpiry) }
}

fn reply_of(outcomes: CommandOutcome, at: usize, grants: Reply, refuses: Reply) -> Option<Reply> {
    match outcomes {
        Grants | Late => Some(grants),
        Refuses => Some(refuses),
        Error => Some(unknown(at)),
        Never => None,
    }
}

pub(crate) fn vote(outcomes: CommandOutcome, at: usize) -> Option<Reply> {
    reply_of(outcomes, at, Created, TAKEN)
}

/// The reply to a `Keep`: a master with the key keeps it, another one may have repaired it.
pub(crate) fn kept(outcomes: CommandOutcome, at: usize, member: bool) -> Option<Reply> {
    let grants = if member || at.is_multiple_of(2) { Kept } else { Created };
    reply_of(outcomes, at, grants, refusal(at))
}

/// The reply to a command that compares the key first.
pub(crate) fn compared(outcomes: CommandOutcome, at: usize, grants: Reply) -> Option<Reply> {
    reply_of(outcomes, at, grants, refusal(at))
}

pub(crate) fn count(
    outcomes: &[CommandOutcome],
    received: &[usize],
    what: &[CommandOutcome],
) -> usize {
    received.iter().filter(|at| what.contains(&outcomes[**at])).count()
}

/// The verdict, if all possible replies of `awaited` masters agree on it.
pub(crate) fn stands(yes: usize, awaited: usize, masters: usize) -> Option<bool> {
    let majority = |yes: usize| 2 * yes > masters;
    let ways: Vec<bool> = (0..=awaited).map(|more| majority(yes + more)).collect();
    ways.iter().all(|way| *way == ways[0]).then_some(ways[0])
}
