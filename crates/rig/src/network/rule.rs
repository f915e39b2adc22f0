//! What the harness says: rules, and what they are told of a message. Public; interpreted by
//! `table.rs`, carried out by `lane.rs` and `connection.rs`.

use std::{fmt, sync::Arc, time::Duration};

use crate::Reply;

/// One direction of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// From the client to the master.
    Requests,
    /// From the master to the client.
    Replies,
    /// Both directions. No message has this side, only rules do.
    Both,
}

/// One end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum End {
    /// The client's.
    Client,
    /// The master's.
    Master,
}

/// Names a rule that was struck, to heal it. Smaller is older.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleId(pub(super) u64);

impl fmt::Display for RuleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rule {}", self.0)
    }
}

/// Decides whether a rule is about a message.
pub type Matches = dyn Fn(&Message<'_>) -> bool + Send + Sync;

/// A fault: on which links, which messages, what happens to them.
///
/// A rule is about what arrives while it lives: what was already held back when it was struck it
/// does not see. Of several rules the older sees a message first; what one dropped or reset the
/// younger do not see, nor count. A message that is held is not delayed besides; several delays
/// add up, and of several trickles the slowest counts.
///
/// A rule *without* `matches`, from the first message on and without a count, is about all that
/// passes: also ends of connections (FIN, RST), bytes that are not RESP, and, if it drops or holds
/// on either side, the making of connections: the client's is accepted, because the listener is
/// this process, and none is made to the master.
#[derive(Clone)]
pub struct Rule {
    /// On the links of these clients. `None`: of all.
    pub clients: Option<Vec<String>>,
    /// On the links to these masters, counted from 1. `None`: to all.
    pub nodes: Option<Vec<usize>>,
    /// Messages of this side.
    pub side: Side,
    /// Messages for which this is true; called on the network's thread, must not block. `None`:
    /// every message.
    pub matches: Option<Arc<Matches>>,
    /// The first matching message that is struck, counted from 1 over all links of the rule, since
    /// it was struck. 0 is taken for 1.
    pub from: u64,
    /// How many matching messages are struck. `None`: all.
    pub count: Option<u64>,
    /// What happens to them.
    pub harm: Harm,
}

impl Rule {
    /// This harm for every message of both sides, on all links. A start for `Rule { nodes:
    /// Some(vec![1]), ..Rule::all(Harm::Hold) }`.
    pub fn all(harm: Harm) -> Self {
        let (clients, nodes, matches) = (None, None, None);
        Self { clients, nodes, side: Side::Both, matches, from: 1, count: None, harm }
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
            .field("harm", &self.harm)
            .finish()
    }
}

/// What a network can do to a message of a TCP connection. Each ends when its rule is healed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Harm {
    /// It and all behind it on that connection and side are lost, the end of the connection too.
    ///
    /// Healing resets both ends of the connections on which something was lost: TCP cannot go on
    /// with a gap.
    Drop,
    /// It and all behind it wait. Healing lets them go, in order.
    Hold,
    /// It is passed on so long after it came, to within about a millisecond, and all behind it
    /// waits. Healing lets go what still waits.
    Delay(Duration),
    /// The request is passed on, and then sent once more on a new connection of the network's own.
    /// The second reply is told to the observer and thrown away. Does nothing to replies, and to
    /// requests that are too large to be kept (4 MiB).
    ///
    /// The new connection first repeats the `AUTH`, `HELLO` and `SELECT` of the client's.
    Duplicate,
    /// So many bytes per second, cut anywhere; 0 is [`Hold`](Self::Hold).
    Trickle(u32),
    /// This end is reset, the other stays open, is told nothing, and what it sends is lost, the
    /// message that was struck too. Healing resets the other end.
    ///
    /// Without `matches` it strikes once: the links' open connections, at once.
    HalfOpen(End),
    /// Both ends are reset, and the message is lost.
    ///
    /// Without `matches` it strikes once: the links' open connections, at once.
    Reset,
}

/// What a rule is told of a message.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Message<'a> {
    /// Whose connection.
    pub client: &'a str,
    /// To which master, counted from 1.
    pub node: usize,
    /// Which connection, counted from 1 over all links.
    pub connection: u64,
    /// [`Side::Requests`] or [`Side::Replies`].
    pub side: Side,
    /// The request's, counted from 1 on this connection; a reply has the number of the request
    /// that it answers, 0 if it answers none.
    pub number: u64,
    /// The words of the request, or of the request that this reply answers. Empty for what answers
    /// none: published messages, whatever comes after `MONITOR`, a farewell of the server.
    pub command: &'a [Vec<u8>],
    /// The reply, if it is one.
    pub reply: Option<&'a Reply>,
}
