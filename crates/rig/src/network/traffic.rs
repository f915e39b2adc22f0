//! What the observer is told. Public; told by `connection.rs`, `lane.rs` and `copies.rs`.

use std::{sync::Arc, time::Instant};

use super::rule::{RuleId, Side};
use crate::Reply;

/// Why a connection ended: what the network saw first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClosedBy {
    /// The client closed or reset it, or died.
    Client,
    /// The master did.
    Master,
    /// The master is nowhere, or refused it.
    Refused,
    /// A rule reset it.
    Rule(RuleId),
    /// The network was dropped.
    Network,
}

/// Something that happened, with when, on which link and on which connection.
///
/// Two stamps are chosen so that what a master did lies **between** them: `at` of
/// [`Forwarded`](Self::Forwarded) is taken before the write of the request's last byte, `at` of
/// [`Replied`](Self::Replied) after the read of the reply's. A request of which not all bytes were
/// written when the connection broke is not told as forwarded: it cannot have taken effect.
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
    /// A reply arrived from the master; it may be held or lost after that.
    ///
    /// Of a reply of more than 4 MiB it is the start, told when it is there.
    Replied {
        at: Instant,
        client: Arc<str>,
        node: usize,
        connection: u64,
        number: u64,
        /// The words of the request that it answers.
        command: Arc<[Vec<u8>]>,
        reply: Reply,
        /// It answers the second of a duplicate.
        duplicate: bool,
    },
    /// A reply was written to the client's socket; `at` is before that.
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
        /// What dropped it. `None`: its receiver was gone.
        rule: Option<RuleId>,
    },
    /// A rule struck a message. Told before anything else happens to it.
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
    /// What came is not RESP: from here on this side of the connection is passed on as it is.
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
    /// When.
    pub fn at(&self) -> Instant {
        *common!(self, at)
    }

    /// Whose connection.
    pub fn client(&self) -> &Arc<str> {
        common!(self, client)
    }

    /// To which master, counted from 1.
    pub fn node(&self) -> usize {
        *common!(self, node)
    }

    /// Which connection, counted from 1 over all links.
    pub fn connection(&self) -> u64 {
        *common!(self, connection)
    }
}
