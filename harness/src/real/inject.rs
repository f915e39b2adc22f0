//! Carries out faults on real parts: masters, their clocks, the network and the client processes. A
//! separate thread does this, because a restart takes time and the run must go on meanwhile.
//!
//! This file lets faults strike and heals them. The orchestrator decides beforehand when a fault
//! strikes and which masters and processes it hits. Only `run.rs` calls this module.
//!
//! - `inject/net.rs`: rules of the network, and gates
//! - `inject/clocks.rs`: wall clocks
//! - `inject/forgets.rs`: power losses and replicas
//! - `inject/memory.rs`: the memory of masters, and their role

use std::collections::{BTreeMap, HashMap};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};

use redquorum_rig::network::{Network, RuleId};
use redquorum_rig::{Clock, ClockChange, Masters};

use super::Signal;
use super::clock::RunClock;
use super::keys;
use super::wire::Scripts;
use crate::mutex::unpoisoned;
use crate::process::ClientProcess;
use redquorum_scenario::history::{LeftKey, Window, text_of};
use redquorum_scenario::name::Name;
use redquorum_scenario::wall::WallClock;
use redquorum_scenario::{ClientFault, FaultKind, NodeFault, Scenario};
use redquorum_simulator::orchestrator::{Input, Order};

mod clocks;
mod forgets;
mod memory;
mod net;

/// Why a scenario cannot suspend a real client.
pub(super) const NO_SUSPEND: &str =
    "a machine cannot be suspended from within: only the simulation does `client.suspend`";

/// Why the lease clock of a real client cannot run at another rate.
pub(super) const NO_RATE: &str = "the clock by which a lock measures its leases cannot be set from \
                                  outside: only the simulation does `client.rate`";

/// The client processes of a run, by name.
pub(super) type Processes = BTreeMap<Name, Mutex<ClientProcess>>;

/// Maps each rule of the network that is a gate to its fault.
pub(super) type Gates = Arc<Mutex<HashMap<RuleId, usize>>>;

/// The parts on which faults are carried out.
pub(super) struct Injector {
    pub(super) scenario: Scenario,
    pub(super) cluster: Arc<Masters>,
    pub(super) network: Network,
    pub(super) processes: Arc<Processes>,
    /// The wall clocks of client processes that have one of their own.
    pub(super) client_clocks: BTreeMap<Name, Clock>,
    pub(super) scripts: Arc<Scripts>,
    pub(super) gates: Gates,
    pub(super) clock: RunClock,
    pub(super) signals: Sender<Signal>,
    /// The faults in force.
    pub(super) there: BTreeMap<usize, FaultContext>,
    /// When the lagging replicas were cut off.
    pub(super) lags: BTreeMap<usize, Window>,
    pub(super) clocks: BTreeMap<usize, WallClock>,
}

/// A fault in force, with what it takes to heal it.
pub(super) struct FaultContext {
    nodes: Vec<usize>,
    processes: Vec<Name>,
    rules: Vec<RuleId>,
}

impl Injector {
    /// Sends an input to the run. The send fails only if the run is over.
    fn report(&self, input: Input) {
        drop(self.signals.send(Signal::Input(input)));
    }

    /// Carries out an order that is not about the requests to client processes.
    pub(super) fn carry_out(&mut self, order: Order) {
        match order {
            Order::Gate { fault, process, which } => self.gate(fault, &process, &which),
            Order::Open(fault) => self.open(fault),
            Order::Strike { fault, nodes, processes } => self.strike(fault, nodes, processes),
            Order::Heal(fault) => self.heal(fault),
            Order::Look => self.look(),
            Order::Request { .. } | Order::Kill { .. } => {
                unreachable!("the run's own thread carries these out")
            }
        }
    }

    /// Lets a fault strike, and reports the result.
    fn strike(&mut self, fault: usize, nodes: Vec<usize>, processes: Vec<Name>) {
        let from = self.clock.now();
        self.there.insert(fault, FaultContext { nodes, processes, rules: Vec::new() });
        let done = self.inject(fault);
        let at = Window { from, to: self.clock.now() };
        self.report(Input::Struck { fault, at, failed: done.err() });
    }

    /// Heals a fault, and reports the result.
    fn heal(&mut self, fault: usize) {
        let from = self.clock.now();
        let done = self.undo(fault);
        let at = Window { from, to: self.clock.now() };
        self.report(Input::Healed { fault, at, failed: done.err() });
    }

    fn inject(&mut self, fault: usize) -> Result<(), String> {
        let nodes = self.there[&fault].nodes.clone();
        if self.net(fault) {
            return Ok(());
        }
        match &self.scenario.faults[fault].kind.clone() {
            FaultKind::Node(node) => match node {
                NodeFault::Kill => self.each(&nodes, Masters::kill),
                NodeFault::Stop => self.each(&nodes, Masters::stop),
                NodeFault::Restart => self.restart(&nodes),
                NodeFault::Pause => self.each(&nodes, Masters::pause),
                NodeFault::Full => self.each(&nodes, memory::fill),
                NodeFault::Demote => self.each(&nodes, memory::demote),
                NodeFault::PowerLoss => self.power_loss(fault, &nodes),
                NodeFault::Lag => self.lag(&nodes),
                NodeFault::Failover => self.fail_over(fault, &nodes),
                NodeFault::Flush => self.each(&nodes, memory::flush),
                NodeFault::Evict => self.each(&nodes, memory::evict),
                NodeFault::Counter { resource, ahead } => {
                    self.each(&nodes, |rig, node| memory::count(rig, node, resource, *ahead))
                }
                NodeFault::Slow { .. } => Ok(()),
            },
            FaultKind::Clock(clock) => self.set_clocks(&nodes, Some(clock)),
            // Their messages are struck already; the orchestrator handles those to registers.
            FaultKind::Net(_) | FaultKind::Resource(_) => Ok(()),
            FaultKind::Client(client) => match client {
                ClientFault::Suspend => Err(NO_SUSPEND.to_owned()),
                ClientFault::Rate { .. } => Err(NO_RATE.to_owned()),
                ClientFault::Pause => self.clients(fault, ClientProcess::pause),
                ClientFault::Kill => self.clients(fault, ClientProcess::kill),
                ClientFault::Clock { by } => {
                    self.set_client_clocks(fault, ClockChange::Step { nanos: by.nanos() })
                }
            },
        }
    }

    fn undo(&mut self, fault: usize) -> Result<(), String> {
        let there = self.there.get_mut(&fault);
        let (nodes, rules) = there.map_or_else(Default::default, |there| {
            (there.nodes.clone(), std::mem::take(&mut there.rules))
        });
        rules.into_iter().for_each(|rule| self.network.heal(rule));
        match &self.scenario.faults[fault].kind {
            FaultKind::Node(node) => match node {
                NodeFault::Kill | NodeFault::Stop | NodeFault::PowerLoss => self.restart(&nodes),
                NodeFault::Lag => self.catch_up(&nodes),
                NodeFault::Pause => self.each(&nodes, Masters::resume),
                NodeFault::Full => self.each(&nodes, memory::free),
                NodeFault::Demote => self.each(&nodes, memory::promote),
                NodeFault::Restart
                | NodeFault::Slow { .. }
                | NodeFault::Flush
                | NodeFault::Evict
                | NodeFault::Failover
                | NodeFault::Counter { .. } => Ok(()),
            },
            FaultKind::Clock(_) => self.set_clocks(&nodes, None),
            FaultKind::Net(_) | FaultKind::Resource(_) => Ok(()),
            FaultKind::Client(client) => match client {
                ClientFault::Pause => self.clients(fault, ClientProcess::resume),
                ClientFault::Clock { .. } => self.set_client_clocks(fault, ClockChange::Heal),
                ClientFault::Suspend | ClientFault::Kill | ClientFault::Rate { .. } => Ok(()),
            },
        }
    }

    /// Does something to several masters at the same time.
    fn each<E: ToString + Send>(
        &self,
        nodes: &[usize],
        verb: impl Fn(&Masters, usize) -> Result<(), E> + Sync,
    ) -> Result<(), String> {
        let (rig, verb) = (&*self.cluster, &verb);
        let results: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                nodes.iter().map(|node| scope.spawn(move || verb(rig, *node))).collect();
            threads.into_iter().map(std::thread::ScopedJoinHandle::join).collect()
        });
        for result in results {
            match result {
                Ok(done) => done.map_err(|error| error.to_string())?,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok(())
    }

    fn restart(&self, nodes: &[usize]) -> Result<(), String> {
        self.each(nodes, Masters::restart)?;
        for node in nodes {
            self.network.upstream(*node, Some(self.cluster.address(*node)));
        }
        Ok(())
    }

    fn clients(
        &self,
        fault: usize,
        verb: impl Fn(&ClientProcess) -> std::io::Result<()>,
    ) -> Result<(), String> {
        for name in &self.there[&fault].processes {
            let process = self.processes.get(name).ok_or_else(|| format!("no process {name}"))?;
            verb(&unpoisoned(process)).map_err(|error| format!("process {name}: {error}"))?;
        }
        Ok(())
    }

    /// Reports the keys of each master. Call this only at the end of a run: a read triggers expiry.
    fn look(&self) {
        for node in 1..=self.cluster.len() {
            let left = |key: keys::Key| LeftKey {
                key: text_of(&key.name),
                value: text_of(&key.value.unwrap_or_default()),
                ttl_ms: key.ttl_ms,
            };
            let keys = keys::of(&self.cluster, node).ok();
            let keys = keys.map(|keys| keys.into_iter().map(left).collect());
            self.report(Input::Keys { node, keys });
        }
    }
}
