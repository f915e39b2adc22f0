//! The state that all connections share: rules, observer, timers. `engine.rs` owns it, and passes
//! it to all code on its thread.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
    net::SocketAddr,
    sync::Arc,
    time::Instant,
};

use mio::{Registry, Token};

use super::{
    copies::Duplicate,
    dialogue::Label,
    rule::{RuleId, Side},
    table::{Link, Table},
    traffic::{Traffic, TrafficEvent},
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
    pub(super) fn report(&mut self, at: Instant, peer: &Peer, event: TrafficEvent) {
        let Peer { client, node, connection } = peer.clone();
        (self.observer)(Traffic { at, client, node, connection, event });
    }

    pub(super) fn report_now(&mut self, peer: &Peer, event: TrafficEvent) {
        self.report(Instant::now(), peer, event);
    }

    pub(super) fn lost(&mut self, peer: &Peer, side: Side, label: Label, rule: Option<RuleId>) {
        let Label { number, command } = label;
        self.report_now(peer, TrafficEvent::Lost { number, side, command, rule });
    }

    pub(super) fn struck(&mut self, peer: &Peer, side: Side, label: Label, rule: RuleId) {
        let Label { number, command } = label;
        self.report_now(peer, TrafficEvent::Struck { number, side, command, rule });
    }
}

/// The token of the orders.
pub(super) const ORDERS: Token = Token(usize::MAX);

/// The kind of a token's socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Listener,
    Client,
    Master,
    Copy,
}

/// The token by which the system names a listener, an end of a connection, or a copy.
pub(super) fn token(id: u64, kind: Kind) -> Token {
    Token(usize::try_from(id).expect("fewer connections than addresses") << 2 | kind as usize)
}

/// The socket of a token: its number and kind.
pub(super) fn meaning(token: Token) -> (u64, Kind) {
    let kind = [Kind::Listener, Kind::Client, Kind::Master, Kind::Copy][token.0 & 3];
    ((token.0 >> 2) as u64, kind)
}
