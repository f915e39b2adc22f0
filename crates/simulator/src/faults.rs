//! Carries out faults in virtual time: how each kind strikes, and how it heals. `harness/src/real`
//! does the same on real parts.

use std::sync::Arc;

use redquorum_protocol::MAX_NUMBER;
use redquorum_protocol::wire::{BOOT, LAPSE_MS, RESERVED, counter_of, is_queue};
use redquorum_redis_model::{Server, Wall};

use super::rules::{self, Rule};
use super::wires::WireId;
use super::world::{Instant, Up, World, WorldEvent, signed};
use super::{SimulatedProcess, TURN};
use crate::orchestrator::Input;
use redquorum_scenario::client_protocol::FENCING_COUNTER_TTL;
use redquorum_scenario::history::{Event, LeftKey, Ns, Window, left_of_each, text_of};
use redquorum_scenario::name::Name;
use redquorum_scenario::{
    Ahead, ClientFault, ClockFault, Fault, FaultKind, MessageFault, MoveStep, NodeFault,
    Persistence,
};

/// A fault in force, with what it takes to heal it. Masters and processes are counted from 0.
#[derive(Clone, Debug, Default)]
pub(super) struct FaultContext {
    nodes: Vec<usize>,
    actors: Vec<usize>,
    rules: Vec<u64>,
}

impl<P: SimulatedProcess> World<P> {
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
        let Fault { kind, clients, .. } = self.scenario.faults[fault].clone();
        self.there.insert(
            fault,
            FaultContext { nodes: nodes.clone(), actors: actors.clone(), rules: Vec::new() },
        );
        if let Some((which, effect)) = kind.strikes_messages() {
            let (clients, nodes) = (clients.map(|_| actors), Some(nodes));
            self.rule(fault, Rule { nodes, clients, ..rules::rule(&which, effect, None) });
            return self.struck(fault, self.now);
        }
        match kind {
            FaultKind::Node(node) => match node {
                NodeFault::Kill => nodes.iter().for_each(|node| self.kill(*node, false)),
                NodeFault::Stop => nodes.iter().for_each(|node| self.kill(*node, true)),
                NodeFault::Restart => {
                    nodes.iter().for_each(|node| self.kill(*node, false));
                    let since = self.now;
                    let up = Up { fault, nodes, since, healed: false };
                    return self.enter(self.now + self.restart, WorldEvent::Up(Box::new(up)));
                }
                NodeFault::Pause => {
                    nodes.iter().for_each(|node| self.masters[*node].server.pause());
                }
                NodeFault::Full => self.set_out_of_memory(&nodes, true),
                NodeFault::PowerLoss => {
                    nodes.iter().for_each(|node| self.lose_power(fault, *node));
                }
                NodeFault::Flush => {
                    return self.command(fault, &nodes, |world, node| {
                        world.masters[node].server.flush_all();
                    });
                }
                NodeFault::Evict => {
                    return self.command(fault, &nodes, |world, node| {
                        world.masters[node].server.evict_all();
                    });
                }
                NodeFault::Counter { resource, ahead } => {
                    return self.command(fault, &nodes, |world, node| {
                        let wall = world.wall(node);
                        let server = &mut world.masters[node].server;
                        set_counter(server, wall, resource.as_bytes(), ahead);
                    });
                }
                NodeFault::Admit { step } => {
                    return self.command(fault, &nodes, |world, node| world.admit(node, step));
                }
                NodeFault::Demote => {
                    return self.command(fault, &nodes, |world, node| {
                        world.masters[node].server.demote();
                    });
                }
                NodeFault::Lag => {
                    return self.command(fault, &nodes, |world, node| {
                        let (now, master) = (world.now, &mut world.masters[node]);
                        master.lags.get_or_insert_with(|| (master.server.replicate(), now));
                    });
                }
                NodeFault::Failover => {
                    return self.command(fault, &nodes, |world, node| world.fail_over(fault, node));
                }
                NodeFault::Slow { .. } => {}
            },
            FaultKind::Clock(clock) => {
                nodes.iter().for_each(|node| self.set_clock(*node, Some(&clock)));
            }
            // Their messages are struck already; the orchestrator handles those to registers.
            FaultKind::Net(_) | FaultKind::Resource(_) => {}
            FaultKind::Client(client) => match client {
                ClientFault::Pause => {
                    actors.iter().for_each(|actor| self.actors[*actor].paused = true);
                }
                ClientFault::Suspend => {
                    for actor in actors {
                        self.actors[actor].paused = true;
                        self.actors[actor].suspended_at = Some(self.now);
                    }
                }
                ClientFault::Kill => actors.iter().for_each(|actor| self.die(*actor)),
                ClientFault::Clock { by } => {
                    actors.iter().for_each(|actor| self.actors[*actor].wall_ahead += by.nanos());
                }
                ClientFault::Rate { factor } => {
                    actors.iter().for_each(|actor| self.pace(*actor, factor));
                }
            },
        }
        self.struck(fault, self.now);
    }

    /// Takes the boot marker of a master to a step of a move. A master without one stays without.
    fn admit(&mut self, node: usize, step: MoveStep) {
        let wall = self.wall(node);
        let server = &mut self.masters[node].server;
        let marker = server.value(wall, BOOT).map(|marker| String::from_utf8_lossy(marker));
        let marker = marker.and_then(|marker| self.scenario.admitting(&marker, step));
        marker.into_iter().for_each(|it| server.set(wall, BOOT, it.as_bytes(), None));
    }

    /// Heals a fault.
    pub(super) fn heal(&mut self, fault: usize) {
        let FaultContext { nodes, actors, rules } = self.there.remove(&fault).unwrap_or_default();
        rules.into_iter().for_each(|rule| self.heal_rule(rule));
        match &self.scenario.faults[fault].kind {
            FaultKind::Node(node) => match node {
                NodeFault::Kill | NodeFault::Stop | NodeFault::PowerLoss => {
                    let up = Up { fault, nodes, since: self.now, healed: true };
                    return self.enter(self.now + self.restart, WorldEvent::Up(Box::new(up)));
                }
                NodeFault::Pause => nodes.iter().for_each(|node| self.resume(*node)),
                NodeFault::Full => self.set_out_of_memory(&nodes, false),
                NodeFault::Demote => {
                    nodes.iter().for_each(|node| self.masters[*node].server.promote());
                }
                NodeFault::Lag => nodes.iter().for_each(|node| self.masters[*node].lags = None),
                NodeFault::Restart
                | NodeFault::Slow { .. }
                | NodeFault::Flush
                | NodeFault::Evict
                | NodeFault::Failover
                | NodeFault::Counter { .. }
                | NodeFault::Admit { .. } => {}
            },
            FaultKind::Clock(_) => nodes.iter().for_each(|node| self.set_clock(*node, None)),
            FaultKind::Net(_) | FaultKind::Resource(_) => {}
            FaultKind::Client(client) => match client {
                ClientFault::Pause | ClientFault::Suspend => {
                    actors.iter().for_each(|actor| self.go_on(*actor));
                }
                ClientFault::Clock { .. } => {
                    actors.iter().for_each(|actor| self.actors[*actor].wall_ahead = 0);
                }
                ClientFault::Rate { .. } => actors.iter().for_each(|actor| self.pace(*actor, 1.0)),
                ClientFault::Kill => {}
            },
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
        self.handle_input(Input::Struck { fault, at, failed });
    }

    fn healed(&mut self, fault: usize, since: Instant) {
        let at = Window { from: self.ns(since), to: self.ns(self.now) };
        self.handle_input(Input::Healed { fault, at, failed: None });
    }

    fn kill(&mut self, node: usize, in_order: bool) {
        let mut events = Vec::new();
        let server = &mut self.masters[node].server;
        if in_order {
            server.stop(&mut events);
        } else {
            server.kill(&mut events);
        }
        self.handle_server_events(node, &mut events);
    }

    fn set_out_of_memory(&mut self, nodes: &[usize], is_out: bool) {
        nodes.iter().for_each(|node| self.masters[*node].server.set_out_of_memory(is_out));
    }

    /// Injects a fault that needs a command, on masters that execute commands or on their replicas.
    fn command(&mut self, fault: usize, nodes: &[usize], does: impl Fn(&mut Self, usize)) {
        let kind = self.scenario.faults[fault].kind.clone();
        let mut failed = None;
        for &node in nodes {
            failed = self.cannot_command(node, &kind);
            if failed.is_some() {
                break;
            }
            does(self, node);
        }
        self.struck_or(fault, self.now, failed);
    }

    /// Why a master, or its replica, does not execute the command of a fault.
    fn cannot_command(&self, node: usize, kind: &FaultKind) -> Option<String> {
        let master = &self.masters[node];
        let on_replica = kind.needs_replicas();
        if on_replica && master.failed_over {
            return Some(format!("master {} has failed over already", node + 1));
        }
        // A replica that lags holds its data, whatever its master does. One without lag has exactly
        // what its master reports as sent.
        let replica_lags = on_replica && master.lags.is_some();
        let replies = master.server.is_up() && !master.server.is_paused();
        if !replies && !replica_lags {
            return Some(format!("master {} does not answer", node + 1));
        }
        let demotes = matches!(kind, FaultKind::Node(NodeFault::Demote));
        (master.server.is_replica() && !demotes)
            .then(|| format!("master {} is demoted and refuses writes", node + 1))
    }

    /// Cuts a master's power. Of its file, only the synced part remains.
    fn lose_power(&mut self, fault: usize, node: usize) {
        let until = match self.scenario.cluster.persistence {
            Persistence::None => Window { from: Ns::MIN, to: Ns::MIN },
            Persistence::AofAlways => Window { from: Ns::MAX, to: Ns::MAX },
            Persistence::AofEverysec => self.about(self.masters[node].synced),
        };
        let mut events = Vec::new();
        self.masters[node].server.power_loss(&mut events);
        self.handle_server_events(node, &mut events);
        self.kept(fault, node, until);
    }

    fn fail_over(&mut self, fault: usize, node: usize) {
        let now = self.now;
        let master = &mut self.masters[node];
        let (replica, since) =
            master.lags.take().unwrap_or_else(|| (master.server.replicate(), now));
        let mut events = Vec::new();
        master.server.fail_over(replica, &mut events);
        master.failed_over = true;
        self.handle_server_events(node, &mut events);
        let until = self.about(since);
        self.kept(fault, node, until);
    }

    /// A command that was executed at that very instant may count as before or after it.
    fn about(&self, at: Instant) -> Window {
        let at = self.ns(at);
        Window { from: at - 1, to: at }
    }

    fn kept(&mut self, fault: usize, node: usize, until: Window) {
        self.handle_input(Input::Recorded(Event::Kept { fault: fault + 1, node: node + 1, until }));
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

    fn set_clock(&mut self, node: usize, fault: Option<&ClockFault>) {
        let clock = self.masters[node].clock.changed(signed(self.now), fault);
        self.masters[node].clock = clock;
        let at = self.ns(self.now);
        self.handle_input(Input::Recorded(clock.event(node + 1, Window { from: at, to: at })));
    }

    fn rule(&mut self, fault: usize, rule: Rule) {
        let at_once = rule.strikes_connections().then(|| rule.clone());
        let id = self.rules.strike(rule);
        if let Some(there) = self.there.get_mut(&fault) {
            there.rules.push(id);
        }
        let Some(rule) = at_once else { return };
        let open = self.wires.iter().filter(|(_, wire)| {
            rule.is_about(&wire.actor, wire.node) && wire.client_open && wire.master_open
        });
        let open: Vec<WireId> = open.map(|(id, _)| id).collect();
        for wire in open {
            match rule.fault {
                MessageFault::HalfOpen(end) => self.half_open(wire, end, id),
                _ => self.reset(wire),
            }
        }
    }

    /// Reports the keys of each master.
    pub(super) fn look(&mut self) {
        for node in 0..self.masters.len() {
            let keys = self.keys(node);
            self.handle_input(Input::Keys { node: node + 1, keys });
        }
    }

    fn keys(&self, node: usize) -> Option<Vec<LeftKey>> {
        let server = &self.masters[node].server;
        if !server.is_up() || server.is_paused() {
            return None;
        }
        Some(keys_of(server, self.wall(node)))
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

/// The keys of a master, but for those of the lock's own that stay by design.
fn keys_of(server: &Server, wall: Wall) -> Vec<LeftKey> {
    let there = || server.keys().filter(|(_, _, expires)| *expires >= wall);
    let locks = there().filter(|(key, ..)| !key.starts_with(RESERVED));
    let locks = locks.flat_map(|(key, value, expires)| {
        let ttl_ms = (expires - wall) / 1_000_000;
        let left = move |(value, ttl_ms): (&Arc<[u8]>, u64)| LeftKey {
            key: text_of(key),
            value: text_of(value),
            ttl_ms: Some(ttl_ms),
        };
        let shared = left_of_each(server.members(key).collect(), ttl_ms);
        value.map(|value| (value, ttl_ms)).into_iter().chain(shared).map(left)
    });
    let queues = there().filter(|(key, ..)| is_queue(key)).map(|(key, ..)| LeftKey {
        key: text_of(key),
        value: text_of(b""),
        // The TTL is at most this, counted from the last look of a waiter.
        ttl_ms: Some(LAPSE_MS),
    });
    locks.chain(queues).collect()
}

/// Sets the fencing counter of a resource ahead. A counter that is further ahead stays there.
fn set_counter(server: &mut Server, wall: Wall, resource: &[u8], ahead: Ahead) {
    let number = match ahead {
        Ahead::By(by) => {
            let by = u64::try_from(by.0.as_micros()).unwrap_or(u64::MAX);
            (wall / 1000).saturating_add(by).min(MAX_NUMBER)
        }
        fixed => fixed.number().unwrap_or(MAX_NUMBER),
    };
    let key = counter_of(resource);
    let text = |bytes: &Arc<[u8]>| str::from_utf8(bytes).ok()?.parse().ok();
    let number = server.value(wall, &key).and_then(text).unwrap_or(0).max(number);
    let memory_ms = u64::try_from(FENCING_COUNTER_TTL.as_millis()).unwrap_or(u64::MAX);
    server.set(wall, &key, number.to_string().as_bytes(), Some(memory_ms));
}

#[cfg(test)]
mod tests {
    use redquorum_protocol::wire::{Command, GRANT};
    use redquorum_protocol::{TOKEN_LEN, Token};
    use redquorum_redis_model::Request;

    use super::*;

    #[test]
    fn the_tokens_that_share_a_key_are_left_each_for_its_own_time() {
        const MS: Wall = 1_000_000;
        let mut server = Server::new(1, Persistence::None);
        let connection = server.connect().expect("it is up");
        server.deliver(connection, Request::Lock(Command::Load(GRANT)));
        server.serve(0, connection, &mut Vec::new());
        for (number, ttl_ms) in [(1, 500), (2, 100), (3, 200)] {
            let token = Token::new([b'0' + number; TOKEN_LEN]).shared();
            let key = Arc::from(&b"r"[..]);
            let command = Command::Set { key, token, ttl_ms, fair: false, fence: None };
            server.deliver(connection, Request::Lock(command));
            server.serve(0, connection, &mut Vec::new());
        }
        let left = |wall| {
            let left = keys_of(&server, wall).into_iter();
            left.map(|left| (left.value.as_bytes()[0] - b'0', left.ttl_ms)).collect::<Vec<_>>()
        };
        assert_eq!(left(0), [(1, Some(500)), (2, Some(100)), (3, Some(200))]);
        assert_eq!(left(150 * MS), [(1, Some(350)), (3, Some(50))]);
        assert_eq!(left(501 * MS), []);
    }

    #[test]
    fn a_counter_is_set_ahead_and_never_back() {
        const MS: Wall = 1_000_000;
        let mut server = Server::new(1, Persistence::None);
        let mut set = |wall, ahead| {
            set_counter(&mut server, wall, b"r", ahead);
            let text = server.value(wall, &counter_of(b"r")).expect("it is set");
            str::from_utf8(text).unwrap().parse::<u64>().unwrap()
        };
        let second = Ahead::By("1s".parse().unwrap());
        assert_eq!(set(5 * MS, second), 1_005_000);
        assert_eq!(set(4 * MS, second), 1_005_000, "the clock was set back");
        assert_eq!(set(6 * MS, second), 1_006_000);
        assert_eq!(set(6 * MS, Ahead::Last), MAX_NUMBER - 1);
        assert_eq!(set(6 * MS, second), MAX_NUMBER - 1);
        assert_eq!(set(6 * MS, Ahead::End), MAX_NUMBER);
        assert_eq!(set(6 * MS, Ahead::Last), MAX_NUMBER);
    }
}
