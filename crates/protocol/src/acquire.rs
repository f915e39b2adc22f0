//! Acquire: attempts until one wins or the wait is over.
//!
//! One attempt is a round of `SET NX PX` with a fresh token (R4), its verdict (R1–R3) and, unless
//! it wins, its clean-up (R5). The first attempt of a fair acquire is granted only by masters in
//! whose queues no waiter is. With fencing, the grants of an attempt may show different numbers.
//! Then rounds follow that certify one number ([`fence`](crate::fence)). `acquire/wait.rs` covers
//! the time between two attempts. [`Claim`](crate::Claim) drives this machine, and turns a won
//! attempt into a [`Hold`](crate::Hold).

use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use crate::effect::{Effect, Fence, Rng, RoundId, VoteRequest, WakeUp};
use crate::fence;
use crate::guard::Distrust;
use crate::lock_config::LockConfig;
use crate::quorum::{NodeId, NodeSet};
use crate::reading::Reading;
use crate::time::Time;
use crate::token::Token;
use crate::vote::{Cause, Holder, Reply, Votes};

mod certify;
mod positions;
mod wait;
mod watch;

use certify::Certification;
use positions::Positions;
use wait::Wait;

/// The reason why an acquire ended without a lease.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Failure {
    /// Masters replied, and keys of other holders are on too many of them.
    Taken,
    /// Too few masters replied, or one of them also belongs to another set of masters.
    NoQuorum,
    /// A quorum granted, but the caller did not collect the lease in time: before its deadline, and
    /// within 8 node timeouts or one second, whichever is longer. Or the client's clock ran
    /// backwards, so that its deadline cannot be told.
    TooLate,
}

/// How long an acquire tries, how it waits, and what it does when it is refused for good.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WaitPolicy {
    /// How long after the start the last attempt begins, if no attempt wins before. Zero: one
    /// attempt.
    pub wait: Duration,
    /// Whether the acquire waits up to one node timeout for the clean-up to report the holder,
    /// before it reports that the resource is taken.
    pub explain: bool,
    /// Whether it waits in the masters' queues and is woken. Otherwise it only repeats its
    /// attempts.
    pub wake_ups: bool,
    /// Whether masters refuse its first attempt while a waiter is in their queues. Later, it
    /// attempts only when it is first in the queues.
    pub fair: bool,
    /// How its turn came among the claims of this process.
    pub turn: Turn,
}

/// How an acquire gets its turn, where claims of one process wait for each other.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Turn {
    /// It starts by itself: no claim of this process gives the lease back in the same instant.
    First,
    /// Another claim of this process gives the lease back in the same instant, and wakes no waiter.
    /// The claim that takes over wakes one, if it ends without a lease.
    HandedOff,
    /// Another claim of this process gives the lease back, or has just done so, and has woken the
    /// first waiter in the masters' queues. That waiter goes first. Or the resource was just seen
    /// to be taken.
    Yielded,
}

/// The shortest time that a won lease waits for its caller, if its deadline is not earlier.
const COLLECT: Duration = Duration::from_secs(1);

/// The time, the random source and the effects of one input.
pub(crate) struct Context<'a> {
    pub(crate) now: Time,
    pub(crate) rng: &'a mut dyn Rng,
    pub(crate) out: &'a mut Vec<Effect>,
}

/// The machine of one acquire.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Acquire {
    config: LockConfig,
    give_up: Time,
    explain: bool,
    attempt: u32,
    token: Token,
    votes: Votes,
    /// The readings of the masters' clocks in this round; empty without a clock guard.
    clocks: Vec<Option<Reading>>,
    /// The latest round that certifies a number, if the grants did not agree on one.
    certification: Option<Certification>,
    /// The fencing token, once the attempt is won.
    fencing_token: Option<u64>,
    /// The only master that this attempt has asked so far, if it starts with one.
    first: Option<NodeId>,
    /// The fence that this attempt sends to the masters.
    fence: Option<Fence>,
    /// The release before it woke no waiter: if this acquire ends without a lease, it wakes one
    /// instead.
    handed_off: bool,
    wait: Wait,
    /// Whether no waiter may be before it when it attempts.
    fair: bool,
    /// Whether `votes` are replies about its positions, and not about a key.
    enqueues: bool,
    /// Its positions in the masters' queues, once it has a waiter id.
    positions: Option<Positions>,
    /// When it was won.
    won: Time,
    /// Why the latest attempt failed.
    latest: Option<Failure>,
    /// Masters that replied to the clean-up of this attempt, with any reply.
    cleaned: NodeSet,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum State {
    Enqueueing,
    Voting,
    /// A quorum granted; the masters are asked to agree on a number.
    Certifying,
    /// A quorum granted; the caller has not collected the lease yet.
    Won,
    Waiting,
    /// The last attempt was refused; the clean-up has until then to report the holder.
    Explaining(Time),
    Failed(Failure),
}

impl Acquire {
    pub(crate) fn start(config: LockConfig, policy: WaitPolicy, cx: &mut Context<'_>) -> Self {
        let mut acquire = Self {
            config,
            give_up: cx.now.plus(policy.wait),
            explain: policy.explain,
            attempt: 0,
            token: config.token(cx.rng.token()),
            votes: Votes::open(config.nodes(), cx.now),
            clocks: Vec::new(),
            certification: None,
            fencing_token: None,
            first: None,
            fence: None,
            handed_off: policy.turn == Turn::HandedOff,
            wait: Wait::new(policy),
            fair: policy.fair,
            enqueues: false,
            positions: None,
            won: Time::NEVER,
            latest: None,
            cleaned: NodeSet::EMPTY,
            state: State::Voting,
        };
        if policy.fair && policy.turn == Turn::Yielded {
            acquire.enqueue_first(cx);
        } else if policy.turn == Turn::Yielded && !policy.wait.is_zero() {
            acquire.let_others_go_first(cx);
        } else {
            acquire.ask(None, cx);
        }
        acquire
    }

    /// Attempts again, under a fresh token (R4).
    fn again(&mut self, first: Option<NodeId>, cx: &mut Context<'_>) {
        self.token = self.config.token(cx.rng.token());
        self.ask(first, cx);
    }

    /// Starts a round: asks all masters, or only `first`. The time becomes t0: nothing of this
    /// attempt was sent before it (R1).
    fn ask(&mut self, first: Option<NodeId>, cx: &mut Context<'_>) {
        // The number wraps once in four thousand million attempts; by then no late reply to its
        // last use is left.
        self.attempt = self.attempt.wrapping_add(1);
        self.votes = Votes::open(self.config.nodes(), cx.now);
        if !self.config.clock_bound().is_zero() {
            self.clocks = vec![None; self.config.nodes()];
        }
        self.certification = None;
        self.fencing_token = None;
        self.cleaned = NodeSet::EMPTY;
        self.enqueues = false;
        self.wait.forget();
        self.state = State::Voting;
        // All masters get the same hint, so most of them then show the same number.
        self.fence = if self.config.is_fenced() { self.config.fence(cx.rng.hint()) } else { None };
        self.first = first;
        match first {
            Some(node) => cx.out.push(self.send(node)),
            None => cx.out.extend(NodeId::all(self.config.nodes()).map(|node| self.send(node))),
        }
    }

    fn ask_others(&mut self, out: &mut Vec<Effect>) {
        if let Some(first) = self.first.take() {
            let others = NodeId::all(self.config.nodes()).filter(|node| *node != first);
            out.extend(others.map(|node| self.send(node)));
        }
    }

    /// Whether its attempt is the first of a fair acquire. Later attempts follow positions that
    /// show that no waiter is before it.
    const fn is_first_fair(&self) -> bool {
        self.fair && self.positions.is_none()
    }

    fn send(&self, node: NodeId) -> Effect {
        let (token, ttl_ms) = (self.token, self.config.key_ttl_ms());
        // A shared lease comes after waiters for an exclusive one, fair or not: those would never
        // be granted while shared leases overlap.
        let fair = self.is_first_fair() || self.config.is_shared() && self.positions.is_none();
        let request = VoteRequest::Set { token, ttl_ms, fair, fence: self.fence };
        Effect::Send { node, step: RoundId::Attempt(self.attempt), request }
    }

    /// Decides by the reply of the first master whether to ask the others. Returns whether it
    /// refused, so that they are not asked. Once the wait is over they are asked in any case: one
    /// master alone does not end an acquire.
    fn first_replied(&mut self, now: Time, node: NodeId, out: &mut Vec<Effect>) -> bool {
        if self.first != Some(node) {
            return false;
        }
        match &self.votes.votes()[node.index()].reply {
            Some(Reply::Taken(_)) if now < self.give_up => {
                self.wait.refused_by = Some(node);
                return true;
            }
            Some(Reply::Unknown(_)) => self.wait.last.insert(node),
            _ => {}
        }
        self.ask_others(out);
        false
    }

    pub(crate) fn replied(
        &mut self,
        step: RoundId,
        (node, reading): (NodeId, Option<Reading>),
        reply: Reply,
        cx: &mut Context<'_>,
    ) {
        match step {
            RoundId::Attempt(attempt) if attempt == self.attempt && !self.enqueues => {
                if self.votes.record(cx.now, node, reply) && self.state == State::Voting {
                    self.compare_clocks(node, reading);
                    if self.first_replied(cx.now, node, cx.out) {
                        self.refused(cx);
                    } else {
                        self.decide(cx);
                    }
                }
            }
            RoundId::Certify { attempt, round } if attempt == self.attempt => {
                if let Some(certification) = &mut self.certification
                    && certification.round == round
                    && certification.votes.record(cx.now, node, reply)
                    && self.state == State::Certifying
                {
                    self.decide_number(cx);
                }
            }
            RoundId::Cleanup(attempt) if attempt == self.attempt => {
                if let Reply::Taken(holder) = reply {
                    self.votes.explain(node, holder);
                }
                self.cleaned_up(cx.now, node, &reply);
                self.check_explained(cx.out);
            }
            RoundId::Enqueue(round) => self.placed((round, node), reply, cx),
            // A reply to an earlier attempt: the links take care of its clean-up.
            _ => {}
        }
    }

    pub(crate) fn wake(&mut self, cx: &mut Context<'_>) {
        match self.state {
            // It has times of its own.
            State::Waiting => self.wake_waiting(cx),
            _ if cx.now < self.next_wake() => {}
            State::Voting => {
                if cx.now >= self.round_ends() {
                    self.votes.close(cx.now);
                } else if let Some(first) = self.first {
                    self.wait.last.insert(first);
                    self.ask_others(cx.out);
                }
                self.decide(cx);
            }
            State::Certifying => {
                let certification = self.certification.iter_mut();
                certification.for_each(|it| it.votes.close(cx.now));
                self.decide_number(cx);
            }
            State::Enqueueing => self.close_round(cx),
            // The caller did not collect the lease in time.
            State::Won => self.fail(Failure::TooLate, cx),
            State::Explaining(_) => {
                self.state = State::Failed(Failure::Taken);
                cx.out.push(Effect::Decided);
            }
            State::Failed(_) => {}
        }
    }

    /// When to wake it next.
    pub fn next_wake(&self) -> Time {
        match self.state {
            State::Voting => self.voting_ends(),
            State::Enqueueing => self.enqueueing_ends(),
            State::Certifying => self.round_ends(),
            State::Waiting => self.waits_until(),
            State::Explaining(until) => until,
            State::Won => self.collect_by(),
            State::Failed(_) => Time::NEVER,
        }
    }

    /// The caller collects the lease, after a last look at the clock (R1): a process that slept
    /// since the last vote gets no expired lease.
    pub(crate) fn collect(&mut self, cx: &mut Context<'_>) -> bool {
        if self.state != State::Won {
            return false;
        }
        let why = if self.is_refused() {
            // A master has refused the whole attempt since the quorum granted.
            Failure::NoQuorum
        } else if cx.now >= self.deadline() {
            Failure::TooLate
        } else {
            return true;
        };
        self.fail(why, cx);
        false
    }

    /// The clock ran backwards: t0 of an attempt under way is later than it was, by an unknown time
    /// (R1). An acquire that has time left attempts again.
    pub(crate) fn clock_ran_back(&mut self, cx: &mut Context<'_>) {
        if matches!(self.state, State::Voting | State::Certifying | State::Won) {
            self.fail(Failure::TooLate, cx);
        }
    }

    /// The caller is gone: enqueues the clean-up of every key that the attempt may have set.
    pub(crate) fn abandon(&mut self, out: &mut Vec<Effect>) {
        if matches!(self.state, State::Voting | State::Certifying | State::Won) {
            // Replies may be on their way: the attempt may have had a quorum, and others may have
            // seen its keys.
            self.clean_up(true, out);
        }
        self.leave_queues(true, out);
    }

    /// Counts a grant as unknown if the master's clock was not watched for long enough, and may be
    /// ahead of another clock in this round by more than half of the bound.
    ///
    /// A grant that still counts is safe. Suppose that the clock of one master that replied has
    /// not stepped, and was ahead of this clock by no more than the other half of the bound before.
    /// Then this clock has gained no more than the bound.
    fn compare_clocks(&mut self, node: NodeId, reading: Option<Reading>) {
        let Some(clock) = self.clocks.get_mut(node.index()) else { return };
        *clock = reading;
        let half = self.config.clock_bound() / 2;
        let granted = self.votes.which(Reply::creates);
        for node in NodeId::all(self.clocks.len()).filter(|node| granted.contains(*node)) {
            let Some(ours) = self.clocks[node.index()] else { continue };
            let left = Some(ours.unwatched()).filter(|left| !left.is_zero());
            let others = self.clocks.iter().flatten();
            let by = others.map(|other| ours.lead_at_most(*other)).max().unwrap_or_default();
            if left.is_some() && by > half {
                let why = Distrust::ClockAhead { by };
                self.votes.distrust(node, Cause::Distrusted { why, left });
            }
        }
    }

    fn decide(&mut self, cx: &mut Context<'_>) {
        if self.is_refused() {
            // Regardless of the other votes: a quorum of these masters may miss every quorum of the
            // other set.
            return self.fail(Failure::NoQuorum, cx);
        }
        let granted = self.votes.which(Reply::creates);
        match self.config.quorum().verdict(granted, self.votes.awaited()) {
            Some(true) if cx.now < self.deadline() => {
                if !self.config.is_fenced() {
                    return self.win(cx.now, cx.out);
                }
                self.fencing_token = fence::agreed(&self.votes, self.config.quorum());
                if self.fencing_token.is_some() {
                    self.win(cx.now, cx.out);
                } else if self.votes.awaited().is_empty() || cx.now >= self.last_call() {
                    let number = fence::candidate(&self.votes, self.config.quorum());
                    self.certify(number, cx);
                } else if self.last_call() < self.round_ends() {
                    // The caller sleeps until the end of the round. The last call is earlier, so it
                    // must look again.
                    cx.out.push(Effect::Decided);
                }
                // Otherwise, wait for the other masters until the last call: they may agree with
                // some. Of no more than q numbers, the q-th smallest is the largest. One poisoned
                // counter can make that one arbitrarily large.
            }
            Some(true) => self.fail(Failure::TooLate, cx),
            Some(false) => self.refused(cx),
            None => {}
        }
    }

    /// The attempt is won. It keeps its positions in the queues until the release gives them up.
    fn win(&mut self, now: Time, out: &mut Vec<Effect>) {
        (self.state, self.won) = (State::Won, now);
        out.push(Effect::Decided);
    }

    fn refused(&mut self, cx: &mut Context<'_>) {
        let which = |what: fn(&Reply) -> bool| self.votes().which(what);
        let unknown = which(|reply| matches!(reply, Reply::Unknown(_)));
        let reachable = !self.config.quorum().is_blocked_by(unknown);
        // Not taken if keys are gone before their number is certified, and no other holder has
        // them.
        let taken = !which(|reply| matches!(reply, Reply::Taken(_))).is_empty();
        let why = if reachable && taken { Failure::Taken } else { Failure::NoQuorum };
        self.fail(why, cx);
    }

    fn fail(&mut self, why: Failure, cx: &mut Context<'_>) {
        self.latest = Some(why);
        let first_fair = self.is_first_fair();
        // The waiters that a fair attempt was refused for may be gone, or masters may forbid its
        // script.
        let goes_on = (first_fair || cx.now < self.give_up) && !self.is_shut_down();
        if goes_on && why == Failure::Taken {
            self.enter(cx.rng);
            self.subscribe(cx.out);
        }
        self.wait.count_silence(&self.votes, self.config.quorum());
        // A quorum that granted has kept others from the resource, so a waiter is woken.
        self.clean_up(why == Failure::TooLate || self.handed_off && !goes_on, cx.out);
        if goes_on && first_fair {
            self.enqueue_first(cx);
        } else if goes_on {
            if self.fair && why != Failure::Taken {
                self.move_to_tail(cx.out);
            }
            self.pause(cx);
        } else if why == Failure::Taken && self.explain {
            self.leave_queues(true, cx.out);
            self.state = State::Explaining(cx.now.plus(self.config.node_timeout()));
            self.check_explained(cx.out);
        } else {
            self.end(why, cx.out);
        }
    }

    /// Ends the acquire, after the clean-up of everything that is under way is enqueued.
    fn end(&mut self, why: Failure, out: &mut Vec<Effect>) {
        self.leave_queues(true, out);
        self.state = State::Failed(why);
        out.push(Effect::Decided);
    }

    /// Cleans up each master where the attempt may have set a key. With `wake`, the acquire also
    /// leaves the queues, and the first waiter is woken.
    fn clean_up(&mut self, wake: bool, out: &mut Vec<Effect>) {
        let step = RoundId::Cleanup(self.attempt);
        let wake_up = if wake { WakeUp::First } else { WakeUp::None };
        let (nodes, token) = (self.config.nodes(), self.token);
        let leave = if wake { self.vacate() } else { None };
        let clean_up = |node| Effect::CleanUp { node, step, token, wake_up, leave };
        match self.first {
            Some(first) => {
                out.push(clean_up(first));
                // The other masters were not asked, and have at most its position.
                let others = NodeId::all(nodes).filter(|node| *node != first);
                out.extend(leave.into_iter().flat_map(|waiter_id| {
                    others.clone().map(move |node| Effect::Dequeue { node, waiter_id, wake })
                }));
            }
            None => out.extend(NodeId::all(nodes).map(clean_up)),
        }
    }

    fn check_explained(&mut self, out: &mut Vec<Effect>) {
        let asks = |reply: &Reply| matches!(reply, Reply::Taken(Holder::NotAsked | Holder::Waiter));
        let open = self.votes.which(asks);
        // A clean-up that finds no holder is a reply, too: the other holder has let go meanwhile.
        if open.and(self.cleaned) == open && matches!(self.state, State::Explaining(_)) {
            self.state = State::Failed(Failure::Taken);
            out.push(Effect::Decided);
        }
    }

    /// Whether a master showed that others lock on it, but not on all of these masters.
    fn is_refused(&self) -> bool {
        let refuses = |reply: &Reply| matches!(reply, Reply::Unknown(cause) if cause.refuses());
        !self.votes.which(refuses).is_empty()
    }

    /// Whether no quorum is possible any more, because the lock was shut down or its runtime ended.
    fn is_shut_down(&self) -> bool {
        let is_gone =
            |reply: &Reply| matches!(reply, Reply::Unknown(Cause::ShutDown | Cause::RuntimeEnded));
        self.config.quorum().is_blocked_by(self.votes.which(is_gone))
    }

    /// The end of the round: one node timeout after its start. It is later, up to a quarter of the
    /// lease, if masters left the attempts before it unanswered. They may be slow, and an attempt
    /// must have enough time to succeed in the end.
    fn round_ends(&self) -> Time {
        let (opened, timeout) = (self.votes().opened(), self.config.node_timeout());
        let mut round = self.wait.stretched(timeout);
        if round > timeout {
            round = round.min(self.config.validity() / 4).max(timeout);
        }
        opened.plus(round).min(self.give_up.max(opened).plus(timeout))
    }

    /// When to look at the votes again at the latest. This is soon while only the first master is
    /// asked. A quorum that does not agree on a number waits for the other masters only while there
    /// is time for another round.
    fn voting_ends(&self) -> Time {
        if self.first.is_some() {
            // When to ask the other masters, too, although the first one has not replied.
            let timeout = self.wait.stretched(self.config.node_timeout());
            return self.votes.opened().plus(timeout / 4);
        }
        let granted = || self.votes.which(Reply::creates);
        if self.config.is_fenced() && self.config.quorum().is_in(granted()) {
            self.round_ends().min(self.last_call())
        } else {
            self.round_ends()
        }
    }

    /// Until when the caller may collect a won lease. If its future is not polled for long, no
    /// other client can have the resource meanwhile.
    fn collect_by(&self) -> Time {
        let policy = self.config.node_timeout().saturating_mul(8).max(COLLECT);
        self.deadline().min(self.won.plus(policy))
    }

    fn last_call(&self) -> Time {
        let time = self.config.validity().saturating_sub(self.config.node_timeout());
        self.votes.opened().plus(time)
    }

    /// t0 + TTL − drift, less what a clock may gain unnoticed (R1). It does not depend on when the
    /// replies came.
    pub fn deadline(&self) -> Time {
        self.votes.opened().plus(self.config.validity())
    }

    /// Whether a quorum granted and the lease waits to be collected.
    pub fn is_won(&self) -> bool {
        self.state == State::Won
    }

    /// Why it ended without a lease, if it did.
    pub fn failure(&self) -> Option<Failure> {
        match self.state {
            State::Failed(why) => Some(why),
            _ => None,
        }
    }

    /// Whether it sleeps between two attempts.
    pub fn is_waiting(&self) -> bool {
        self.state == State::Waiting
    }

    /// Why the latest attempt failed, or why a fair acquire has made none.
    pub const fn latest_failure(&self) -> Option<Failure> {
        self.latest
    }

    /// The number of the attempt under way, or of the last one; 0 before the first attempt.
    pub const fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The token of this attempt.
    pub const fn token(&self) -> Token {
        self.token
    }

    /// The votes of the latest round: on the key, or on the number to be certified.
    pub const fn votes(&self) -> &Votes {
        match &self.certification {
            Some(certification) => &certification.votes,
            None => &self.votes,
        }
    }

    pub(crate) const fn grants(&self) -> &Votes {
        &self.votes
    }

    /// How many rounds it took to certify the number; 0 if the grants agreed on one.
    pub fn certifications(&self) -> u32 {
        self.certification.as_ref().map_or(0, |last| last.round)
    }

    /// The fencing token of a won attempt, if the request asks for one.
    pub const fn fencing_token(&self) -> Option<u64> {
        self.fencing_token
    }

    pub(crate) const fn config(&self) -> LockConfig {
        self.config
    }
}

#[cfg(debug_assertions)]
impl Acquire {
    /// The masters on which the attempt under way may have set a key.
    pub(crate) fn may_have_set(&self) -> NodeSet {
        match (self.state, self.first) {
            (State::Voting | State::Certifying | State::Won, Some(first)) => {
                NodeSet::from_iter([first])
            }
            (State::Voting | State::Certifying | State::Won, None) => {
                NodeId::all(self.config.nodes()).collect()
            }
            _ => NodeSet::EMPTY,
        }
    }

    /// Whether its latest round was about its positions.
    pub(crate) const fn enqueues(&self) -> bool {
        self.enqueues
    }
}
