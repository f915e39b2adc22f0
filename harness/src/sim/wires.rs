//! Messages between client processes and masters, as TCP has them, with the proxy in the middle where
//! faults of the network strike. Within a connection nothing is lost that something behind it
//! survives.
//!
//! The proxy stands beside the client: a request passes it as it is written, a reply as it comes from
//! the master. What the history has of a command is exact here: it took effect at the instant that is
//! written down as both of its ends.
//!
//! Here is the way of a message, there and back; `wires/ends.rs` makes connections and ends them,
//! `wires/words.rs` knows what commands and replies mean.

use std::collections::VecDeque;

use redquorum_protocol::Ticket;
use redquorum_protocol::wire::{Command, Greeting};

use super::rules::{Fate, Harm};
use super::server::{self, Connection};
use super::world::{Instant, What, World};
use crate::client_machine::Happening;
use crate::director::Input;
use crate::history::{Act, Event, Outcome};
use crate::sabotage::Lie;
use crate::scenario::{Class, Side};
use words::{answer_of, class_of, outcome, size_of};

mod ends;
mod words;

pub(super) use words::Texts;

/// Which connection, over all of a run.
pub(super) type WireId = usize;

/// A connection between a process and a master, with the proxy in the middle.
#[derive(Clone, Debug)]
pub(super) struct Wire {
    pub(super) actor: usize,
    /// Which of the links of its client it is of, and the master at the other end.
    link: usize,
    pub(super) node: usize,
    pub(super) epoch: u64,
    /// The number by which the history knows it: that of the first, if it is a duplicate's.
    shown: WireId,
    /// At the master, once it is there.
    connection: Option<Connection>,
    /// How many requests were written.
    requests: u64,
    /// Each end, as long as it does not know that the connection is over.
    pub(super) client_open: bool,
    pub(super) master_open: bool,
    /// It was greeted.
    greeted: bool,
    up: Lane<Message>,
    down: Lane<Reply>,
    /// What the master has, or will have, to answer.
    awaiting: VecDeque<Pending>,
    /// The rules that will reset it when they are healed.
    suffers: Vec<u64>,
    /// The rule that keeps it from being made.
    apart: Option<u64>,
    /// Each end waits behind what is held.
    hangup_waits: bool,
    drop_waits: bool,
    /// Each end is on its way to the other.
    hangs_up: bool,
    drops: bool,
}

/// All connections of a run, by their numbers; those that are over are gone.
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

/// How much later a client that sends twice does so: behind the release of a short hold.
const AGAIN: u64 = 300_000_000;

/// A request on its way.
#[derive(Clone, Debug)]
pub(super) struct Message {
    number: u64,
    request: server::Request,
    class: Class,
    /// What it does to a key, if it is one of the lock's commands.
    act: Option<Act>,
    /// It is the second of one that the network duplicated.
    duplicate: bool,
}

/// A command that the master has, and its client has no answer to yet.
#[derive(Clone, Debug)]
struct Pending {
    number: u64,
    class: Class,
    act: Option<Act>,
    /// When it reached the master.
    sent: Instant,
    duplicate: bool,
}

/// A reply on its way.
#[derive(Clone, Debug)]
pub(super) struct Reply {
    /// Its command, which took effect as it was sent.
    to: Pending,
    reply: server::Reply,
    result: Outcome,
}

/// One direction of a connection.
#[derive(Clone, Debug)]
struct Lane<T> {
    /// What will arrive, and when, in this order: none overtakes another.
    under_way: VecDeque<(Instant, T)>,
    /// When the latest arrives.
    last: Instant,
    /// The rule that holds it back, and what waits.
    held: Option<(u64, VecDeque<T>)>,
    /// All is lost from here on.
    lost: bool,
}

impl<T> Lane<T> {
    const fn new(now: Instant) -> Self {
        Self { under_way: VecDeque::new(), last: now, held: None, lost: false }
    }

    fn arrives(&mut self, now: Instant, latency: u64, fate: &Fate, bytes: u64) -> Instant {
        let delay = u64::try_from(fate.delay.as_nanos()).unwrap_or(u64::MAX);
        let mut at = now.saturating_add(latency).saturating_add(delay).max(self.last);
        if let Some(rate) = fate.trickle {
            at = at.saturating_add(bytes.saturating_mul(1_000_000_000) / u64::from(rate.max(1)));
        }
        self.last = at;
        at
    }

    /// What arrives now, if something does.
    fn arrived(&mut self, now: Instant) -> Option<T> {
        let (at, _) = self.under_way.front()?;
        if *at > now {
            return None;
        }
        self.under_way.pop_front().map(|(_, thing)| thing)
    }

    /// Nothing slows it down any more: all that is under way arrives by an instant. How much that is.
    fn hasten(&mut self, by: Instant) -> usize {
        self.last = self.last.min(by);
        let late = self.under_way.iter_mut().filter(|(at, _)| *at > by);
        late.map(|(at, _)| *at = by).count()
    }
}

impl World {
    /// A process writes a command.
    pub(super) fn write(&mut self, id: WireId, command: Command) {
        let Some(wire) = self.wires.get_mut(id).filter(|wire| wire.client_open) else { return };
        wire.requests += 1;
        let number = wire.requests;
        let (class, act) = (class_of(&command), self.texts.act(self.lie, &command));
        let request = words::request(self.lie, command);
        self.pass_up(id, Message { number, request, class, act, duplicate: false });
    }

    /// A request passes the proxy.
    fn pass_up(&mut self, id: WireId, message: Message) {
        let Some(wire) = self.wires.get_mut(id) else { return };
        if wire.up.lost {
            return;
        }
        if let Some((_, held)) = &mut wire.up.held {
            return held.push_back(message);
        }
        let fate = self.rules.judge(wire.actor, wire.node, Side::Request, message.class);
        match fate.struck {
            Some((rule, Harm::Drop)) => {
                wire.up.lost = true;
                wire.suffers.push(rule);
            }
            Some((rule, Harm::Hold)) => {
                wire.up.held = Some((rule, VecDeque::from([message])));
                self.knock(&fate);
            }
            Some((_, Harm::Reset)) => self.reset(id),
            Some((rule, Harm::HalfOpen(end))) => self.half_open(id, end, rule),
            _ => self.forward(id, message, &fate),
        }
    }

    /// A request is on its way to the master.
    fn forward(&mut self, id: WireId, message: Message, fate: &Fate) {
        let Some(wire) = self.wires.get_mut(id) else { return };
        let latency = self.links.of_mut(wire.actor, wire.link).up.latency();
        let at = wire.up.arrives(self.now, latency, fate, size_of(&message.request));
        let (actor, class) = (wire.actor, message.class);
        if fate.duplicate && message.act.is_some() {
            self.duplicate(id, at, &message);
        }
        if self.lie == Lie::SendsAgain && class == Class::Acquire {
            self.duplicate(id, at + AGAIN, &message);
        }
        let Some(wire) = self.wires.get_mut(id) else { return };
        wire.up.under_way.push_back((at, message));
        self.enter(at, What::AtMaster(id));
        self.passed(actor, Side::Request, class);
    }

    /// The second of a request goes a way of its own, on a connection that has no client.
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
        wire.up.under_way.push_back((at, Message { duplicate: true, ..message.clone() }));
        self.wires.add(wire);
        self.enter(at, What::AtMaster(copy));
    }

    /// A request is in the master's socket buffer.
    pub(super) fn at_master(&mut self, id: WireId) {
        let Some(wire) = self.wires.get_mut(id) else { return };
        let Some(message) = wire.up.arrived(self.now) else { return };
        let Some(connection) = wire.connection.filter(|_| wire.master_open) else { return };
        let Message { number, request, class, act, duplicate } = message;
        wire.awaiting.push_back(Pending { number, class, act, sent: self.now, duplicate });
        let node = wire.node;
        self.masters[node].server.deliver(connection, request);
        self.serve(node, connection);
    }

    /// The master gets to a connection.
    pub(super) fn serve(&mut self, node: usize, connection: Connection) {
        let wall = self.wall(node);
        let mut events = std::mem::take(&mut self.events);
        self.masters[node].server.serve(wall, connection, &mut events);
        self.sync(node, wall);
        self.heed(node, &mut events);
        self.events = events;
    }

    /// What a master did to its connections.
    pub(super) fn heed(&mut self, node: usize, events: &mut Vec<server::Event>) {
        for event in events.drain(..) {
            match event {
                server::Event::Reply(connection, reply) => {
                    if let Some(id) = self.masters[node].wires.get(&connection) {
                        self.replied(*id, reply);
                    }
                }
                server::Event::Woken(connection, ticket) => {
                    if let Some(id) = self.masters[node].wires.get(&connection) {
                        self.woken(*id, ticket);
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

    /// The master answered the oldest command of a connection.
    fn replied(&mut self, id: WireId, reply: server::Reply) {
        let Some(wire) = self.wires.get_mut(id) else { return };
        let Some(to) = wire.awaiting.pop_front() else { return };
        // It took effect at this very instant.
        let to = Pending { sent: self.now, ..to };
        let (actor, node) = (wire.actor, wire.node);
        let result = to.act.as_ref().map_or(Outcome::Done, |act| outcome(act, &reply));
        if let Some(act) = to.act.as_ref().filter(|_| self.began && self.director.follows_grants())
        {
            let (process, act) = (self.actors[actor].name.clone(), act.clone());
            self.direct(Input::Replied { process, node: node + 1, act, result });
        }
        self.pass_down(id, Reply { to, reply, result });
    }

    /// The master wakes a waiter.
    fn woken(&mut self, id: WireId, ticket: Ticket) {
        let to = Pending {
            number: 0,
            class: Class::WakeUp,
            act: None,
            sent: self.now,
            duplicate: false,
        };
        let reply = server::Reply::Woken(ticket);
        self.pass_down(id, Reply { to, reply, result: Outcome::Done });
    }

    /// What a master says passes the proxy.
    fn pass_down(&mut self, id: WireId, reply: Reply) {
        let Some(wire) = self.wires.get_mut(id) else { return };
        let (actor, node, result) = (wire.actor, wire.node, reply.result);
        if reply.to.duplicate || wire.down.lost || !wire.client_open {
            return self.record(id, reply.to, result, None);
        }
        if let Some((_, held)) = &mut wire.down.held {
            return held.push_back(reply);
        }
        let fate = self.rules.judge(actor, node, Side::Reply, reply.to.class);
        match fate.struck {
            Some((rule, Harm::Drop)) => {
                wire.down.lost = true;
                wire.suffers.push(rule);
                self.record(id, reply.to, result, None);
            }
            Some((rule, Harm::Hold)) => {
                wire.down.held = Some((rule, VecDeque::from([reply])));
                self.knock(&fate);
            }
            Some((_, Harm::Reset)) => {
                self.record(id, reply.to, result, None);
                self.reset(id);
            }
            Some((rule, Harm::HalfOpen(end))) => {
                self.record(id, reply.to, result, None);
                self.half_open(id, end, rule);
            }
            _ => self.send_back(id, reply, &fate),
        }
    }

    fn send_back(&mut self, id: WireId, reply: Reply, fate: &Fate) {
        let Some(wire) = self.wires.get_mut(id) else { return };
        let latency = self.links.of_mut(wire.actor, wire.link).down.latency();
        let at = wire.down.arrives(self.now, latency, fate, 40);
        wire.down.under_way.push_back((at, reply));
        self.enter(at, What::AtClient(id));
    }

    /// A reply is with the client, whether it runs or not.
    pub(super) fn at_client(&mut self, id: WireId) {
        let Some(wire) = self.wires.get_mut(id) else { return };
        let Some(Reply { to, reply, result }) = wire.down.arrived(self.now) else { return };
        if !wire.client_open {
            return self.record(id, to, result, None);
        }
        let (actor, node, epoch, class) = (wire.actor, wire.link, wire.epoch, to.class);
        let happening = match reply {
            server::Reply::Greeting { client_id, run_id, boot, durable } => {
                wire.greeted = true;
                let (client_id, run_id) = (Some(client_id), Some(server::name_of(run_id)));
                let greeting = Greeting { client_id, run_id, boot, durable };
                Happening::Connected { node, epoch, greeting }
            }
            server::Reply::Woken(ticket) => Happening::Woken { node, epoch, ticket },
            other => Happening::Answered { node, epoch, answer: answer_of(other) },
        };
        self.record(id, to, result, Some(self.now));
        if class != Class::WakeUp {
            self.passed(actor, Side::Reply, class);
        }
        self.happen(actor, happening);
    }

    /// A message waits at a gate.
    fn knock(&mut self, fate: &Fate) {
        if let Some(fault) = fate.gate {
            self.enter(self.now, What::Gated(fault));
        }
    }

    fn passed(&mut self, actor: usize, side: Side, class: Class) {
        if self.began && self.director.follows_messages() {
            let process = self.actors[actor].name.clone();
            self.direct(Input::Passed { process, side, class });
        }
    }

    /// The fate of a command is known: what its master said to it.
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
        self.director.note(self.ns(self.now), event);
    }
}
