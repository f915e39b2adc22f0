//! A driver of the protocol in virtual time: client processes and model masters, without clocks,
//! sockets or sleeps.
//!
//! It is an example, too. A driver needs three functions: [`World::carry_out`] passes the effects
//! of a client to the wire, or to the callers of its requests; [`World::replied`] passes replies
//! from the wire to the client; and [`World::wake`]. The rest is the network and its faults.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use redquorum_protocol::wire::{Command, Expect};
use redquorum_protocol::{
    AcquireRequest, Bounds, Claim, ClaimId, Client, ClientConfig, ClientEffect, Context, Hold,
    Input, Key, NodeId, Quorum, Reply, Time,
};
use redquorum_redis_model::{Connection, Event as ServerEvent, Request, ServerReply};

use crate::master::Master;
use crate::support::{MS, Random, token};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Config {
    pub(crate) masters: usize,
    pub(crate) clients: usize,
    pub(crate) node_timeout: Duration,
    pub(crate) wake_ups: bool,
    pub(crate) fair: bool,
    /// The longest delay of a message, in microseconds.
    pub(crate) latency: u64,
    /// The extra delay between each client and one master of its own, in microseconds.
    pub(crate) slow: u64,
    /// The share of push messages that are lost, in percent.
    pub(crate) lost: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            masters: 5,
            clients: 3,
            node_timeout: MS * 20,
            wake_ups: false,
            fair: false,
            latency: 3_000,
            slow: 0,
            lost: 0,
        }
    }
}

/// An event that a test may look at, in the order in which it happened.
#[derive(PartialEq, Debug)]
pub(crate) enum WorldEvent {
    /// The state of a client's request changed.
    Changed(usize, ClaimId),
    /// A client wrote a command to a master.
    Wrote(usize, usize, Command),
    /// A client got a reply on a connection.
    Received(WireId, Reply),
}

/// A connection: the client, the master, and the link's number for the connection.
pub(crate) type WireId = (usize, usize, u64);

/// A connection, in which bytes arrive in the order in which they were written.
struct Wire {
    /// The master's end; `None` if the master was down.
    connection: Option<Connection>,
    /// How the replies to come are read. A handshake has none.
    expects: VecDeque<Expect>,
    /// The arrival of the latest bytes in each direction.
    last: [Time; 2],
    /// The client has given up the connection. Bytes that it wrote are still on their way.
    given_up: bool,
}

enum Event {
    /// A request is in the master's socket buffer.
    Arrived(WireId, Request),
    Served(WireId),
    /// A message reaches the client; without one, the connection is reset.
    Received(WireId, Option<ServerReply>),
    Resumed(usize),
}

pub(crate) struct World {
    pub(crate) now: Time,
    pub(crate) random: Random,
    pub(crate) config: Config,
    pub(crate) masters: Vec<Master>,
    pub(crate) clients: Vec<Client>,
    /// The requests of each client whose callers look at them.
    requests: Vec<Vec<ClaimId>>,
    pub(crate) events: Vec<WorldEvent>,
    wires: BTreeMap<WireId, Wire>,
    /// Ordered by time. Events of one instant keep their order of entry.
    queue: BTreeMap<(Time, u64), Event>,
    entered: u64,
}

impl World {
    pub(crate) fn new(seed: u64, config: Config) -> Self {
        let mut world = Self {
            now: Time::ZERO,
            random: Random(seed),
            config,
            masters: (0..config.masters).map(Master::new).collect(),
            clients: Vec::new(),
            requests: vec![Vec::new(); config.clients],
            events: Vec::new(),
            wires: BTreeMap::new(),
            queue: BTreeMap::new(),
            entered: 0,
        };
        for client in 0..config.clients {
            let bounds = Bounds::for_node_timeout(config.node_timeout);
            let client_config = ClientConfig {
                quorum: Quorum::of(config.masters),
                node_timeout: config.node_timeout,
                bounds: Bounds { retry_max: MS * 50, ..bounds },
                wake_ups: config.wake_ups,
                fair: config.fair,
                guard: None,
                inbox: if config.wake_ups { client as u64 + 1 } else { 0 },
            };
            let mut out = Vec::new();
            world.clients.push(Client::start(client_config, &mut out));
            world.carry_out(client, out);
        }
        world
    }

    /// Calls the client, and carries out its effects.
    pub(crate) fn act<R>(
        &mut self,
        client: usize,
        act: impl FnOnce(&mut Client, &mut Context<'_, Claim>) -> R,
    ) -> R {
        let mut out = Vec::new();
        let mut cx = Context { clocks: self.now, rng: &mut self.random, out: &mut out };
        let result = act(&mut self.clients[client], &mut cx);
        self.carry_out(client, out);
        result
    }

    pub(crate) fn acquire(
        &mut self,
        client: usize,
        key: &Key,
        request: AcquireRequest<()>,
    ) -> ClaimId {
        let id = self.act(client, |client, cx| client.acquire(key.clone(), request, cx));
        self.requests[client].push(id);
        id
    }

    pub(crate) fn drive(&mut self, client: usize, id: ClaimId, input: Input) {
        self.act(client, |client, cx| match input {
            Input::Release => client.give_back(id, input, cx),
            input => client.handle(id, input, cx),
        });
    }

    /// The caller of a request is gone. Before that, it gives back a lease under which no work ran
    /// if `undo`.
    pub(crate) fn cancel(&mut self, client: usize, id: ClaimId, undo: bool) {
        let end = if undo { Client::undo } else { Client::cancel };
        self.act(client, |client, cx| end(client, id, cx));
        self.requests[client].retain(|of| *of != id);
    }

    /// The caller of a request does not look at it any more.
    pub(crate) fn neglect(&mut self, client: usize, id: ClaimId) {
        self.requests[client].retain(|of| *of != id);
    }

    /// The caller looks at its request, from now on whenever it is due.
    pub(crate) fn attend(&mut self, client: usize, id: ClaimId) {
        self.neglect(client, id);
        self.requests[client].push(id);
        self.act(client, |client, cx| _ = client.look(id, cx));
    }

    pub(crate) fn believes(&self, client: usize, id: ClaimId) -> bool {
        let held = |hold: &Hold| hold.lost().is_none() && self.now < hold.deadline();
        self.clients[client].hold(id).is_some_and(held)
    }

    fn carry_out(&mut self, client: usize, effects: Vec<ClientEffect>) {
        for effect in effects {
            match effect {
                ClientEffect::Write { node, epoch, command } => {
                    self.events.push(WorldEvent::Wrote(client, node.index(), command.clone()));
                    let id = (client, node.index(), epoch);
                    self.wire(id).expects.push_back(command.expect());
                    self.transmit(id, Request::Lock(command));
                }
                ClientEffect::Dial { node, epoch } => self.dial((client, node.index(), epoch)),
                ClientEffect::Close { node, epoch } => {
                    self.wire((client, node.index(), epoch)).given_up = true;
                }
                ClientEffect::Changed(id) => self.events.push(WorldEvent::Changed(client, id)),
                // The driver checks all links at each event, and its callers ask masters nothing.
                ClientEffect::Rearm { .. } | ClientEffect::Replied { .. } => {}
                other => unreachable!("an effect that this driver does not know: {other:?}"),
            }
        }
    }

    /// Carries out the next event or wake-up until `end`. Returns whether there was one.
    pub(crate) fn step(&mut self, end: Time) -> bool {
        let event = self.queue.keys().next().map_or(Time::NEVER, |(time, _)| *time);
        let wake = self.next_wake();
        if event.min(wake) > end {
            self.now = self.now.max(end);
            return false;
        }
        self.now = self.now.max(event.min(wake));
        if event > wake {
            self.wake();
        } else if let Some((_, event)) = self.queue.pop_first() {
            self.happen(event);
        }
        true
    }

    /// Lets time pass. The test looks at nothing that happens meanwhile.
    pub(crate) fn run_until(&mut self, end: Time) {
        while self.step(end) {
            self.events.clear();
        }
    }

    /// Delivers all messages and those that they cause. No time passes.
    pub(crate) fn deliver(&mut self) {
        while let Some((_, event)) = self.queue.pop_first() {
            self.happen(event);
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrived(id, request) => {
                if let Some(connection) = self.wire(id).connection {
                    self.masters[id.1].server.deliver(connection, request);
                }
                self.serve(id);
            }
            Event::Served(id) => self.serve(id),
            Event::Received(id, _) if self.wires[&id].given_up => {}
            Event::Received(id, message) => self.received(id, message),
            Event::Resumed(master) => self.resume(master),
        }
    }

    fn received(&mut self, id: WireId, message: Option<ServerReply>) {
        let (client, master, epoch) = id;
        let node = NodeId::new(master);
        match message {
            Some(ServerReply::Greeting(greeting)) => {
                let greeted =
                    self.act(client, |client, cx| client.connected(node, epoch, greeting, cx));
                greeted.expect("no two masters are one server");
            }
            Some(ServerReply::Value(value)) => {
                let expect = self.wire(id).expects.pop_front().expect("each command has a reply");
                let reply = value.read(expect);
                self.events.push(WorldEvent::Received(id, reply.clone()));
                self.act(client, |client, cx| client.replied(node, epoch, reply, cx));
            }
            Some(ServerReply::Woken(waiter)) => {
                self.act(client, |client, cx| client.woken(node, epoch, waiter.waiter_id, cx));
            }
            None => {
                let (random, why) = (self.random.below(u64::MAX), Arc::from("reset"));
                self.act(client, |client, cx| client.closed(node, epoch, why, random, cx));
            }
        }
    }

    fn next_wake(&self) -> Time {
        let of = |(client, requests): (&Client, &Vec<ClaimId>)| {
            let looks = requests.iter().map(|id| client.look_again_at(*id, self.now));
            looks.min().unwrap_or(Time::NEVER).min(client.acts_at())
        };
        self.clients.iter().zip(&self.requests).map(of).min().unwrap_or(Time::NEVER)
    }

    fn wake(&mut self) {
        for client in 0..self.clients.len() {
            for node in NodeId::all(self.masters.len()) {
                self.act(client, |client, cx| client.wake_link(node, cx));
            }
            self.act(client, |client, cx| client.wake_leases(cx));
            for id in self.requests[client].clone() {
                self.act(client, |client, cx| _ = client.look(id, cx));
            }
        }
    }

    // The network, and the masters.

    fn enter(&mut self, time: Time, event: Event) {
        self.entered += 1;
        self.queue.insert((time, self.entered), event);
    }

    fn wire(&mut self, id: WireId) -> &mut Wire {
        self.wires.get_mut(&id).expect("dialled")
    }

    fn dial(&mut self, id: WireId) {
        let connection = self.masters[id.1].server.connect();
        let (expects, last) = (VecDeque::new(), [self.now; 2]);
        self.wires.insert(id, Wire { connection, expects, last, given_up: false });
        if connection.is_none() {
            self.send(id, None);
        } else {
            self.transmit(id, Request::Hello);
        }
    }

    fn transmit(&mut self, id: WireId, request: Request) {
        let arrival = self.arrival(id, 0);
        self.enter(arrival, Event::Arrived(id, request));
    }

    fn send(&mut self, id: WireId, message: Option<ServerReply>) {
        let arrival = self.arrival(id, 1);
        self.enter(arrival, Event::Received(id, message));
    }

    fn arrival(&mut self, id: WireId, direction: usize) -> Time {
        let is_slow = direction == 0 && id.0 % self.config.masters == id.1;
        let slow = if is_slow { self.config.slow } else { 0 };
        let latency = Duration::from_micros(50 + slow + self.random.below(self.config.latency));
        let now = self.now;
        let last = &mut self.wire(id).last[direction];
        *last = now.plus(latency).max(*last);
        *last
    }

    fn serve(&mut self, id: WireId) {
        if let Some(connection) = self.wire(id).connection {
            let events = self.masters[id.1].serve(self.now, connection);
            self.report(id.1, events);
        }
    }

    /// Sends what a master's server wrote and closed.
    fn report(&mut self, master: usize, events: Vec<ServerEvent>) {
        for event in events {
            let (of, message) = match event {
                ServerEvent::Message(to, message) => (to, Some(message)),
                ServerEvent::Dropped(of) => (of, None),
            };
            let is_lost = matches!(message, Some(ServerReply::Woken(_)))
                && self.random.below(100) < self.config.lost;
            let found =
                self.wires.iter().find(|(id, it)| id.1 == master && it.connection == Some(of));
            if let (Some((id, _)), false) = (found, is_lost) {
                self.send(*id, message);
            }
        }
    }

    // Faults and how they heal.

    pub(crate) fn stop_for(&mut self, master: usize, length: Duration) {
        self.masters[master].server.pause();
        self.enter(self.now.plus(length), Event::Resumed(master));
    }

    /// Resumes the master, which serves its connections one after the other, in any order.
    pub(crate) fn resume(&mut self, master: usize) {
        self.masters[master].server.resume();
        let ids: Vec<WireId> = self.wires.keys().filter(|id| id.1 == master).copied().collect();
        for id in ids {
            let turn = self.now.plus(Duration::from_micros(self.random.below(10_000)));
            self.enter(turn, Event::Served(id));
        }
    }

    /// Lets another client hold a resource on every master for `length`.
    pub(crate) fn occupy(&mut self, key: &Key, length: Duration) {
        let ttl_ms = u64::try_from(length.as_millis()).expect("it is short");
        for master in &mut self.masters {
            master.server.set(self.now.as_nanos(), key, token(u64::MAX).as_bytes(), Some(ttl_ms));
        }
    }
}
