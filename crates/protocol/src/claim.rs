//! Claim: one caller's claim on one resource, from its first attempt to its last clean-up.
//!
//! It combines acquire, hold and release, so that every driver (the Tokio shell, a simulation, a
//! test) uses the same interface. It reaches the masters only by [`Effect`]s for their
//! [links](crate::link). Every way out enqueues the clean-up of what the claim may have set:
//! failure, loss, release, and [`Input::Abandon`].

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;

use crate::acquire::{Acquire, Context, WaitPolicy};
use crate::effect::{Effect, QueueEvent, Rng, RoundId};
use crate::hold::Hold;
use crate::lock_config::LockConfig;
use crate::quorum::NodeId;
use crate::release::Release;
use crate::time::Time;
use crate::vote::Reply;

#[cfg(debug_assertions)]
mod rules;

/// An input of a claim.
#[expect(missing_docs, reason = "a field without a comment is what its name says")]
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Input {
    /// A master's reply.
    Replied { node: NodeId, step: RoundId, reply: Reply },
    /// [`Claim::next_wake`] has come. An early wake does nothing.
    Wake,
    /// The caller collects its lease.
    Collect,
    /// The holder extends the lease: it is to live by this config, from now. Boxed, because most
    /// inputs are replies, and each is moved several times.
    Extend(Box<LockConfig>),
    /// The holder wants the lease renewed while it is held, but for at most this long.
    KeepAlive(Duration),
    /// A link reports an event of the resource while the claim waits for it.
    QueueEvent { node: NodeId, event: QueueEvent },
    /// Another claim of this process has the next turn: if the lease is given back now, no other
    /// waiter is woken.
    HandOn,
    /// The caller does not respond: its future is not polled. An attempt is undone, the claim
    /// leaves the masters' queues, and the next waiter is woken. The claim goes on, with another
    /// attempt, with the next [`Wake`](Input::Wake). A lease that was won is not given up by this.
    Yield,
    /// The driver renews other leases: this one is renewed, too, if its watchdog
    /// [may](crate::Renewal) renew it by now.
    Renew,
    /// The owner acquires what it holds. It gets another handle, which [`Hold::handles`] counts,
    /// unless the lease is lost: at its deadline, or once a round has shown a gap.
    Reenter,
    /// The holder wants the lease to live at least as long as this config grants from now. A lease
    /// that lives longer does not change.
    Prolong(Box<LockConfig>),
    /// Others are to be kept out until then, also if the lease is given back before. The keys of a
    /// lease that lives shorter expire sooner.
    KeepUntil(Time),
    /// The client's clock was seen to run backwards. Deadlines that it measured are too late by an
    /// unknown time, so the attempt fails, or the lease is lost.
    ClockRanBack,
    /// The holder is done. This counts down one of several handles; the last handle gives the lease
    /// back.
    Release,
    /// The caller is gone: its future or its lease was dropped. Handles count as for
    /// [`Release`](Input::Release).
    Abandon,
}

impl Input {
    /// The holder extends the lease, by this config.
    pub fn extend(config: LockConfig) -> Self {
        Self::Extend(Box::new(config))
    }

    /// The holder wants the lease to live at least as long as this config grants from now.
    pub fn prolong(config: LockConfig) -> Self {
        Self::Prolong(Box::new(config))
    }
}

/// The state of a claim.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Claim {
    /// It tries to acquire.
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
        config: LockConfig,
        policy: WaitPolicy,
        rng: &mut dyn Rng,
        out: &mut Vec<Effect>,
    ) -> Self {
        Self::Acquiring(Acquire::start(config, policy, &mut Context { now, rng, out }))
    }

    /// Takes one input, and adds what is to be done to `out`.
    pub fn handle(&mut self, now: Time, input: Input, rng: &mut dyn Rng, out: &mut Vec<Effect>) {
        #[cfg(debug_assertions)]
        let before = rules::Before::new(self, &input, out);
        self.take(now, input, rng, out);
        #[cfg(debug_assertions)]
        before.check(self, now, out);
    }

    fn take(&mut self, now: Time, input: Input, rng: &mut dyn Rng, out: &mut Vec<Effect>) {
        match self {
            Self::Acquiring(acquire) => {
                let cx = &mut Context { now, rng, out };
                match input {
                    Input::Replied { node, step, reply } => {
                        let (reply, reading) = reply.read();
                        acquire.replied(step, (node, reading), reply, cx);
                    }
                    Input::Wake => acquire.wake(cx),
                    Input::QueueEvent { node, event } => acquire.queue_event(node, event, cx),
                    Input::Yield => acquire.yield_turn(cx),
                    Input::ClockRanBack => acquire.clock_ran_back(cx),
                    Input::Collect if acquire.collect(cx) => {
                        let hold = Hold::new(acquire);
                        #[cfg(debug_assertions)]
                        rules::granted(acquire, &hold, now);
                        *self = Self::Holding(hold);
                    }
                    Input::Abandon => {
                        acquire.abandon(cx.out);
                        *self = Self::Ended;
                    }
                    // It does not apply.
                    _ => {}
                }
            }
            Self::Holding(hold) => match input {
                Input::Replied { node, step, reply } => {
                    let (reply, reading) = reply.read();
                    hold.replied(now, step, (node, reading), reply, out);
                }
                Input::Wake => hold.wake(now, out),
                Input::Extend(config) => hold.extend(now, *config, out),
                Input::KeepAlive(max_hold) => hold.keep_alive(now, max_hold, out),
                Input::HandOn => hold.hand_on(),
                Input::Renew => hold.renew_early(now, out),
                Input::Reenter => hold.reenter(now, out),
                Input::ClockRanBack => hold.clock_ran_back(now, out),
                Input::Prolong(config) => hold.prolong(now, *config, out),
                Input::KeepUntil(until) => hold.keep_until(until),
                Input::Release if hold.has_others() => hold.return_handle(now, out),
                Input::Abandon if hold.has_others() => hold.drop_handle(now, out),
                Input::Release => *self = Self::Releasing(Release::start(now, hold, out)),
                Input::Abandon => {
                    // For a lost lease, the clean-up is enqueued already.
                    if hold.lost().is_none() {
                        hold.leave(now, out);
                    }
                    *self = Self::Ended;
                }
                // A late input to what is over.
                _ => {}
            },
            Self::Releasing(release) => match input {
                Input::Replied { node, step: RoundId::Release, reply } => {
                    release.replied(now, node, reply.plain(), out);
                }
                Input::Wake => release.wake(now, out),
                Input::Abandon => *self = Self::Ended,
                _ => {}
            },
            Self::Ended => {}
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

    /// Whether it still tries to get a lease.
    pub(crate) fn is_trying(&self) -> bool {
        matches!(self, Self::Acquiring(acquire) if acquire.failure().is_none())
    }

    /// The lease, if it has one.
    pub const fn hold(&self) -> Option<&Hold> {
        if let Self::Holding(hold) = self { Some(hold) } else { None }
    }

    /// How many handles of it are out. A claim that still tries to get a lease has one.
    pub(crate) fn handles(&self) -> u32 {
        self.hold().map_or_else(|| u32::from(self.is_trying()), Hold::handles)
    }
}
