//! What is said to a master and what comes of it.

use std::sync::Arc;

use redquorum_protocol::wire::Command;
use redquorum_protocol::{Answer, Key, Ticket, Token};

use super::Connection;
use crate::sabotage::Laxity;

/// Nanoseconds of a master's own wall clock since the Unix epoch.
pub type Wall = u64;

/// What a client writes to a master.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// A command of the lock.
    Lock(Command),
    /// The same of a client whose script leaves something out.
    Lax(Command, Laxity),
    /// The handshake of a link: who are you, who am I, and here are the scripts.
    Hello,
    /// `DEL`, of a client that does not compare.
    Del(Key),
    /// `PEXPIRE`, of a client that does not compare: for so many milliseconds.
    PExpire(Key, u64),
    /// `GET`
    Get(Key),
    /// `PTTL`
    Pttl(Key),
    /// `TIME`
    Time,
    /// `FLUSHALL`
    FlushAll,
    /// `SCRIPT FLUSH`
    ScriptFlush,
}

/// What a master answers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// To [`Request::Lock`], [`Request::Lax`], [`Request::Del`] and [`Request::PExpire`]: as [`Expect::read`](redquorum_protocol::wire::Expect::read) reads it.
    Answer(Answer),
    /// To [`Request::Hello`].
    Greeting {
        /// The connection's id, unique in one run of the master and no longer.
        client_id: u64,
        /// Another one after every start.
        run_id: u64,
        /// The marker of guarded locks, if it has one.
        boot: Option<Arc<str>>,
        /// Whether it syncs every write before it answers.
        durable: bool,
    },
    /// To nothing: a waiter is woken.
    Woken(Ticket),
    /// To [`Request::Get`].
    Value(Option<Token>),
    /// To [`Request::Pttl`]: milliseconds, −2 where there is no such key.
    Pttl(i64),
    /// To [`Request::Time`], in whole microseconds.
    Time(Wall),
    /// To [`Request::FlushAll`] and [`Request::ScriptFlush`].
    Ok,
    /// An error to what is not a command of the lock. A link that is greeted so is unfit.
    Error(&'static str),
}

/// What comes of serving a connection, or of a fault.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// The answer to the oldest request of this connection that was not yet answered.
    Reply(Connection, Reply),
    /// Pushed to a connection that is subscribed: this waiter is woken.
    Woken(Connection, Ticket),
    /// The master's side is closed, and what it had not executed is lost. Not said of a connection
    /// that its client has closed.
    Dropped(Connection),
}
