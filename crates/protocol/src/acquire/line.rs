//! Line: the order of those who wait in different processes, where they agree to keep one.
//!
//! Each master keeps a line for each resource, and gives whoever asks a number behind all who stand there.
//! Who comes first in the lines of a quorum, and finds the resource free there, attempts; nobody else does.
//!
//! **Order.** Masters may give different numbers to those who ask at the same time, so that nobody
//! would come first. So a ticket carries the largest number that it was given to all of them, until a
//! quorum keeps it there: from then on it stands in line, and its number does not change. Whoever asks after
//! that asks at least one master that knows this number, and gets a larger one. So each other process
//! overtakes it once at most.
//!
//! **Nobody stands in the way.** A place lapses unless it is asked for again, so that a dead waiter is passed
//! over. Who wins, or gives up, leaves the line. Who comes first, and is not granted because it finds no
//! quorum, goes to its end; and who cannot ask a quorum for its place does not keep the others. Where masters
//! forbid to keep lines, there is none.

use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use super::{Acquire, Failure, State};
use crate::effect::{Call, Dice, Effect, Step};
use crate::quorum::{NodeId, NodeSet};
use crate::ticket::{Spot, Ticket};
use crate::time::Time;
use crate::vote::{Answer, Ballot, Cause};

/// What is known of the lines.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Line {
    ticket: Ticket,
    /// The largest number that any master gave it.
    number: u64,
    /// What each master said last.
    places: Vec<Option<Place>>,
    /// The round of asking, counted from 1.
    round: u32,
    /// So many followed each other without a pause.
    at_once: u32,
    /// Masters may keep a place.
    stands: bool,
    /// A quorum has kept it at its number.
    settled: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Place {
    number: u64,
    ahead: u64,
}

/// So many rounds follow each other without a pause, while numbers differ: others ask at the same time.
const AT_ONCE: u32 = 3;

/// The longest round: places lapse while a silent master is waited for.
const ROUND: Duration = Duration::from_secs(1);

impl Line {
    pub(super) fn new(ticket: Ticket, nodes: usize) -> Self {
        let places = vec![None; nodes];
        Self { ticket, number: 0, places, round: 0, at_once: 0, stands: false, settled: false }
    }

    fn heard(&mut self, node: NodeId, answer: &Answer, quorum: usize) {
        self.places[node.index()] = match *answer {
            Answer::Place { number, ahead, .. } => {
                // Not once it stands in line: a master that was slow to be asked knows of those who came later.
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

    /// A master says who comes first there; not before it has said so much to us.
    fn is_next(&mut self, node: NodeId, next: Ticket) -> bool {
        match &mut self.places[node.index()] {
            Some(place) if next == self.ticket => {
                place.ahead = 0;
                true
            }
            Some(place) => {
                place.ahead = place.ahead.max(1);
                false
            }
            None => false,
        }
    }

    /// It keeps no place. What is still on its way is about the one that it had.
    fn vacate(&mut self) {
        self.places.fill(None);
        self.round = self.round.wrapping_add(1);
    }

    /// No more is asked for now.
    pub(super) const fn rest(&mut self) {
        self.at_once = 0;
    }

    pub(super) fn knows(&self, node: NodeId) -> bool {
        self.places[node.index()].is_some()
    }

    /// The masters in whose line it comes first.
    fn first(&self) -> NodeSet {
        let is_first = |node: &NodeId| self.places[node.index()].is_some_and(|it| it.ahead == 0);
        NodeId::all(self.places.len()).filter(is_first).collect()
    }

    /// Whether it stands in line, and others come first on too many masters for it to go.
    fn is_behind(&self, quorum: usize) -> bool {
        self.settled && self.agrees() && self.first().len() < quorum
    }

    fn known(&self) -> usize {
        self.places.iter().flatten().count()
    }

    /// Whether all who keep a place keep it at the same number.
    fn agrees(&self) -> bool {
        self.places.iter().flatten().all(|place| place.number == self.number)
    }
}

impl Acquire {
    /// Asks all masters for its place.
    pub(super) fn stand(&mut self, now: Time, out: &mut Vec<Effect>) {
        let Some(line) = &mut self.line else { return };
        line.round = line.round.wrapping_add(1);
        line.at_once += 1;
        self.ballot = Ballot::open(self.terms.nodes(), now);
        self.certification = None;
        self.wait.hint = Time::NEVER;
        self.state = State::Standing;
        NodeId::all(self.terms.nodes()).for_each(|node| self.stand_at(node, out));
    }

    /// Asks one master, as a part of the latest round.
    pub(super) fn stand_at(&mut self, node: NodeId, out: &mut Vec<Effect>) {
        let Some(line) = &mut self.line else { return };
        line.stands = true;
        let (step, ticket) = (Step::Stand(line.round), line.ticket);
        let number = match line.number {
            0 => Spot::Last,
            number if line.settled => Spot::At(number),
            number => Spot::NotBefore(number),
        };
        out.push(Effect::Stand { node, step, ticket, number });
    }

    /// When the round is over, whoever has answered.
    pub(super) fn standing_ends(&self) -> Time {
        self.ballot.opened().plus(self.terms.node_timeout().min(ROUND))
    }

    /// Whether there is nothing to do but to wait until a master names it: others come first.
    fn is_behind(&self) -> bool {
        self.line.as_ref().is_some_and(|line| line.is_behind(self.terms.quorum()))
    }

    /// A master said which place it has, in this round.
    pub(super) fn placed(
        &mut self,
        now: Time,
        (round, node): (u32, NodeId),
        answer: Answer,
        dice: &mut dyn Dice,
        out: &mut Vec<Effect>,
    ) {
        let Some(line) = self.line.as_mut().filter(|line| line.round == round) else { return };
        line.heard(node, &answer, self.terms.quorum());
        self.wait.watch.looked(now, node, &answer);
        match self.state {
            State::Standing => {
                self.ballot.record(now, node, answer);
                self.judge_place(now, dice, out);
            }
            State::Waiting => _ = self.go_if_first(now, dice, out),
            _ => {}
        }
    }

    /// Time is up for those that have not answered.
    pub(super) fn close_round(&mut self, now: Time, dice: &mut dyn Dice, out: &mut Vec<Effect>) {
        let silent = Answer::Unknown(Cause::Silent);
        for node in NodeId::all(self.terms.nodes()) {
            if self.ballot.awaited().contains(node) {
                let quorum = self.terms.quorum();
                self.line.iter_mut().for_each(|line| line.heard(node, &silent, quorum));
                self.wait.watch.looked(now, node, &silent);
            }
        }
        self.ballot.close(now);
        self.judge_place(now, dice, out);
    }

    /// Attempts if it comes first, and the resource is free, on a quorum. Whether it does.
    pub(super) fn go_if_first(
        &mut self,
        now: Time,
        dice: &mut dyn Dice,
        out: &mut Vec<Effect>,
    ) -> bool {
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
        let forbidden = self.ballot.which(|answer| *answer == Answer::NoLine).len();
        let again = !line.agrees() && line.at_once < AT_ONCE;
        let in_the_way = known < quorum && !line.first().is_empty();
        if forbidden > self.terms.nodes() - quorum {
            // No quorum will ever keep it.
            self.step_out(true, out);
            self.line = None;
            self.again(now, None, dice, out);
        } else if now >= self.give_up || self.is_shut_down() {
            self.end(if known < quorum { Failure::NoQuorum } else { Failure::Taken }, out);
        } else if known >= quorum && (self.listen(out) || again) {
            self.stand(now, out);
        } else {
            if in_the_way {
                // It could not go if it were named, and those behind it may.
                self.make_way(out);
            }
            self.sleep(now, dice, out);
        }
    }

    /// Lets those behind it pass, and asks for its place again some time later.
    fn make_way(&mut self, out: &mut Vec<Effect>) {
        self.step_out(true, out);
        self.line.iter_mut().for_each(Line::vacate);
    }

    /// It came first, and nobody held the resource, and yet it was not granted: others may be, whose way to the
    /// masters is better.
    pub(super) fn go_to_the_end(&mut self, out: &mut Vec<Effect>) {
        self.make_way(out);
        if let Some(line) = &mut self.line {
            (line.number, line.settled) = (0, false);
        }
    }

    /// The resource is free there, and this one comes first in that master's line, if it said so.
    pub(super) fn named(
        &mut self,
        now: Time,
        (node, next): (NodeId, Option<Ticket>),
        dice: &mut dyn Dice,
        out: &mut Vec<Effect>,
    ) {
        let Some(line) = &mut self.line else { return };
        if !line.knows(node) {
            return;
        }
        let may_go = next.is_none_or(|next| line.is_next(node, next));
        self.wait.watch.freed(node);
        if may_go && !self.go_if_first(now, dice, out) && self.state == State::Waiting {
            // All who wait are told so, unless one is named.
            let jitter = if next.is_none() { self.moment() } else { Duration::ZERO };
            let hint = now.plus(self.moment() + self.jitter(jitter, dice));
            self.wait.hint = self.wait.hint.min(hint);
            out.push(Effect::Decided);
        }
    }

    /// When to ask for its place again, unless something is heard.
    pub(super) fn stands_until(&self) -> Time {
        let sleep = if !self.hears() {
            self.wait.pause
        } else if self.is_behind() {
            Time::NEVER
        } else {
            self.sleeps_until()
        };
        // In any case before it lapses.
        sleep.min(self.wait.peek)
    }

    /// Leaves the lines, if it stands there; with `call`, whoever is first is told where the resource is free.
    pub(super) fn step_out(&mut self, call: bool, out: &mut Vec<Effect>) {
        let Some(line) = &mut self.line else { return };
        if core::mem::take(&mut line.stands) {
            let ticket = line.ticket;
            let nodes = NodeId::all(self.terms.nodes());
            out.extend(nodes.map(|node| Effect::StepOut { node, ticket, call }));
        }
    }

    /// Who is told when a lease of this claim is given back.
    pub(crate) const fn call(&self) -> Call {
        if self.line.is_some() { Call::Next } else { Call::Everybody }
    }
}
