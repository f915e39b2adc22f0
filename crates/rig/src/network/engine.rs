//! The thread: waits for sockets, timers and orders, and serves each connection that has work.
//! Started by `network.rs`. Its `World` is what all connections share.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, HashMap},
    io,
    net::SocketAddr,
    sync::{Arc, mpsc::Receiver},
    time::{Duration, Instant},
};

use mio::{Events, Interest, Poll, Registry, Token, net::TcpListener};

use super::{
    connection::{CLIENT, Connection, MASTER},
    copies::{Copy, Duplicate},
    dialogue::Label,
    rule::{Rule, RuleId, Side},
    socket::Socket,
    table::{Link, Table},
    traffic::{Traffic, TrafficEvent},
};

/// If no connection can be accepted (no more files are allowed), the thread tries again after this
/// time.
const ACCEPT_AGAIN: Duration = Duration::from_millis(20);

/// A task of a caller for the thread. `None` ends the thread.
pub(super) type Order = Option<Box<dyn FnOnce(&mut Engine) + Send>>;

struct Listener {
    socket: TcpListener,
    client: Arc<str>,
    node: usize,
}

pub(super) struct Engine {
    poll: Poll,
    orders: Receiver<Order>,
    world: World,
    listeners: Vec<Listener>,
    connections: BTreeMap<u64, Connection>,
    copies: HashMap<u64, Copy>,
    /// The largest number of a connection, and of a copy.
    last: [u64; 2],
    /// Listeners that could not accept, and when to try again.
    stuck: Option<Instant>,
    scratch: Vec<u8>,
}

impl Engine {
    pub(super) fn new(
        poll: Poll,
        orders: Receiver<Order>,
        observer: Box<dyn FnMut(Traffic) + Send>,
    ) -> io::Result<Self> {
        let world = World {
            rules: Table::default(),
            observer,
            registry: poll.registry().try_clone()?,
            upstreams: HashMap::new(),
            timers: BinaryHeap::new(),
            again: Vec::new(),
            duplicates: Vec::new(),
        };
        Ok(Self {
            poll,
            orders,
            world,
            listeners: Vec::new(),
            connections: BTreeMap::new(),
            copies: HashMap::new(),
            last: [0; 2],
            stuck: None,
            scratch: vec![0; 64 * 1024],
        })
    }

    /// Runs until it receives the request to stop.
    pub(super) fn run(mut self) {
        let mut events = Events::with_capacity(256);
        loop {
            match self.poll.poll(&mut events, self.timeout()) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => panic!("waiting for sockets failed: {error}"),
                Ok(()) => {}
            }
            let again = std::mem::take(&mut self.world.again);
            events.iter().filter(|event| event.token() != ORDERS).for_each(|it| self.event(it));
            while let Ok(order) = self.orders.try_recv() {
                let Some(task) = order else { return self.stop() };
                task(&mut self);
            }
            again.into_iter().for_each(|id| self.serve(id));
            self.timers();
            self.copy();
        }
    }

    fn timeout(&self) -> Option<Duration> {
        if !self.world.again.is_empty() {
            return Some(Duration::ZERO);
        }
        let timer = self.world.timers.peek().map(|Reverse((at, _))| *at);
        let next = timer.into_iter().chain(self.stuck).min()?;
        Some(next.saturating_duration_since(Instant::now()))
    }

    fn event(&mut self, event: &mio::event::Event) {
        let token = event.token();
        let id = (token.0 >> 2) as u64;
        let kind = [Kind::Listener, Kind::Client, Kind::Master, Kind::Copy][token.0 & 3];
        match kind {
            Kind::Listener => self.accept(token.0 >> 2),
            Kind::Client | Kind::Master => {
                let end = if kind == Kind::Client { CLIENT } else { MASTER };
                if let Some(connection) = self.connections.get_mut(&id) {
                    connection.changed(end, event, &mut self.world);
                    self.serve(id);
                }
            }
            Kind::Copy => {
                let Some(copy) = self.copies.get_mut(&id) else { return };
                let over = copy.serve(event, &mut self.scratch, &mut self.world);
                if over.unwrap_or(true) {
                    self.copies.remove(&id);
                }
            }
        }
    }

    /// Serves a connection, and removes it if it is over.
    fn serve(&mut self, id: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.serve(&mut self.scratch, &mut self.world);
        if connection.over {
            self.world.report_now(&connection.peer, TrafficEvent::Closed);
            self.connections.remove(&id);
        }
    }

    fn serve_all(&mut self) {
        let ids: Vec<u64> = self.connections.keys().copied().collect();
        ids.into_iter().for_each(|id| self.serve(id));
    }

    fn accept(&mut self, listener: usize) {
        loop {
            let Listener { socket, client, node } = &self.listeners[listener];
            let stream = match socket.accept() {
                Ok((stream, _)) => stream,
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return,
                    io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted => continue,
                    _ => {
                        self.stuck = Some(Instant::now() + ACCEPT_AGAIN);
                        return;
                    }
                },
            };
            let connection = next(&mut self.last[0]);
            let peer = Peer { client: Arc::clone(client), node: *node, connection };
            let token = token(connection, Kind::Client);
            if let Ok(socket) = Socket::new(stream, true, token, &self.world.registry) {
                self.world.report_now(&peer, TrafficEvent::Opened);
                self.connections.insert(connection, Connection::new(peer, socket));
                self.serve(connection);
            }
        }
    }

    pub(super) fn upstream(&mut self, node: usize, address: Option<SocketAddr>) {
        match address {
            Some(address) => self.world.upstreams.insert(node, address),
            None => self.world.upstreams.remove(&node),
        };
    }

    pub(super) fn listen(
        &mut self,
        socket: std::net::TcpListener,
        client: Arc<str>,
        node: usize,
    ) -> io::Result<()> {
        socket.set_nonblocking(true)?;
        let mut socket = TcpListener::from_std(socket);
        let token = token(self.listeners.len() as u64, Kind::Listener);
        self.world.registry.register(&mut socket, token, Interest::READABLE)?;
        self.listeners.push(Listener { socket, client, node });
        Ok(())
    }

    pub(super) fn strike(&mut self, rule: Rule) -> RuleId {
        let id = self.world.rules.strike(rule.clone());
        for connection in self.connections.values_mut() {
            if rule.strikes_connections(connection.peer.link()) {
                connection.struck(id, rule.fault, &mut self.world);
            }
        }
        self.serve_all();
        id
    }

    pub(super) fn heal(&mut self, rule: RuleId) {
        self.world.rules.heal(rule);
        for connection in self.connections.values_mut() {
            connection.healed(rule, &mut self.world);
        }
        self.serve_all();
    }

    fn timers(&mut self) {
        let now = Instant::now();
        while let Some(&Reverse((at, id))) = self.world.timers.peek()
            && at <= now
        {
            self.world.timers.pop();
            self.serve(id);
        }
        if self.stuck.is_some_and(|at| at <= now) {
            self.stuck = None;
            (0..self.listeners.len()).for_each(|listener| self.accept(listener));
        }
    }

    /// Sends duplicates. A duplicate whose master is not there is lost.
    fn copy(&mut self) {
        for duplicate in std::mem::take(&mut self.world.duplicates) {
            let Some(&address) = self.world.upstreams.get(&duplicate.peer.node) else { continue };
            let id = next(&mut self.last[1]);
            let copy = Copy::new(duplicate, address, token(id, Kind::Copy), &self.world);
            self.copies.extend(copy.ok().map(|copy| (id, copy)));
        }
    }

    fn stop(mut self) {
        self.listeners.clear();
        for connection in self.connections.values_mut() {
            connection.reset(&mut self.world);
        }
        self.serve_all();
    }
}

fn next(last: &mut u64) -> u64 {
    *last += 1;
    *last
}

/// What all connections share.
pub(super) struct World {
    pub(super) rules: Table,
    observer: Box<dyn FnMut(Traffic) + Send>,
    pub(super) registry: Registry,
    pub(super) upstreams: HashMap<usize, SocketAddr>,
    /// When to serve each connection again.
    pub(super) timers: BinaryHeap<Reverse<(Instant, u64)>>,
    /// Connections that had more work than their share of a turn.
    pub(super) again: Vec<u64>,
    /// Requests to be sent once more.
    pub(super) duplicates: Vec<Duplicate>,
}

impl World {
    pub(super) fn report(&mut self, at: Instant, peer: &Peer, event: TrafficEvent) {
        let Peer { client, node, connection } = peer.clone();
        (self.observer)(Traffic { at, client, node, connection, event });
    }

    pub(super) fn report_now(&mut self, peer: &Peer, event: TrafficEvent) {
        self.report(Instant::now(), peer, event);
    }

    pub(super) fn lost(&mut self, peer: &Peer, side: Side, label: Label) {
        let Label { number, command } = label;
        self.report_now(peer, TrafficEvent::Lost { number, side, command });
    }

    pub(super) fn struck(&mut self, peer: &Peer, side: Side, label: Label, rule: RuleId) {
        let Label { number, command } = label;
        self.report_now(peer, TrafficEvent::Struck { number, side, command, rule });
    }
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
