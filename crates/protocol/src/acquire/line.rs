//! Line: the order of those who wait in different processes, where they agree to keep one.
//!
//! Each master keeps a line for each resource, and gives whoever asks a number behind all who stand there.
//! Who comes first in the lines of a quorum, and finds the resource free there, attempts; nobody else does.
//!
//! **Order.** Masters may give different numbers to those who ask at the same time, so that nobody
//! would come first. So a ticket carries the largest number that it was given to all of them: from then on
//! it stands in line, at the same place everywhere. Whoever asks after that asks at least one master
//! that knows this number, and gets a larger one. So each other process overtakes it once at most.
//!
//! **Nobody stands in the way.** A place lapses unless it is asked for again, so that a dead waiter is passed
//! over. Who wins, or gives up, leaves the line; who comes first and finds no quorum goes to its end. And where
//! masters answer, but forbid to keep lines, attempts are made without.

use alloc::vec;
use alloc::vec::Vec;

use super::{Acquire, Failure, State};
use crate::effect::{Call, Dice, Effect, Step};
use crate::quorum::{NodeId, NodeSet};
use crate::ticket::Ticket;
use crate::time::Time;
use crate::vote::{Answer, Ballot, Cause};

/// What is known of the lines.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Line {
    pub(super) ticket: Ticket,
    /// The largest number that any master gave it.
    number: u64,
    /// What each master said last.
    places: Vec<Option<Place>>,
    /// The round of asking, counted from 1.
    round: u32,
    /// So many followed each other without a pause.
    in_a_row: u32,
    /// Masters may keep a place.
    stands: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Place {
    number: u64,
    ahead: u64,
}

/// So many rounds follow each other without a pause, while numbers differ: others ask at the same time.
const ROUNDS: u32 = 3;

impl Line {
    pub(super) fn new(ticket: Ticket, nodes: usize) -> Self {
        let places = vec![None; nodes];
        Self { ticket, number: 0, places, round: 0, in_a_row: 0, stands: false }
    }

    fn heard(&mut self, node: NodeId, answer: &Answer) {
        self.places[node.index()] = match *answer {
            Answer::Place { number, ahead, .. } => {
                self.number = self.number.max(number);
                Some(Place { number, ahead })
            }
            _ => None,
        };
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

    /// What is still on its way is about the place that it had.
    fn forget(&mut self) {
        self.number = 0;
        self.places.fill(None);
        self.round = self.round.wrapping_add(1);
    }

    /// No more is asked for now.
    pub(super) const fn rest(&mut self) {
        self.in_a_row = 0;
    }

    pub(super) fn knows(&self, node: NodeId) -> bool {
        self.places[node.index()].is_some()
    }

    /// The masters in whose line it comes first.
    fn first(&self) -> NodeSet {
        let is_first = |node: &NodeId| self.places[node.index()].is_some_and(|it| it.ahead == 0);
        NodeId::all(self.places.len()).filter(is_first).collect()
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
        line.in_a_row += 1;
        line.stands = true;
        self.ballot = Ballot::open(self.terms.nodes(), now);
        self.certification = None;
        self.wait.hint = Time::NEVER;
        self.state = State::Standing;
        out.extend(NodeId::all(self.terms.nodes()).filter_map(|node| self.stand_at(node)));
    }

    pub(super) fn stand_at(&self, node: NodeId) -> Option<Effect> {
        let line = self.line.as_ref()?;
        let (step, ticket) = (Step::Stand(line.round), line.ticket);
        Some(Effect::Stand { node, step, ticket, number: line.number })
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
        line.heard(node, &answer);
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
                self.line.iter_mut().for_each(|line| line.heard(node, &silent));
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
            self.wait.streak = 0;
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
        let forbid = |answer: &Answer| matches!(answer, Answer::Unknown(Cause::Error(_)));
        let forbidden = known < quorum && known + self.ballot.which(forbid).len() >= quorum;
        let again = !line.agrees() && line.in_a_row < ROUNDS;
        if forbidden {
            // There is no order where masters can be asked, and not for that.
            self.again(now, None, dice, out);
        } else if now >= self.give_up || self.is_shut_down() {
            self.end(if known < quorum { Failure::NoQuorum } else { Failure::Taken }, out);
        } else if known >= quorum && (self.listen(out) || again) {
            self.stand(now, out);
        } else {
            self.sleep(now, dice, out);
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
            self.wait.hint = self.wait.hint.min(now.plus(self.moment()));
            out.push(Effect::Decided);
        }
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

    /// It came first, and nobody held the resource, and yet it was not granted: others may be, whose way to the
    /// masters is better.
    pub(super) fn go_to_the_end(&mut self, out: &mut Vec<Effect>) {
        self.step_out(true, out);
        self.line.iter_mut().for_each(Line::forget);
    }

    /// Who is told when a lease of this claim is given back.
    pub(crate) const fn call(&self) -> Call {
        if self.line.is_some() { Call::Next } else { Call::Everybody }
    }
}
