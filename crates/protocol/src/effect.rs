//! The messages between the machines: what a claim asks of the links, and what they report.

use alloc::sync::Arc;
use core::time::Duration;

use crate::quorum::NodeId;
use crate::time::Time;
use crate::token::Token;
use crate::waiter::{Position, WaiterId};

/// The key of a resource on every master: any bytes.
pub type Key = Arc<[u8]>;

/// What a driver, or the client, does for a [`Claim`](crate::Claim).
#[expect(missing_docs, reason = "a field without a comment is what its name says")]
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Effect {
    /// Send a command to a master's link, in order.
    Send { node: NodeId, step: RoundId, request: VoteRequest },
    /// The key with this token is no longer wanted: the link enqueues its clean-up (R5).
    CleanUp {
        node: NodeId,
        step: RoundId,
        token: Token,
        /// Which waiter is woken when it is deleted.
        wake_up: WakeUp,
        /// The waiter that leaves the queue with this clean-up.
        leave: Option<WaiterId>,
    },
    /// Ask a master to give this waiter a position in its queue for the resource, or to keep the
    /// one that it has.
    Enqueue { node: NodeId, step: RoundId, waiter_id: WaiterId, position: Position },
    /// Give up the position. The reply is for no machine.
    Dequeue {
        node: NodeId,
        waiter_id: WaiterId,
        /// Whether the master wakes the first waiter in the queue, if the resource is free there.
        wake: bool,
    },
    /// The claim waits: all links subscribe for it. The driver ends the subscription by
    /// [`LinkInput::Unsubscribe`](crate::LinkInput::Unsubscribe), when it sees that the claim no
    /// longer waits.
    Subscribe { waiter_id: WaiterId },
    /// The lease of this token is over without a release: the link enqueues the clean-up (R5), but
    /// not before the lock delay of writes that are under way is over.
    Leave {
        node: NodeId,
        token: Token,
        /// Until when the key is left alone.
        until: Time,
    },
    /// Something was decided: the caller of this claim should look at it again.
    Decided,
}

/// Which waiter is woken when a key is deleted.
///
/// Only the key of a holder, or of an attempt that kept others from the resource, is worth a
/// wake-up. If failed attempts woke waiters, too, two waiters would wake each other as fast as
/// masters reply.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum WakeUp {
    /// None: the key is of an attempt that failed.
    None,
    /// None: the next claim of this process has its turn. The waiters are counted.
    Count,
    /// The first waiter in the master's queue, without a message: the master forbids the message,
    /// so the waiter sees the free resource when it looks.
    Quiet,
    /// The first waiter in the master's queue.
    First,
}

/// What a link reports about a resource while a claim waits for it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum QueueEvent {
    /// Subscribed: from now on, the master of the link wakes the waiters of this process.
    Subscribed,
    /// Not subscribed, or no longer.
    NotSubscribed,
    /// Refused on this connection: the master forbids it to subscribe, or does not support push
    /// messages.
    Refused,
    /// The resource became free on the master, and this waiter is the first in its queue. This is a
    /// hint: it may be late, or lost.
    Free(WaiterId),
    /// How many waiters were in the queue when a key of this process was deleted.
    Waiters(u32),
}

/// A command of a claim to one master about its resource.
#[expect(missing_docs, reason = "a field without a comment is what its name says")]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum VoteRequest {
    /// `SET NX PX`. If it is fair or has a fence, a script that does this and more.
    Set {
        token: Token,
        /// How long the master keeps it, in milliseconds.
        ttl_ms: u64,
        /// Whether the master refuses while a waiter is in its queue for the resource.
        fair: bool,
        /// What the counter becomes if the key is created: one more than it was, and at least this
        /// number, as far as the master's own clock allows.
        fence: Option<Fence>,
    },
    /// Compare-and-expire: if the key is still ours, it lives at least this long from now.
    Keep {
        token: Token,
        /// How long the master keeps the key at least, in milliseconds.
        ttl_ms: u64,
        /// Create the key if it is missing. This is asked only of a master that cannot vote in this
        /// round, so that a repair never replaces continuity (R6).
        repair: bool,
        /// The fencing token of the lease, if it has one. A repair is a grant: it raises the
        /// counter by at least one, and to the token, as far as the master's own clock allows.
        /// Otherwise the master remembers the counter for another period.
        fence: Option<Fence>,
    },
    /// If the key is still ours, raise its counter to at least this number, and report the counter.
    Certify {
        token: Token,
        /// The number, and how long the counter is remembered.
        fence: Fence,
    },
}

impl VoteRequest {
    /// The value of the key.
    pub const fn token(self) -> Token {
        match self {
            Self::Set { token, .. } | Self::Keep { token, .. } | Self::Certify { token, .. } => {
                token
            }
        }
    }
}

/// The largest number that a counter may show. Above it, numbers in Lua are not exact: 2⁵³ + 1
/// would be 2⁵³.
pub const MAX_NUMBER: u64 = (1 << 53) - 2;

/// What a command does to a master's counter.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Fence {
    /// The number that the counter must reach at least.
    pub number: u64,
    /// How long the master keeps the counter from now on, in milliseconds.
    pub memory_ms: u64,
}

/// What a reply belongs to. A number distinguishes the attempts and the rounds, so that a late
/// reply never counts for a newer command.
#[expect(missing_docs, reason = "a field without a comment is what its name says")]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RoundId {
    /// The `SET` of this attempt.
    Attempt(u32),
    /// A round of certifying the number of this attempt.
    Certify {
        attempt: u32,
        /// The round, counted from 1.
        round: u32,
    },
    /// This round of asking for positions in the queues.
    Enqueue(u32),
    /// The clean-up of this attempt.
    Cleanup(u32),
    /// This round of extending.
    Extend(u32),
    /// The release, or the clean-up after a loss.
    Release,
}

/// The source of what a claim cannot decide itself: random tokens, growing numbers, and pauses.
pub trait Rng {
    /// A fresh token, from a source that is unpredictable.
    fn token(&mut self) -> Token;

    /// The time of the wall clock, in microseconds since 1970. It is a hint that helps the masters'
    /// counters to agree. A wrong one costs round trips, not safety.
    fn hint(&mut self) -> u64;

    /// The pause after attempt `attempt` (counted from 1) failed.
    fn pause(&mut self, attempt: u32) -> Duration;

    /// Any number, for jitter.
    fn random(&mut self) -> u64;
}
