//! Wait: from a failed attempt to the next one.
//!
//! A waiter enqueues on the masters (`acquire/positions.rs`). It sleeps until the resource can be
//! free: until the keys expire on the last master of a quorum, or until masters wake it. A wake-up
//! may be lost, so the waiter now and then looks at one master, each in its turn. A look also keeps
//! its position there. Where masters do not wake the waiter, attempts follow each other by the
//! caller's backoff policy.
//!
//! A release wakes one waiter on each master, mostly the same one. A waiter that fewer than a
//! quorum woke asks one master first, the same one for all clients. It asks the other masters only
//! if that one grants: otherwise several waiters would share the masters, and none would win. The
//! first master is only a hint, like everything in this module. If it does not reply, or shows a
//! key that no other master shows, the waiter ignores the hint.
//!
//! Attempts become rarer while masters leave them unanswered: many clients that retry at the same
//! pace would keep busy masters busy for ever.

use alloc::vec::Vec;
use core::time::Duration;

use super::positions::Positions;
use super::watch::Watch;
use super::{Acquire, Context, State, Turn, WaitPolicy};
use crate::effect::{Effect, QueueEvent, Rng};
use crate::quorum::{NodeId, NodeSet, Quorum};
use crate::time::{Time, doubled, nanos};
use crate::vote::{Cause, Reply, Votes};
use crate::wire::LAPSE_MS;

/// The state that a waiting acquire keeps from one attempt to the next.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Wait {
    /// Whether it enqueues and subscribes.
    pub(super) wants: bool,
    /// Whether it requested subscriptions from the links.
    asked: bool,
    subscribed: NodeSet,
    /// Masters without a subscription when it asked, or later.
    unsubscribed: NodeSet,
    /// Masters that refuse to wake it, as far as it knows.
    pub(super) refused: NodeSet,
    pub(super) watch: Watch,
    /// Masters that woke it since the latest attempt began.
    pub(super) woken_by: NodeSet,
    /// Masters that replied to a look since the latest attempt began.
    looked: NodeSet,
    /// Failed attempts in a row, with no holder seen before them.
    streak: u32,
    /// Attempts in a row that too many masters left unanswered.
    silence: u32,
    /// Masters that were asked first and failed. They come last now.
    pub(super) last: NodeSet,
    /// The first master, if it refused the latest attempt.
    pub(super) refused_by: Option<NodeId>,
    /// It does not attempt before this time, unless it is woken.
    pub(super) pause: Time,
    /// When to check for a lost wake-up.
    pub(super) peek: Time,
    peeked: u32,
    /// Whether the latest look found the resource free, and other waiters before this one. These
    /// may be silent, and masters pass over all those that do not look: so this one looks at all
    /// masters.
    unused: bool,
    /// One master reported the resource free: the others may report it, too, until this time.
    pub(super) hint: Time,
}

/// The longest sleep without a look at a master.
const PEEK: Duration = Duration::from_secs(1);

/// After this many attempts in a row, one attempt asks all masters at once: the first master may be
/// unusable.
const ROUNDS: u32 = 4;

/// The most doublings of the pause after silence, which starts at one node timeout.
const DOUBLINGS: u32 = 4;

impl Wait {
    pub(super) fn new(policy: WaitPolicy) -> Self {
        let (peek, hint) = (Time::NEVER, Time::NEVER);
        Self { wants: policy.wake_ups, peek, hint, ..Self::default() }
    }

    /// An attempt begins: drops what was known before.
    pub(super) fn forget(&mut self) {
        self.watch.close();
        (self.woken_by, self.looked) = (NodeSet::EMPTY, NodeSet::EMPTY);
        (self.refused_by, self.hint, self.unused) = (None, Time::NEVER, false);
    }

    /// Whether this master has replied to a look of this wait: later reports from it are news.
    pub(super) fn has_looked(&self, node: NodeId) -> bool {
        self.looked.contains(node) || self.silence > 0
    }

    /// Counts a round in which no quorum replied in time.
    pub(super) fn count_silence(&mut self, votes: &Votes, quorum: Quorum) {
        let silent = votes.which(|reply| *reply == Reply::Unknown(Cause::Silent));
        let is_silent = quorum.is_blocked_by(silent);
        self.silence = if is_silent { self.silence.saturating_add(1) } else { 0 };
    }

    /// A time, doubled for each attempt in a row that too many masters left unanswered.
    pub(super) fn stretched(&self, time: Duration) -> Duration {
        doubled(time, self.silence.min(DOUBLINGS))
    }

    /// Drops what was known, and all times that it waits for.
    pub(super) fn resume(&mut self, nodes: usize) {
        self.forget();
        self.watch.open(nodes);
        (self.pause, self.peek, self.streak) = (Time::ZERO, Time::NEVER, 0);
    }
}

impl Acquire {
    /// Other claims of this process were served often enough: the waiter of another process that
    /// was just woken goes first.
    pub(super) fn let_others_go_first(&mut self, cx: &mut Context<'_>) {
        self.enter(cx.rng);
        self.subscribe(cx.out);
        self.wait.watch.open(self.config.nodes());
        self.look(cx.out);
        self.wait.pause = cx.now.plus(self.moment() + self.jitter(self.moment(), cx.rng));
        self.wait.peek = cx.now.plus(self.period());
        self.state = State::Waiting;
    }

    /// Has the links subscribe, before anything else is asked. A reply after that is up to date,
    /// or a wake-up follows it.
    pub(super) fn subscribe(&mut self, out: &mut Vec<Effect>) {
        let Some(waiter_id) = self.positions.as_ref().map(|it| it.waiter_id) else { return };
        if self.wait.wants && !core::mem::replace(&mut self.wait.asked, true) {
            out.push(Effect::Subscribe { waiter_id });
        }
    }

    /// Waits after a failed attempt, whose clean-up is on its way. The waiter enqueues, or keeps
    /// its positions: a wake-up from then on is news.
    pub(super) fn pause(&mut self, cx: &mut Context<'_>) {
        if self.positions.is_some() {
            self.wait.watch.open(self.config.nodes());
        }
        // Masters that do not keep up get only another attempt, some time later.
        if !self.fair && self.wait.silence == 0 {
            self.look(cx.out);
        }
        self.sleep(cx);
    }

    pub(super) fn sleep(&mut self, cx: &mut Context<'_>) {
        self.positions.iter_mut().for_each(Positions::rest);
        // A fair waiter that will be woken only sleeps while the resource is held. That is no
        // failed attempt, so its streak starts anew.
        let is_woken = self.fair && self.is_subscribed();
        let held = is_woken && self.wait.watch.earliest(self.config.quorum()) > cx.now;
        self.wait.streak = if held { 0 } else { self.wait.streak.saturating_add(1) };
        // A waiter that is not woken follows the policy alone, which counts every attempt.
        let by_streak = self.is_subscribed() || self.fair;
        let count = if by_streak { self.wait.streak.max(1) } else { self.attempt };
        self.wait.pause = cx.now.plus(cx.rng.pause(count).max(self.thinned(cx.rng)));
        if self.positions.is_some() {
            self.wait.peek = cx.now.plus(self.upper_half(self.period(), cx.rng));
        }
        self.state = State::Waiting;
        // The driver waits for the end of the round, and the next wake is earlier.
        cx.out.push(Effect::Decided);
    }

    /// The pause that unanswered attempts require.
    fn thinned(&self, rng: &mut dyn Rng) -> Duration {
        if self.wait.silence == 0 {
            return Duration::ZERO;
        }
        self.upper_half(self.wait.stretched(self.config.node_timeout() / 2), rng)
    }

    /// The time between two looks: each master is looked at three times before a position lapses
    /// there.
    fn period(&self) -> Duration {
        let nodes = u32::try_from(self.config.nodes()).unwrap_or(u32::MAX).max(1);
        PEEK.min(Duration::from_millis(LAPSE_MS / 3) / nodes)
    }

    /// When to go on. The end of the wait cuts every pause short: the last attempt starts there.
    pub(super) fn waits_until(&self) -> Time {
        self.goes_at().min(self.looks_at())
    }

    /// When to attempt; for a fair waiter, when to ask all masters.
    fn goes_at(&self) -> Time {
        let wait = &self.wait;
        let behind = if self.fair { self.is_behind() } else { self.is_behind_others() };
        let sleep = match self.is_subscribed() {
            false => wait.pause,
            true if behind => Time::NEVER,
            true => self.sleeps_until(),
        };
        sleep.min(wait.hint).min(self.give_up)
    }

    /// Whether the resource was free at the last look, and waiters before this one are woken: they
    /// go first.
    fn is_behind_others(&self) -> bool {
        let quorum = self.config.quorum();
        let behind = |positions: &Positions| quorum.is_in(positions.behind());
        self.positions.as_ref().is_some_and(behind) && quorum.is_in(self.wait.watch.free())
    }

    fn looks_at(&self) -> Time {
        if !self.fair && !self.is_subscribed() {
            Time::NEVER
        } else if !self.fair && self.is_behind_others() {
            // The waiters before it may be gone, if it is not woken for so long.
            self.wait.peek.min(self.wait.pause.max(self.round_ends()))
        } else {
            self.wait.peek
        }
    }

    /// The earliest time for an attempt, unless masters wake it.
    pub(super) fn sleeps_until(&self) -> Time {
        self.wait.pause.max(self.wait.watch.earliest(self.config.quorum()))
    }

    /// Whether it pauses because too many masters left its attempts unanswered.
    pub fn backs_off(&self) -> bool {
        self.state == State::Waiting && self.wait.silence > 0
    }

    pub(super) fn is_subscribed(&self) -> bool {
        self.positions.is_some() && self.config.quorum().is_in(self.wait.subscribed)
    }

    pub(super) fn wake_waiting(&mut self, cx: &mut Context<'_>) {
        if cx.now < self.goes_at() {
            if cx.now >= self.looks_at() {
                self.wait.peek = cx.now.plus(self.upper_half(self.period(), cx.rng));
                if !self.fair && self.is_behind_others() {
                    self.wait.streak = self.wait.streak.saturating_add(1);
                    self.wait.pause = cx.now.plus(cx.rng.pause(self.wait.streak));
                }
                let next = (self.wait.peeked as usize + 1) % self.config.nodes();
                self.wait.peeked = u32::try_from(next).unwrap_or(0);
                let all = self.fair && self.wait.unused;
                let looks = |node: &NodeId| all || node.index() == next;
                NodeId::all(self.config.nodes())
                    .filter(looks)
                    .for_each(|node| self.enqueue_at(node, cx.out));
            }
        } else if self.fair {
            self.enqueue(cx.now, cx.out);
        } else if cx.now >= self.give_up {
            self.again(None, cx);
        } else if cx.now >= self.wait.hint {
            self.called(false, cx);
        } else {
            if self.wait.pause < self.sleeps_until() {
                // It slept until the holder's keys could expire.
                self.wait.streak = 0;
            }
            let first = self.first();
            self.again(first, cx);
        }
    }

    /// Makes an attempt, because masters reported the resource free. With `woken`, a quorum of them
    /// woke the waiter.
    fn called(&mut self, woken: bool, cx: &mut Context<'_>) {
        self.wait.streak = 0;
        let first = if woken { None } else { self.first() };
        self.again(first, cx);
    }

    /// The master to ask first, if only one is asked: the lowest-numbered one that has not failed
    /// as the first master.
    fn first(&mut self) -> Option<NodeId> {
        // Slow masters are asked at once: a master that is asked later has less time to reply.
        if !self.wait.wants || self.wait.silence > 0 {
            return None;
        }
        let nodes = self.config.nodes();
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

    pub(crate) fn queue_event(&mut self, node: NodeId, event: QueueEvent, cx: &mut Context<'_>) {
        match event {
            QueueEvent::Subscribed => {
                self.wait.subscribed.insert(node);
                self.wait.refused.remove(node);
                // This master may have woken it in vain before.
                let was_missed = self.wait.unsubscribed.contains(node);
                self.wait.unsubscribed.remove(node);
                let tries = !matches!(self.state, State::Won | State::Failed(_));
                let asked = self.positions.as_ref().is_some_and(|positions| positions.knows(node));
                if (was_missed || asked) && tries && self.waiter().is_some() {
                    self.enqueue_at(node, cx.out);
                }
            }
            QueueEvent::NotSubscribed | QueueEvent::Refused => {
                self.wait.subscribed.remove(node);
                self.wait.unsubscribed.insert(node);
                if event == QueueEvent::Refused {
                    self.wait.refused.insert(node);
                }
                cx.out.push(Effect::Decided);
            }
            QueueEvent::Free(waiter_id) => self.woken((node, waiter_id), cx),
            QueueEvent::Waiters(_) => {}
        }
    }

    pub(super) fn looked(&mut self, node: NodeId, reply: &Reply, cx: &mut Context<'_>) {
        // Before its first attempt, it has set no key that a clean-up could have freed.
        let first =
            self.attempt == 0 && self.positions.as_ref().is_some_and(|it| it.is_first(node));
        let known = self.wait.has_looked(node) || self.wait.woken_by.contains(node) || first;
        self.wait.looked.insert(node);
        if !self.wait.watch.free().contains(node) {
            // The resource was taken there since.
            self.wait.woken_by.remove(node);
        }
        if *reply == Reply::NoQueue {
            self.wait.refused.insert(node);
            if self.config.quorum().is_blocked_by(self.wait.refused) {
                self.do_without_queues(cx.out);
                cx.out.push(Effect::Decided);
            }
        } else if known && self.wait.watch.free().contains(node) {
            // The first look follows the clean-up. A resource that the clean-up freed was held by
            // the attempt itself, unless a master woke the waiter.
            self.is_free(cx);
        }
    }

    /// A fair waiter looked at a master. The first look that finds the resource free, and others
    /// before this waiter, is soon followed by one at all masters: the waiter that is first may not
    /// take its turn.
    pub(super) fn note_unused(&mut self, reply: &Reply, cx: &mut Context<'_>) {
        match reply {
            Reply::Place { ahead: 1.., holder: None, .. } => {
                if !core::mem::replace(&mut self.wait.unused, true) {
                    let soon = cx.now.plus(self.upper_half(self.period() / 4, cx.rng));
                    self.wait.peek = self.wait.peek.min(soon);
                    cx.out.push(Effect::Decided);
                }
            }
            Reply::Place { .. } => self.wait.unused = false,
            _ => {}
        }
    }

    pub(super) fn cleaned_up(&mut self, now: Time, node: NodeId, reply: &Reply) {
        self.cleaned.insert(node);
        // For a shared lease, a resource that others share is free.
        let is_shared = matches!(reply, Reply::Taken(holder) if holder.is_shared());
        let is_free = self.config.is_shared() && is_shared;
        self.wait.watch.looked(now, node, if is_free { &Reply::Absent } else { reply });
    }

    /// The resource became free on one more master.
    pub(super) fn is_free(&mut self, cx: &mut Context<'_>) {
        let quorum = self.config.quorum();
        let woken = quorum.is_in(self.wait.woken_by);
        if woken || quorum.is_in(self.wait.watch.free()) {
            self.called(woken, cx);
        } else {
            self.hint(cx.now, cx.out);
        }
    }

    /// Gives the other masters a moment to report the same.
    pub(super) fn hint(&mut self, now: Time, out: &mut Vec<Effect>) {
        self.wait.hint = self.wait.hint.min(now.plus(self.moment()));
        out.push(Effect::Decided);
    }

    /// Long enough for masters that report at the same time to be received together; short compared
    /// with a round.
    pub(super) fn moment(&self) -> Duration {
        (self.config.node_timeout() / 8).clamp(Duration::from_millis(1), Duration::from_millis(10))
    }

    /// A random time between half of `most` and `most`.
    fn upper_half(&self, most: Duration, rng: &mut dyn Rng) -> Duration {
        most / 2 + self.jitter(most / 2, rng)
    }

    fn jitter(&self, most: Duration, rng: &mut dyn Rng) -> Duration {
        Duration::from_nanos(rng.random() % nanos(most).max(1))
    }
}

impl Default for WaitPolicy {
    /// One attempt, without an explanation.
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
