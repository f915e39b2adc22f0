//! The inputs and effects of a link, its bounds and its state.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use crate::effect::{Key, QueueEvent, VoteRequest, WakeUp};
use crate::time::Time;
use crate::token::Token;
use crate::vote::{Cause, Reply};
use crate::waiter::{Position, WaiterId};
use crate::wire::{Command, Greeting};

/// Bounds of a link (R9).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Bounds {
    /// The link counts as stalled if commands are unanswered and nothing is received for this long.
    /// Then it refuses requests for votes and tries a second connection.
    pub stall: Duration,
    /// The link asks the master whether it takes writes when nothing was received for this long.
    pub idle: Duration,
    /// The link refuses requests for votes while this many commands are unanswered.
    pub unanswered: usize,
    /// The link refuses requests for votes while unanswered commands have this many bytes.
    pub unanswered_bytes: usize,
    /// The link refuses new keys while the ledger has this many.
    pub ledger: usize,
    /// The link refuses new keys while those in the ledger have this many bytes.
    pub ledger_bytes: usize,
    /// How many waiters the master wakes. Further ones look from time to time.
    pub subscriptions: usize,
    /// The shortest pause between two attempts to connect.
    pub retry_min: Duration,
    /// The longest pause between two attempts to connect; the pause doubles from the shortest to
    /// this. It is also the first pause before the link sends clean-ups again that met an error.
    /// That pause doubles up to 16 times this.
    pub retry_max: Duration,
}

impl Bounds {
    /// The default bounds for a node timeout.
    pub fn for_node_timeout(node_timeout: Duration) -> Self {
        Self {
            stall: node_timeout.saturating_mul(2),
            idle: Duration::from_secs(15),
            unanswered: 4096,
            unanswered_bytes: 32 << 20,
            ledger: 65_536,
            ledger_bytes: 64 << 20,
            subscriptions: 131_072,
            retry_min: Duration::from_millis(10),
            retry_max: Duration::from_secs(1),
        }
    }
}

/// What a driver passes to a link. `T` is a tag that the link returns with the reply.
#[expect(missing_docs, reason = "a field without a comment is what its name says")]
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum LinkInput<T> {
    /// A claim asks this master about its resource.
    Send { key: Key, request: VoteRequest, tag: T },
    /// A claim is done with a token: its key must go. `wake_up` says which waiter is woken then,
    /// and `leave` is the waiter that leaves the queue with this.
    CleanUp { key: Key, token: Token, wake_up: WakeUp, leave: Option<WaiterId>, tag: T },
    /// Ask for a position in the master's queue for a resource, or keep it.
    Enqueue { key: Key, waiter_id: WaiterId, position: Position, tag: T },
    /// The position is no longer needed. With `wake`, the master wakes the first waiter in the
    /// queue, if the resource is free.
    Dequeue { key: Key, waiter_id: WaiterId, wake: bool },
    /// The master is to wake this waiter: subscribe, unless the link is subscribed already.
    /// [`LinkEffect::QueueEvent`] reports the result.
    Subscribe { key: Key, waiter_id: WaiterId },
    /// This waiter no longer waits.
    Unsubscribe(WaiterId),
    /// A claim is over, and its writes in flight get a lock delay: the key is left alone until
    /// `until`, and must go if it is still there then. Until then no clean-up is pending. No caller
    /// waits for it.
    Leave { token: Token, until: Time },
    /// Ask who holds a resource. The token is a fresh one, of no claim. Nothing is written.
    AskHolder { key: Key, token: Token, tag: T },
    /// Ask whether the master replies, takes writes and, with a guard, counts for grants. Nothing
    /// is written.
    Probe(T),
    /// Initialize a new master: set its boot marker, unless it has one.
    Initialize(T),
    /// A dialled connection was greeted: it is authenticated, has its scripts and takes commands.
    Connected { epoch: u64, greeting: Greeting },
    /// A dialled connection did not come up, or an open one broke. `why` is for a person to read,
    /// `random` a random number for the jitter of the next attempt.
    Closed { epoch: u64, why: Arc<str>, random: u64 },
    /// The oldest unanswered command of this connection was answered.
    Replied { epoch: u64, reply: Reply },
    /// The link of another master found the server of this link at its own address: dial again,
    /// since the address of this master may lead elsewhere by now.
    Doubt,
    /// The master woke a waiter of this process.
    Woken { epoch: u64, waiter_id: WaiterId },
    /// The time of [`Link::next_wake`](crate::Link::next_wake) has come.
    Wake,
    /// Refuse requests from now on; pending clean-ups go on.
    ShutDown,
    /// The driver is gone: nothing is sent any more.
    Abandon,
}

/// What the driver must do, in this order.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum LinkEffect<T> {
    /// Write this to the current connection, behind everything written before.
    Write(Command),
    /// Open a connection with this number. There is one attempt at a time: a newer number replaces
    /// an older one.
    Dial(u64),
    /// Give up the connection, or the attempt, with this number, by a reset.
    Close(u64),
    /// Pass the reply to the machine that asked, by its tag.
    Reply(T, Reply),
    /// Notify the claims that wait for this resource, or hand it on.
    QueueEvent(Key, QueueEvent),
}

/// The time and the effects of one input.
pub(super) struct Context<'a, T> {
    pub(super) now: Time,
    pub(super) out: &'a mut Vec<LinkEffect<T>>,
}

impl<T> Context<'_, T> {
    pub(super) fn unknown(&mut self, tag: T, cause: Cause) {
        self.out.push(LinkEffect::Reply(tag, Reply::Unknown(cause)));
    }
}

/// Whether a link can collect votes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum LinkState {
    /// The link is connected, and the master replies.
    Up,
    /// The link is connected, and the server refuses all votes because of what it is: a replica, or
    /// a server that asks for a login. The text is its error. The link tries further connections,
    /// since the master's name may lead to another server by now.
    Refusing(Arc<str>),
    /// The link is connected, but commands have been unanswered for too long.
    Stalled,
    /// The link is not connected. The text says why, if that is known.
    Down(Arc<str>),
}
