//! The events for the observer. Public; sent by `connection.rs`, `lane.rs` and `copies.rs`.

use std::{sync::Arc, time::Instant};

use super::rule::{RuleId, Side};
use crate::RespValue;

/// An event, with its time, link and connection.
///
/// Two times are chosen so that the execution by a master lies **between** them: that of
/// [`Forwarded`](TrafficEvent::Forwarded) is taken before the write of the request's last byte,
/// that of [`Replied`](TrafficEvent::Replied) after the read of the reply's last byte. If the
/// connection broke before all bytes of a request were written, the request is not reported as
/// forwarded: it cannot have taken effect.
#[derive(Debug, Clone, PartialEq)]
pub struct Traffic {
    /// The time of the event.
    pub at: Instant,
    /// The client of the connection.
    pub client: Arc<str>,
    /// The master, counted from 1.
    pub node: usize,
    /// The connection, counted from 1 over all links.
    pub connection: u64,
    /// What happened.
    pub event: TrafficEvent,
}

/// What happened on a connection. `number` and `command` are those of a
/// [`Message`](super::Message).
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the fields are explained above, or by their names")]
pub enum TrafficEvent {
    /// A client connected.
    Opened,
    /// The connection is over, at both ends.
    Closed,
    /// A request was written to the master's socket.
    Forwarded {
        number: u64,
        command: Arc<[Vec<u8>]>,
        /// It is the second of a duplicate, with the connection and number of the first.
        duplicate: bool,
    },
    /// A reply arrived from the master. It may be held or lost after that.
    Replied {
        number: u64,
        command: Arc<[Vec<u8>]>,
        reply: RespValue,
        /// It answers the second of a duplicate.
        duplicate: bool,
    },
    /// A reply was written to the client's socket. The time is before the write.
    Delivered { number: u64, command: Arc<[Vec<u8>]> },
    /// A message will not arrive: a rule dropped it, or its receiver was gone.
    Lost { number: u64, side: Side, command: Arc<[Vec<u8>]> },
    /// A rule struck a message. Reported before any other effect on it.
    ///
    /// Number 0 and no command: it struck the connection itself.
    Struck { number: u64, side: Side, command: Arc<[Vec<u8>]>, rule: RuleId },
}
