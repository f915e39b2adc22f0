//! Claim: one caller's claim on one resource, from its first attempt to its last clean-up.
//!
//! It strings acquire, hold and release together, so that every driver (the Tokio shell, a
//! simulation, a test) goes through the same doors. It speaks to the masters only by
//! [`Effect`]s for their [links](crate::link); what it may have set is settled by every way
//! out: failure, loss, release, and [`Input::Abandon`].

use alloc::vec::Vec;
use core::time::Duration;

use crate::acquire::{Acquire, Patience};
use crate::effect::{Dice, Effect, Step, Word};
use crate::hold::Hold;
use crate::quorum::NodeId;
use crate::release::Release;
use crate::terms::Terms;
use crate::time::Time;
use crate::vote::Answer;

/// What a claim is told.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Input {
    /// A master's answer.
    Answered {
        /// Whose.
        node: NodeId,
        /// To what.
        step: Step,
        /// What it said.
        answer: Answer,
    },
    /// [`Claim::next_wake`] has come (or has not: an early wake does nothing).
    Wake,
    /// The caller comes for its lease.
    Collect,
    /// The holder wants its lease to live on, on these terms, from now.
    Extend(Terms),
    /// The holder wants the lease renewed for as long as it is held, but at most this long.
    KeepAlive(Duration),
    /// What a link heard of the resource: it is waited for.
    Heard {
        /// Whose link.
        node: NodeId,
        /// What it heard.
        word: Word,
    },
    /// Another claim of this process has the next turn: whatever gives the lease back now wakes no other waiter.
    HandOn,
    /// The caller does not respond: its future is not polled. The claim leaves the masters' queues, and the next
    /// waiter is woken. With the next [`Wake`](Input::Wake) it goes on.
    Yield,
    /// Other leases of the driver are renewed: this one, too, if its watchdog [may](crate::Renewal) by now.
    Renew,
    /// The owner acquires what it holds. It has another handle then, which [`Hold::handles`] counts,
    /// unless the lease is lost: it is at its deadline, or once a round has shown a gap.
    Reenter,
    /// The holder wants its lease to live at least as long as it does on these terms, from now. A
    /// lease that lives longer is left as it is.
    Prolong(Terms),
    /// The holder is done. One of several handles is counted down; the last gives the lease back.
    Release,
    /// The caller is gone: its future or its lease was dropped. Likewise.
    Abandon,
}

/// Where a claim stands.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Claim {
    /// It tries.
    Acquiring(Acquire),
    /// It holds the lease, or has lost it.
    Holding(Hold),
    /// It gives the lease back.
    Releasing(Release),
    /// Its caller is gone.
    Ended,
}

impl Claim {
    /// Starts to acquire.
    pub fn acquire(
        now: Time,
        terms: Terms,
        patience: Patience,
        dice: &mut dyn Dice,
        out: &mut Vec<Effect>,
    ) -> Self {
        Self::Acquiring(Acquire::start(now, terms, patience, dice, out))
    }

    /// Takes one input and says what is to be done.
    pub fn handle(&mut self, now: Time, input: Input, dice: &mut dyn Dice, out: &mut Vec<Effect>) {
        match (&mut *self, input) {
            (Self::Acquiring(acquire), Input::Answered { node, step, answer }) => {
                let (answer, reading) = answer.read();
                acquire.answered(now, step, (node, reading), answer, dice, out);
            }
            (Self::Acquiring(acquire), Input::Wake) => acquire.wake(now, dice, out),
            (Self::Acquiring(acquire), Input::Heard { node, word }) => {
                acquire.heard(now, node, word, dice, out);
            }
            (Self::Acquiring(acquire), Input::Yield) => acquire.yield_turn(out),
            (Self::Acquiring(acquire), Input::Collect) => {
                if acquire.collect(now, dice, out) {
                    *self = Self::Holding(Hold::new(acquire));
                }
            }
            (Self::Acquiring(acquire), Input::Abandon) => {
                acquire.abandon(out);
                *self = Self::Ended;
            }
            (Self::Holding(hold), Input::Answered { node, step, answer }) => {
                hold.answered(now, step, node, answer.plain(), out);
            }
            (Self::Holding(hold), Input::Wake) => hold.wake(now, out),
            (Self::Holding(hold), Input::Extend(terms)) => hold.extend(now, terms, out),
            (Self::Holding(hold), Input::KeepAlive(max_hold)) => {
                hold.keep_alive(now, max_hold, out);
            }
            (Self::Holding(hold), Input::HandOn) => hold.hand_on(),
            (Self::Holding(hold), Input::Renew) => hold.renew_early(now, out),
            (Self::Holding(hold), Input::Reenter) => hold.reenter(now, out),
            (Self::Holding(hold), Input::Prolong(terms)) => hold.prolong(now, terms, out),
            (Self::Holding(hold), Input::Release) if hold.has_others() => {
                hold.return_handle(now, out);
            }
            (Self::Holding(hold), Input::Abandon) if hold.has_others() => {
                hold.drop_handle(now, out);
            }
            (Self::Holding(hold), Input::Release) => {
                *self = Self::Releasing(Release::start(now, hold, out));
            }
            (Self::Holding(hold), Input::Abandon) => {
                // A lost lease has been seen to already.
                if hold.lost().is_none() {
                    hold.leave(now, out);
                }
                *self = Self::Ended;
            }
            (Self::Releasing(release), Input::Answered { node, step: Step::Release, answer }) => {
                release.answered(now, node, answer.plain(), out);
            }
            (Self::Releasing(release), Input::Wake) => release.wake(now, out),
            (Self::Releasing(_), Input::Abandon) => *self = Self::Ended,
            // Late answers to what is over, and requests that no longer apply.
            _ => {}
        }
    }

    /// When to call [`Claim::handle`] with [`Input::Wake`] next.
    pub fn next_wake(&self) -> Time {
        match self {
            Self::Acquiring(acquire) => acquire.next_wake(),
            Self::Holding(hold) => hold.next_wake(),
            Self::Releasing(release) => release.next_wake(),
            Self::Ended => Time::NEVER,
        }
    }
}
