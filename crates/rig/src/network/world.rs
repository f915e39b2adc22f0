//! The state that all connections share: rules, observer, timers. `engine.rs` owns it, and passes
//! it to all code on its thread.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
    net::SocketAddr,
    sync::Arc,
    time::Instant,
};

use mio::Registry;

use super::{
    copies::Duplicate,
    dialogue::Label,
    rule::{RuleId, Side},
    table::{Link, Table},
    traffic::{ClosedBy, Traffic},
};

pub(super) struct World {
    pub(super) rules: Table,
    pub(super) observer: Box<dyn FnMut(Traffic) + Send>,
    pub(super) registry: Registry,
    pub(super) upstreams: HashMap<usize, SocketAddr>,
    /// When to serve each connection again.
    pub(super) timers: BinaryHeap<Reverse<(Instant, u64)>>,
    /// Connections that had more work than their share of a turn.
    pub(super) again: Vec<u64>,
    /// Requests to be sent once more.
    pub(super) duplicates: Vec<Duplicate>,
}

/// A connection and its link.
#[derive(Debug, Clone)]
pub(super) struct Peer {
    pub(super) client: Arc<str>,
    pub(super) node: usize,
    pub(super) connection: u64,
}

impl Peer {
    pub(super) fn link(&self) -> Link<'_> {
        Link { client: &self.client, node: self.node }
    }
}

impl World {
    pub(super) fn opened(&mut self, who: &Peer) {
        let Peer { client, node, connection } = who.clone();
        (self.observer)(Traffic::Opened { at: Instant::now(), client, node, connection });
    }

    pub(super) fn closed(&mut self, who: &Peer, by: ClosedBy) {
        let Peer { client, node, connection } = who.clone();
        (self.observer)(Traffic::Closed { at: Instant::now(), client, node, connection, by });
    }

    pub(super) fn forwarded(&mut self, at: Instant, who: &Peer, label: Label, duplicate: bool) {
        let Peer { client, node, connection } = who.clone();
        let Label { number, command } = label;
        (self.observer)(Traffic::Forwarded {
            at,
            client,
            node,
            connection,
            number,
            command,
            duplicate,
        });
    }

    pub(super) fn replied(
        &mut self,
        at: Instant,
        who: &Peer,
        label: &Label,
        reply: crate::RespValue,
        duplicate: bool,
    ) {
        let Peer { client, node, connection } = who.clone();
        let Label { number, command } = label.clone();
        (self.observer)(Traffic::Replied {
            at,
            client,
            node,
            connection,
            number,
            command,
            reply,
            duplicate,
        });
    }

    pub(super) fn delivered(&mut self, at: Instant, who: &Peer, label: Label) {
        let Peer { client, node, connection } = who.clone();
        let Label { number, command } = label;
        (self.observer)(Traffic::Delivered { at, client, node, connection, number, command });
    }

    pub(super) fn lost(&mut self, who: &Peer, side: Side, label: Label, rule: Option<RuleId>) {
        let Peer { client, node, connection } = who.clone();
        let Label { number, command } = label;
        let at = Instant::now();
        (self.observer)(Traffic::Lost {
            at,
            client,
            node,
            connection,
            number,
            side,
            command,
            rule,
        });
    }

    pub(super) fn struck(&mut self, who: &Peer, side: Side, label: Label, rule: RuleId) {
        let Peer { client, node, connection } = who.clone();
        let Label { number, command } = label;
        let at = Instant::now();
        (self.observer)(Traffic::Struck {
            at,
            client,
            node,
            connection,
            number,
            side,
            command,
            rule,
        });
    }

    pub(super) fn unparsed(&mut self, who: &Peer, side: Side) {
        let Peer { client, node, connection } = who.clone();
        (self.observer)(Traffic::Unparsed { at: Instant::now(), client, node, connection, side });
    }
}
