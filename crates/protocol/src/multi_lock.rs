//! Multi-lock: claims on several resources, of which all are won or none.
//!
//! Every resource has an ordinary [`Claim`](crate::Claim) with a token, a deadline and, if fenced,
//! a number of its own. The commands to the masters are the same, and each lease is as safe as it
//! is alone. This machine only decides when to start and undo each claim; its driver reports the
//! results.
//!
//! 1. All members are tried at once, with one attempt each: one round trip for all.
//! 2. If one fails, all others are undone at once. **The machine holds nothing while it waits**, so
//!    no two callers wait for each other, whatever the order in which they name their resources.
//! 3. After a pause with jitter, the member that failed is waited for alone, like any other
//!    acquire.
//! 4. Once it is won, it is kept, and the others are tried at once, with one attempt each. If one
//!    fails: step 2.
//!
//! Two callers that each get some of what the other wants undo that and pause for a random time, so
//! that they do not undo each other for ever. Other claims do not wait for a multi-lock. Under a
//! steady load on each of its resources, a caller may find one of them taken every time, until its
//! wait is over.

use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use crate::acquire::Failure;
use crate::client::Progress;
use crate::effect::Rng;
use crate::time::Time;

/// An input of the machine. Members are the claims, counted from 0 in the one order that all
/// callers use.
#[expect(missing_docs, reason = "a field without a comment is what its name says")]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum MemberEvent {
    /// A quorum granted this member until this deadline. It is not collected yet.
    Won { member: usize, deadline: Time },
    /// The lease of this member is collected.
    Collected { member: usize },
    /// This member ended without a lease, or it was won and could not be collected.
    Failed { member: usize, why: Failure },
    /// [`MultiLock::next_wake`] has come. An early wake does nothing.
    Wake,
    /// The caller is gone.
    Abandon,
}

impl MemberEvent {
    /// The result of a member's claim, if it has one.
    pub const fn result(member: usize, progress: Progress<'_>) -> Option<Self> {
        match progress {
            Progress::Won(deadline) => Some(Self::Won { member, deadline }),
            Progress::Failed(why, ..) => Some(Self::Failed { member, why }),
            _ => None,
        }
    }

    /// What has come of collecting a member's lease.
    pub const fn of_collect(member: usize, progress: Progress<'_>) -> Self {
        match progress {
            Progress::Held => Self::Collected { member },
            Progress::Failed(why, ..) => Self::Failed { member, why },
            // A claim that was waited for may try again, although it has lost what it had won.
            _ => Self::Failed { member, why: Failure::TooLate },
        }
    }
}

/// What the driver does for the machine, in this order.
#[expect(missing_docs, reason = "a field without a comment is what its name says")]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum MemberAction {
    /// Start a claim for this member: see
    /// [`AcquireRequest::for_member`](crate::AcquireRequest::for_member). It may wait for this long
    /// (zero: one attempt), and learns which client holds the resource if it is to `explain`.
    Try { member: usize, wait: Duration, explain: bool },
    /// Collect the lease of this member, and report the result. All members are won.
    Collect { member: usize },
    /// Forget the claim of this member. Give up its attempt, or give its lease back at once: no
    /// work has begun under it.
    Undo { member: usize },
    /// Something was decided: the caller should look at the machine again.
    Decided,
}

/// The machine of one multi-lock.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct MultiLock {
    members: Vec<Member>,
    give_up: Time,
    rounds: u32,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Member {
    /// Nothing is held, and no claim is under way.
    Idle,
    Tried,
    /// Its claim is won, until this deadline.
    Won(Time),
    /// Its lease is collected, until this deadline.
    Collected(Time),
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum State {
    /// All members, or all others, are tried at once.
    Trying,
    /// A round failed because of this member. The machine waits for it from this time on.
    Pausing { until: Time, member: usize },
    /// This member is waited for; no other is tried.
    Waiting { member: usize },
    /// All members are won. Their leases are collected now.
    Collecting,
    /// The caller has all leases.
    Held,
    /// The machine ended without leases, because of this member.
    Failed { member: usize, why: Failure },
    /// The caller is gone.
    Ended,
}

impl MultiLock {
    /// Tries all members at once. If not all are won, the machine goes on for as long as `wait`.
    /// Zero: one round.
    pub fn start(now: Time, members: usize, wait: Duration, out: &mut Vec<MemberAction>) -> Self {
        let mut multi_lock = Self {
            members: vec![Member::Idle; members],
            give_up: now.plus(wait),
            rounds: 0,
            state: State::Trying,
        };
        if members == 1 {
            multi_lock.rounds = 1;
            multi_lock.wait_for(now, 0, out);
        } else {
            multi_lock.try_idle(now, out);
        }
        multi_lock
    }

    /// Takes one input, and adds what is to be done to `out`.
    pub fn handle(
        &mut self,
        now: Time,
        event: MemberEvent,
        rng: &mut dyn Rng,
        out: &mut Vec<MemberAction>,
    ) {
        match event {
            MemberEvent::Won { member, deadline } => self.won(now, member, deadline, out),
            MemberEvent::Collected { member } => self.collected(now, member, rng, out),
            MemberEvent::Failed { member, why } => self.failed(now, member, why, rng, out),
            MemberEvent::Wake => {
                if let State::Pausing { until, member } = self.state
                    && now >= until
                {
                    self.wait_for(now, member, out);
                }
            }
            MemberEvent::Abandon => {
                if !matches!(self.state, State::Held | State::Failed { .. }) {
                    self.undo_all(out);
                    self.state = State::Ended;
                }
            }
        }
        debug_assert!(self.keeps_its_rules(), "{self:?}");
    }

    /// Whether what is held fits the state.
    fn keeps_its_rules(&self) -> bool {
        let all = |what: fn(&Member) -> bool| self.members.iter().all(what);
        match self.state {
            State::Trying => all(|it| matches!(it, Member::Tried | Member::Won(_))),
            // No two callers wait for each other.
            State::Pausing { .. } | State::Failed { .. } | State::Ended => {
                all(|it| *it == Member::Idle)
            }
            State::Waiting { member } => self.members.iter().enumerate().all(|(at, it)| {
                if at == member { *it == Member::Tried } else { *it == Member::Idle }
            }),
            State::Collecting => all(|it| matches!(it, Member::Won(_) | Member::Collected(_))),
            State::Held => all(|it| matches!(it, Member::Collected(_))),
        }
    }

    /// When to call [`MultiLock::handle`] with [`MemberEvent::Wake`] next. Claims have wakes of
    /// their own.
    pub const fn next_wake(&self) -> Time {
        match self.state {
            State::Pausing { until, .. } => until,
            _ => Time::NEVER,
        }
    }

    /// Tries every member that is not under way yet, with one attempt each.
    fn try_idle(&mut self, now: Time, out: &mut Vec<MemberAction>) {
        self.state = State::Trying;
        self.rounds = self.rounds.saturating_add(1);
        // An attempt that is followed by another round does not spend time on an explanation.
        let (wait, explain) = (Duration::ZERO, now >= self.give_up);
        for (member, state) in self.members.iter_mut().enumerate() {
            if *state == Member::Idle {
                *state = Member::Tried;
                out.push(MemberAction::Try { member, wait, explain });
            }
        }
        self.check_won(out);
    }

    /// Tries one member for as long as there is time.
    fn wait_for(&mut self, now: Time, member: usize, out: &mut Vec<MemberAction>) {
        self.state = State::Waiting { member };
        self.members[member] = Member::Tried;
        out.push(MemberAction::Try { member, wait: self.give_up.since(now), explain: true });
    }

    fn won(&mut self, now: Time, member: usize, deadline: Time, out: &mut Vec<MemberAction>) {
        // A late report about a member that was undone meanwhile does not count.
        if !self.awaits(member) {
            return;
        }
        self.members[member] = Member::Won(deadline);
        match self.state {
            State::Waiting { .. } if self.members.len() > 1 => self.try_idle(now, out),
            _ => self.check_won(out),
        }
    }

    fn check_won(&mut self, out: &mut Vec<MemberAction>) {
        if self.members.iter().all(|member| matches!(member, Member::Won(_))) {
            self.state = State::Collecting;
            out.extend((0..self.members.len()).map(|member| MemberAction::Collect { member }));
        }
    }

    fn failed(
        &mut self,
        now: Time,
        member: usize,
        why: Failure,
        rng: &mut dyn Rng,
        out: &mut Vec<MemberAction>,
    ) {
        match self.members.get(member) {
            Some(Member::Tried) => {}
            Some(Member::Won(_) | Member::Collected(_)) if self.state == State::Collecting => {}
            _ => return,
        }
        self.undo_all(out);
        // A member that was waited for has used up the wait, or the lock is gone.
        let waited = matches!(self.state, State::Waiting { .. });
        if !waited && now < self.give_up {
            // The end of the wait cuts the pause short: one last attempt is made there.
            let until = now.plus(rng.pause(self.rounds)).min(self.give_up);
            self.state = State::Pausing { until, member };
        } else {
            self.state = State::Failed { member, why };
        }
        out.push(MemberAction::Decided);
    }

    /// The last look at the clock (R1), for all members: a process that slept since the last vote
    /// gets no lease at all if one of them has expired.
    fn collected(
        &mut self,
        now: Time,
        member: usize,
        rng: &mut dyn Rng,
        out: &mut Vec<MemberAction>,
    ) {
        let Some(Member::Won(deadline)) = self.members.get(member) else { return };
        self.members[member] = Member::Collected(*deadline);
        if !self.members.iter().all(|member| matches!(member, Member::Collected(_))) {
            return;
        }
        match self.earliest() {
            Some((member, deadline)) if now >= deadline => {
                self.failed(now, member, Failure::TooLate, rng, out);
            }
            earliest => {
                debug_assert!(
                    earliest.is_some_and(|(_, deadline)| now < deadline),
                    "R1: all leases are handed out before the earliest deadline"
                );
                self.state = State::Held;
                out.push(MemberAction::Decided);
            }
        }
    }

    fn undo_all(&mut self, out: &mut Vec<MemberAction>) {
        for (member, state) in self.members.iter_mut().enumerate() {
            if *state != Member::Idle {
                *state = Member::Idle;
                out.push(MemberAction::Undo { member });
            }
        }
    }

    fn earliest(&self) -> Option<(usize, Time)> {
        let won = self.members.iter().enumerate().filter_map(|(member, state)| match state {
            Member::Won(deadline) | Member::Collected(deadline) => Some((member, *deadline)),
            _ => None,
        });
        won.min_by_key(|(_, deadline)| *deadline)
    }

    /// Whether the result of this member's claim is yet to be reported.
    pub fn awaits(&self, member: usize) -> bool {
        self.members.get(member) == Some(&Member::Tried)
    }

    /// Whether the caller has all leases.
    pub fn is_held(&self) -> bool {
        self.state == State::Held
    }

    /// The member that failed last and the reason, if the machine ended without leases.
    pub const fn failure(&self) -> Option<(usize, Failure)> {
        match self.state {
            State::Failed { member, why } => Some((member, why)),
            _ => None,
        }
    }

    /// How many times all members were tried together, including the current try.
    pub const fn rounds(&self) -> u32 {
        self.rounds
    }

    /// The common deadline: the earliest one among the won members.
    pub fn deadline(&self) -> Option<Time> {
        self.earliest().map(|(_, deadline)| deadline)
    }
}
