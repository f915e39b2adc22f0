//! Opening and closing of connections, and what happens to them when a fault is healed.

use std::collections::VecDeque;
use std::sync::Arc;

use redquorum_protocol::wire::Expect;
use redquorum_redis_model::{Close, Request};

use super::{Lane, Message, Payload, Pending, Wire, WireId, arrival};
use crate::client_machine::ProcessEvent;
use crate::process::SimulatedProcess;
use crate::rules::{Delivery, Rule};
use crate::world::{Instant, World, WorldEvent};
use crate::{CONNECT, GREETING};
use redquorum_scenario::history::Outcome;
use redquorum_scenario::{Class, End, Side};

/// Why a connection ended that its master dropped.
const RESET: &str = "reset by the master";

/// The arrival of the close of the end that sends the messages of a side.
fn arrival_of_close(side: Side, id: WireId) -> WorldEvent {
    if side == Side::Reply { WorldEvent::Ended(id, RESET) } else { WorldEvent::Hangup(id) }
}

impl Wire {
    pub(super) const fn new(
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
        let apart = self.rules.apart(actor, node);
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
        match self.rules.keeps_end(actor, node, Side::Request) {
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
    pub(super) fn dropped(&mut self, id: WireId) {
        let Some(wire) = self.wires.get_mut(id) else { return };
        wire.master_open = false;
        let (actor, node) = (wire.actor, wire.node);
        if wire.client_open && !wire.down.lost {
            match self.rules.keeps_end(actor, node, Side::Reply) {
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
        if let Some(healed) = self.rules.heal(rule).filter(|rule| rule.slows()) {
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
            if !healed.is_about(wire.actor, wire.node) {
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
