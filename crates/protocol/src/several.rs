//! Several: claims on several resources, of which all are won or none.
//!
//! Every resource has an ordinary [`Claim`](crate::Claim), with a token, a deadline and, if fenced, a number
//! of its own. Nothing on the wire is new, and each lease is worth what it is worth alone. This machine only
//! says which claim is started and undone when; its driver tells it what became of them.
//!
//! 1. All are tried at once, one attempt each: one round trip for all.
//! 2. If one fails, all others are undone at once. **Nothing is held while anything is waited for**, so no
//!    two callers wait for each other, whatever the order in which they name their resources.
//! 3. After a pause with jitter, the one that was in the way is waited for alone, like any other acquire.
//! 4. Once it is won, the others are tried at once, one attempt each, while it is kept. If one fails: 2.
//!
//! Who gets some of what the other wants undoes it and pauses by chance, so that two do not undo each other
//! for ever. Nobody is kept waiting for those who want several: under a steady load of others on each of the
//! resources, a caller may find one of them taken every time, until its wait is over.

use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use crate::acquire::{Failure, Patience, Turn};
use crate::effect::Dice;
use crate::time::Time;

/// What the machine is told. Members are the claims, counted from 0 in the one order that all callers use.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Told {
    /// A quorum granted this one. It is not collected yet.
    Won {
        /// Which.
        member: usize,
        /// Its deadline.
        deadline: Time,
    },
    /// This one ended without a lease; or it was won, and could not be collected.
    Failed {
        /// Which.
        member: usize,
        /// Why.
        why: Failure,
    },
    /// [`Several::next_wake`] has come (or has not: an early wake does nothing).
    Wake,
    /// All are collected, and the caller comes for them.
    Collect,
    /// The caller is gone.
    Abandon,
}

/// What the machine wants done, in this order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Order {
    /// Start a claim for this one, with a fresh token. If it waits, it may have its turn among others of this
    /// process first, and be woken or not, as the driver has it.
    Try {
        /// Which.
        member: usize,
        /// How long it may try.
        patience: Patience,
    },
    /// Give up the claim on this one, or give it back at once: nobody has worked under it.
    Undo {
        /// Which.
        member: usize,
    },
    /// Something was decided: whoever waits should look.
    Decided,
}

/// The machine.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Several {
    members: Vec<Member>,
    give_up: Time,
    rounds: u32,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Member {
    /// Nothing is held and nothing is asked.
    Idle,
    /// Its claim is under way.
    Tried,
    /// Its claim is won, until then.
    Won(Time),
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum State {
    /// All, or all others, are tried at once.
    Trying,
    /// A round failed; this one was in the way, and is waited for from then on.
    Pausing { until: Time, member: usize },
    /// This one is waited for; no other is asked for.
    Waiting { member: usize },
    /// All are won; the caller has not come for them yet.
    Won,
    /// The caller has them all.
    Held,
    /// It is over: this one was in the way.
    Failed { member: usize, why: Failure },
    /// The caller is gone.
    Ended,
}

impl Several {
    /// Tries all at once. If not all are won, goes on for as long as `wait`; zero: one round.
    pub fn start(now: Time, members: usize, wait: Duration, out: &mut Vec<Order>) -> Self {
        let mut several = Self {
            members: vec![Member::Idle; members],
            give_up: now.plus(wait),
            rounds: 0,
            state: State::Trying,
        };
        if members == 1 {
            several.rounds = 1;
            several.wait_for(now, 0, out);
        } else {
            several.try_idle(now, out);
        }
        several
    }

    /// Takes one input and says what is to be done.
    pub fn handle(&mut self, now: Time, told: Told, dice: &mut dyn Dice, out: &mut Vec<Order>) {
        match told {
            Told::Won { member, deadline } => self.won(now, member, deadline, out),
            Told::Failed { member, why } => self.failed(now, member, why, dice, out),
            Told::Wake => {
                if let State::Pausing { until, member } = self.state
                    && now >= until
                {
                    self.wait_for(now, member, out);
                }
            }
            Told::Collect => self.collect(now, dice, out),
            Told::Abandon => {
                if !matches!(self.state, State::Held | State::Failed { .. }) {
                    self.undo_all(out);
                    self.state = State::Ended;
                }
            }
        }
    }

    /// When to call [`Several::handle`] with [`Told::Wake`] next. Claims have wakes of their own.
    pub const fn next_wake(&self) -> Time {
        match self.state {
            State::Pausing { until, .. } => until,
            _ => Time::NEVER,
        }
    }

    /// Asks for whatever is not asked for yet, one attempt each.
    fn try_idle(&mut self, now: Time, out: &mut Vec<Order>) {
        self.state = State::Trying;
        self.rounds = self.rounds.saturating_add(1);
        let patience = self.patience(now, Duration::ZERO);
        for (member, state) in self.members.iter_mut().enumerate() {
            if *state == Member::Idle {
                *state = Member::Tried;
                out.push(Order::Try { member, patience });
            }
        }
        self.check_won(out);
    }

    /// Asks for one, for as long as there is time.
    fn wait_for(&mut self, now: Time, member: usize, out: &mut Vec<Order>) {
        self.state = State::Waiting { member };
        self.members[member] = Member::Tried;
        let patience = self.patience(now, self.give_up.since(now));
        out.push(Order::Try { member, patience });
    }

    /// Who will try all again has no use for what costs time after one attempt.
    fn patience(&self, now: Time, wait: Duration) -> Patience {
        let explain = !wait.is_zero() || now >= self.give_up;
        Patience { wait, explain, wake_ups: true, fair: false, turn: Turn::First }
    }

    fn won(&mut self, now: Time, member: usize, deadline: Time, out: &mut Vec<Order>) {
        // Not for one that was undone meanwhile.
        if self.members.get(member) != Some(&Member::Tried) {
            return;
        }
        self.members[member] = Member::Won(deadline);
        match self.state {
            State::Waiting { .. } if self.members.len() > 1 => self.try_idle(now, out),
            _ => self.check_won(out),
        }
    }

    fn check_won(&mut self, out: &mut Vec<Order>) {
        if self.members.iter().all(|member| matches!(member, Member::Won(_))) {
            self.state = State::Won;
            out.push(Order::Decided);
        }
    }

    fn failed(
        &mut self,
        now: Time,
        member: usize,
        why: Failure,
        dice: &mut dyn Dice,
        out: &mut Vec<Order>,
    ) {
        match self.members.get(member) {
            // It has cleaned up behind itself.
            Some(Member::Tried) => self.members[member] = Member::Idle,
            Some(Member::Won(_)) if self.state == State::Won => {}
            _ => return,
        }
        self.undo_all(out);
        // One that was waited for has used the wait up, or there is no lock any more.
        let waited = matches!(self.state, State::Waiting { .. });
        if !waited && now < self.give_up {
            // The pause is cut at the end of the wait, where one last attempt is made.
            let until = now.plus(dice.pause(self.rounds)).min(self.give_up);
            self.state = State::Pausing { until, member };
        } else {
            self.state = State::Failed { member, why };
        }
        out.push(Order::Decided);
    }

    /// The last look at the clock (R1), for all of them: whoever sleeps between the last vote and this line
    /// gets no lease that has expired, of none of them.
    fn collect(&mut self, now: Time, dice: &mut dyn Dice, out: &mut Vec<Order>) {
        if self.state != State::Won {
            return;
        }
        match self.earliest() {
            Some((member, deadline)) if now >= deadline => {
                self.failed(now, member, Failure::TooLate, dice, out);
            }
            _ => self.state = State::Held,
        }
    }

    fn undo_all(&mut self, out: &mut Vec<Order>) {
        for (member, state) in self.members.iter_mut().enumerate() {
            if *state != Member::Idle {
                *state = Member::Idle;
                out.push(Order::Undo { member });
            }
        }
    }

    /// Whose deadline comes first.
    fn earliest(&self) -> Option<(usize, Time)> {
        let won = self.members.iter().enumerate().filter_map(|(member, state)| match state {
            Member::Won(deadline) => Some((member, *deadline)),
            _ => None,
        });
        won.min_by_key(|(_, deadline)| *deadline)
    }

    /// Whether all are won and wait to be collected.
    pub fn is_won(&self) -> bool {
        self.state == State::Won
    }

    /// Whether the caller has them all.
    pub fn is_held(&self) -> bool {
        self.state == State::Held
    }

    /// Which was in the way at last, and why, once it is over without leases.
    pub const fn failure(&self) -> Option<(usize, Failure)> {
        match self.state {
            State::Failed { member, why } => Some((member, why)),
            _ => None,
        }
    }

    /// How often all of them were tried together, or are being tried now.
    pub const fn rounds(&self) -> u32 {
        self.rounds
    }

    /// The deadline of all together: the earliest of those that are won.
    pub fn deadline(&self) -> Option<Time> {
        self.earliest().map(|(_, deadline)| deadline)
    }
}
