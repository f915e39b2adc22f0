//! Positions: the positions of an acquire in the masters' queues.
//!
//! Each master keeps a queue of waiters for each resource. It wakes the first of them when the
//! resource becomes free there. A waiter that was refused enqueues behind the others, and may
//! attempt at any time.
//!
//! **Fair queue.** The first attempt of a fair acquire is refused by each master in whose queue a
//! waiter is. If it fails, the acquire enqueues. From then on it attempts only when it is first in
//! the queues of a quorum and the resource is free there. A process that has just released the
//! resource while others waited enqueues without that first attempt.
//!
//! Masters may give different positions to waiters that come at the same time, so that none would
//! be first. So a fair waiter asks all masters for the largest position that any of them gave it,
//! until a quorum keeps it there. From then on, its position is *fixed* and does not change. A
//! waiter that asks later asks at least one master that knows the fixed position, and gets a
//! larger one: a master puts a waiter that it does not know behind its last waiter. So each other
//! process overtakes such a waiter at most once.
//!
//! A waiter that is gone blocks no other: masters drop it when they cannot wake it, and a position
//! lapses unless the waiter asks for it again. A first waiter that is not granted because it
//! reaches no quorum moves to the tail. A waiter that cannot ask a quorum for its position lets
//! others pass. Where masters forbid queues, an acquire goes on without them.

use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use super::{Acquire, Context, Failure, State};
use crate::effect::{Effect, Rng, RoundId};
use crate::quorum::{NodeId, NodeSet, Quorum};
use crate::time::Time;
use crate::vote::{Cause, Reply, Votes};
use crate::waiter::{Position, WaiterId};

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Positions {
    pub(super) waiter_id: WaiterId,
    /// The largest position that any master gave it.
    number: u64,
    places: Vec<Place>,
    /// The number of the latest round of position requests, counted from 1.
    round: u32,
    /// The first round since it gave up its positions. Replies to earlier ones are about those.
    first_round: u32,
    /// How many rounds followed each other without a pause.
    at_once: u32,
    /// Whether masters may keep a position for it.
    is_enqueued: bool,
    /// Whether a quorum has kept it at its position.
    fixed: bool,
}

/// What a master said about its position there.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
struct Place {
    /// The number that the master gave it; 0 for none. The master keeps it, also while it is
    /// silent.
    number: u64,
    /// How many waiters are before it, if the master has just said so.
    ahead: Option<u64>,
}

/// The most rounds without a pause, while positions differ: others ask at the same time.
const AT_ONCE: u32 = 3;

/// The longest round: positions lapse while it waits for a silent master.
const ROUND: Duration = Duration::from_secs(1);

impl Positions {
    fn new(waiter_id: WaiterId, nodes: usize) -> Self {
        Self {
            waiter_id,
            number: 0,
            places: vec![Place::default(); nodes],
            round: 0,
            first_round: 1,
            at_once: 0,
            is_enqueued: false,
            fixed: false,
        }
    }

    fn replied(&mut self, node: NodeId, reply: &Reply, quorum: Quorum) {
        self.places[node.index()].ahead = match *reply {
            Reply::Place { number, ahead, .. } => {
                self.keeps(node, number, quorum);
                Some(ahead)
            }
            _ => None,
        };
    }

    /// A master keeps it at a position, says a reply of this round or of an earlier one.
    fn keeps(&mut self, node: NodeId, number: u64, quorum: Quorum) {
        self.places[node.index()].number = number;
        // A fixed position stays: a master that was asked late already knows later waiters.
        if !self.fixed {
            self.number = self.number.max(number);
            self.fixed = quorum.is_in(self.which(|place| place.number == self.number));
        }
    }

    /// Drops all positions. Replies that are still on their way are about the old ones.
    fn vacate(&mut self) {
        self.places.fill(Place::default());
        self.round = self.round.wrapping_add(1);
        self.first_round = self.round.wrapping_add(1);
    }

    /// Ends a series of rounds without a pause.
    pub(super) const fn rest(&mut self) {
        self.at_once = 0;
    }

    pub(super) fn knows(&self, node: NodeId) -> bool {
        self.places[node.index()].ahead.is_some()
    }

    pub(super) fn is_first(&self, node: NodeId) -> bool {
        self.places[node.index()].ahead == Some(0)
    }

    fn first(&self) -> NodeSet {
        self.which(|place| place.ahead == Some(0))
    }

    /// The masters on which other waiters are before it.
    pub(super) fn behind(&self) -> NodeSet {
        self.which(|place| place.ahead.is_some_and(|ahead| ahead > 0))
    }

    fn known(&self) -> NodeSet {
        self.which(|place| place.ahead.is_some())
    }

    fn agrees(&self) -> bool {
        self.which(|place| place.ahead.is_some() && place.number != self.number).is_empty()
    }

    fn which(&self, what: impl Fn(&Place) -> bool) -> NodeSet {
        NodeSet::which(&self.places, what)
    }
}

impl Acquire {
    /// Gets a waiter id, if it may use queues and has none yet.
    pub(super) fn enter(&mut self, rng: &mut dyn Rng) {
        if self.positions.is_none() && (self.fair || self.wait.wants) {
            let id = WaiterId::new(rng.random());
            let id = if self.config.is_shared() { id.shared() } else { id };
            self.positions = Some(Positions::new(id, self.config.nodes()));
        }
    }

    pub(super) fn enqueue_first(&mut self, cx: &mut Context<'_>) {
        self.enter(cx.rng);
        self.wait.watch.open(self.config.nodes());
        self.subscribe(cx.out);
        self.enqueue(cx.now, cx.out);
    }

    /// Starts a round that asks all masters for its positions. It decides once all have replied,
    /// unless a quorum lets it attempt before.
    pub(super) fn enqueue(&mut self, now: Time, out: &mut Vec<Effect>) {
        self.votes = Votes::open(self.config.nodes(), now);
        self.enqueues = true;
        self.certification = None;
        self.wait.hint = Time::NEVER;
        self.state = State::Enqueueing;
        self.look(out);
    }

    pub(super) fn look(&mut self, out: &mut Vec<Effect>) {
        let Some(positions) = &mut self.positions else { return };
        positions.round = positions.round.wrapping_add(1);
        positions.at_once += 1;
        NodeId::all(self.config.nodes()).for_each(|node| self.enqueue_at(node, out));
    }

    /// Asks one master for its position, as a part of the latest round.
    pub(super) fn enqueue_at(&mut self, node: NodeId, out: &mut Vec<Effect>) {
        // The position of a waiter that is not woken would only block others.
        let useless = !self.fair && self.wait.refused.contains(node);
        let Some(positions) = self.positions.as_mut().filter(|_| !useless) else { return };
        positions.is_enqueued = true;
        let (step, waiter_id) = (RoundId::Enqueue(positions.round), positions.waiter_id);
        let position = match positions.number {
            _ if !self.fair => Position::Any,
            0 => Position::Last,
            number if positions.fixed => Position::At(number),
            number => Position::NotBefore(number),
        };
        out.push(Effect::Enqueue { node, step, waiter_id, position });
    }

    pub(super) fn enqueueing_ends(&self) -> Time {
        self.votes.opened().plus(self.config.node_timeout().min(ROUND))
    }

    /// Whether its position is fixed, and other waiters are before it on too many masters for an
    /// attempt: it only waits for a master to wake it.
    pub(super) fn is_behind(&self) -> bool {
        let quorum = self.config.quorum();
        let is_behind = |it: &Positions| it.fixed && it.agrees() && !quorum.is_in(it.first());
        self.positions.as_ref().is_some_and(is_behind)
    }

    pub(super) fn placed(
        &mut self,
        (round, node): (u32, NodeId),
        reply: Reply,
        cx: &mut Context<'_>,
    ) {
        let quorum = self.config.quorum();
        let Some(positions) = &mut self.positions else { return };
        if positions.round != round {
            if let Reply::Place { number, .. } = reply
                && (positions.first_round..positions.round).contains(&round)
            {
                positions.keeps(node, number, quorum);
            }
            return;
        }
        self.note_place(cx.now, node, &reply);
        match self.state {
            State::Enqueueing => {
                self.votes.record(cx.now, node, reply);
                self.decide_position(cx);
            }
            State::Waiting if self.fair => {
                self.note_unused(&reply, cx);
                let went = self.go_if_first(cx);
                let positions = self.positions.as_ref().filter(|_| !went);
                if positions.is_some_and(|positions| positions.is_first(node))
                    && self.is_free_at(node)
                {
                    // A wake-up was lost, or the waiter before it is gone: ask all masters.
                    self.hint(cx.now, cx.out);
                }
            }
            State::Waiting => self.looked(node, &reply, cx),
            _ => {}
        }
    }

    /// Ends the round for masters that have not replied.
    pub(super) fn close_round(&mut self, cx: &mut Context<'_>) {
        let awaited = self.votes.awaited();
        for node in awaited.iter() {
            self.note_place(cx.now, node, &Reply::Unknown(Cause::Silent));
        }
        self.votes.close(cx.now);
        self.decide_position(cx);
    }

    fn note_place(&mut self, now: Time, node: NodeId, reply: &Reply) {
        if let Some(positions) = &mut self.positions {
            positions.replied(node, reply, self.config.quorum());
        }
        self.wait.watch.looked(now, node, reply);
    }

    fn is_free_at(&self, node: NodeId) -> bool {
        self.wait.watch.free().contains(node)
    }

    /// Attempts if it is first, and the resource is free, on a quorum. Returns whether it does.
    fn go_if_first(&mut self, cx: &mut Context<'_>) -> bool {
        let asks = matches!(self.state, State::Enqueueing | State::Waiting);
        let Some(positions) = self.positions.as_mut().filter(|_| asks) else { return false };
        let goes = self.config.quorum().is_in(positions.first().and(self.wait.watch.free()));
        if goes {
            self.again(None, cx);
        }
        goes
    }

    fn decide_position(&mut self, cx: &mut Context<'_>) {
        if self.go_if_first(cx) || !self.votes.awaited().is_empty() {
            return;
        }
        let Some(positions) = &mut self.positions else { return };
        let (known, quorum) = (positions.known(), self.config.quorum());
        let is_known = quorum.is_in(known);
        let forbidden = self.votes.which(|reply| *reply == Reply::NoQueue);
        let again = !positions.agrees() && positions.at_once < AT_ONCE;
        let in_the_way = !is_known && !positions.first().is_empty();
        // No queue has others before it, and votes may reach a quorum where queues cannot.
        let is_first = positions.first().and(self.wait.watch.free()) == known;
        if quorum.is_blocked_by(forbidden) {
            // No quorum will ever keep its position.
            self.do_without_queues(cx.out);
            self.again(None, cx);
        } else if !forbidden.is_empty()
            && !is_known
            && quorum.is_in(known.or(forbidden))
            && is_first
        {
            self.again(None, cx);
        } else if cx.now >= self.give_up || self.is_shut_down() {
            self.end(if is_known { Failure::Taken } else { Failure::NoQuorum }, cx.out);
        } else if is_known && again {
            self.enqueue(cx.now, cx.out);
        } else {
            self.latest = Some(if is_known { Failure::Taken } else { Failure::NoQuorum });
            self.wait.count_silence(&self.votes, quorum);
            if in_the_way {
                // Even if it were woken, it could not attempt, but the waiters behind it may. It
                // asks for new positions some time later.
                self.leave_queues(true, cx.out);
            }
            self.sleep(cx);
        }
    }

    /// Masters forbid queues: the acquire goes on with repeated attempts alone.
    pub(super) fn do_without_queues(&mut self, out: &mut Vec<Effect>) {
        self.leave_queues(true, out);
        (self.fair, self.positions, self.wait.wants) = (false, None, false);
    }

    /// Gives up its positions, and enqueues at the tail later. It was first and the resource was
    /// free, but it was not granted; other waiters may reach the masters better.
    pub(super) fn move_to_tail(&mut self, out: &mut Vec<Effect>) {
        self.leave_queues(true, out);
        if let Some(positions) = &mut self.positions {
            (positions.number, positions.fixed) = (0, false);
        }
    }

    /// The caller does not respond: others go first. An attempt is undone as if it had been
    /// cancelled. The acquire goes on, with another attempt, when its timer wakes it.
    pub(crate) fn yield_turn(&mut self, cx: &mut Context<'_>) {
        match self.state {
            State::Waiting | State::Enqueueing => {}
            State::Voting | State::Certifying => {
                // Others may have seen its keys, so a waiter is woken.
                self.clean_up(true, cx.out);
                if self.fair {
                    // From now on it attempts only when it is first in the queues.
                    self.enter(cx.rng);
                }
            }
            State::Explaining(_) => return self.end(Failure::Taken, cx.out),
            // The client ends a won lease by its own timer.
            State::Won | State::Failed(_) => return,
        }
        self.move_to_tail(cx.out);
        self.wait.resume(self.config.nodes());
        self.state = State::Waiting;
        debug_assert!(self.is_at_rest(), "{self:?}");
        // The caller sleeps until the end of the round, and the next wake is earlier.
        cx.out.push(Effect::Decided);
    }

    /// Whether masters keep nothing of it: no key without a clean-up, and no position.
    pub(crate) fn is_at_rest(&self) -> bool {
        match self.state {
            State::Failed(_) => true,
            State::Waiting => self.waiter().is_none(),
            _ => false,
        }
    }

    /// A master woke this waiter: the resource is free there, and the waiter is first in its queue.
    pub(super) fn woken(&mut self, (node, waiter_id): (NodeId, WaiterId), cx: &mut Context<'_>) {
        let Some(positions) =
            self.positions.as_mut().filter(|positions| positions.waiter_id == waiter_id)
        else {
            return;
        };
        if positions.knows(node) {
            positions.places[node.index()].ahead = Some(0);
            self.wait.woken_by.insert(node);
            if self.fair {
                self.wait.watch.freed(node);
                if !self.go_if_first(cx) && self.state == State::Waiting {
                    self.hint(cx.now, cx.out);
                }
            } else if self.state == State::Waiting && self.wait.has_looked(node) {
                self.wait.watch.freed(node);
                self.is_free(cx);
            }
        }
    }

    /// Leaves the queues, if it is in any. With `wake`, a master where the resource is free wakes
    /// its first waiter.
    pub(super) fn leave_queues(&mut self, wake: bool, out: &mut Vec<Effect>) {
        if let Some(waiter_id) = self.vacate() {
            let nodes = NodeId::all(self.config.nodes());
            out.extend(nodes.map(|node| Effect::Dequeue { node, waiter_id, wake }));
        }
    }

    /// Marks the acquire as in no queue. Returns the waiter id that masters may still know.
    pub(super) fn vacate(&mut self) -> Option<WaiterId> {
        let waiter = self.waiter();
        if let Some(positions) = self.positions.as_mut().filter(|positions| positions.is_enqueued) {
            positions.is_enqueued = false;
            positions.vacate();
        }
        waiter
    }

    /// The waiter id of the acquire, if masters may keep a position for it.
    pub fn waiter(&self) -> Option<WaiterId> {
        self.positions.as_ref().filter(|positions| positions.is_enqueued).map(|it| it.waiter_id)
    }
}
