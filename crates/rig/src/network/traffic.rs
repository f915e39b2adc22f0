//! The events for the observer. Public; sent by `connection.rs`, `lane.rs` and `copies.rs`.

use std::{sync::Arc, time::Instant};

use super::rule::{RuleId, Side};
use crate::RespValue;

/// Why a connection ended: the first reason that the network saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClosedBy {
    /// The client closed or reset it, or died.
    Client,
    /// The master closed or reset it, or died.
    Master,
    /// There is no master, or it refused the connection.
    Refused,
    /// A rule reset it.
    Rule(RuleId),
    /// The network was dropped.
    Network,
}

/// An event, with its time, link and connection.
///
/// Two timestamps are chosen so that the execution by a master lies **between** them: `at` of
/// [`Forwarded`](Self::Forwarded) is taken before the write of the request's last byte, `at` of
/// [`Replied`](Self::Replied) after the read of the reply's last byte. If the connection broke
/// before all bytes of a request were written, the request is not reported as forwarded: it cannot
/// have taken effect.
///
/// Numbers are those of [`Message`](super::Message).
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "every variant has the same first four fields, explained above")]
pub enum Traffic {
    /// A client connected.
    Opened { at: Instant, client: Arc<str>, node: usize, connection: u64 },
    /// The connection is over, at both ends.
    Closed { at: Instant, client: Arc<str>, node: usize, connection: u64, by: ClosedBy },
    /// A request was written to the master's socket.
    Forwarded {
        at: Instant,
        client: Arc<str>,
        node: usize,
        connection: u64,
        number: u64,
        command: Arc<[Vec<u8>]>,
        /// It is the second of a duplicate, with the connection and number of the first.
        duplicate: bool,
    },
    /// A reply arrived from the master. It may be held or lost after that.
    ///
    /// For a reply of more than 4 MiB this is its start, reported on its arrival.
    Replied {
        at: Instant,
        client: Arc<str>,
        node: usize,
        connection: u64,
        number: u64,
        /// The words of the request that it answers.
        command: Arc<[Vec<u8>]>,
        reply: RespValue,
        /// It answers the second of a duplicate.
        duplicate: bool,
    },
    /// A reply was written to the client's socket. `at` is before the write.
    Delivered {
        at: Instant,
        client: Arc<str>,
        node: usize,
        connection: u64,
        number: u64,
        command: Arc<[Vec<u8>]>,
    },
    /// A message will not arrive.
    Lost {
        at: Instant,
        client: Arc<str>,
        node: usize,
        connection: u64,
        number: u64,
        side: Side,
        command: Arc<[Vec<u8>]>,
        /// The rule that dropped it. `None`: its receiver was gone.
        rule: Option<RuleId>,
    },
    /// A rule struck a message. Reported before any other effect on it.
    ///
    /// Number 0 and no command: it struck the connection itself.
    Struck {
        at: Instant,
        client: Arc<str>,
        node: usize,
        connection: u64,
        number: u64,
        side: Side,
        command: Arc<[Vec<u8>]>,
        rule: RuleId,
    },
    /// The data is not RESP: from here on this side of the connection is passed on unchanged.
    Unparsed { at: Instant, client: Arc<str>, node: usize, connection: u64, side: Side },
}

macro_rules! common {
    ($traffic:expr, $field:ident) => {
        match $traffic {
            Traffic::Opened { $field, .. }
            | Traffic::Closed { $field, .. }
            | Traffic::Forwarded { $field, .. }
            | Traffic::Replied { $field, .. }
            | Traffic::Delivered { $field, .. }
            | Traffic::Lost { $field, .. }
            | Traffic::Struck { $field, .. }
            | Traffic::Unparsed { $field, .. } => $field,
        }
    };
}

impl Traffic {
    /// The time of the event.
    pub fn at(&self) -> Instant {
        *common!(self, at)
    }

    /// The client of the connection.
    pub fn client(&self) -> &Arc<str> {
        common!(self, client)
    }

    /// The master, counted from 1.
    pub fn node(&self) -> usize {
        *common!(self, node)
    }

    /// The connection, counted from 1 over all links.
    pub fn connection(&self) -> u64 {
        *common!(self, connection)
    }
}
