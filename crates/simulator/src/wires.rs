//! Messages between client processes and masters, with the ordering and loss of TCP. The proxy in
//! the middle injects the faults of the network. Within a connection, a message is lost only
//! together with all that follow it.
//!
//! The proxy stands beside the client. A request passes it at the moment at which the client writes
//! it, a reply when it arrives from the master. The history records the exact time of a command: it
//! took effect at one instant, which the history gives as both of its ends.
//!
//! This file moves a message to the master and back, and knows what commands and replies mean for a
//! key. `wires/ends.rs` opens and closes connections.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::client_machine::ProcessEvent;
use crate::mutants;
use crate::orchestrator::Input;
use crate::process::SimulatedProcess;
use crate::rules::Delivery;
use crate::world::{Instant, World, WorldEvent};
use redquorum_protocol::wire::{Command, Expect};
use redquorum_protocol::{Key, Reply, Token, Waiter};
use redquorum_redis_model as server;
use redquorum_redis_model::{Connection, Request};
use redquorum_scenario::history::{Act, Event, Outcome, text_of};
use redquorum_scenario::name::Name;
use redquorum_scenario::{Class, MessageFault, Mutant, Side};

mod ends;

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
        let pending = Pending { number, expect, class, act, sent, duplicate: false };
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
        let of = Pending { sent: self.now, ..of };
        let (actor, node) = (wire.actor, wire.node);
        let reply = match &raw {
            server::ServerReply::Value(value) => value.read(of.expect),
            _ => Reply::Alive,
        };
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
        let Pending { number, act: Some(act), sent, .. } = of else { return };
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
