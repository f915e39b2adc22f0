//! The rules of the harness, and the messages that they see. Public; interpreted by `table.rs`,
//! carried out by `lane.rs` and `connection.rs`.

use std::{fmt, sync::Arc};

pub use redquorum_redis_model::network::{End, MessageFault, Side};

use crate::RespValue;

/// Names a rule that was struck, to heal it. Smaller is older.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleId(pub(super) u64);

impl fmt::Display for RuleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rule {}", self.0)
    }
}

/// Decides whether a rule applies to a message.
pub type Matches = dyn Fn(&Message<'_>) -> bool + Send + Sync;

/// A fault: its links, its messages, and its effect on them.
///
/// A rule applies to arrivals while it lives; it does not see messages that were already held back
/// when it was added. An older rule sees a message before a younger one. The younger rules neither
/// see nor count a message that an older one dropped or reset. A message that is held is not
/// delayed in addition. Several delays add up, and of several trickles the slowest applies.
///
/// A rule *without* `matches`, from the first message on and without a count, applies to everything
/// that passes: also to ends of connections (FIN, RST), to bytes that are not RESP, and, if it
/// drops or holds on either side, to new connections. The client's connection is accepted, because
/// the listener is this process, and none is made to the master.
#[derive(Clone)]
pub struct Rule {
    /// The links of these clients. `None`: of all.
    pub clients: Option<Vec<String>>,
    /// The links to these masters, counted from 1. `None`: to all.
    pub nodes: Option<Vec<usize>>,
    /// Messages of this side.
    pub side: Side,
    /// Applies to messages for which this returns true. It runs on the network's thread and must
    /// not block. `None`: every message.
    pub matches: Option<Arc<Matches>>,
    /// The first matching message that is struck, counted from 1 over all links of the rule, since
    /// the rule was added. 0 counts as 1.
    pub from: u64,
    /// How many matching messages are struck. `None`: all.
    pub count: Option<u64>,
    /// The effect.
    pub fault: MessageFault,
}

impl Rule {
    /// This fault for every message of both sides, on all links. Use it as a base: `Rule { nodes:
    /// Some(vec![1]), ..Rule::all(MessageFault::Hold) }`.
    pub fn all(fault: MessageFault) -> Self {
        let (clients, nodes, matches) = (None, None, None);
        Self { clients, nodes, side: Side::Both, matches, from: 1, count: None, fault }
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rule")
            .field("clients", &self.clients)
            .field("nodes", &self.nodes)
            .field("side", &self.side)
            .field("matches", &self.matches.as_ref().map(|_| "fn"))
            .field("from", &self.from)
            .field("count", &self.count)
            .field("fault", &self.fault)
            .finish()
    }
}

/// A message as a rule sees it.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Message<'a> {
    /// The client of the connection.
    pub client: &'a str,
    /// The master, counted from 1.
    pub node: usize,
    /// The connection, counted from 1 over all links.
    pub connection: u64,
    /// [`Side::Request`] or [`Side::Reply`].
    pub side: Side,
    /// The number of the request, counted from 1 on this connection. A reply has the number of the
    /// request that it answers, or 0 if it answers none.
    pub number: u64,
    /// The words of the request, or of the request that this reply answers. Empty for a message
    /// that answers none: published messages, every message after `MONITOR`, a farewell of the
    /// server.
    pub command: &'a [Vec<u8>],
    /// The reply, if it is one.
    pub reply: Option<&'a RespValue>,
}
