//! Opening and closing of connections, and what happens to them when a fault is healed.

use std::collections::VecDeque;
use std::sync::Arc;

use redquorum_protocol::wire::Expect;
use redquorum_redis_model::{Close, Request};

use super::{Lane, Message, Pending, Wire, WireId};
use crate::client_machine::ProcessEvent;
use crate::history::Outcome;
use crate::scenario::{Class, End, Side};
use crate::sim::process::ClientProcess;
use crate::sim::rules::{Delivery, Rule};
use crate::sim::world::{Instant, World, WorldEvent};
use crate::sim::{CONNECT, GREETING};

/// Why a connection ended that its master dropped.
const RESET: &str = "reset by the master";

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
            suffers: Vec::new(),
            apart: None,
            hangup_waits: false,
            drop_waits: false,
            hangs_up: false,
            drops: false,
        }
    }
}

impl<P: ClientProcess> World<P> {
    /// Opens a connection for a process.
    pub(in crate::sim) fn dial(&mut self, actor: usize, link: usize, epoch: u64) {
        let node = self.actors[actor].nodes[link];
        let id = self.wires.next();
        let apart = self.rules.apart(actor, node);
        let mut wire = Wire::new(actor, (link, node), epoch, id, self.now);
        wire.requests = GREETING;
        wire.apart = apart;
        wire.suffers.extend(apart);
        self.wires.add(wire);
        self.actors[actor].wires.push((link, epoch, id));
        if apart.is_none() {
            let at = self.now + self.links.of_mut(actor, link).up.latency();
            self.enter(at, WorldEvent::Connect(id));
        }
        let policy = CONNECT.max(self.scenario.lock.node_timeout.0);
        let until = self.now + u64::try_from(policy.as_nanos()).unwrap_or(u64::MAX);
        self.enter(until, WorldEvent::GiveUp(id));
    }

    pub(in crate::sim) fn connect(&mut self, id: WireId) {
        let Some(wire) = self.wires.get_mut(id).filter(|wire| wire.client_open) else { return };
        let master = &mut self.masters[wire.node];
        let Some(connection) = master.server.connect() else {
            let at = self.now + self.links.of_mut(wire.actor, wire.link).down.latency();
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
        self.pass_up(id, Message { request: Request::Hello, pending });
    }

    /// Ends a connection attempt that has timed out.
    pub(in crate::sim) fn give_up(&mut self, id: WireId) {
        let Some(wire) = self.wires.get(id).filter(|wire| wire.client_open && !wire.greeted) else {
            return;
        };
        let (actor, link, epoch) = (wire.actor, wire.link, wire.epoch);
        self.close(id);
        self.closed(actor, link, epoch, "no greeting in time".into());
    }

    /// Closes the client's end, with a reset.
    pub(in crate::sim) fn close(&mut self, id: WireId) {
        let Some(wire) = self.wires.get_mut(id).filter(|wire| wire.client_open) else { return };
        wire.client_open = false;
        let (actor, node) = (wire.actor, wire.node);
        self.actors[actor].wires.retain(|(_, _, known)| *known != id);
        if wire.up.lost {
            return;
        }
        match self.rules.keeps_end(actor, node, Side::Request) {
            // The master's end learns of it when the rule is healed.
            Some((rule, false)) => return wire.suffers.push(rule),
            Some((rule, true)) => {
                wire.up.held.get_or_insert((rule, VecDeque::new()));
            }
            None => {}
        }
        if wire.up.held.is_some() {
            wire.hangup_waits = true;
            return;
        }
        self.hangs_up(id);
    }

    /// Sends the close of the client's end to the master.
    fn hangs_up(&mut self, id: WireId) {
        let Some(wire) = self.wires.get_mut(id) else { return };
        wire.hangs_up = true;
        let latency = self.links.of_mut(wire.actor, wire.link).up.latency();
        let at = wire.up.arrives(self.now, latency, &Delivery::default(), 0);
        self.enter(at, WorldEvent::Hangup(id));
    }

    /// Delivers the close of the client's end to the master.
    pub(in crate::sim) fn hang_up(&mut self, id: WireId) {
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
                Some((rule, false)) => wire.suffers.push(rule),
                Some((rule, true)) => {
                    wire.down.held.get_or_insert((rule, VecDeque::new()));
                    wire.drop_waits = true;
                }
                None if wire.down.held.is_some() => wire.drop_waits = true,
                None => self.drops(id),
            }
        }
        self.forget(id);
    }

    /// Sends the close of the master's end to the client.
    fn drops(&mut self, id: WireId) {
        let Some(wire) = self.wires.get_mut(id) else { return };
        wire.drops = true;
        let latency = self.links.of_mut(wire.actor, wire.link).down.latency();
        let at = wire.down.arrives(self.now, latency, &Delivery::default(), 0);
        self.enter(at, WorldEvent::Ended(id, RESET));
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
                self.record(id, reply.to, reply.result, None);
            }
            self.wires.remove(id);
        }
    }

    /// Delivers the close of the master's end to the client.
    pub(in crate::sim) fn ended(&mut self, id: WireId, why: &'static str) {
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
    pub(in crate::sim) fn closed(&mut self, actor: usize, link: usize, epoch: u64, why: Arc<str>) {
        let random = self.links.of_mut(actor, link).retries.any();
        self.happen(actor, ProcessEvent::Closed { node: link, epoch, why, random });
    }

    /// Resets both ends at once.
    pub(in crate::sim) fn reset(&mut self, id: WireId) {
        let Some(wire) = self.wires.get_mut(id) else { return };
        wire.up.held = None;
        wire.up.lost = true;
        wire.down.lost = true;
        let open = wire.client_open;
        let at = self.now + self.links.of_mut(wire.actor, wire.link).down.latency();
        let held = wire.down.held.take();
        for reply in held.into_iter().flat_map(|(_, held)| held) {
            self.record(id, reply.to, reply.result, None);
        }
        if open {
            self.enter(at, WorldEvent::Ended(id, "reset by the network"));
        }
        self.enter(at, WorldEvent::Hangup(id));
    }

    /// Resets one end. The other end learns nothing until the rule is healed.
    pub(in crate::sim) fn half_open(&mut self, id: WireId, end: End, rule: u64) {
        let Some(wire) = self.wires.get_mut(id) else { return };
        wire.suffers.push(rule);
        wire.up.lost = true;
        wire.down.lost = true;
        let at = self.now + self.links.of_mut(wire.actor, wire.link).down.latency();
        match end {
            End::Client => self.enter(at, WorldEvent::Ended(id, "reset by the network")),
            End::Master => self.enter(at, WorldEvent::Hangup(id)),
        }
    }

    /// Heals a rule: held messages move on, and the connections that suffered from the rule are
    /// reset.
    pub(in crate::sim) fn heal_rule(&mut self, rule: u64) {
        if let Some(healed) = self.rules.heal(rule).filter(|rule| rule.slows()) {
            self.hasten(&healed);
        }
        for id in 0..self.wires.next() {
            let Some(wire) = self.wires.get_mut(id) else { continue };
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
                    self.forward(id, message, &Delivery::default());
                }
                if hangup {
                    self.hangs_up(id);
                }
            }
            let Some(wire) = self.wires.get_mut(id) else { continue };
            if wire.down.held.as_ref().is_some_and(|(of, _)| *of == rule) {
                let (_, held) = wire.down.held.take().unwrap_or_default();
                let drops = std::mem::take(&mut wire.drop_waits);
                for reply in held {
                    self.send_back(id, reply, &Delivery::default());
                }
                if drops {
                    self.drops(id);
                }
            }
        }
    }

    /// Lets messages that a healed rule had slowed move on at once.
    fn hasten(&mut self, healed: &Rule) {
        for id in 0..self.wires.next() {
            let Some(wire) = self.wires.get_mut(id) else { continue };
            let (actor, link) = (wire.actor, wire.link);
            if !healed.is_about(actor, wire.node) {
                continue;
            }
            if healed.is_on(Side::Request) {
                let at = self.now + self.links.of_mut(actor, link).up.latency();
                let (many, hangs_up) = (wire.up.hasten(at), wire.hangs_up);
                (0..many).for_each(|_| self.enter(at, WorldEvent::AtMaster(id)));
                if hangs_up {
                    self.enter(at, WorldEvent::Hangup(id));
                }
            }
            let Some(wire) = self.wires.get_mut(id) else { continue };
            if healed.is_on(Side::Reply) {
                let at = self.now + self.links.of_mut(actor, link).down.latency();
                let (many, drops) = (wire.down.hasten(at), wire.drops);
                (0..many).for_each(|_| self.enter(at, WorldEvent::AtClient(id)));
                if drops {
                    self.enter(at, WorldEvent::Ended(id, RESET));
                }
            }
        }
    }

    /// Ends the run: records the outcome of all open commands, as far as it is known.
    pub(in crate::sim) fn finish(&mut self) {
        for id in 0..self.wires.next() {
            self.forget(id);
        }
    }
}
