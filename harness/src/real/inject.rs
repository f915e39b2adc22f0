//! Carries out faults on real parts: masters, their clocks, the network between, client
//! processes. One thread of a run does this, because a restart takes its time and the run must go
//! on meanwhile.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use redquorum_rig::network::{self, Message, Network, Rule, RuleId};
use redquorum_rig::{Clock, ClockChange, Cluster, Reply, RigError};

use super::tap::RunClock;
use super::wire::Scripts;
use crate::director::Input;
use crate::history::{Event, Left, Ns, Window, text_of};
use crate::process::ClientProcess;
use crate::scenario::{
    Class, ClientHarm, ClockHarm, End, Harm, NetHarm, NodeHarm, Scenario, Side, Which,
};
use crate::units::nanos;

/// The client processes of a run, by name.
pub(super) type Processes = BTreeMap<String, Mutex<ClientProcess>>;

/// What faults are carried out on.
pub(super) struct Injector {
    pub(super) scenario: Scenario,
    pub(super) cluster: Arc<dyn Cluster>,
    pub(super) network: Arc<Network>,
    pub(super) processes: Arc<Processes>,
    /// The wall clocks of client processes that have one of their own.
    pub(super) client_clocks: BTreeMap<String, Clock>,
    pub(super) scripts: Arc<Scripts>,
    /// Which rule of the network is the gate of which fault.
    pub(super) gates: Arc<Mutex<HashMap<RuleId, usize>>>,
    pub(super) clock: RunClock,
    there: BTreeMap<usize, There>,
    clocks: BTreeMap<usize, Shown>,
}

/// A fault that is there: what its cure needs.
#[derive(Default)]
struct There {
    nodes: Vec<usize>,
    processes: Vec<String>,
    rules: Vec<RuleId>,
}

/// What the wall clock of a master shows.
#[derive(Clone, Copy)]
struct Shown {
    since: Ns,
    ahead: Ns,
    rate: f64,
    strobe_by: Ns,
    strobe_every: Ns,
}

impl Shown {
    const REAL: Self = Self { since: 0, ahead: 0, rate: 1.0, strobe_by: 0, strobe_every: 0 };

    /// The same, counted from another instant.
    #[expect(clippy::cast_possible_truncation, reason = "a drift within a run is small")]
    #[expect(clippy::cast_precision_loss, reason = "a run lasts seconds, f64 has 104 days of ns")]
    fn from(self, now: Ns) -> Self {
        let drifted = now.saturating_sub(self.since) as f64 * (self.rate - 1.0);
        Self { since: now, ahead: self.ahead.saturating_add(drifted as Ns), ..self }
    }
}

impl Injector {
    pub(super) fn new(
        scenario: &Scenario,
        cluster: Arc<dyn Cluster>,
        network: Arc<Network>,
        processes: Arc<Processes>,
        scripts: Arc<Scripts>,
        clock: RunClock,
    ) -> Self {
        Self {
            scenario: scenario.clone(),
            cluster,
            network,
            processes,
            client_clocks: BTreeMap::new(),
            scripts,
            gates: Arc::default(),
            clock,
            there: BTreeMap::new(),
            clocks: BTreeMap::new(),
        }
    }

    /// Closes a gate for a fault.
    pub(super) fn gate(
        &mut self,
        fault: usize,
        process: String,
        side: Side,
        class: Class,
        number: u64,
    ) {
        let rule = Rule {
            clients: Some(vec![process]),
            side: wire_side(side),
            matches: self.matches(class),
            from: number,
            ..Rule::all(network::Harm::Hold)
        };
        // Locked over both, or the network could knock before the gate is known.
        let mut gates = self.gates.lock().unwrap_or_else(PoisonError::into_inner);
        gates.insert(self.network.strike(rule), fault);
    }

    /// Opens it.
    pub(super) fn open(&mut self, fault: usize) {
        let mut gates = self.gates.lock().unwrap_or_else(PoisonError::into_inner);
        let rule = gates.iter().find(|(_, gated)| **gated == fault).map(|(rule, _)| *rule);
        if let Some(rule) = rule {
            gates.remove(&rule);
            drop(gates);
            self.network.heal(rule);
        }
    }

    /// Lets a fault strike, and tells how that went.
    pub(super) fn strike(
        &mut self,
        fault: usize,
        nodes: Vec<usize>,
        processes: Vec<String>,
        tell: &mut dyn FnMut(Input),
    ) {
        let from = self.clock.now();
        let harm = self.scenario.faults[fault].harm.clone();
        self.there.insert(fault, There { nodes, processes, rules: Vec::new() });
        let done = self.harm(fault, &harm, tell);
        let at = Window { from, to: self.clock.now() };
        tell(Input::Struck { fault, at, failed: done.err() });
    }

    /// Cures it, and tells how that went.
    pub(super) fn cure(&mut self, fault: usize, tell: &mut dyn FnMut(Input)) {
        let from = self.clock.now();
        let done = self.undo(fault, tell);
        let at = Window { from, to: self.clock.now() };
        tell(Input::Cured { fault, at, failed: done.err() });
    }

    fn harm(
        &mut self,
        fault: usize,
        harm: &Harm,
        tell: &mut dyn FnMut(Input),
    ) -> Result<(), String> {
        let nodes = self.there[&fault].nodes.clone();
        match harm {
            Harm::Node(NodeHarm::Kill { .. }) => self.each(&nodes, |rig, node| rig.kill(node)),
            Harm::Node(NodeHarm::Stop { .. }) => self.each(&nodes, |rig, node| rig.stop(node)),
            Harm::Node(NodeHarm::Restart { .. }) => self.restart(&nodes),
            Harm::Node(NodeHarm::Pause { .. }) => self.each(&nodes, |rig, node| rig.pause(node)),
            Harm::Node(NodeHarm::Full { .. }) => self.memory(&nodes, "1"),
            Harm::Node(NodeHarm::Slow { by, .. }) => {
                let slow = network::Harm::Delay(by.0);
                let rule = Rule { side: network::Side::Replies, ..Rule::all(slow) };
                self.net(fault, rule, false);
                Ok(())
            }
            Harm::Clock(clock) => {
                let change = match clock {
                    ClockHarm::Step { by, .. } => ClockChange::Step { nanos: by.nanos() },
                    ClockHarm::Rate { factor, .. } => ClockChange::Rate(*factor),
                    ClockHarm::Strobe { by, every, .. } => {
                        ClockChange::Strobe { by: by.0, every: every.0 }
                    }
                };
                self.set_clocks(&nodes, change, tell)
            }
            Harm::Net(net) => {
                let rule = self.rule(net);
                self.net(fault, rule, true);
                Ok(())
            }
            Harm::Client(ClientHarm::Pause { .. }) => self.clients(fault, ClientProcess::pause),
            Harm::Client(ClientHarm::Kill { .. }) => self.clients(fault, ClientProcess::kill),
            Harm::Client(ClientHarm::Clock { by, .. }) => {
                self.set_client_clocks(fault, ClockChange::Step { nanos: by.nanos() })
            }
        }
    }

    fn undo(&mut self, fault: usize, tell: &mut dyn FnMut(Input)) -> Result<(), String> {
        let nodes = self.there.get(&fault).map(|there| there.nodes.clone()).unwrap_or_default();
        match self.scenario.faults[fault].harm {
            Harm::Node(NodeHarm::Kill { .. } | NodeHarm::Stop { .. }) => self.restart(&nodes),
            Harm::Node(NodeHarm::Pause { .. }) => self.each(&nodes, |rig, node| rig.resume(node)),
            Harm::Node(NodeHarm::Full { .. }) => self.memory(&nodes, "0"),
            Harm::Clock(_) => self.set_clocks(&nodes, ClockChange::Cure, tell),
            Harm::Client(ClientHarm::Pause { .. }) => self.clients(fault, ClientProcess::resume),
            Harm::Client(ClientHarm::Clock { .. }) => {
                self.set_client_clocks(fault, ClockChange::Cure)
            }
            Harm::Node(NodeHarm::Slow { .. }) | Harm::Net(_) => {
                let rules =
                    self.there.get_mut(&fault).map(|there| std::mem::take(&mut there.rules));
                rules.unwrap_or_default().into_iter().for_each(|rule| self.network.heal(rule));
                Ok(())
            }
            Harm::Node(NodeHarm::Restart { .. }) | Harm::Client(ClientHarm::Kill { .. }) => Ok(()),
        }
    }

    /// Does something to several masters at the same time.
    fn each(
        &self,
        nodes: &[usize],
        verb: impl Fn(&dyn Cluster, usize) -> Result<(), RigError> + Sync,
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

    /// Bounds the memory of masters; 0: no bound.
    fn memory(&self, nodes: &[usize], bytes: &str) -> Result<(), String> {
        for node in nodes {
            let words: [&[u8]; 4] = [b"CONFIG", b"SET", b"maxmemory", bytes.as_bytes()];
            let said = self.cluster.command(*node, &words).map_err(|error| error.to_string())?;
            if !matches!(&said, Reply::Status(ok) if ok == "OK") {
                return Err(format!("master {node} sets no bound to its memory: {said:?}"));
            }
        }
        Ok(())
    }

    fn restart(&self, nodes: &[usize]) -> Result<(), String> {
        self.each(nodes, |rig, node| rig.restart(node))?;
        for node in nodes {
            self.network.upstream(*node, Some(self.cluster.address(*node)));
        }
        Ok(())
    }

    /// Strikes a rule; of the links of all clients, or of those that the fault is about.
    fn net(&mut self, fault: usize, rule: Rule, of_clients: bool) {
        let Some(there) = self.there.get_mut(&fault) else { return };
        let clients = of_clients.then(|| there.processes.clone());
        let rule = Rule { clients, nodes: Some(there.nodes.clone()), ..rule };
        there.rules.push(self.network.strike(rule));
    }

    fn rule(&self, net: &NetHarm) -> Rule {
        let chosen = |which: &Which, harm| Rule {
            side: wire_side(which.what),
            matches: self.matches(which.command),
            from: which.index.unwrap_or(1),
            count: which.count,
            ..Rule::all(harm)
        };
        match net {
            NetHarm::Cut(which) => {
                let which = Which { what: Side::Both, command: Class::Any, ..which.clone() };
                chosen(&which, network::Harm::Drop)
            }
            NetHarm::Drop(which) => chosen(which, network::Harm::Drop),
            NetHarm::Hold(which) => chosen(which, network::Harm::Hold),
            NetHarm::Duplicate(which) => {
                let which = Which { what: Side::Request, ..which.clone() };
                chosen(&which, network::Harm::Duplicate)
            }
            NetHarm::Reset(which) => chosen(which, network::Harm::Reset),
            NetHarm::Delay { what, by, .. } => {
                Rule { side: wire_side(*what), ..Rule::all(network::Harm::Delay(by.0)) }
            }
            NetHarm::Trickle { what, bytes, .. } => {
                Rule { side: wire_side(*what), ..Rule::all(network::Harm::Trickle(*bytes)) }
            }
            NetHarm::HalfOpen { end, .. } => Rule::all(network::Harm::HalfOpen(match end {
                End::Client => network::End::Client,
                End::Master => network::End::Master,
            })),
        }
    }

    /// Requests of a class and their replies; none: everything.
    fn matches(&self, class: Class) -> Option<Arc<network::Matches>> {
        if class == Class::Any {
            return None;
        }
        let scripts = Arc::clone(&self.scripts);
        Some(Arc::new(move |message: &Message<'_>| scripts.class(message.command) == class))
    }

    fn set_clocks(
        &mut self,
        nodes: &[usize],
        change: ClockChange,
        tell: &mut dyn FnMut(Input),
    ) -> Result<(), String> {
        for &node in nodes {
            let from = self.clock.now();
            let done = self.cluster.set_clock(node, change);
            let to = self.clock.now();
            let shown = self.clocks.get(&node).copied().unwrap_or(Shown::REAL).from(to);
            let shown = match change {
                ClockChange::Step { nanos } => {
                    Shown { ahead: shown.ahead.saturating_add(nanos), ..shown }
                }
                ClockChange::Rate(rate) => Shown { rate, ..shown },
                ClockChange::Strobe { by, every } => {
                    Shown { strobe_by: nanos(by), strobe_every: nanos(every), ..shown }
                }
                _ => Shown { since: to, ..Shown::REAL },
            };
            self.clocks.insert(node, shown);
            tell(Input::Recorded(Event::Clock {
                node,
                since: Window { from, to },
                ahead: shown.ahead,
                rate: shown.rate,
                strobe_by: shown.strobe_by,
                strobe_every: shown.strobe_every,
            }));
            done.map_err(|error| error.to_string())?;
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
            let process = process.lock().unwrap_or_else(PoisonError::into_inner);
            verb(&process).map_err(|error| format!("process {name}: {error}"))?;
        }
        Ok(())
    }

    fn set_client_clocks(&self, fault: usize, change: ClockChange) -> Result<(), String> {
        for name in &self.there[&fault].processes {
            let clock = self.client_clocks.get(name);
            let clock = clock.ok_or_else(|| format!("process {name} has no clock of its own"))?;
            clock.change(change).map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Tells which keys each master has.
    pub(super) fn look(&self, tell: &mut dyn FnMut(Input)) {
        for node in 1..=self.cluster.len() {
            tell(Input::Keys { node, keys: self.keys(node) });
        }
    }

    fn keys(&self, node: usize) -> Option<Vec<Left>> {
        let ask = |words: &[&[u8]]| self.cluster.command(node, words).ok();
        let Reply::Array(names) = ask(&[b"KEYS", b"*"])? else { return None };
        let mut left = Vec::new();
        for name in names {
            let Reply::Bulk(name) = name else { continue };
            let ttl = ask(&[b"PTTL", &name])?;
            let ttl_ms = match ttl {
                // It expired between the two questions.
                Reply::Integer(-2) => continue,
                Reply::Integer(ms) => u64::try_from(ms).ok(),
                _ => None,
            };
            let value = match ask(&[b"GET", &name])? {
                Reply::Bulk(value) => text_of(&value),
                Reply::Nil => continue,
                _ => String::new(),
            };
            left.push(Left { key: text_of(&name), value, ttl_ms });
        }
        Some(left)
    }
}

const fn wire_side(side: Side) -> network::Side {
    match side {
        Side::Request => network::Side::Requests,
        Side::Reply => network::Side::Replies,
        Side::Both => network::Side::Both,
    }
}
