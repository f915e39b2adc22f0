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
    /// So many resources are listened for; who waits for more looks now and then.
    pub listens: usize,
    /// The shortest pause between two tries to connect, or to pay a debt that met an error.
    pub retry_min: Duration,
    /// The longest such pause; it doubles from one to the other.
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
        /// Who is told when it is deleted.
        call: Call,
        /// Whom to tell.
        tag: T,
    },
    /// Ask for a place in the master's line for a resource, or keep it.
    Stand {
        /// The key of the resource.
        key: Key,
        /// Whose place.
        ticket: Ticket,
        /// At which number.
        number: Spot,
        /// Whom to tell.
        tag: T,
    },
    /// The place is wanted no more.
    StepOut {
        /// The key of the resource.
        key: Key,
        /// Whose place.
        ticket: Ticket,
        /// Whether the first in the line is told, if the resource is free.
        call: bool,
    },
    /// Somebody waits for a resource: listen for it, if it is not listened for already. What is heard is
    /// said by [`LinkEffect::Hear`].
    Listen(Key),
    /// Nobody waits for it any more.
    Unlisten(Key),
    /// A claim is over, and what it has under way gets a grace: its key shall go, if it is still there
    /// then. It is not owed until then, and nobody waits for it.
    Leave {
        /// Whose key.
        token: Token,
        /// Until when it is left alone.
        until: Time,
    },
    /// Is the master alive?
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
    /// The master said unasked that a resource became free there.
    Freed {
        /// The connection's number.
        epoch: u64,
        /// The key of the resource.
        key: Key,
        /// Who is the first in the master's line, if it said that.
        next: Option<Ticket>,
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
    /// Tell whoever asked.
    Tell(T, Answer),
    /// Tell whoever waits for this resource, or hands it on.
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
