//! Requests to a master, its replies, and its events.

use std::sync::Arc;

use redquorum_protocol::wire::Command;
use redquorum_protocol::{Key, Reply, Token, WaiterId};

use super::Connection;
use crate::mutants::ScriptMutant;

/// What a master's own wall clock shows: nanoseconds since the Unix epoch.
pub type Wall = u64;

/// A request of a client to a master.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// A command of the lock.
    Lock(Command),
    /// A command of a client whose script leaves something out.
    Lax(Command, ScriptMutant),
    /// The handshake of a link: identifies the server and the connection, and loads the scripts.
    Hello,
    /// `DEL` of a client that does not compare the token.
    Del(Key),
    /// `PEXPIRE`, for so many milliseconds, of a client that does not compare the token.
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

/// A reply of a master.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ServerReply {
    /// To [`Request::Lock`], [`Request::Lax`], [`Request::Del`] and [`Request::PExpire`]: the same
    /// value that [`Expect::read`](redquorum_protocol::wire::Expect::read) returns.
    Reply(Reply),
    /// To [`Request::Hello`].
    Greeting {
        /// The connection's id, unique within one run of the master only.
        client_id: u64,
        /// Differs after every start.
        run_id: u64,
        /// The boot marker of guarded locks, if the master has one.
        boot: Option<Arc<str>>,
        /// Whether the master syncs every write before it replies.
        durable: bool,
    },
    /// To no request: wakes a waiter.
    Woken(WaiterId),
    /// To [`Request::Get`].
    Value(Option<Token>),
    /// To [`Request::Pttl`]: milliseconds, or −2 if the key does not exist.
    Pttl(i64),
    /// To [`Request::Time`], in whole microseconds.
    Time(Wall),
    /// To [`Request::FlushAll`] and [`Request::ScriptFlush`].
    Ok,
    /// An error in reply to a request that is no command of the lock. A link whose handshake gets
    /// it is unfit.
    Error(&'static str),
}

/// An effect of serving a connection, or of a fault.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// The reply to the oldest unanswered request of this connection.
    ServerReply(Connection, ServerReply),
    /// A push message on a connection that is subscribed: wakes this waiter.
    Woken(Connection, WaiterId),
    /// The master closed its end, and the requests that it had not executed are lost. Not reported
    /// for a connection that its client has closed.
    Dropped(Connection),
}
