//! The thread: waits for sockets, timers and orders, and serves each connection that has work.
//! Started by `network.rs`.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, HashMap},
    io,
    net::SocketAddr,
    sync::{Arc, mpsc::Receiver},
    time::{Duration, Instant},
};

use mio::{Events, Interest, Poll, net::TcpListener};

use super::{
    connection::{CLIENT, Connection, MASTER},
    copies::Copy,
    rule::{Rule, RuleId},
    socket::Socket,
    table::Table,
    traffic::{ClosedBy, Traffic, TrafficEvent},
    world::{Kind, ORDERS, Peer, World, meaning, token},
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
    listeners: BTreeMap<u64, Listener>,
    connections: BTreeMap<u64, Connection>,
    copies: HashMap<u64, Copy>,
    /// The largest number of a listener, a connection, and a copy.
    last: [u64; 3],
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
            listeners: BTreeMap::new(),
            connections: BTreeMap::new(),
            copies: HashMap::new(),
            last: [0; 3],
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
            let mut ordered = false;
            for event in &events {
                if event.token() == ORDERS {
                    ordered = true;
                } else {
                    self.event(event);
                }
            }
            if ordered && !self.obey() {
                return self.stop();
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
        let (id, kind) = meaning(event.token());
        match kind {
            Kind::Listener => self.accept(id),
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
        if let Some(by) = connection.ended() {
            self.world.report_now(&connection.peer, TrafficEvent::Closed(by));
            self.connections.remove(&id);
        }
    }

    fn serve_all(&mut self) {
        let ids: Vec<u64> = self.connections.keys().copied().collect();
        ids.into_iter().for_each(|id| self.serve(id));
    }

    fn accept(&mut self, id: u64) {
        let Some(listener) = self.listeners.get(&id) else { return };
        let mut accepted = Vec::new();
        loop {
            match listener.socket.accept() {
                Ok((stream, _)) => accepted.push(stream),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => break,
                    io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted => {}
                    _ => {
                        self.stuck = Some(Instant::now() + ACCEPT_AGAIN);
                        break;
                    }
                },
            }
        }
        let (client, node) = (Arc::clone(&listener.client), listener.node);
        for stream in accepted {
            let connection = next(&mut self.last[1]);
            let token = token(connection, Kind::Client);
            let Ok(socket) = Socket::accepted(stream, token, &self.world.registry) else {
                continue;
            };
            let peer = Peer { client: Arc::clone(&client), node, connection };
            self.world.report_now(&peer, TrafficEvent::Opened);
            self.connections.insert(connection, Connection::new(peer, socket));
            self.serve(connection);
        }
    }

    /// Executes the orders. Returns whether to go on.
    fn obey(&mut self) -> bool {
        while let Ok(order) = self.orders.try_recv() {
            let Some(task) = order else { return false };
            task(self);
        }
        true
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
        let id = next(&mut self.last[0]);
        let token = token(id, Kind::Listener);
        self.world.registry.register(&mut socket, token, Interest::READABLE)?;
        self.listeners.insert(id, Listener { socket, client, node });
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
            let ids: Vec<u64> = self.listeners.keys().copied().collect();
            ids.into_iter().for_each(|id| self.accept(id));
        }
    }

    /// Sends duplicates. A duplicate whose master is not there is lost.
    fn copy(&mut self) {
        for duplicate in std::mem::take(&mut self.world.duplicates) {
            let Some(&address) = self.world.upstreams.get(&duplicate.peer.node) else { continue };
            let id = next(&mut self.last[2]);
            let copy = Copy::new(duplicate, address, token(id, Kind::Copy), &self.world);
            if let Ok(copy) = copy {
                self.copies.insert(id, copy);
            }
        }
    }

    fn stop(mut self) {
        self.listeners.clear();
        for connection in self.connections.values_mut() {
            connection.reset(ClosedBy::Network, &mut self.world);
        }
        self.serve_all();
    }
}

fn next(last: &mut u64) -> u64 {
    *last += 1;
    *last
}
