//! Wait: from an attempt that failed to the next one.
//!
//! Who waits sleeps until the resource can be free: until its keys expire on the last of a quorum, or until
//! masters say that it was given back. What they say may be lost, so now and then one master is looked at,
//! each in its turn. Where masters say nothing, attempts follow each other as the caller's policy has it.
//!
//! When many wake at once, most attempts would share the masters and none win. So a later attempt of one that is
//! woken asks one master first, the same for all clients, and the others only if that one grants it. This is a
//! hint, like all in here: a first master that does not answer, or shows a key that no other master knows, is
//! not believed. Who stands in line (`acquire/line.rs`) needs no such hint: it is woken alone.

use alloc::vec::Vec;
use core::time::Duration;

use super::line::Line;
use super::watch::Watch;
use super::{Acquire, Patience, State, Turn};
use crate::effect::{Call, Dice, Effect, Step, Word};
use crate::quorum::{NodeId, NodeSet};
use crate::time::Time;
use crate::vote::Answer;

/// What an acquire that waits remembers from one attempt to the next.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Wait {
    /// Whether the links are to listen; once they were told, not again.
    wants: bool,
    asked: bool,
    /// Masters that say when the resource becomes free.
    listening: NodeSet,
    pub(super) watch: Watch,
    /// Attempts in a row that failed, and nobody had been seen to hold the resource before.
    pub(super) streak: u32,
    /// Masters that were first, and did not answer or were not believed: now they are last.
    last: NodeSet,
    /// The first master refused the latest attempt.
    refused_by: Option<NodeId>,
    /// Not before then, unless something is heard.
    pub(super) pause: Time,
    /// When to look whether something was said and not heard.
    pub(super) peek: Time,
    /// Which master was looked at last.
    peeked: u32,
    /// Some master said that it is free: time is short for the others to say so, too.
    pub(super) hint: Time,
}

/// The longest sleep without a look at a master.
const PEEK: Duration = Duration::from_secs(1);

/// So many attempts in a row, and one asks all masters at once: the first master may be no good.
const ROUNDS: u32 = 4;

impl Wait {
    pub(super) fn new(patience: Patience) -> Self {
        Self {
            wants: patience.wake_ups,
            asked: false,
            listening: NodeSet::EMPTY,
            watch: Watch::default(),
            streak: 0,
            last: NodeSet::EMPTY,
            refused_by: None,
            pause: Time::ZERO,
            peek: Time::NEVER,
            peeked: 0,
            hint: Time::NEVER,
        }
    }

    /// An attempt begins: what was known is over.
    pub(super) fn forget(&mut self) {
        self.watch.close();
        (self.refused_by, self.hint) = (None, Time::NEVER);
    }

    /// This one was asked first, and said no.
    pub(super) const fn refused(&mut self, first: NodeId) {
        self.refused_by = Some(first);
    }

    /// This one was asked first, and said nothing.
    pub(super) fn silent(&mut self, first: NodeId) {
        self.last.insert(first);
    }
}

impl Acquire {
    /// Others of this process were served often enough: those of other processes, who were just told that
    /// the resource is free, come first.
    pub(super) fn step_back(&mut self, now: Time, dice: &mut dyn Dice, out: &mut Vec<Effect>) {
        self.listen(out);
        self.wait.pause = now.plus(self.moment() + self.jitter(self.moment(), dice));
        self.wait.watch.open(self.terms.nodes());
        self.wait.peek = now.plus(PEEK);
        self.state = State::Waiting;
    }

    /// Has the links listen, before anything else is asked: what they then answer is the latest, or is
    /// followed by what they hear.
    ///
    /// Returns whether they did not before.
    pub(super) fn listen(&mut self, out: &mut Vec<Effect>) -> bool {
        let anew = self.wait.wants && !core::mem::replace(&mut self.wait.asked, true);
        if anew {
            out.push(Effect::Listen);
        }
        anew
    }

    /// The attempt failed, and its clean-up is on its way.
    pub(super) fn pause(&mut self, now: Time, dice: &mut dyn Dice, out: &mut Vec<Effect>) {
        if self.wait.wants || self.line.is_some() {
            self.wait.watch.open(self.terms.nodes());
        }
        self.sleep(now, dice, out);
    }

    /// Nothing is to be done before something is heard, or some time has passed.
    pub(super) fn sleep(&mut self, now: Time, dice: &mut dyn Dice, out: &mut Vec<Effect>) {
        self.line.iter_mut().for_each(Line::rest);
        let held = self.hears() && self.wait.watch.earliest(self.terms.quorum()) > now;
        // Who stands in line, and is woken when it is free, pauses for other reasons then.
        self.wait.streak =
            if self.line.is_some() && held { 0 } else { self.wait.streak.saturating_add(1) };
        // Who hears nothing goes by the policy alone; it counts every attempt.
        let by_streak = self.hears() || self.line.is_some();
        let count = if by_streak { self.wait.streak.max(1) } else { self.attempt };
        self.wait.pause = now.plus(dice.pause(count));
        if self.wait.wants || self.line.is_some() {
            self.wait.peek = now.plus(PEEK / 2 + self.jitter(PEEK / 2, dice));
        }
        self.state = State::Waiting;
        // Its next wake lies before the end of the round, for which its driver waits.
        out.push(Effect::Decided);
    }

    /// When to go on. The end of the wait cuts every pause: one last attempt is made there.
    pub(super) fn waits_until(&self) -> Time {
        let wait = &self.wait;
        let sleep = if self.line.is_some() {
            self.stands_until()
        } else if self.hears() {
            self.sleeps_until().min(wait.peek)
        } else {
            wait.pause
        };
        sleep.min(wait.hint).min(self.give_up)
    }

    /// Unless something is heard, there is no point in an attempt before then.
    pub(super) fn sleeps_until(&self) -> Time {
        self.wait.pause.max(self.wait.watch.earliest(self.terms.quorum()))
    }

    /// Whether enough masters say when the resource becomes free.
    pub(super) fn hears(&self) -> bool {
        self.wait.listening.len() >= self.terms.quorum()
    }

    pub(super) fn wake_waiting(&mut self, now: Time, dice: &mut dyn Dice, out: &mut Vec<Effect>) {
        if self.line.is_some() {
            if now >= self.waits_until() {
                self.stand(now, out);
            }
        } else if now >= self.give_up {
            self.again(now, None, dice, out);
        } else if now >= self.wait.hint {
            self.called(now, dice, out);
        } else if now >= if self.hears() { self.sleeps_until() } else { self.wait.pause } {
            if self.wait.pause < self.sleeps_until() {
                // It slept until the holder's time was over.
                self.wait.streak = 0;
            }
            let first = self.first();
            self.again(now, first, dice, out);
        } else if now >= self.wait.peek && self.hears() {
            self.wait.peek = now.plus(PEEK / 2 + self.jitter(PEEK / 2, dice));
            let next = (self.wait.peeked as usize + 1) % self.terms.nodes();
            self.wait.peeked = u32::try_from(next).unwrap_or(0);
            self.peek(NodeId::new(next), out);
        }
    }

    /// The resource is free, by what masters said.
    fn called(&mut self, now: Time, dice: &mut dyn Dice, out: &mut Vec<Effect>) {
        self.wait.streak = 0;
        let first = self.first();
        self.again(now, first, dice, out);
    }

    /// Looks who holds it there: a compare-and-delete with a token that nobody has any more, or, for who stands in
    /// line, what that is told anyway.
    fn peek(&mut self, node: NodeId, out: &mut Vec<Effect>) {
        if self.line.is_some() {
            return self.stand_at(node, out);
        }
        let (step, call) = (Step::Cleanup(self.attempt), Call::Nobody);
        out.push(Effect::Settle { node, step, token: self.token, call });
    }

    /// Which master to ask first, if one alone: the first in number that was never found wanting.
    fn first(&mut self) -> Option<NodeId> {
        if !self.wait.wants {
            return None;
        }
        let nodes = self.terms.nodes();
        if let Some(first) = self.wait.refused_by.filter(|first| self.wait.watch.is_alone(*first)) {
            self.wait.last.insert(first);
            return None;
        }
        if nodes < 3 || self.wait.streak > 0 && self.wait.streak.is_multiple_of(ROUNDS) {
            return None;
        }
        let first = NodeId::all(nodes).find(|node| !self.wait.last.contains(*node));
        if first.is_none() {
            self.wait.last = NodeSet::EMPTY;
        }
        first
    }

    /// What a link heard of the resource.
    pub(crate) fn heard(
        &mut self,
        now: Time,
        node: NodeId,
        word: Word,
        dice: &mut dyn Dice,
        out: &mut Vec<Effect>,
    ) {
        let waits = self.state == State::Waiting;
        match word {
            Word::Listening => {
                self.wait.listening.insert(node);
                // What it said before may be out of date by now.
                if waits && self.knows(node) {
                    self.peek(node, out);
                }
            }
            Word::Deaf => {
                self.wait.listening.remove(node);
                out.push(Effect::Decided);
            }
            Word::Free if self.line.is_some() => self.named(now, (node, None), dice, out),
            Word::Next(next) if self.line.is_some() => {
                self.named(now, (node, Some(next)), dice, out);
            }
            // Whatever order others keep. What it says before it has answered the latest look is about an
            // earlier lease.
            Word::Free | Word::Next(_) if waits && self.knows(node) => {
                self.wait.watch.freed(node);
                self.is_free(now, dice, out);
            }
            _ => {}
        }
    }

    /// Whether it has answered: what it says from then on is news.
    fn knows(&self, node: NodeId) -> bool {
        self.line.as_ref().map_or(self.cleaned.contains(node), |line| line.knows(node))
    }

    /// A master answered a look while the resource is waited for.
    pub(super) fn looked(
        &mut self,
        now: Time,
        node: NodeId,
        answer: &Answer,
        dice: &mut dyn Dice,
        out: &mut Vec<Effect>,
    ) {
        let known = self.cleaned.contains(node);
        self.cleaned.insert(node);
        self.wait.watch.looked(now, node, answer);
        // The first look cleans up: what it frees, the attempt itself had taken. Who stands in line does not look.
        let waits = self.state == State::Waiting && self.line.is_none();
        if known && waits && self.wait.watch.free().contains(node) {
            self.is_free(now, dice, out);
        }
    }

    /// It became free on one more master.
    fn is_free(&mut self, now: Time, dice: &mut dyn Dice, out: &mut Vec<Effect>) {
        if self.wait.watch.free().len() >= self.terms.quorum() {
            self.called(now, dice, out);
        } else {
            self.wait.hint = self.wait.hint.min(now.plus(self.moment()));
            out.push(Effect::Decided);
        }
    }

    /// Long enough for masters to say what they say at the same time, short beside a round.
    pub(super) fn moment(&self) -> Duration {
        (self.terms.node_timeout() / 8).clamp(Duration::from_millis(1), Duration::from_millis(10))
    }

    pub(super) fn jitter(&self, most: Duration, dice: &mut dyn Dice) -> Duration {
        let most = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(dice.random() % most.max(1))
    }

    /// How long the first master is waited for, before the others are asked, too.
    pub(super) fn first_ends(&self) -> Time {
        self.ballot.opened().plus(self.terms.node_timeout() / 4)
    }
}

impl Default for Patience {
    /// One attempt, and no explanation.
    fn default() -> Self {
        Self {
            wait: Duration::ZERO,
            explain: false,
            wake_ups: false,
            fair: false,
            turn: Turn::First,
        }
    }
}
