//! Messages between client processes and masters, as TCP has them, with the proxy in the middle where
//! faults of the network strike. Within a connection nothing is lost that something behind it
//! survives.
//!
//! The proxy stands beside the client: a request passes it as it is written, a reply as it comes from
//! the master. What the history has of a command is exact here: it took effect at the instant that is
//! written down as both of its ends.

use std::collections::VecDeque;
use std::sync::Arc;

use redquorum_protocol::wire::Command;
use redquorum_protocol::{Answer, RunId};

use super::process::Happening;
use super::rules::{Fate, Harm};
use super::server::{self, Close, Connection};
use super::world::{Instant, What, Wire, World};
use super::{CONNECT, GREETING};
use crate::director::Input;
use crate::history::{Act, Event, Outcome, text_of};
use crate::sabotage::Lie;
use crate::scenario::{Class, End, Side};

/// How much later a client that sends twice does so: behind the release of a short hold.
const AGAIN: u64 = 300_000_000;

/// A request on its way.
#[derive(Clone, Debug)]
pub(super) struct Message {
    number: u64,
    request: server::Request,
    /// The command, if it is one of the lock's.
    command: Option<Command>,
    /// It is the second of one that the network duplicated.
    duplicate: bool,
}

/// A command that the master has, and its client has no answer to yet.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    number: u64,
    command: Option<Command>,
    /// When it reached the master.
    sent: Instant,
    duplicate: bool,
}

/// A reply on its way.
#[derive(Clone, Debug)]
pub(super) struct Reply {
    pending: Pending,
    reply: server::Reply,
    replied: Instant,
}

/// One direction of a connection.
#[derive(Clone, Debug)]
pub(super) struct Lane<T> {
    /// When the latest message arrives: none overtakes another.
    last: Instant,
    /// The rule that holds it back, and what waits.
    held: Option<(u64, VecDeque<T>)>,
    /// All is lost from here on.
    lost: bool,
}

impl<T> Lane<T> {
    const fn new(now: Instant) -> Self {
        Self { last: now, held: None, lost: false }
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
}

impl World {
    /// A process wants a connection.
    pub(super) fn dial(&mut self, actor: usize, node: usize, epoch: u64) {
        self.last_wire += 1;
        let id = self.last_wire;
        let apart = self.rules.apart(actor, node);
        let wire = Wire {
            actor,
            node,
            epoch,
            shown: id,
            connection: None,
            requests: GREETING,
            client_open: true,
            master_open: false,
            greeted: false,
            up: Lane::new(self.now),
            down: Lane::new(self.now),
            awaiting: VecDeque::new(),
            suffers: apart.into_iter().collect(),
            apart,
            hangup_waits: false,
        };
        self.wires.insert(id, wire);
        self.actors[actor].wires.push((node, epoch, id));
        if apart.is_none() {
            let at = self.now + self.dice.latency();
            self.enter(at, What::Connect(id));
        }
        let patience = CONNECT.max(self.scenario.lock.node_timeout.0);
        let until = self.now + u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX);
        self.enter(until, What::GiveUp(id));
    }

    pub(super) fn connect(&mut self, id: u64) {
        let Some(wire) = self.wires.get_mut(&id).filter(|wire| wire.client_open) else { return };
        let master = &mut self.masters[wire.node];
        let Some(connection) = master.server.connect() else {
            let at = self.now + self.dice.latency();
            return self.enter(at, What::Ended(id, "refused"));
        };
        master.wires.insert(connection, id);
        wire.connection = Some(connection);
        wire.master_open = true;
        let number = wire.requests;
        let request = server::Request::Hello;
        self.pass_up(id, Message { number, request, command: None, duplicate: false });
    }

    /// A try to connect that has had its time is over.
    pub(super) fn give_up(&mut self, id: u64) {
        if self.wires.get(&id).is_some_and(|wire| wire.client_open && !wire.greeted) {
            let wire = &self.wires[&id];
            let (actor, node, epoch) = (wire.actor, wire.node, wire.epoch);
            self.close(id);
            self.closed(actor, node, epoch, "no greeting in time");
        }
    }

    /// A process writes a command.
    pub(super) fn write(&mut self, id: u64, command: Command) {
        let lie = self.lie;
        let Some(wire) = self.wires.get_mut(&id).filter(|wire| wire.client_open) else { return };
        wire.requests += 1;
        let number = wire.requests;
        let request = request_of(lie, &command);
        self.pass_up(id, Message { number, request, command: Some(command), duplicate: false });
    }

    /// A request passes the proxy.
    fn pass_up(&mut self, id: u64, message: Message) {
        let Some(wire) = self.wires.get_mut(&id) else { return };
        if wire.up.lost {
            return;
        }
        if let Some((_, held)) = &mut wire.up.held {
            return held.push_back(message);
        }
        let class = class_of(message.command.as_ref());
        let fate = if self.rules.is_empty() {
            Fate::default()
        } else {
            self.rules.judge(wire.actor, wire.node, Side::Request, class)
        };
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
    fn forward(&mut self, id: u64, message: Message, fate: &Fate) {
        let latency = self.dice.latency();
        let Some(wire) = self.wires.get_mut(&id) else { return };
        let bytes = message.command.as_ref().map_or(400, |command| command.size_hint() as u64);
        let at = wire.up.arrives(self.now, latency, fate, bytes);
        let actor = wire.actor;
        let class = class_of(message.command.as_ref());
        if fate.duplicate && message.command.is_some() {
            self.duplicate(id, at, &message);
        }
        if self.lie == Lie::SendsAgain && class == Class::Acquire {
            self.duplicate(id, at + AGAIN, &message);
        }
        self.enter(at, What::ToMaster(id, message));
        self.passed(actor, Side::Request, class);
    }

    /// The second of a request goes a way of its own, on a connection that has no client.
    fn duplicate(&mut self, id: u64, first: Instant, message: &Message) {
        let wire = &self.wires[&id];
        let (actor, node, epoch) = (wire.actor, wire.node, wire.epoch);
        let Some(connection) = self.masters[node].server.connect() else { return };
        self.last_wire += 1;
        let copy = self.last_wire;
        self.masters[node].wires.insert(connection, copy);
        let wire = Wire {
            actor,
            node,
            epoch,
            shown: id,
            connection: Some(connection),
            requests: 0,
            client_open: false,
            master_open: true,
            greeted: true,
            up: Lane::new(self.now),
            down: Lane::new(self.now),
            awaiting: VecDeque::new(),
            suffers: Vec::new(),
            apart: None,
            hangup_waits: false,
        };
        self.wires.insert(copy, wire);
        let at = first + self.dice.latency();
        self.enter(at, What::ToMaster(copy, Message { duplicate: true, ..message.clone() }));
    }

    /// A request is in the master's socket buffer.
    pub(super) fn reach_master(&mut self, id: u64, message: Message) {
        let Some(wire) = self.wires.get_mut(&id) else { return };
        let Some(connection) = wire.connection.filter(|_| wire.master_open) else { return };
        let Message { number, request, command, duplicate } = message;
        wire.awaiting.push_back(Pending { number, command, sent: self.now, duplicate });
        let node = wire.node;
        self.masters[node].server.deliver(connection, request);
        self.serve(node, connection);
    }

    /// The master gets to a connection.
    pub(super) fn serve(&mut self, node: usize, connection: Connection) {
        let wall = self.wall(node);
        let mut events = std::mem::take(&mut self.events);
        self.masters[node].server.serve(wall, connection, &mut events);
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
                server::Event::Dropped(connection) => {
                    if let Some(id) = self.masters[node].wires.remove(&connection) {
                        self.dropped(id);
                    }
                }
            }
        }
    }

    /// The master answered the oldest command of a connection.
    fn replied(&mut self, id: u64, reply: server::Reply) {
        let now = self.now;
        let Some(wire) = self.wires.get_mut(&id) else { return };
        let Some(mut pending) = wire.awaiting.pop_front() else { return };
        // It took effect at this very instant.
        pending.sent = now;
        let (actor, node) = (wire.actor, wire.node);
        if let Some(command) = &pending.command
            && self.began
        {
            let act = act_of(self.lie, command);
            let result = outcome(&act, &reply);
            let process = self.actors[actor].name.clone();
            self.direct(Input::Replied { process, node: node + 1, act, result });
        }
        let reply = Reply { pending, reply, replied: now };
        if reply.pending.duplicate {
            return self.record(id, reply, None);
        }
        let Some(wire) = self.wires.get_mut(&id) else { return };
        if wire.down.lost || !wire.client_open {
            return self.record(id, reply, None);
        }
        if let Some((_, held)) = &mut wire.down.held {
            return held.push_back(reply);
        }
        let class = class_of(reply.pending.command.as_ref());
        let fate = if self.rules.is_empty() {
            Fate::default()
        } else {
            self.rules.judge(actor, node, Side::Reply, class)
        };
        match fate.struck {
            Some((rule, Harm::Drop)) => {
                wire.down.lost = true;
                wire.suffers.push(rule);
                self.record(id, reply, None);
            }
            Some((rule, Harm::Hold)) => {
                wire.down.held = Some((rule, VecDeque::from([reply])));
                self.knock(&fate);
            }
            Some((_, Harm::Reset)) => {
                self.record(id, reply, None);
                self.reset(id);
            }
            Some((rule, Harm::HalfOpen(end))) => {
                self.record(id, reply, None);
                self.half_open(id, end, rule);
            }
            _ => self.send_back(id, reply, &fate),
        }
    }

    fn send_back(&mut self, id: u64, reply: Reply, fate: &Fate) {
        let latency = self.dice.latency();
        let Some(wire) = self.wires.get_mut(&id) else { return };
        let at = wire.down.arrives(self.now, latency, fate, 40);
        self.enter(at, What::ToClient(id, reply));
    }

    /// A reply is with the client, whether it runs or not.
    pub(super) fn reach_client(&mut self, id: u64, reply: Reply) {
        let Some(wire) = self.wires.get_mut(&id) else { return };
        if !wire.client_open {
            return self.record(id, reply, None);
        }
        let (actor, node, epoch) = (wire.actor, wire.node, wire.epoch);
        let class = class_of(reply.pending.command.as_ref());
        let happening = match &reply.reply {
            server::Reply::Greeting { client_id, run_id } => {
                wire.greeted = true;
                let run_id = RunId(Arc::from(format!("{run_id:016x}")));
                Happening::Connected { node, epoch, client_id: *client_id, run_id }
            }
            other => Happening::Answered { node, epoch, answer: answer_of(other) },
        };
        self.record(id, reply, Some(self.now));
        self.passed(actor, Side::Reply, class);
        self.happen(actor, happening);
    }

    /// The client closes its end, by a reset.
    pub(super) fn close(&mut self, id: u64) {
        let Some(wire) = self.wires.get_mut(&id).filter(|wire| wire.client_open) else { return };
        wire.client_open = false;
        let (actor, node) = (wire.actor, wire.node);
        self.actors[actor].wires.retain(|(_, _, known)| *known != id);
        if self.rules.swallow_ends(actor, node, Side::Request) || wire.up.lost {
            return;
        }
        if wire.up.held.is_some() {
            wire.hangup_waits = true;
            return;
        }
        let latency = self.dice.latency();
        let at = wire.up.arrives(self.now, latency, &Fate::default(), 0);
        self.enter(at, What::Hangup(id));
    }

    /// The client's end reaches the master.
    pub(super) fn hang_up(&mut self, id: u64) {
        let Some(wire) = self.wires.get_mut(&id).filter(|wire| wire.master_open) else { return };
        let Some(connection) = wire.connection else { return };
        wire.master_open = false;
        let node = wire.node;
        self.masters[node].server.close(connection, Close::Reset);
        self.serve(node, connection);
        self.masters[node].wires.remove(&connection);
        self.forget(id);
    }

    /// The master dropped a connection.
    fn dropped(&mut self, id: u64) {
        let Some(wire) = self.wires.get_mut(&id) else { return };
        wire.master_open = false;
        let (actor, node, open) = (wire.actor, wire.node, wire.client_open);
        if open && !wire.down.lost && !self.rules.swallow_ends(actor, node, Side::Reply) {
            let latency = self.dice.latency();
            let Some(wire) = self.wires.get_mut(&id) else { return };
            let at = wire.down.arrives(self.now, latency, &Fate::default(), 0);
            self.enter(at, What::Ended(id, "reset by the master"));
        }
        self.forget(id);
    }

    /// Nothing more will come of what was not answered.
    fn forget(&mut self, id: u64) {
        let Some(wire) = self.wires.get_mut(&id) else { return };
        let open = std::mem::take(&mut wire.awaiting);
        for pending in open {
            self.silent(id, &pending);
        }
        let Some(wire) = self.wires.get(&id) else { return };
        if !wire.client_open && !wire.master_open && wire.up.held.is_none() {
            self.wires.remove(&id);
        }
    }

    /// The master's end reaches the client.
    pub(super) fn ended(&mut self, id: u64, why: &'static str) {
        let Some(wire) = self.wires.get_mut(&id).filter(|wire| wire.client_open) else { return };
        wire.client_open = false;
        let (actor, node, epoch) = (wire.actor, wire.node, wire.epoch);
        self.actors[actor].wires.retain(|(_, _, known)| *known != id);
        if !self.wires[&id].master_open {
            self.forget(id);
        }
        self.closed(actor, node, epoch, why);
    }

    fn closed(&mut self, actor: usize, node: usize, epoch: u64, why: &'static str) {
        let random = self.dice.retry();
        self.happen(actor, Happening::Closed { node, epoch, why: Arc::from(why), random });
    }

    /// Both ends are reset, at once.
    pub(super) fn reset(&mut self, id: u64) {
        if let Some(wire) = self.wires.get_mut(&id) {
            wire.up.held = None;
            wire.up.lost = true;
            let open = wire.client_open;
            let held = wire.down.held.take();
            for reply in held.into_iter().flat_map(|(_, held)| held) {
                self.record(id, reply, None);
            }
            let at = self.now + self.dice.latency();
            if open {
                self.enter(at, What::Ended(id, "reset by the network"));
            }
            self.enter(at, What::Hangup(id));
        }
    }

    /// One end is reset, and the other is told nothing until the rule is healed.
    pub(super) fn half_open(&mut self, id: u64, end: End, rule: u64) {
        let Some(wire) = self.wires.get_mut(&id) else { return };
        wire.suffers.push(rule);
        wire.up.lost = true;
        wire.down.lost = true;
        let at = self.now + self.dice.latency();
        match end {
            End::Client => self.enter(at, What::Ended(id, "reset by the network")),
            End::Master => self.enter(at, What::Hangup(id)),
        }
    }

    /// A rule is healed: what it held goes on, what suffered from it is reset.
    pub(super) fn heal(&mut self, rule: u64) {
        self.rules.heal(rule);
        let ids: Vec<u64> = self.wires.keys().copied().collect();
        for id in ids {
            let Some(wire) = self.wires.get_mut(&id) else { continue };
            if wire.apart == Some(rule) && wire.up.held.is_none() {
                wire.apart = None;
            }
            if wire.suffers.contains(&rule) {
                self.reset(id);
                continue;
            }
            if wire.up.held.as_ref().is_some_and(|(of, _)| *of == rule) {
                let (_, held) = wire.up.held.take().unwrap_or_default();
                let hangup = std::mem::take(&mut wire.hangup_waits);
                for message in held {
                    self.forward(id, message, &Fate::default());
                }
                if hangup && let Some(wire) = self.wires.get_mut(&id) {
                    let latency = self.dice.latency();
                    let at = wire.up.arrives(self.now, latency, &Fate::default(), 0);
                    self.enter(at, What::Hangup(id));
                }
            }
            let Some(wire) = self.wires.get_mut(&id) else { continue };
            if wire.down.held.as_ref().is_some_and(|(of, _)| *of == rule) {
                let (_, held) = wire.down.held.take().unwrap_or_default();
                for reply in held {
                    self.send_back(id, reply, &Fate::default());
                }
            }
        }
    }

    /// A message waits at a gate.
    fn knock(&mut self, fate: &Fate) {
        if let Some(fault) = fate.gate {
            self.enter(self.now, What::Tell(Input::Gated(fault)));
        }
    }

    fn passed(&mut self, actor: usize, side: Side, class: Class) {
        if self.began {
            let process = self.actors[actor].name.clone();
            self.direct(Input::Passed { process, side, class });
        }
    }

    /// The fate of a command is known.
    fn record(&mut self, id: u64, reply: Reply, delivered: Option<Instant>) {
        let Reply { pending, reply, replied } = reply;
        let (Some(command), true) = (&pending.command, self.began) else { return };
        let act = act_of(self.lie, command);
        let result = outcome(&act, &reply);
        self.recorded(id, &pending, act, Some(replied), delivered, result);
    }

    fn silent(&mut self, id: u64, pending: &Pending) {
        let (Some(command), true) = (&pending.command, self.began) else { return };
        let act = act_of(self.lie, command);
        self.recorded(id, pending, act, None, None, Outcome::Silent);
    }

    fn recorded(
        &mut self,
        id: u64,
        pending: &Pending,
        act: Act,
        replied: Option<Instant>,
        delivered: Option<Instant>,
        result: Outcome,
    ) {
        let Some(wire) = self.wires.get(&id) else { return };
        let event = Event::Command {
            process: self.actors[wire.actor].name.clone(),
            node: wire.node + 1,
            connection: wire.shown,
            number: pending.number,
            act,
            sent: self.ns(pending.sent),
            replied: replied.map(|at| self.ns(at)),
            delivered: delivered.map(|at| self.ns(at)),
            result,
        };
        self.direct(Input::Recorded(event));
    }

    /// The run is over: what is known of all that is open.
    pub(super) fn finish(&mut self) {
        let ids: Vec<u64> = self.wires.keys().copied().collect();
        for id in ids {
            self.forget(id);
        }
    }
}

/// What a command is for.
fn class_of(command: Option<&Command>) -> Class {
    match command {
        Some(Command::Set { .. }) => Class::Acquire,
        Some(Command::Keep { .. }) => Class::Extend,
        Some(Command::Delete { .. }) => Class::Release,
        _ => Class::Any,
    }
}

/// The bytes that a liar makes of a command, as a request.
fn request_of(lie: Lie, command: &Command) -> server::Request {
    match (lie, command) {
        (Lie::PlainDel, Command::Delete { key, .. }) => server::Request::Del(key.clone()),
        (Lie::ExtendWithoutTokenCheck, Command::Keep { key, ttl_ms, .. }) => {
            server::Request::PExpire(key.clone(), *ttl_ms)
        }
        _ => server::Request::Lock(lie.with_token(command)),
    }
}

/// What a command does to a key, as the wire shows it.
fn act_of(lie: Lie, command: &Command) -> Act {
    let value = |token: &redquorum_protocol::Token| text_of(lie.on_the_wire(*token).as_bytes());
    match command {
        Command::Set { key, token, ttl_ms } => {
            Act::Set { key: text_of(key), token: value(token), ttl_ms: Some(*ttl_ms) }
        }
        Command::Keep { key, token, ttl_ms, .. } => {
            let token = (lie != Lie::ExtendWithoutTokenCheck).then(|| value(token));
            Act::Keep { key: text_of(key), token, ttl_ms: Some(*ttl_ms) }
        }
        Command::Delete { key, token } => {
            let token = (lie != Lie::PlainDel).then(|| value(token));
            Act::Delete { key: text_of(key), token }
        }
        Command::Kill { .. } | Command::Load(_) | Command::Ping => {
            Act::Other { key: None, command: "PING".to_owned() }
        }
    }
}

fn outcome(act: &Act, reply: &server::Reply) -> Outcome {
    match (act, answer_of(reply)) {
        (Act::Keep { .. }, Answer::Created) => Outcome::Created,
        (_, Answer::Created | Answer::Kept | Answer::Deleted) => Outcome::Done,
        (_, Answer::Unknown(_)) => Outcome::Error,
        _ => Outcome::Refused,
    }
}

fn answer_of(reply: &server::Reply) -> Answer {
    match reply {
        server::Reply::Answer(answer) => answer.clone(),
        _ => Answer::Alive,
    }
}
