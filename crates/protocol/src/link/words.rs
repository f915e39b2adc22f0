//! What a link is told and what it wants done; its bounds and its state.

use alloc::sync::Arc;
use core::time::Duration;

use crate::effect::{Ask, Call, Key, Word};
use crate::ticket::{Spot, Ticket};
use crate::time::Time;
use crate::token::Token;
use crate::vote::Answer;
use crate::wire::{Command, Greeting};

/// Bounds of a link (R9).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Bounds {
    /// Commands unanswered and nothing heard for this long make the link stalled: no new votes,
    /// and a second connection is tried.
    pub stall: Duration,
    /// With this many commands unanswered, no new votes.
    pub unanswered: usize,
    /// With this many bytes of unanswered commands, no new votes.
    pub unanswered_bytes: usize,
    /// With this many clean-ups owed or to be owed, no new votes.
    pub ledger: usize,
    /// With keys of this many bytes owed or to be owed, no new votes.
    pub ledger_bytes: usize,
    /// So many waiters can be woken; more than these look now and then.
    pub listens: usize,
    /// The shortest pause between two tries to connect.
    pub retry_min: Duration,
    /// The longest such pause; it doubles from one to the other. Also the first pause before clean-ups
    /// are sent again that met an error; that one doubles up to 16 times this.
    pub retry_max: Duration,
}

impl Bounds {
    /// The default bounds for a node timeout.
    pub fn for_node_timeout(node_timeout: Duration) -> Self {
        Self {
            stall: node_timeout.saturating_mul(2),
            unanswered: 4096,
            unanswered_bytes: 32 << 20,
            ledger: 65_536,
            ledger_bytes: 64 << 20,
            listens: 131_072,
            retry_min: Duration::from_millis(10),
            retry_max: Duration::from_secs(1),
        }
    }
}

/// The identity of a master's process, from `INFO server`: another one after every restart.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RunId(pub Arc<str>);

/// What a link is told. `T` is whatever the driver wants back with an answer.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum LinkInput<T> {
    /// A claim asks this master about its resource.
    Send {
        /// The key of the resource.
        key: Key,
        /// What to ask.
        ask: Ask,
        /// Whom to tell.
        tag: T,
    },
    /// A claim is done with a token: its key shall go.
    Settle {
        /// The key of the resource.
        key: Key,
        /// Whose key.
        token: Token,
        /// Which waiter is woken when it is deleted.
        call: Call,
        /// The waiter that leaves the queue with this.
        leave: Option<Ticket>,
        /// Whom to tell.
        tag: T,
    },
    /// Ask for a position in the master's queue for a resource, or keep it.
    Stand {
        /// The key of the resource.
        key: Key,
        /// The waiter.
        ticket: Ticket,
        /// Where.
        spot: Spot,
        /// Whom to tell.
        tag: T,
    },
    /// The position is not needed any more.
    StepOut {
        /// The key of the resource.
        key: Key,
        /// The waiter.
        ticket: Ticket,
        /// Whether the first in the queue is woken, if the resource is free.
        call: bool,
    },
    /// This waiter is to be woken: subscribe, if the link is not subscribed already. What comes of it is told by
    /// [`LinkEffect::Hear`].
    Listen {
        /// The key of the resource.
        key: Key,
        /// The waiter.
        ticket: Ticket,
    },
    /// This waiter waits no longer.
    Unlisten(Ticket),
    /// A claim is over, and what it has under way gets a grace: its key shall go, if it is still there
    /// then. It is not owed until then, and nobody waits for it.
    Leave {
        /// Whose key.
        token: Token,
        /// Until when it is left alone.
        until: Time,
    },
    /// Does the master answer, take writes, and, with a guard, count for grants? Nothing is
    /// written.
    Probe(T),
    /// The master is new: mark it, unless it has a marker.
    Bless(T),
    /// A dialled connection was greeted: authenticated, scripts loaded, ready for commands.
    Connected {
        /// Its number, from [`LinkEffect::Dial`].
        epoch: u64,
        /// What the master said of itself.
        greeting: Greeting,
    },
    /// A dialled connection did not come up, or an open one broke.
    Closed {
        /// Its number.
        epoch: u64,
        /// Why, in words for a person.
        why: Arc<str>,
        /// A random number, for the jitter of the next try.
        random: u64,
    },
    /// The oldest unanswered command of this connection was answered.
    Answered {
        /// The connection's number.
        epoch: u64,
        /// What the master said.
        answer: Answer,
    },
    /// The master woke a waiter of this process.
    Woken {
        /// The connection's number.
        epoch: u64,
        /// The waiter.
        ticket: Ticket,
    },
    /// [`Link::next_wake`](crate::Link::next_wake) has come.
    Wake,
    /// No new votes from now on; what is owed is still paid.
    ShutDown,
}

/// What a link wants done, in this order.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum LinkEffect<T> {
    /// Write this to the current connection, behind everything written before.
    Write(Command),
    /// Open a connection with this number. One at a time: a newer number replaces an older try.
    Dial(u64),
    /// Give up the connection, or the try, with this number, by a reset.
    Close(u64),
    /// Tell the machine that asked.
    Tell(T, Answer),
    /// Tell the claims that wait for this resource, or hand it on.
    Hear(Key, Word),
}

/// Whether a link can collect votes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum LinkState {
    /// Connected, and answering.
    Up,
    /// Connected, but commands have been unanswered for too long.
    Stalled,
    /// Not connected, and why, if it is known.
    Down(Arc<str>),
}
