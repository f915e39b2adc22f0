//! Replies and push messages, and the events of a server.

use std::borrow::Cow;
use std::sync::Arc;

use redquorum_protocol::wire::{Expect, Frame, Greeting, channel_of};
use redquorum_protocol::{Reply, Waiter};

use crate::Connection;

/// A value of Redis's protocol: a reply, or a part of one.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Value {
    /// A short text, such as `OK`.
    Simple(Cow<'static, [u8]>),
    /// An error, which starts with its code.
    Error(Cow<'static, [u8]>),
    /// A number.
    Integer(i64),
    /// Any bytes.
    Bulk(Arc<[u8]>),
    /// The absence of a value.
    Null,
    /// A sequence.
    Array(Vec<Self>),
    /// Keys and values in turn.
    Map(Vec<Self>),
    /// A message that is no reply, or the reply to a subscription.
    Push(Vec<Self>),
}

impl Value {
    /// `OK`
    pub const OK: Self = Self::Simple(Cow::Borrowed(b"OK"));

    /// A bulk with these bytes.
    pub fn bulk(bytes: impl AsRef<[u8]>) -> Self {
        Self::Bulk(Arc::from(bytes.as_ref()))
    }

    /// The value as a frame of the protocol.
    pub fn frame(&self) -> Frame<'_> {
        match self {
            Self::Simple(text) => Frame::Simple(text),
            Self::Error(text) => Frame::Error(text),
            Self::Integer(number) => Frame::Integer(*number),
            Self::Bulk(bytes) => Frame::Bulk(bytes),
            Self::Null => Frame::Null,
            Self::Array(parts) => Frame::Array(parts.iter().map(Self::frame).collect()),
            Self::Map(parts) => Frame::Map(parts.iter().map(Self::frame).collect()),
            Self::Push(parts) => Frame::Push(parts.iter().map(Self::frame).collect()),
        }
    }

    /// How a client reads this reply to a command.
    pub fn read(&self, expect: Expect) -> Reply {
        expect.read(&self.frame())
    }
}

impl From<&Frame<'_>> for Value {
    fn from(frame: &Frame<'_>) -> Self {
        let parts = |frames: &[Frame<'_>]| frames.iter().map(Self::from).collect();
        match frame {
            Frame::Simple(text) => Self::Simple(Cow::Owned(text.to_vec())),
            Frame::Error(text) => Self::Error(Cow::Owned(text.to_vec())),
            Frame::Integer(number) => Self::Integer(*number),
            Frame::Bulk(bytes) => Self::bulk(bytes),
            Frame::Null => Self::Null,
            Frame::Array(frames) => Self::Array(parts(frames)),
            Frame::Map(frames) => Self::Map(parts(frames)),
            Frame::Push(frames) => Self::Push(parts(frames)),
        }
    }
}

/// A message of a server to a client.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum ServerReply {
    /// The reply to the oldest unanswered request.
    Value(Value),
    /// The reply to [`Request::Hello`](crate::Request::Hello).
    Greeting(Greeting),
    /// No reply, but a push message that wakes this waiter.
    Woken(Waiter),
}

impl ServerReply {
    /// Appends the bytes of the message to `out`.
    ///
    /// # Panics
    ///
    /// If it is a greeting, which is the reply to several commands at once.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Value(value) => value.frame().encode(out),
            Self::Woken(waiter) => {
                let (channel, id) = (channel_of(waiter.inbox), waiter.waiter_id.to_string());
                let parts = [&b"message"[..], &channel, id.as_bytes()];
                Frame::Push(parts.map(Frame::Bulk).into()).encode(out);
            }
            Self::Greeting(_) => unreachable!("a greeting is no single reply"),
        }
    }
}

/// An effect of serving a connection, or of a fault.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// The server sent this on a connection.
    Message(Connection, ServerReply),
    /// The server closed its end, and the requests that it had not executed are lost. Not reported
    /// for a connection that its client has closed.
    Dropped(Connection),
}
