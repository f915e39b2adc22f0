//! Messages between client processes and masters, with the ordering and loss of TCP. The proxy in
//! the middle injects the faults of the network. Within a connection, a message is lost only
//! together with all that follow it.
//!
//! The proxy stands beside the client. A request passes it at the moment at which the client writes
//! it, a reply when it arrives from the master. The history records the exact time of a command: it
//! took effect at one instant, which the history gives as both of its ends.
//!
//! This file moves a message to the master and back, and knows what commands and replies mean for a
//! key; it opens and closes connections, also when a fault is healed.

use std::collections::VecDeque;
use std::sync::Arc;

use super::client_machine::ProcessEvent;
use super::rules::{Delivery, Rule};
use super::world::{Instant, World, WorldEvent};
use super::{CONNECT, GREETING, SimulatedProcess};
use crate::mutants;
use crate::orchestrator::Input;
use redquorum_protocol::wire::{Command, Expect};
use redquorum_protocol::{Key, Reply, Token, Waiter};
use redquorum_redis_model::{self as server, Close, Connection, Request};
use redquorum_scenario::history::{Act, Event, Outcome, text_of};
use redquorum_scenario::name::Name;
use redquorum_scenario::{Class, End, MessageFault, Mutant, Side};

/// Identifies a connection throughout a run.
pub(super) type WireId = usize;

/// A connection between a process and a master, with the proxy in the middle.
#[derive(Clone, Debug)]
pub(super) struct Wire {
    pub(super) actor: usize,
    /// Index of the link of its client. `node` is the master at the other end.
    link: usize,
    pub(super) node: usize,
    pub(super) epoch: u64,
    /// The id in the history. A connection of a duplicate has the id of the original connection.
    shown: WireId,
    /// The connection at the master, once the attempt has arrived there.
    connection: Option<Connection>,
    /// How many requests the client has written.
    requests: u64,
    /// Each end is open until it learns that the connection is over.
    pub(super) client_open: bool,
    pub(super) master_open: bool,
    /// Whether the handshake is complete.
    greeted: bool,
    up: Lane,
    down: Lane,
    /// Commands that the master has received, or will receive, and has not replied to.
    awaiting: VecDeque<Pending>,
    /// The rules that reset this connection when they are healed.
    resets_on_heal: Vec<u64>,
    /// The rule that prevents this connection from being established.
    apart: Option<u64>,
}

/// All connections of a run, by id. Closed connections are removed.
#[derive(Clone, Debug, Default)]
pub(super) struct Wires(Vec<Option<Wire>>);

impl Wires {
    fn next(&self) -> WireId {
        self.0.len()
    }

    fn add(&mut self, wire: Wire) {
        self.0.push(Some(wire));
    }

    fn get(&self, id: WireId) -> Option<&Wire> {
        self.0.get(id)?.as_ref()
    }

    fn get_mut(&mut self, id: WireId) -> Option<&mut Wire> {
        self.0.get_mut(id)?.as_mut()
    }

    fn remove(&mut self, id: WireId) {
        self.0[id] = None;
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (WireId, &Wire)> {
        self.0.iter().enumerate().filter_map(|(id, wire)| Some((id, wire.as_ref()?)))
    }
}

/// Delay of the second copy of [`Mutant::SendsAgain`], in nanoseconds: longer than a short hold
/// takes until its release.
const AGAIN: u64 = 300_000_000;

/// A message on its way.
#[derive(Clone, Debug)]
struct Message {
    /// The request, or the one that the master replied to. It took effect when the master sent the
    /// reply.
    of: Pending,
    payload: Payload,
}

#[derive(Clone, Debug)]
enum Payload {
    Request(server::Request),
    Reply {
        raw: server::ServerReply,
        /// The reply as the client reads it.
        reply: Reply,
        result: Outcome,
    },
}

/// A command that the master has received and whose client has no reply yet.
#[derive(Clone, Debug)]
struct Pending {
    number: u64,
    /// How the client reads the reply.
    expect: Expect,
    class: Class,
    /// Its effect on a key, if it is a command of the lock.
    act: Option<Act>,
    /// When it reached the master.
    sent: Instant,
    /// What the fencing counter stands at, by the master's reply.
    fence: Option<u64>,
    /// Whether it is the second copy of a request that the network duplicated.
    duplicate: bool,
}

/// One direction of a connection.
#[derive(Clone, Debug)]
struct Lane {
    /// Messages with their arrival times, in this order: no message overtakes another.
    under_way: VecDeque<(Instant, Message)>,
    /// Arrival time of the latest message.
    last: Instant,
    /// The rule that holds this direction, and the messages that wait.
    held: Option<(u64, VecDeque<Message>)>,
    /// Whether all messages from here on are lost.
    lost: bool,
    /// Whether the close of its sender waits behind held messages.
    close_waits: bool,
    /// Whether the close of its sender is on its way.
    closes: bool,
}

impl Lane {
    const fn new(now: Instant) -> Self {
        Self {
            under_way: VecDeque::new(),
            last: now,
            held: None,
            lost: false,
            close_waits: false,
            closes: false,
        }
    }

    fn arrives(&mut self, now: Instant, latency: u64, delivery: &Delivery, bytes: u64) -> Instant {
        let delay = u64::try_from(delivery.delay.as_nanos()).unwrap_or(u64::MAX);
        let mut at = now.saturating_add(latency).saturating_add(delay).max(self.last);
        if let Some(rate) = delivery.trickle {
            at = at.saturating_add(bytes.saturating_mul(1_000_000_000) / u64::from(rate.max(1)));
        }
        self.last = at;
        at
    }

    /// Takes the message that arrives now, if there is one.
    fn arrived(&mut self, now: Instant) -> Option<Message> {
        let (at, _) = self.under_way.front()?;
        if *at > now {
            return None;
        }
        self.under_way.pop_front().map(|(_, message)| message)
    }

    /// Lets all messages under way arrive by `by`, since no rule slows them any more. Returns how
    /// many moved.
    fn deliver_sooner(&mut self, by: Instant) -> usize {
        self.last = self.last.min(by);
        let late = self.under_way.iter_mut().filter(|(at, _)| *at > by);
        late.map(|(at, _)| *at = by).count()
    }
}

impl Wire {
    /// The direction of the messages of a side.
    fn lane(&mut self, side: Side) -> &mut Lane {
        if side == Side::Reply { &mut self.down } else { &mut self.up }
    }
}

/// The arrival of a message of a side.
fn arrival(side: Side, id: WireId) -> WorldEvent {
    if side == Side::Reply { WorldEvent::AtClient(id) } else { WorldEvent::AtMaster(id) }
}

impl<P: SimulatedProcess> World<P> {
    /// Sends a command of a process.
    pub(super) fn write(&mut self, id: WireId, command: Command) {
        let Some(wire) = self.wires.get_mut(id).filter(|wire| wire.client_open) else { return };
        wire.requests += 1;
        let number = wire.requests;
        let class = Class::of(command.key_effect());
        let act = self.texts.act(self.mutant, &command);
        let expect = command.expect();
        let request = mutants::request(self.mutant, command);
        let sent = self.now;
        let pending = Pending { number, expect, class, act, sent, fence: None, duplicate: false };
        self.pass(id, Side::Request, Message { of: pending, payload: Payload::Request(request) });
    }

    /// Passes a message through the proxy.
    fn pass(&mut self, id: WireId, side: Side, message: Message) {
        let Some(wire) = self.wires.get_mut(id) else { return };
        let (actor, node) = (wire.actor, wire.node);
        let is_unread = side == Side::Reply && (message.of.duplicate || !wire.client_open);
        let lane = wire.lane(side);
        if is_unread || lane.lost {
            return self.lose(id, message);
        }
        if let Some((_, held)) = &mut lane.held {
            return held.push_back(message);
        }
        let delivery = self.rules.apply(actor, node, side, message.of.class);
        match delivery.struck {
            Some((rule, MessageFault::Drop)) => {
                lane.lost = true;
                wire.resets_on_heal.push(rule);
                self.lose(id, message);
            }
            Some((rule, MessageFault::Hold)) => {
                lane.held = Some((rule, VecDeque::from([message])));
                self.report_at_gate(&delivery);
            }
            Some((_, MessageFault::Reset)) => {
                self.lose(id, message);
                self.reset(id);
            }
            Some((rule, MessageFault::HalfOpen(end))) => {
                self.lose(id, message);
                self.half_open(id, end, rule);
            }
            _ => self.send(id, side, message, &delivery),
        }
    }

    /// Sends a message on to the other end.
    fn send(&mut self, id: WireId, side: Side, message: Message, delivery: &Delivery) {
        let Some(wire) = self.wires.get_mut(id) else { return };
        let (actor, class) = (wire.actor, message.of.class);
        let latency = self.links.of_mut(actor, wire.link).latency(side);
        let at = wire.lane(side).arrives(self.now, latency, delivery, size_of(&message.payload));
        if side == Side::Request {
            if delivery.duplicate && message.of.act.is_some() {
                self.duplicate(id, at, &message);
            }
            if self.mutant == Mutant::SendsAgain && class == Class::Acquire {
                self.duplicate(id, at + AGAIN, &message);
            }
        }
        let Some(wire) = self.wires.get_mut(id) else { return };
        wire.lane(side).under_way.push_back((at, message));
        self.enter(at, arrival(side, id));
        if side == Side::Request {
            self.passed(actor, side, class);
        }
    }

    /// Records a reply that its client will not read.
    fn lose(&mut self, id: WireId, message: Message) {
        if let Payload::Reply { result, .. } = message.payload {
            self.record(id, message.of, result, None);
        }
    }

    /// Sends the second copy of a request, on a connection of its own that has no client.
    fn duplicate(&mut self, id: WireId, first: Instant, message: &Message) {
        let Some(Wire { actor, link, node, epoch, .. }) = self.wires.get(id) else { return };
        let (actor, link, node, epoch) = (*actor, *link, *node, *epoch);
        let Some(connection) = self.masters[node].server.connect() else { return };
        let copy = self.wires.next();
        self.masters[node].wires.insert(connection, copy);
        let mut wire = Wire {
            shown: id,
            connection: Some(connection),
            client_open: false,
            master_open: true,
            greeted: true,
            ..Wire::new(actor, (link, node), epoch, copy, self.now)
        };
        let at = first + self.links.of_mut(actor, link).copies.latency();
        let mut message = message.clone();
        message.of.duplicate = true;
        wire.up.under_way.push_back((at, message));
        self.wires.add(wire);
        self.enter(at, WorldEvent::AtMaster(copy));
    }

    /// Puts a request into the master's socket buffer.
    pub(super) fn at_master(&mut self, id: WireId) {
        let Some(wire) = self.wires.get_mut(id) else { return };
        let Some(Message { of, payload: Payload::Request(request) }) = wire.up.arrived(self.now)
        else {
            return;
        };
        let Some(connection) = wire.connection.filter(|_| wire.master_open) else { return };
        wire.awaiting.push_back(Pending { sent: self.now, ..of });
        let node = wire.node;
        self.masters[node].server.deliver(connection, request);
        self.serve(node, connection);
    }

    /// Lets the master serve a connection.
    pub(super) fn serve(&mut self, node: usize, connection: Connection) {
        let wall = self.wall(node);
        let mut events = std::mem::take(&mut self.events);
        self.masters[node].server.serve(wall, connection, &mut events);
        self.sync(node, wall);
        self.handle_server_events(node, &mut events);
        self.events = events;
    }

    /// Handles the events of a master: replies, push messages and dropped connections.
    pub(super) fn handle_server_events(&mut self, node: usize, events: &mut Vec<server::Event>) {
        for event in events.drain(..) {
            match event {
                server::Event::Message(connection, message) => {
                    match (self.masters[node].wires.get(&connection), message) {
                        (Some(id), server::ServerReply::Woken(waiter)) => self.woken(*id, waiter),
                        (Some(id), reply) => self.replied(*id, reply),
                        (None, _) => {}
                    }
                }
                server::Event::Dropped(connection) => {
                    if let Some(id) = self.masters[node].wires.remove(&connection) {
                        self.dropped(id);
                    }
                }
            }
        }
    }

    /// Takes the master's reply to the oldest command of a connection.
    fn replied(&mut self, id: WireId, raw: server::ServerReply) {
        let Some(wire) = self.wires.get_mut(id) else { return };
        let Some(of) = wire.awaiting.pop_front() else { return };
        // The command takes effect at this very instant.
        let (actor, node) = (wire.actor, wire.node);
        let reply = match &raw {
            server::ServerReply::Value(value) => value.read(of.expect),
            _ => Reply::Alive,
        };
        let of = Pending { sent: self.now, fence: counter_of(&reply), ..of };
        let result = of.act.as_ref().map_or(Outcome::Done, |act| outcome_of(act, &reply));
        if let Some(act) =
            of.act.as_ref().filter(|_| self.began && self.orchestrator.follows_grants())
        {
            let (process, act) = (self.actors[actor].name.clone(), act.clone());
            self.handle_input(Input::MasterReplied { process, node: node + 1, act, result });
        }
        self.pass(id, Side::Reply, Message { of, payload: Payload::Reply { raw, reply, result } });
    }

    /// Takes a push message with which the master wakes a waiter.
    fn woken(&mut self, id: WireId, waiter: Waiter) {
        let of = Pending {
            number: 0,
            expect: Expect::Subscribe,
            class: Class::WakeUp,
            act: None,
            sent: self.now,
            fence: None,
            duplicate: false,
        };
        let (raw, reply) = (server::ServerReply::Woken(waiter), Reply::Alive);
        let payload = Payload::Reply { raw, reply, result: Outcome::Done };
        self.pass(id, Side::Reply, Message { of, payload });
    }

    /// Delivers a reply to the client, whether the client runs or not.
    pub(super) fn at_client(&mut self, id: WireId) {
        let Some(wire) = self.wires.get_mut(id) else { return };
        let Some(message) = wire.down.arrived(self.now) else { return };
        if !wire.client_open {
            return self.lose(id, message);
        }
        let Message { of, payload: Payload::Reply { raw, reply, result } } = message else {
            return;
        };
        let (actor, node, epoch, class) = (wire.actor, wire.link, wire.epoch, of.class);
        let event = match raw {
            server::ServerReply::Greeting(greeting) => {
                wire.greeted = true;
                ProcessEvent::Connected { node, epoch, greeting }
            }
            server::ServerReply::Woken(Waiter { waiter_id, .. }) => {
                ProcessEvent::Woken { node, epoch, waiter_id }
            }
            server::ServerReply::Value(value) => {
                ProcessEvent::Replied { node, epoch, reply, value }
            }
        };
        self.record(id, of, result, Some(self.now));
        if class != Class::WakeUp {
            self.passed(actor, Side::Reply, class);
        }
        self.happen(actor, event);
    }

    /// Reports that a message waits at a gate.
    fn report_at_gate(&mut self, delivery: &Delivery) {
        if let Some(fault) = delivery.gate {
            self.enter(self.now, WorldEvent::Gated(fault));
        }
    }

    fn passed(&mut self, actor: usize, side: Side, class: Class) {
        if self.began && self.orchestrator.follows_messages() {
            let process = self.actors[actor].name.clone();
            self.handle_input(Input::Passed { process, side, class });
        }
    }

    /// Records the outcome of a command: what its master replied.
    fn record(&mut self, id: WireId, of: Pending, result: Outcome, delivered: Option<Instant>) {
        let replied = (result != Outcome::Silent).then_some(of.sent);
        let Pending { number, act: Some(act), sent, fence, .. } = of else { return };
        let Some(wire) = self.wires.get(id).filter(|_| self.began) else { return };
        let event = Event::Command {
            process: self.actors[wire.actor].name.clone(),
            node: wire.node + 1,
            connection: wire.shown as u64 + 1,
            number,
            act,
            sent: self.ns(sent),
            replied: replied.map(|at| self.ns(at)),
            delivered: delivered.map(|at| self.ns(at)),
            result,
            fence: fence.filter(|_| replied.is_some()),
        };
        self.orchestrator.record(self.ns(self.now), event);
    }
}

/// How many tokens are cached: enough for the few clients that are acquiring.
const TOKENS: usize = 8;

/// Caches the text of all keys and of recent tokens, since each of them goes to every master.
#[derive(Clone, Debug, Default)]
pub(crate) struct Texts {
    keys: Vec<(Key, Name)>,
    /// The latest one is the last.
    tokens: VecDeque<(Token, Name)>,
}

impl Texts {
    /// The effect of a command on a key, as the wire shows it. `None` if it touches no key.
    fn act(&mut self, mutant: Mutant, command: &Command) -> Option<Act> {
        let Self { keys, tokens } = self;
        let token = |token| text_of_token(tokens, mutant.on_the_wire(token));
        let act = Act::of(command.key_effect(), |key| text_of_key(keys, key), token)?;
        let compares = !matches!(
            (mutant, command),
            (Mutant::ExtendWithoutTokenCheck, Command::Keep { .. })
                | (Mutant::PlainDel, Command::Delete { .. })
                | (Mutant::CertifiesAnywhere, Command::Certify { .. })
        );
        Some(if compares { act } else { act.uncompared() })
    }
}

fn text_of_key(keys: &mut Vec<(Key, Name)>, key: &Key) -> Name {
    let known = |(known, _): &&(Key, Name)| Arc::ptr_eq(known, key) || known == key;
    if let Some((_, text)) = keys.iter().find(known) {
        return text.clone();
    }
    let text = text_of(key);
    keys.push((key.clone(), text.clone()));
    text
}

fn text_of_token(tokens: &mut VecDeque<(Token, Name)>, token: Token) -> Name {
    // It is mostly the same token as before, on its way to the next master.
    if let Some((_, text)) = tokens.iter().rfind(|(known, _)| *known == token) {
        return text.clone();
    }
    if tokens.len() == TOKENS {
        tokens.pop_front();
    }
    let text = text_of(token.as_bytes());
    tokens.push_back((token, text.clone()));
    text
}

/// Approximate size of a message in bytes.
fn size_of(payload: &Payload) -> u64 {
    match payload {
        Payload::Request(Request::Lock(command) | Request::Mutant(command, _)) => {
            command.size_hint() as u64
        }
        Payload::Request(_) => 400,
        Payload::Reply { .. } => 40,
    }
}

/// The outcome of a command according to its reply.
fn outcome_of(act: &Act, reply: &Reply) -> Outcome {
    match (act, reply) {
        (act, Reply::Stamped { reply, .. }) => outcome_of(act, reply),
        (Act::Keep { .. }, Reply::Created) => Outcome::Created,
        (
            _,
            Reply::Created
            | Reply::Granted { .. }
            | Reply::Certified { .. }
            | Reply::Kept
            | Reply::Deleted
            | Reply::Freed { .. },
        ) => Outcome::Done,
        (_, Reply::Unknown(_)) => Outcome::Error,
        _ => Outcome::Refused,
    }
}

/// What the fencing counter stands at, by a reply that shows it.
fn counter_of(reply: &Reply) -> Option<u64> {
    match reply {
        Reply::Stamped { reply, .. } => counter_of(reply),
        Reply::Granted { number } | Reply::Certified { number } => Some(*number),
        _ => None,
    }
}

/// Why a connection ended that its master dropped.
const RESET: &str = "reset by the master";

/// The arrival of the close of the end that sends the messages of a side.
fn arrival_of_close(side: Side, id: WireId) -> WorldEvent {
    if side == Side::Reply { WorldEvent::Ended(id, RESET) } else { WorldEvent::Hangup(id) }
}

impl Wire {
    const fn new(
        actor: usize,
        (link, node): (usize, usize),
        epoch: u64,
        shown: WireId,
        now: Instant,
    ) -> Self {
        Self {
            actor,
            link,
            node,
            epoch,
            shown,
            connection: None,
            requests: 0,
            client_open: true,
            master_open: false,
            greeted: false,
            up: Lane::new(now),
            down: Lane::new(now),
            awaiting: VecDeque::new(),
            resets_on_heal: Vec::new(),
            apart: None,
        }
    }
}

impl<P: SimulatedProcess> World<P> {
    /// Opens a connection for a process.
    pub(crate) fn dial(&mut self, actor: usize, link: usize, epoch: u64) {
        let node = self.actors[actor].nodes[link];
        let id = self.wires.next();
        let apart = self.rules.keeps(actor, node, Side::Both).map(|(rule, _)| rule);
        let mut wire = Wire::new(actor, (link, node), epoch, id, self.now);
        wire.requests = GREETING;
        wire.apart = apart;
        wire.resets_on_heal.extend(apart);
        self.wires.add(wire);
        self.actors[actor].wires.push((link, epoch, id));
        if apart.is_none() {
            let at = self.now + self.links.of_mut(actor, link).latency(Side::Request);
            self.enter(at, WorldEvent::Connect(id));
        }
        let policy = CONNECT.max(self.scenario.lock.node_timeout.0);
        let until = self.now + u64::try_from(policy.as_nanos()).unwrap_or(u64::MAX);
        self.enter(until, WorldEvent::GiveUp(id));
    }

    pub(crate) fn connect(&mut self, id: WireId) {
        let Some(wire) = self.wires.get_mut(id).filter(|wire| wire.client_open) else { return };
        let master = &mut self.masters[wire.node];
        let Some(connection) = master.server.connect() else {
            let at = self.now + self.links.of_mut(wire.actor, wire.link).latency(Side::Reply);
            return self.enter(at, WorldEvent::Ended(id, "refused"));
        };
        master.wires.insert(connection, id);
        wire.connection = Some(connection);
        wire.master_open = true;
        let pending = Pending {
            number: wire.requests,
            expect: Expect::Hello,
            class: Class::Any,
            act: None,
            sent: self.now,
            fence: None,
            duplicate: false,
        };
        let payload = Payload::Request(Request::Hello);
        self.pass(id, Side::Request, Message { of: pending, payload });
    }

    /// Ends a connection attempt that has timed out.
    pub(crate) fn give_up(&mut self, id: WireId) {
        let Some(wire) = self.wires.get(id).filter(|wire| wire.client_open && !wire.greeted) else {
            return;
        };
        let (actor, link, epoch) = (wire.actor, wire.link, wire.epoch);
        self.close(id);
        self.closed(actor, link, epoch, "no greeting in time".into());
    }

    /// Closes the client's end, with a reset.
    pub(crate) fn close(&mut self, id: WireId) {
        let Some(wire) = self.wires.get_mut(id).filter(|wire| wire.client_open) else { return };
        wire.client_open = false;
        let (actor, node) = (wire.actor, wire.node);
        self.actors[actor].wires.retain(|(_, _, known)| *known != id);
        if wire.up.lost {
            return;
        }
        match self.rules.keeps(actor, node, Side::Request) {
            // The master's end learns of it when the rule is healed.
            Some((rule, false)) => return wire.resets_on_heal.push(rule),
            Some((rule, true)) => {
                wire.up.held.get_or_insert((rule, VecDeque::new()));
            }
            None => {}
        }
        if wire.up.held.is_some() {
            wire.up.close_waits = true;
            return;
        }
        self.send_close(id, Side::Request);
    }

    /// Sends the close of one end to the other.
    fn send_close(&mut self, id: WireId, side: Side) {
        let Some(wire) = self.wires.get_mut(id) else { return };
        let latency = self.links.of_mut(wire.actor, wire.link).latency(side);
        let lane = wire.lane(side);
        lane.closes = true;
        let at = lane.arrives(self.now, latency, &Delivery::default(), 0);
        self.enter(at, arrival_of_close(side, id));
    }

    /// Delivers the close of the client's end to the master.
    pub(crate) fn hang_up(&mut self, id: WireId) {
        let Some(wire) = self.wires.get_mut(id).filter(|wire| wire.master_open) else { return };
        let Some(connection) = wire.connection else { return };
        wire.master_open = false;
        let node = wire.node;
        self.masters[node].server.close(connection, Close::Reset);
        self.serve(node, connection);
        self.masters[node].wires.remove(&connection);
        self.forget(id);
    }

    /// Handles a connection that the master has dropped.
    fn dropped(&mut self, id: WireId) {
        let Some(wire) = self.wires.get_mut(id) else { return };
        wire.master_open = false;
        let (actor, node) = (wire.actor, wire.node);
        if wire.client_open && !wire.down.lost {
            match self.rules.keeps(actor, node, Side::Reply) {
                Some((rule, false)) => wire.resets_on_heal.push(rule),
                Some((rule, true)) => {
                    wire.down.held.get_or_insert((rule, VecDeque::new()));
                    wire.down.close_waits = true;
                }
                None if wire.down.held.is_some() => wire.down.close_waits = true,
                None => self.send_close(id, Side::Reply),
            }
        }
        self.forget(id);
    }

    /// Records unanswered commands as silent: no reply will follow.
    fn forget(&mut self, id: WireId) {
        let Some(wire) = self.wires.get_mut(id) else { return };
        for pending in std::mem::take(&mut wire.awaiting) {
            self.record(id, pending, Outcome::Silent, None);
        }
        let Some(wire) = self.wires.get(id) else { return };
        if !wire.client_open && !wire.master_open && wire.up.held.is_none() {
            // The client no longer waits for these replies.
            let Some(wire) = self.wires.get_mut(id) else { return };
            let under_way = std::mem::take(&mut wire.down.under_way).into_iter();
            let (_, held) = wire.down.held.take().unwrap_or_default();
            for reply in under_way.map(|(_, reply)| reply).chain(held) {
                self.lose(id, reply);
            }
            self.wires.remove(id);
        }
    }

    /// Delivers the close of the master's end to the client.
    pub(crate) fn ended(&mut self, id: WireId, why: &'static str) {
        let Some(wire) = self.wires.get_mut(id).filter(|wire| wire.client_open) else { return };
        wire.client_open = false;
        let (actor, link, epoch, master_open) =
            (wire.actor, wire.link, wire.epoch, wire.master_open);
        self.actors[actor].wires.retain(|(_, _, known)| *known != id);
        if !master_open {
            self.forget(id);
        }
        self.closed(actor, link, epoch, why.into());
    }

    /// Tells a process that a connection did not open, or broke.
    pub(crate) fn closed(&mut self, actor: usize, link: usize, epoch: u64, why: Arc<str>) {
        let random = self.links.of_mut(actor, link).retries.any();
        self.happen(actor, ProcessEvent::Closed { node: link, epoch, why, random });
    }

    /// Resets both ends at once.
    pub(crate) fn reset(&mut self, id: WireId) {
        let Some(wire) = self.wires.get_mut(id) else { return };
        wire.up.held = None;
        wire.up.lost = true;
        wire.down.lost = true;
        let open = wire.client_open;
        let at = self.now + self.links.of_mut(wire.actor, wire.link).latency(Side::Reply);
        let held = wire.down.held.take();
        for reply in held.into_iter().flat_map(|(_, held)| held) {
            self.lose(id, reply);
        }
        if open {
            self.enter(at, WorldEvent::Ended(id, "reset by the network"));
        }
        self.enter(at, WorldEvent::Hangup(id));
    }

    /// Resets one end. The other end learns nothing until the rule is healed.
    pub(crate) fn half_open(&mut self, id: WireId, end: End, rule: u64) {
        let Some(wire) = self.wires.get_mut(id) else { return };
        wire.resets_on_heal.push(rule);
        wire.up.lost = true;
        wire.down.lost = true;
        let at = self.now + self.links.of_mut(wire.actor, wire.link).latency(Side::Reply);
        match end {
            End::Client => self.enter(at, WorldEvent::Ended(id, "reset by the network")),
            End::Master => self.enter(at, WorldEvent::Hangup(id)),
        }
    }

    /// Heals a rule: held messages move on, and the connections that suffered from the rule are
    /// reset.
    pub(crate) fn heal_rule(&mut self, rule: u64) {
        if let Some(healed) = self.rules.heal(rule)
            && matches!(healed.fault, MessageFault::Delay(_) | MessageFault::Trickle(_))
        {
            self.deliver_sooner(&healed);
        }
        for id in 0..self.wires.next() {
            let Some(wire) = self.wires.get_mut(id) else { continue };
            if wire.apart == Some(rule) && wire.up.held.is_none() {
                wire.apart = None;
            }
            if wire.resets_on_heal.contains(&rule) {
                self.reset(id);
                continue;
            }
            for side in [Side::Request, Side::Reply] {
                let Some(wire) = self.wires.get_mut(id) else { break };
                let lane = wire.lane(side);
                let Some((_, held)) = lane.held.take_if(|(of, _)| *of == rule) else { continue };
                let close_waits = std::mem::take(&mut lane.close_waits);
                for message in held {
                    self.send(id, side, message, &Delivery::default());
                }
                if close_waits {
                    self.send_close(id, side);
                }
            }
        }
    }

    /// Lets messages that a healed rule had slowed move on at once.
    fn deliver_sooner(&mut self, healed: &Rule) {
        for id in 0..self.wires.next() {
            let Some(wire) = self.wires.get_mut(id) else { continue };
            if !healed.is_about(&wire.actor, wire.node) {
                continue;
            }
            for side in [Side::Request, Side::Reply].into_iter().filter(|side| healed.is_on(*side))
            {
                let Some(wire) = self.wires.get_mut(id) else { break };
                let at = self.now + self.links.of_mut(wire.actor, wire.link).latency(side);
                let lane = wire.lane(side);
                let (many, closes) = (lane.deliver_sooner(at), lane.closes);
                (0..many).for_each(|_| self.enter(at, arrival(side, id)));
                if closes {
                    self.enter(at, arrival_of_close(side, id));
                }
            }
        }
    }

    /// Ends the run: records the outcome of all open commands, as far as it is known.
    pub(crate) fn finish(&mut self) {
        for id in 0..self.wires.next() {
            self.forget(id);
        }
    }
}
