//! Rules, and the messages that they see. Public; interpreted by `table.rs`, carried out by
//! `lane.rs` and `connection.rs`.

use std::{fmt, sync::Arc};

pub use redquorum_redis_model::network::{End, MessageFault, MessageRule, Side};

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

/// A fault: its links, its messages, and its effect on them. Clients have names, masters numbers
/// from 1. `matches` runs on the network's thread and must not block.
///
/// A rule does not see messages that were already held back when it was added. The younger rules
/// neither see nor count a message that an older one dropped or reset. A message that is held is
/// not delayed in addition. Several delays add up, and of several trickles the slowest applies.
///
/// A rule *without* `matches`, from the first message on and without a count, applies to everything
/// that passes: also to ends of connections (FIN, RST), to bytes that are not RESP, and, if it
/// drops or holds on either side, to new connections. The client's connection is accepted, because
/// the listener is this process, and none is made to the master.
pub type Rule = MessageRule<String, Arc<Matches>>;

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
