//! Carries out faults in virtual time. Real masters use the same fault enum.

use redquorum_protocol::wire::{LAPSE_MS, RESERVED};
use redquorum_redis_model::Wall;

use super::TURN;
use super::process::ClientProcess;
use super::rules::Rule;
use super::wires::WireId;
use super::world::{Instant, Up, World, WorldEvent, signed};
use crate::orchestrator::Input;
use redquorum_scenario::history::{LeftKey, Window, text_of};
use redquorum_scenario::name::Name;
use redquorum_scenario::{ClientFault, ClockFault, FaultKind, MessageFault, NodeFault};

/// A fault in force, with what it takes to heal it. Masters and processes are counted from 0.
#[derive(Clone, Debug, Default)]
pub(super) struct FaultContext {
    nodes: Vec<usize>,
    actors: Vec<usize>,
    rules: Vec<u64>,
}

impl<P: ClientProcess> World<P> {
    /// Opens the gate of a fault.
    pub(super) fn open(&mut self, fault: usize) {
        if let Some(rule) = self.rules.gate_of(fault) {
            self.heal_rule(rule);
        }
    }

    /// Lets a fault strike.
    pub(super) fn strike(&mut self, fault: usize, nodes: &[usize], processes: &[Name]) {
        let nodes: Vec<usize> = nodes.iter().map(|node| node - 1).collect();
        let actors: Vec<usize> = processes.iter().filter_map(|name| self.actor(name)).collect();
        let fault_kind = self.scenario.faults[fault].fault_kind.clone();
        self.there.insert(
            fault,
            FaultContext { nodes: nodes.clone(), actors: actors.clone(), rules: Vec::new() },
        );
        match &fault_kind {
            FaultKind::Node(NodeFault::Kill { .. }) => {
                nodes.iter().for_each(|node| self.fell(*node, false));
            }
            FaultKind::Node(NodeFault::Stop { .. }) => {
                nodes.iter().for_each(|node| self.fell(*node, true));
            }
            FaultKind::Node(NodeFault::Restart { .. }) => {
                nodes.iter().for_each(|node| self.fell(*node, false));
                let since = self.now;
                let up = Up { fault, nodes, since, healed: false };
                return self.enter(self.now + self.restart, WorldEvent::Up(Box::new(up)));
            }
            FaultKind::Node(NodeFault::Pause { .. }) => {
                nodes.iter().for_each(|node| self.masters[*node].server.pause());
            }
            FaultKind::Node(NodeFault::Full { .. }) => {
                nodes.iter().for_each(|node| self.masters[*node].server.set_out_of_memory(true));
            }
            FaultKind::Node(NodeFault::PowerLoss { .. }) => {
                nodes.iter().for_each(|node| self.lose_power(fault, *node));
            }
            FaultKind::Clock(clock) => {
                nodes.iter().for_each(|node| self.set_clock(*node, Some(clock)));
            }
            FaultKind::Net(_) | FaultKind::Node(NodeFault::Slow { .. }) => {
                let actors = fault_kind.clients().map(|_| actors);
                if let Some((which, effect)) = fault_kind.strikes_messages() {
                    let rule = Rule::of(&which, effect);
                    self.rule(fault, Rule { nodes: Some(nodes), actors, ..rule });
                }
            }
            FaultKind::Node(node_fault) => {
                let mut done = nodes.iter().map(|node| self.forget_at(fault, node_fault, *node));
                let failed = done.find_map(Result::err);
                return self.struck_or(fault, self.now, failed);
            }
            // The orchestrator handles these.
            FaultKind::Resource(_) => {}
            FaultKind::Client(ClientFault::Pause { .. }) => {
                actors.iter().for_each(|actor| self.actors[*actor].paused = true);
            }
            FaultKind::Client(ClientFault::Suspend { .. }) => {
                for actor in actors {
                    self.actors[actor].paused = true;
                    self.actors[actor].suspended_at = Some(self.now);
                }
            }
            FaultKind::Client(ClientFault::Kill { .. }) => {
                actors.iter().for_each(|actor| self.die(*actor));
            }
            FaultKind::Client(ClientFault::Clock { by, .. }) => {
                actors.iter().for_each(|actor| self.actors[*actor].wall_ahead += by.nanos());
            }
            FaultKind::Client(ClientFault::Rate { factor, .. }) => {
                actors.iter().for_each(|actor| self.pace(*actor, *factor));
            }
        }
        self.struck(fault, self.now);
    }

    /// Heals a fault.
    pub(super) fn heal(&mut self, fault: usize) {
        let FaultContext { nodes, actors, rules } = self.there.remove(&fault).unwrap_or_default();
        match self.scenario.faults[fault].fault_kind {
            ref never if !never.can_heal() => {}
            FaultKind::Node(
                NodeFault::Kill { .. } | NodeFault::Stop { .. } | NodeFault::PowerLoss { .. },
            ) => {
                let up = Up { fault, nodes, since: self.now, healed: true };
                return self.enter(self.now + self.restart, WorldEvent::Up(Box::new(up)));
            }
            FaultKind::Node(NodeFault::Pause { .. }) => {
                nodes.iter().for_each(|node| self.resume(*node));
            }
            FaultKind::Node(NodeFault::Full { .. }) => {
                nodes.iter().for_each(|node| self.masters[*node].server.set_out_of_memory(false));
            }
            FaultKind::Node(NodeFault::Demote { .. }) => {
                nodes.iter().for_each(|node| self.masters[*node].server.promote());
            }
            FaultKind::Node(NodeFault::Lag { .. }) => {
                nodes.iter().for_each(|node| self.masters[*node].lags = None);
            }
            FaultKind::Clock(_) => nodes.iter().for_each(|node| self.set_clock(*node, None)),
            FaultKind::Client(ClientFault::Pause { .. } | ClientFault::Suspend { .. }) => {
                actors.iter().for_each(|actor| self.go_on(*actor));
            }
            FaultKind::Client(ClientFault::Clock { .. }) => {
                actors.iter().for_each(|actor| self.actors[*actor].wall_ahead = 0);
            }
            FaultKind::Client(ClientFault::Rate { .. }) => {
                actors.iter().for_each(|actor| self.pace(*actor, 1.0));
            }
            FaultKind::Node(NodeFault::Slow { .. }) | FaultKind::Net(_) => {
                rules.into_iter().for_each(|rule| self.heal_rule(rule));
            }
            FaultKind::Resource(_) => {}
            ref other => unreachable!("nothing heals {}", other.name()),
        }
        self.healed(fault, self.now);
    }

    /// Completes the restart of masters.
    pub(super) fn up(&mut self, up: &Up) {
        let Up { fault, nodes, since, healed } = up;
        for node in nodes {
            let wall = self.wall(*node);
            self.masters[*node].server.start(wall);
        }
        if *healed { self.healed(*fault, *since) } else { self.struck(*fault, *since) }
    }

    fn struck(&mut self, fault: usize, since: Instant) {
        self.struck_or(fault, since, None);
    }

    fn struck_or(&mut self, fault: usize, since: Instant, failed: Option<String>) {
        let at = Window { from: self.ns(since), to: self.ns(self.now) };
        self.direct(Input::Struck { fault, at, failed });
    }

    fn healed(&mut self, fault: usize, since: Instant) {
        let at = Window { from: self.ns(since), to: self.ns(self.now) };
        self.direct(Input::Healed { fault, at, failed: None });
    }

    fn fell(&mut self, node: usize, in_order: bool) {
        let mut events = Vec::new();
        let server = &mut self.masters[node].server;
        if in_order {
            server.stop(&mut events);
        } else {
            server.kill(&mut events);
        }
        self.heed(node, &mut events);
    }

    /// Resumes a master. It serves its connections in random order.
    fn resume(&mut self, node: usize) {
        self.masters[node].server.resume();
        let waiting: Vec<_> = self.masters[node].server.waiting().collect();
        for connection in waiting {
            let at = self.now + self.masters[node].order.below(TURN);
            self.enter(at, WorldEvent::Serve(node, connection));
        }
    }

    fn set_clock(&mut self, node: usize, fault_kind: Option<&ClockFault>) {
        let clock = self.masters[node].clock.changed(signed(self.now), fault_kind);
        self.masters[node].clock = clock;
        let at = self.ns(self.now);
        self.direct(Input::Recorded(clock.event(node + 1, Window { from: at, to: at })));
    }

    fn rule(&mut self, fault: usize, rule: Rule) {
        let at_once = rule.strikes_connections().then(|| rule.clone());
        let id = self.rules.strike(rule);
        if let Some(there) = self.there.get_mut(&fault) {
            there.rules.push(id);
        }
        let Some(rule) = at_once else { return };
        let open = self.wires.iter().filter(|(_, wire)| {
            rule.is_about(wire.actor, wire.node) && wire.client_open && wire.master_open
        });
        let open: Vec<WireId> = open.map(|(id, _)| id).collect();
        for wire in open {
            match rule.effect {
                MessageFault::HalfOpen(end) => self.half_open(wire, end, id),
                _ => self.reset(wire),
            }
        }
    }

    /// Reports the keys of each master.
    pub(super) fn look(&mut self) {
        for node in 0..self.masters.len() {
            let keys = self.keys(node);
            self.direct(Input::Keys { node: node + 1, keys });
        }
    }

    fn keys(&self, node: usize) -> Option<Vec<LeftKey>> {
        let server = &self.masters[node].server;
        if !server.is_up() || server.is_paused() {
            return None;
        }
        let wall = self.wall(node);
        let there = || server.keys().filter(|(_, _, expires)| *expires >= wall);
        let locks = there().filter(|(key, ..)| !key.starts_with(RESERVED));
        let locks = locks.map(|(key, value, expires)| LeftKey {
            key: text_of(key),
            value: text_of(value.map_or(b"", |value| value)),
            ttl_ms: Some((expires - wall) / 1_000_000),
        });
        let queues = there().filter(|(_, value, _)| value.is_none()).map(|(key, ..)| LeftKey {
            key: text_of(key),
            value: text_of(b""),
            // The TTL is at most this, counted from the last look of a waiter.
            ttl_ms: Some(LAPSE_MS),
        });
        Some(locks.chain(queues).collect())
    }

    /// Runs the active expiry cycle of all masters.
    pub(super) fn tick(&mut self) {
        for node in 0..self.masters.len() {
            let wall = self.wall(node);
            self.masters[node].server.tick(wall);
            self.sync(node, wall);
        }
    }

    /// Lets a master sync its file, if its time has come.
    pub(super) fn sync(&mut self, node: usize, wall: Wall) {
        if self.masters[node].server.fsync(wall) {
            self.masters[node].synced = self.now;
        }
    }
}
