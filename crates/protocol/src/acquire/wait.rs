//! Wait: from an attempt that failed to the next one.
//!
//! A waiter enqueues on the masters (`acquire/line.rs`) and sleeps until the resource can be free: until its keys
//! expire on the last of a quorum, or until masters wake it. A wake-up may be lost, so now and then the waiter
//! looks at one master, each in its turn, which keeps its position there. Where masters do not wake it, attempts
//! follow each other as the caller's policy has it.
//!
//! A release wakes one waiter on each master, mostly the same one. A waiter that was woken by fewer than a
//! quorum asks one master first, the same for all clients, and the others only if that one grants it: else several
//! would share the masters, and none would win. This is a hint, like all in here: a first master that does not
//! answer, or shows a key that no other master knows, is not believed.
//!
//! Attempts that masters leave unanswered thin out: many clients that try again at the same pace would keep
//! busy masters busy for ever.

use alloc::vec::Vec;
use core::time::Duration;

use super::line::Line;
use super::watch::Watch;
use super::{Acquire, Patience, State, Turn};
use crate::effect::{Dice, Effect, Word};
use crate::quorum::{NodeId, NodeSet};
use crate::time::Time;
use crate::vote::{Answer, Ballot, Cause};
use crate::wire::LAPSE_MS;

/// What an acquire that waits remembers from one attempt to the next.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Wait {
    /// Whether it enqueues and subscribes; once the links were told, not again.
    pub(super) wants: bool,
    asked: bool,
    /// Masters that wake it.
    listening: NodeSet,
    /// Masters that did not when it asked, or since.
    deaf: NodeSet,
    /// Masters that refuse to, as far as it is known.
    refused: NodeSet,
    pub(super) watch: Watch,
    /// Masters that woke it since the latest attempt began.
    pub(super) named: NodeSet,
    /// Masters that have answered a look since then.
    looked: NodeSet,
    /// Attempts in a row that failed, and no holder had been seen before.
    streak: u32,
    /// Attempts in a row that too many masters left unanswered.
    silence: u32,
    /// Masters that were first, and did not answer or were not believed: now they are last.
    last: NodeSet,
    /// The first master refused the latest attempt.
    refused_by: Option<NodeId>,
    /// Not before then, unless it is woken.
    pub(super) pause: Time,
    /// When to look whether a wake-up was lost.
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

/// So often the pause after silence doubles, from one node timeout on.
const DOUBLINGS: u32 = 4;

impl Wait {
    pub(super) fn new(patience: Patience) -> Self {
        Self {
            wants: patience.wake_ups,
            asked: false,
            listening: NodeSet::EMPTY,
            deaf: NodeSet::EMPTY,
            refused: NodeSet::EMPTY,
            watch: Watch::default(),
            named: NodeSet::EMPTY,
            looked: NodeSet::EMPTY,
            streak: 0,
            silence: 0,
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
        (self.named, self.looked) = (NodeSet::EMPTY, NodeSet::EMPTY);
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

    /// Whether this master does not wake it, and says so.
    pub(super) fn is_refused(&self, node: NodeId) -> bool {
        self.refused.contains(node)
    }

    /// Whether it has answered a look of this wait: what it says from then on is news.
    pub(super) fn has_looked(&self, node: NodeId) -> bool {
        self.looked.contains(node) || self.silence > 0
    }

    /// Counts a round that no quorum has answered in time.
    pub(super) fn count_silence(&mut self, ballot: &Ballot, quorum: usize) {
        let silent = ballot.which(|answer| *answer == Answer::Unknown(Cause::Silent)).len();
        let is_silent = silent > ballot.votes().len() - quorum;
        self.silence = if is_silent { self.silence.saturating_add(1) } else { 0 };
    }

    /// A time, doubled for each attempt in a row that too many masters left unanswered.
    pub(super) fn stretched(&self, time: Duration) -> Duration {
        time.saturating_mul(1 << self.silence.min(DOUBLINGS))
    }

    /// Nothing is known any more, and nothing is waited for.
    pub(super) fn resume(&mut self, nodes: usize) {
        self.forget();
        self.watch.open(nodes);
        (self.pause, self.peek, self.streak) = (Time::ZERO, Time::NEVER, 0);
    }
}

impl Acquire {
    /// Others of this process were served often enough: the waiter of another process that was just woken comes
    /// first.
    pub(super) fn step_back(&mut self, now: Time, dice: &mut dyn Dice, out: &mut Vec<Effect>) {
        self.enter(dice);
        self.listen(out);
        self.wait.watch.open(self.terms.nodes());
        self.look(out);
        self.wait.pause = now.plus(self.moment() + self.jitter(self.moment(), dice));
        self.wait.peek = now.plus(self.period());
        self.state = State::Waiting;
    }

    /// Has the links subscribe, before anything else is asked: what they then answer is the latest, or is
    /// followed by a wake-up.
    pub(super) fn listen(&mut self, out: &mut Vec<Effect>) {
        let Some(ticket) = self.line.as_ref().map(Line::ticket) else { return };
        if self.wait.wants && !core::mem::replace(&mut self.wait.asked, true) {
            out.push(Effect::Listen { ticket });
        }
    }

    /// The attempt failed, and its clean-up is on its way. It enqueues, or keeps its positions: what wakes it from then
    /// on is news.
    pub(super) fn pause(&mut self, now: Time, dice: &mut dyn Dice, out: &mut Vec<Effect>) {
        if self.line.is_some() {
            self.wait.watch.open(self.terms.nodes());
        }
        // Masters that do not keep up are not asked for more than another attempt, some time later.
        if !self.fair && self.wait.silence == 0 {
            self.look(out);
        }
        self.sleep(now, dice, out);
    }

    /// Nothing is to be done before it is woken, or some time has passed.
    pub(super) fn sleep(&mut self, now: Time, dice: &mut dyn Dice, out: &mut Vec<Effect>) {
        self.line.iter_mut().for_each(Line::rest);
        // A fair waiter that is woken when the resource is free pauses for other reasons then.
        let is_woken = self.fair && self.hears();
        let held = is_woken && self.wait.watch.earliest(self.terms.quorum()) > now;
        self.wait.streak = if held { 0 } else { self.wait.streak.saturating_add(1) };
        // A waiter that is not woken goes by the policy alone; it counts every attempt.
        let by_streak = self.hears() || self.fair;
        let count = if by_streak { self.wait.streak.max(1) } else { self.attempt };
        self.wait.pause = now.plus(dice.pause(count).max(self.thinned(dice)));
        if self.line.is_some() {
            self.wait.peek = now.plus(self.period() / 2 + self.jitter(self.period() / 2, dice));
        }
        self.state = State::Waiting;
        // Its next wake lies before the end of the round, for which its driver waits.
        out.push(Effect::Decided);
    }

    /// How long it pauses because masters leave attempts unanswered.
    fn thinned(&self, dice: &mut dyn Dice) -> Duration {
        if self.wait.silence == 0 {
            return Duration::ZERO;
        }
        let most = self.wait.stretched(self.terms.node_timeout() / 2);
        most / 2 + self.jitter(most / 2, dice)
    }

    /// Between two looks, so that each master is looked at thrice before a position lapses there.
    fn period(&self) -> Duration {
        let nodes = u32::try_from(self.terms.nodes()).unwrap_or(u32::MAX).max(1);
        PEEK.min(Duration::from_millis(LAPSE_MS / 3) / nodes)
    }

    /// When to go on. The end of the wait cuts every pause: one last attempt is made there.
    pub(super) fn waits_until(&self) -> Time {
        self.goes_at().min(self.looks_at())
    }

    /// When to attempt, or, where it is fair, to ask all masters.
    fn goes_at(&self) -> Time {
        let wait = &self.wait;
        let sleep = if self.fair {
            self.stands_at()
        } else if !self.hears() {
            wait.pause
        } else if self.is_behind_others() {
            Time::NEVER
        } else {
            self.sleeps_until()
        };
        sleep.min(wait.hint).min(self.give_up)
    }

    /// Whether the resource was free at the last look, and waiters before this one are woken: they go first.
    fn is_behind_others(&self) -> bool {
        let quorum = self.terms.quorum();
        let behind = self.line.as_ref().is_some_and(|line| line.behind() >= quorum);
        behind && self.wait.watch.free().len() >= quorum
    }

    /// When to look at one master.
    fn looks_at(&self) -> Time {
        if !self.fair && !self.hears() {
            Time::NEVER
        } else if !self.fair && self.is_behind_others() {
            // They may be gone, if it is not woken for so long.
            self.wait.peek.min(self.wait.pause.max(self.round_ends()))
        } else {
            self.wait.peek
        }
    }

    /// Unless it is woken, there is no point in an attempt before then.
    pub(super) fn sleeps_until(&self) -> Time {
        self.wait.pause.max(self.wait.watch.earliest(self.terms.quorum()))
    }

    /// Whether it pauses since too many masters have left its attempts unanswered.
    pub fn backs_off(&self) -> bool {
        self.state == State::Waiting && self.wait.silence > 0
    }

    /// Whether enough masters wake it.
    pub(super) fn hears(&self) -> bool {
        self.line.is_some() && self.wait.listening.len() >= self.terms.quorum()
    }

    pub(super) fn wake_waiting(&mut self, now: Time, dice: &mut dyn Dice, out: &mut Vec<Effect>) {
        if now < self.goes_at() {
            if now >= self.looks_at() {
                self.wait.peek = now.plus(self.period() / 2 + self.jitter(self.period() / 2, dice));
                if !self.fair && self.is_behind_others() {
                    self.wait.streak = self.wait.streak.saturating_add(1);
                    self.wait.pause = now.plus(dice.pause(self.wait.streak));
                }
                let next = (self.wait.peeked as usize + 1) % self.terms.nodes();
                self.wait.peeked = u32::try_from(next).unwrap_or(0);
                self.stand_at(NodeId::new(next), out);
            }
        } else if self.fair {
            self.stand(now, out);
        } else if now >= self.give_up {
            self.again(now, None, dice, out);
        } else if now >= self.wait.hint {
            self.called(now, false, dice, out);
        } else {
            if self.wait.pause < self.sleeps_until() {
                // It slept until the holder's time was over.
                self.wait.streak = 0;
            }
            let first = self.first();
            self.again(now, first, dice, out);
        }
    }

    /// The resource is free, by what masters said: by a quorum that woke it, or by fewer.
    fn called(&mut self, now: Time, woken: bool, dice: &mut dyn Dice, out: &mut Vec<Effect>) {
        self.wait.streak = 0;
        let first = if woken { None } else { self.first() };
        self.again(now, first, dice, out);
    }

    /// Which master to ask first, if one alone: the first in number that was never found wanting.
    fn first(&mut self) -> Option<NodeId> {
        // Slow masters are asked at once: those that are asked later have less time to answer.
        if !self.wait.wants || self.wait.silence > 0 {
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

    /// What a link tells of the resource.
    pub(crate) fn heard(
        &mut self,
        now: Time,
        node: NodeId,
        word: Word,
        dice: &mut dyn Dice,
        out: &mut Vec<Effect>,
    ) {
        match word {
            Word::Listening => {
                self.wait.listening.insert(node);
                self.wait.refused.remove(node);
                // It may have been woken in vain before.
                let was_deaf = self.wait.deaf.contains(node);
                self.wait.deaf.remove(node);
                let tries = !matches!(self.state, State::Won | State::Failed(_));
                let asked = self.line.as_ref().is_some_and(|line| line.knows(node));
                if (was_deaf || asked) && tries && self.waiter().is_some() {
                    self.stand_at(node, out);
                }
            }
            Word::Deaf | Word::Refused => {
                self.wait.listening.remove(node);
                self.wait.deaf.insert(node);
                if word == Word::Refused {
                    self.wait.refused.insert(node);
                }
                out.push(Effect::Decided);
            }
            Word::Free(ticket) => self.named(now, (node, ticket), dice, out),
            Word::Others(_) => {}
        }
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
        // Before its first attempt it has set nothing that a clean-up could have freed.
        let first = self.attempt == 0 && self.line.as_ref().is_some_and(|it| it.is_first(node));
        let known = self.wait.has_looked(node) || self.wait.named.contains(node) || first;
        self.wait.looked.insert(node);
        if !self.wait.watch.free().contains(node) {
            // It was taken since.
            self.wait.named.remove(node);
        }
        if *answer == Answer::NoQueue {
            self.wait.refused.insert(node);
            if self.wait.refused.len() > self.terms.nodes() - self.terms.quorum() {
                self.do_without_queues(out);
                out.push(Effect::Decided);
            }
        } else if known && self.wait.watch.free().contains(node) {
            // The first look comes behind the clean-up: what that freed, the attempt itself had taken, unless it was woken.
            self.is_free(now, dice, out);
        }
    }

    /// A master answered the clean-up of the latest attempt.
    pub(super) fn cleaned_up(&mut self, now: Time, node: NodeId, answer: &Answer) {
        self.cleaned.insert(node);
        self.wait.watch.looked(now, node, answer);
    }

    /// It became free on one more master.
    pub(super) fn is_free(&mut self, now: Time, dice: &mut dyn Dice, out: &mut Vec<Effect>) {
        let quorum = self.terms.quorum();
        let woken = self.wait.named.len() >= quorum;
        if woken || self.wait.watch.free().len() >= quorum {
            self.called(now, woken, dice, out);
        } else {
            self.hint(now, out);
        }
    }

    /// Others have a moment to say so, too.
    pub(super) fn hint(&mut self, now: Time, out: &mut Vec<Effect>) {
        self.wait.hint = self.wait.hint.min(now.plus(self.moment()));
        out.push(Effect::Decided);
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
        self.ballot.opened().plus(self.wait.stretched(self.terms.node_timeout()) / 4)
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
