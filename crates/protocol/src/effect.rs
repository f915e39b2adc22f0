//! The words between the machines: what a claim asks of the links, and what it is told.

use alloc::sync::Arc;
use core::time::Duration;

use crate::fence::Fence;
use crate::quorum::NodeId;
use crate::ticket::{Spot, Ticket};
use crate::time::Time;
use crate::token::Token;

/// The key of a resource on every master: any bytes.
pub type Key = Arc<[u8]>;

/// What a [`Claim`](crate::Claim) wants done.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Effect {
    /// Send this to a master's link, in order.
    Send {
        /// To whom.
        node: NodeId,
        /// What the answer belongs to.
        step: Step,
        /// What to ask.
        ask: Ask,
    },
    /// The key with this token is wanted no more: let the link pay its clean-up (R5).
    Settle {
        /// Whose link.
        node: NodeId,
        /// What the answer belongs to.
        step: Step,
        /// Whose key.
        token: Token,
        /// Which waiter is woken when it is deleted.
        call: Call,
        /// The waiter that leaves the queue with this.
        leave: Option<Ticket>,
    },
    /// Ask a master for a position in its queue for the resource, or keep the one that this waiter has.
    Stand {
        /// Whose.
        node: NodeId,
        /// What the answer belongs to.
        step: Step,
        /// The waiter.
        ticket: Ticket,
        /// Where.
        spot: Spot,
    },
    /// The position is not needed any more. The answer is for no machine.
    StepOut {
        /// Whose queue.
        node: NodeId,
        /// The waiter.
        ticket: Ticket,
        /// Whether the first in the queue is woken, if the resource is free there.
        call: bool,
    },
    /// The claim waits: let all links subscribe for it, until the driver sees that it waits no longer
    /// ([`LinkInput::Unlisten`](crate::LinkInput::Unlisten)).
    Listen {
        /// The waiter.
        ticket: Ticket,
    },
    /// The lease of this token is over and was not given back: let the link pay its clean-up (R5), but not
    /// before the grace of what is still under way is over.
    Leave {
        /// Whose link.
        node: NodeId,
        /// Whose key.
        token: Token,
        /// Until when it is left alone.
        until: Time,
    },
    /// Something was decided: whoever waits for this claim should look at it again.
    Decided,
}

impl Effect {
    /// Owes the clean-up of a token to all masters, the silent ones included (R5).
    pub(crate) fn settle_all(
        nodes: usize,
        step: Step,
        token: Token,
        call: Call,
        leave: Option<Ticket>,
    ) -> impl Iterator<Item = Self> {
        NodeId::all(nodes).map(move |node| Self::Settle { node, step, token, call, leave })
    }

    /// The same, for leases with a grace.
    pub(crate) fn leave_all(nodes: usize, token: Token, until: Time) -> impl Iterator<Item = Self> {
        NodeId::all(nodes).map(move |node| Self::Leave { node, token, until })
    }
}

/// Which waiter is woken when a key is deleted.
///
/// Only what held the resource, or kept others from it, is worth a wake-up: if attempts that failed woke others,
/// too, two waiters would wake each other as fast as masters answer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Call {
    /// None: an attempt failed.
    Nobody,
    /// None, since the next waiter of this process has its turn; but the waiters are counted.
    Counted,
    /// The first in the master's queue.
    Next,
}

/// What a link tells of a resource that is waited for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Word {
    /// From now on its master wakes the waiters of this process.
    Listening,
    /// It does not, or not any more.
    Deaf,
    /// It never will on this connection: it forbids it, or knows no push messages.
    Refused,
    /// The resource became free on its master, and this waiter is the first in its queue. A hint: it may be late,
    /// or lost.
    Free(Ticket),
    /// So many waiters were in the queue as a key of ours was deleted.
    Others(u32),
}

/// What a claim asks of one master about its resource.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Ask {
    /// `SET NX PX`; with a fence in a script that raises the counter, too.
    Set {
        /// The value of the key.
        token: Token,
        /// How long the master keeps it, in milliseconds.
        ttl_ms: u64,
        /// What the counter becomes, if the key is created: one more than it was, and at least
        /// this, as far as the master's own clock allows.
        fence: Option<Fence>,
    },
    /// Compare-and-expire: live at least this long from now, if the key is still ours.
    Keep {
        /// The value to compare with.
        token: Token,
        /// How long the master shall keep the key at least, in milliseconds.
        ttl_ms: u64,
        /// Create the key if it is missing. Asked only of a master that cannot vote in this
        /// round, so that a repair never stands in for continuity (R6).
        repair: bool,
        /// The lease's fencing token, if it has one. A repair is a grant: it raises the counter by
        /// at least one, and to the token. Else the counter is remembered anew.
        fence: Option<Fence>,
    },
    /// If the key is still ours, raise its counter to this number, and say at which it stands.
    Certify {
        /// The value to compare with.
        token: Token,
        /// The number.
        fence: Fence,
    },
}

impl Ask {
    /// How long the key may live from when the master got this, in milliseconds; 0: no longer
    /// than it would.
    pub const fn ttl_ms(self) -> u64 {
        match self {
            Self::Set { ttl_ms, .. } | Self::Keep { ttl_ms, .. } => ttl_ms,
            Self::Certify { .. } => 0,
        }
    }

    /// Whether a key may be there for it, or live longer, so that its clean-up is owed.
    pub const fn creates(self) -> bool {
        matches!(self, Self::Set { .. } | Self::Keep { .. })
    }

    /// The value of the key.
    pub const fn token(self) -> Token {
        match self {
            Self::Set { token, .. } | Self::Keep { token, .. } | Self::Certify { token, .. } => {
                token
            }
        }
    }
}

/// What an answer belongs to. A number tells one attempt or round from the next, so that a
/// late answer never counts for a newer question.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Step {
    /// The `SET` of this attempt.
    Attempt(u32),
    /// A round of certifying the number of this attempt.
    Certify {
        /// The attempt.
        attempt: u32,
        /// The round, counted from 1.
        round: u32,
    },
    /// This round of asking for a place in the line.
    Stand(u32),
    /// The clean-up of this attempt.
    Cleanup(u32),
    /// This round of extending.
    Extend(u32),
    /// The release, or the clean-up after a loss.
    Release,
}

/// What a claim cannot decide by itself: random tokens, numbers that grow, and how long to pause.
pub trait Dice {
    /// A fresh token, from a source that nobody can predict.
    fn token(&mut self) -> Token;

    /// What the wall clock shows, in microseconds since 1970: a hint by which the counters of the
    /// masters come to agree. A wrong one costs round trips, not safety.
    fn hint(&mut self) -> u64;

    /// How long to pause after attempt `attempt` (counted from 1) failed.
    fn pause(&mut self, attempt: u32) -> Duration;

    /// Any number, for jitter.
    fn random(&mut self) -> u64;
}
