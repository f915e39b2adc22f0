//! Line: the positions of an acquire in the masters' queues.
//!
//! Each master keeps a queue of waiters for each resource, and wakes the first of them when the resource becomes
//! free there. A waiter that was refused enqueues behind the others, and may attempt whenever it likes.
//!
//! **Fair.** An acquire that is fair enqueues before it attempts. It attempts only when it is first in the queues
//! of a quorum and the resource is free there.
//!
//! Masters may give different positions to waiters that come at the same time, so that none would be first. So a
//! fair waiter carries the largest position that it was given to all of them, until a quorum keeps it there: from then
//! on its position is settled and does not change. A waiter that asks after that asks at least one master that knows
//! this position, and gets a larger one: a master gives no position before its last waiter to one that it does
//! not know. So each other process overtakes a settled waiter once at most.
//!
//! A waiter that is gone blocks none: masters drop it when they cannot wake it, and a position lapses unless it is
//! asked for again. A waiter that is first and is not granted because it finds no quorum goes to the end; one that
//! cannot ask a quorum for its position lets others pass. Where masters forbid queues, there is none.

use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use super::{Acquire, Failure, State};
use crate::effect::{Dice, Effect, Step};
use crate::quorum::{NodeId, NodeSet};
use crate::ticket::{Spot, Ticket};
use crate::time::Time;
use crate::vote::{Answer, Ballot, Cause};

/// What is known of the queues.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Line {
    ticket: Ticket,
    /// The largest position that any master gave it.
    number: u64,
    /// What each master said last.
    places: Vec<Option<Place>>,
    /// The round of asking, counted from 1.
    round: u32,
    /// So many followed each other without a pause.
    at_once: u32,
    /// Masters may keep a position.
    stands: bool,
    /// A quorum has kept it at its position.
    settled: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Place {
    number: u64,
    ahead: u64,
}

/// So many rounds follow each other without a pause, while positions differ: others ask at the same time.
const AT_ONCE: u32 = 3;

/// The longest round: positions lapse while a silent master is waited for.
const ROUND: Duration = Duration::from_secs(1);

impl Line {
    fn new(ticket: Ticket, nodes: usize) -> Self {
        let places = vec![None; nodes];
        Self { ticket, number: 0, places, round: 0, at_once: 0, stands: false, settled: false }
    }

    fn heard(&mut self, node: NodeId, answer: &Answer, quorum: usize) {
        self.places[node.index()] = match *answer {
            Answer::Place { number, ahead, .. } => {
                // Not once it is settled: a master that was slow to be asked knows of later waiters.
                if !self.settled {
                    self.number = self.number.max(number);
                }
                Some(Place { number, ahead })
            }
            _ => None,
        };
        let keeps = |place: &&Place| place.number == self.number;
        self.settled |= self.places.iter().flatten().filter(keeps).count() >= quorum;
    }

    /// It has no positions. What is still on its way is about the ones that it had.
    fn vacate(&mut self) {
        self.places.fill(None);
        self.round = self.round.wrapping_add(1);
    }

    /// No more is asked for now.
    pub(super) const fn rest(&mut self) {
        self.at_once = 0;
    }

    pub(super) const fn ticket(&self) -> Ticket {
        self.ticket
    }

    pub(super) fn knows(&self, node: NodeId) -> bool {
        self.places[node.index()].is_some()
    }

    pub(super) fn is_first(&self, node: NodeId) -> bool {
        self.places[node.index()].is_some_and(|place| place.ahead == 0)
    }

    /// The masters in whose queue it is first.
    fn first(&self) -> NodeSet {
        NodeId::all(self.places.len()).filter(|node| self.is_first(*node)).collect()
    }

    /// Whether it is settled, and others are before it on too many masters for it to go.
    fn is_behind(&self, quorum: usize) -> bool {
        self.settled && self.agrees() && self.first().len() < quorum
    }

    /// On how many masters other waiters are before it.
    pub(super) fn behind(&self) -> usize {
        self.places.iter().flatten().filter(|place| place.ahead > 0).count()
    }

    fn known(&self) -> usize {
        self.places.iter().flatten().count()
    }

    /// Whether all masters that keep a position keep it at the same number.
    fn agrees(&self) -> bool {
        self.places.iter().flatten().all(|place| place.number == self.number)
    }
}

impl Acquire {
    /// Gets a ticket, if it may use queues and has none yet.
    pub(super) fn enter(&mut self, dice: &mut dyn Dice) {
        if self.line.is_none() && (self.fair || self.wait.wants) {
            self.line = Some(Line::new(Ticket::new(dice.random()), self.terms.nodes()));
        }
    }

    /// Asks all masters for its positions, and decides nothing before they have answered.
    pub(super) fn stand(&mut self, now: Time, out: &mut Vec<Effect>) {
        self.ballot = Ballot::open(self.terms.nodes(), now);
        self.certification = None;
        self.wait.hint = Time::NEVER;
        self.state = State::Standing;
        self.look(out);
    }

    /// Asks all masters for its positions.
    pub(super) fn look(&mut self, out: &mut Vec<Effect>) {
        let Some(line) = &mut self.line else { return };
        line.round = line.round.wrapping_add(1);
        line.at_once += 1;
        NodeId::all(self.terms.nodes()).for_each(|node| self.stand_at(node, out));
    }

    /// Asks one master, as a part of the latest round.
    pub(super) fn stand_at(&mut self, node: NodeId, out: &mut Vec<Effect>) {
        // A position of a waiter that is not woken would only be in the way.
        let useless = !self.fair && self.wait.is_refused(node);
        let Some(line) = self.line.as_mut().filter(|_| !useless) else { return };
        line.stands = true;
        let (step, ticket) = (Step::Stand(line.round), line.ticket);
        let spot = match line.number {
            _ if !self.fair => Spot::Any,
            0 => Spot::Last,
            number if line.settled => Spot::At(number),
            number => Spot::NotBefore(number),
        };
        out.push(Effect::Stand { node, step, ticket, spot });
    }

    /// When the round is over, whatever has been answered.
    pub(super) fn standing_ends(&self) -> Time {
        self.ballot.opened().plus(self.terms.node_timeout().min(ROUND))
    }

    /// Whether there is nothing to do but to wait until a master wakes it: others are before it.
    fn is_behind(&self) -> bool {
        self.line.as_ref().is_some_and(|line| line.is_behind(self.terms.quorum()))
    }

    /// A master answered which position it has, in this round.
    pub(super) fn placed(
        &mut self,
        now: Time,
        (round, node): (u32, NodeId),
        answer: Answer,
        dice: &mut dyn Dice,
        out: &mut Vec<Effect>,
    ) {
        if self.line.as_ref().is_none_or(|line| line.round != round) {
            return;
        }
        self.note_place(now, node, &answer);
        match self.state {
            State::Standing => {
                self.ballot.record(now, node, answer);
                self.judge_place(now, dice, out);
            }
            State::Waiting if self.fair => {
                let went = self.go_if_first(now, dice, out);
                let line = self.line.as_ref().filter(|_| !went);
                if line.is_some_and(|line| line.is_first(node)) && self.is_free_at(node) {
                    // A wake-up was lost, or the waiter before it is gone: all masters are asked.
                    self.hint(now, out);
                }
            }
            State::Waiting => self.looked(now, node, &answer, dice, out),
            _ => {}
        }
    }

    /// Time is up for masters that have not answered.
    pub(super) fn close_round(&mut self, now: Time, dice: &mut dyn Dice, out: &mut Vec<Effect>) {
        let awaited = self.ballot.awaited();
        for node in NodeId::all(self.terms.nodes()).filter(|node| awaited.contains(*node)) {
            self.note_place(now, node, &Answer::Unknown(Cause::Silent));
        }
        self.ballot.close(now);
        self.judge_place(now, dice, out);
    }

    fn note_place(&mut self, now: Time, node: NodeId, answer: &Answer) {
        if let Some(line) = &mut self.line {
            line.heard(node, answer, self.terms.quorum());
        }
        self.wait.watch.looked(now, node, answer);
    }

    fn is_free_at(&self, node: NodeId) -> bool {
        self.wait.watch.free().contains(node)
    }

    /// Attempts if it is first, and the resource is free, on a quorum. Whether it does.
    fn go_if_first(&mut self, now: Time, dice: &mut dyn Dice, out: &mut Vec<Effect>) -> bool {
        let asks = matches!(self.state, State::Standing | State::Waiting);
        let Some(line) = self.line.as_mut().filter(|_| asks) else { return false };
        let goes = line.first().and(self.wait.watch.free()).len() >= self.terms.quorum();
        if goes {
            self.again(now, None, dice, out);
        }
        goes
    }

    fn judge_place(&mut self, now: Time, dice: &mut dyn Dice, out: &mut Vec<Effect>) {
        if self.go_if_first(now, dice, out) || !self.ballot.awaited().is_empty() {
            return;
        }
        let Some(line) = &mut self.line else { return };
        let (known, quorum) = (line.known(), self.terms.quorum());
        let forbidden = self.ballot.which(|answer| *answer == Answer::NoQueue).len();
        let again = !line.agrees() && line.at_once < AT_ONCE;
        let in_the_way = known < quorum && !line.first().is_empty();
        // No queue says that others are before it, and votes could have a quorum where queues cannot.
        let is_first = line.first().and(self.wait.watch.free()).len() == known;
        if forbidden > self.terms.nodes() - quorum {
            // No quorum will ever keep it.
            self.do_without_queues(out);
            self.again(now, None, dice, out);
        } else if forbidden > 0 && known < quorum && known + forbidden >= quorum && is_first {
            self.again(now, None, dice, out);
        } else if now >= self.give_up || self.is_shut_down() {
            self.end(if known < quorum { Failure::NoQuorum } else { Failure::Taken }, out);
        } else if known >= quorum && again {
            self.stand(now, out);
        } else {
            self.latest = Some(if known < quorum { Failure::NoQuorum } else { Failure::Taken });
            self.wait.count_silence(&self.ballot, quorum);
            if in_the_way {
                // It could not go if it were woken, and the waiters behind it may. It asks for new
                // positions some time later.
                self.step_out(true, out);
            }
            self.sleep(now, dice, out);
        }
    }

    /// Masters forbid queues: what remains is to try again and again.
    pub(super) fn do_without_queues(&mut self, out: &mut Vec<Effect>) {
        self.step_out(true, out);
        (self.fair, self.line, self.wait.wants) = (false, None, false);
    }

    /// It was first, and the resource was free, and yet it was not granted: others may be, whose way to the
    /// masters is better.
    pub(super) fn go_to_the_end(&mut self, out: &mut Vec<Effect>) {
        self.step_out(true, out);
        if let Some(line) = &mut self.line {
            (line.number, line.settled) = (0, false);
        }
    }

    /// The caller does not respond: others go first. It goes on as soon as it is woken by its timer.
    pub(crate) fn yield_turn(&mut self, out: &mut Vec<Effect>) {
        if matches!(self.state, State::Waiting | State::Standing) {
            self.go_to_the_end(out);
            self.wait.resume(self.terms.nodes());
            self.state = State::Waiting;
        }
    }

    /// The resource is free on this master, and this waiter is the first in its queue.
    pub(super) fn named(
        &mut self,
        now: Time,
        (node, ticket): (NodeId, Ticket),
        dice: &mut dyn Dice,
        out: &mut Vec<Effect>,
    ) {
        let Some(line) = self.line.as_mut().filter(|line| line.ticket == ticket) else { return };
        if let Some(place) = &mut line.places[node.index()] {
            place.ahead = 0;
            self.wait.named.insert(node);
            if self.fair {
                self.wait.watch.freed(node);
                if !self.go_if_first(now, dice, out) && self.state == State::Waiting {
                    self.hint(now, out);
                }
            } else if self.state == State::Waiting && self.wait.has_looked(node) {
                self.wait.watch.freed(node);
                self.is_free(now, dice, out);
            }
        }
    }

    /// When a fair waiter asks all masters again, unless it is woken.
    pub(super) fn stands_at(&self) -> Time {
        if !self.hears() {
            self.wait.pause
        } else if self.is_behind() {
            Time::NEVER
        } else {
            self.sleeps_until()
        }
    }

    /// Leaves the queues, if it is there; with `wake`, the first waiter is woken where the resource is free.
    pub(super) fn step_out(&mut self, wake: bool, out: &mut Vec<Effect>) {
        if let Some(ticket) = self.vacate() {
            let nodes = NodeId::all(self.terms.nodes());
            out.extend(nodes.map(|node| Effect::StepOut { node, ticket, call: wake }));
        }
    }

    /// It is in no queue from here on. What masters knew it by, for them to be told.
    pub(super) fn vacate(&mut self) -> Option<Ticket> {
        let waiter = self.waiter();
        if let Some(line) = self.line.as_mut().filter(|line| line.stands) {
            line.stands = false;
            line.vacate();
        }
        waiter
    }

    /// What masters know it by in their queues, if they may.
    pub fn waiter(&self) -> Option<Ticket> {
        self.line.as_ref().filter(|line| line.stands).map(Line::ticket)
    }
}
