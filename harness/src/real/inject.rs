//! Carries out faults on real parts: masters, their clocks, the network and the client processes. A
//! separate thread does this, because a restart takes time and the run must go on meanwhile.
//!
//! This file lets faults strike and heals them. The orchestrator decides beforehand when a fault
//! strikes and which masters and processes it hits.

use std::collections::{BTreeMap, HashMap};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::Signal;
use super::run::{Key, RunClock, keys_of};
use super::wire::Scripts;
use crate::process::ClientProcess;
use crate::unpoisoned;
use redquorum_protocol::wire::{BOOT, counter_of};
use redquorum_rig::network::{self, Message, Network, Rule, RuleId};
use redquorum_rig::{Clock, ClockChange, Masters, Persisted, RespValue, RigError};
use redquorum_scenario::client_protocol::FENCING_COUNTER_TTL;
use redquorum_scenario::history::{Event, LeftKey, Ns, Window, text_of};
use redquorum_scenario::name::Name;
use redquorum_scenario::wall::WallClock;
use redquorum_scenario::{
    Ahead, Class, ClientFault, ClockFault, FaultKind, MessageFault, Messages, MoveStep, NodeFault,
    Scenario,
};
use redquorum_simulator::orchestrator::{Input, Order};

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
                NodeFault::Full => self.each(&nodes, fill),
                NodeFault::Demote => self.each(&nodes, demote),
                NodeFault::PowerLoss => self.power_loss(fault, &nodes),
                NodeFault::Lag => self.lag(&nodes),
                NodeFault::Failover => self.fail_over(fault, &nodes),
                NodeFault::Flush => self.each(&nodes, flush),
                NodeFault::Evict => self.each(&nodes, evict),
                NodeFault::Counter { resource, ahead } => {
                    self.each(&nodes, |rig, node| count(rig, node, resource, *ahead))
                }
                NodeFault::Admit { step } => {
                    self.each(&nodes, |rig, node| admit(rig, node, &self.scenario, *step))
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
                NodeFault::Full => self.each(&nodes, free),
                NodeFault::Demote => self.each(&nodes, promote),
                NodeFault::Restart
                | NodeFault::Slow { .. }
                | NodeFault::Flush
                | NodeFault::Evict
                | NodeFault::Failover
                | NodeFault::Counter { .. }
                | NodeFault::Admit { .. } => Ok(()),
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
            let left = |key: Key| LeftKey {
                key: text_of(&key.name),
                value: text_of(&key.value.unwrap_or_default()),
                ttl_ms: key.ttl_ms,
            };
            let keys = keys_of(&self.cluster, node).ok();
            let keys = keys.map(|keys| keys.into_iter().map(left).collect());
            self.report(Input::Keys { node, keys });
        }
    }
}

/// Faults of the network as rules of the proxies, and gates. A gate holds a message back until its
/// fault has struck.
impl Injector {
    /// Closes a gate for a fault.
    fn gate(&mut self, fault: usize, process: &Name, which: &Messages) {
        let clients = Some(vec![process.to_string()]);
        let rule = Rule { clients, ..self.rule(which, MessageFault::Hold) };
        // The lock covers both steps. Otherwise the network could report a message at a gate that
        // is not known yet.
        let mut gates = unpoisoned(&self.gates);
        gates.insert(self.network.strike(rule), fault);
    }

    /// Opens the gate of a fault.
    fn open(&mut self, fault: usize) {
        let mut gates = unpoisoned(&self.gates);
        let rule = gates.iter().find(|(_, gated)| **gated == fault).map(|(rule, _)| *rule);
        if let Some(rule) = rule {
            gates.remove(&rule);
            drop(gates);
            self.network.heal(rule);
        }
    }

    /// Puts a fault of messages into force, for the links of all clients or of those that it hits.
    /// Returns whether it is one.
    fn net(&mut self, fault: usize) -> bool {
        let struck = &self.scenario.faults[fault];
        let Some((which, effect)) = struck.kind.strikes_messages() else { return false };
        let rule = self.rule(&which, effect);
        let Some(there) = self.there.get_mut(&fault) else { return true };
        let names = || there.processes.iter().map(Name::to_string).collect();
        let clients = struck.clients.as_ref().map(|_| names());
        let rule = Rule { clients, nodes: Some(there.nodes.clone()), ..rule };
        there.rules.push(self.network.strike(rule));
        true
    }

    /// A rule of the proxies about these messages of all links.
    fn rule(&self, which: &Messages, effect: MessageFault) -> Rule {
        Rule {
            side: which.what,
            matches: self.matches(which.command),
            from: which.index.unwrap_or(1),
            count: which.count,
            ..Rule::all(effect)
        }
    }

    /// Matches requests of a class and their replies. `None` matches everything.
    fn matches(&self, class: Class) -> Option<Arc<network::Matches>> {
        if class == Class::Any {
            return None;
        }
        let scripts = Arc::clone(&self.scripts);
        Some(Arc::new(move |message: &Message<'_>| scripts.read(message.command).0 == class))
    }
}

/// Faults of wall clocks, of masters and of clients. The checker must know the exact history of the
/// masters' clocks.
impl Injector {
    fn set_clocks(&mut self, nodes: &[usize], fault: Option<&ClockFault>) -> Result<(), String> {
        let change = fault.map_or(ClockChange::Heal, change);
        for &node in nodes {
            let from = self.clock.now();
            let done = self.cluster.set_clock(node, change);
            let to = self.clock.now();
            let clock = self.clocks.get(&node).copied().unwrap_or(WallClock::REAL);
            let clock = clock.changed(to, fault);
            self.clocks.insert(node, clock);
            self.report(Input::Recorded(clock.event(node, Window { from, to })));
            done.map_err(|error| error.to_string())?;
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
}

/// The change that a fault makes to a clock.
fn change(fault: &ClockFault) -> ClockChange {
    match fault {
        ClockFault::Step { by } => ClockChange::Step { nanos: by.nanos() },
        ClockFault::Rate { factor } => ClockChange::Rate(*factor),
        ClockFault::Strobe { by, every } => ClockChange::Strobe { by: by.0, every: every.0 },
    }
}

/// A master may decide to sync up to this long before the disk starts to sync. Writes within this
/// time may be in the file or not. The time covers a hand-over between two threads on a busy
/// machine.
const HAND_OVER: Ns = 250_000_000;

/// Power losses, and lagging replicas that take over. The run records which commands a master has
/// kept, so that the checker need not guess: all that it had executed before an instant, and
/// nothing after it.
impl Injector {
    fn power_loss(&self, fault: usize, nodes: &[usize]) -> Result<(), String> {
        let all = Mutex::new(Vec::new());
        let done = self.each(nodes, |rig, node| {
            let kept = rig.power_loss(node)?;
            unpoisoned(&all).push((node, kept));
            Ok::<_, RigError>(())
        });
        for (node, kept) in std::mem::take(&mut *unpoisoned(&all)) {
            let until = match kept {
                Persisted::Everything => Window { from: Ns::MAX, to: Ns::MAX },
                Persisted::Until(stamp) => {
                    let to = self.clock.stamp(i64::try_from(stamp).unwrap_or(i64::MAX));
                    Window { from: to.saturating_sub(HAND_OVER), to }
                }
                _ => Window { from: Ns::MIN, to: Ns::MIN },
            };
            self.kept_until(fault, node, until);
        }
        done
    }

    fn lag(&mut self, nodes: &[usize]) -> Result<(), String> {
        let from = self.clock.now();
        let done = self.each(nodes, Masters::lag);
        let cut = Window { from, to: self.clock.now() };
        if done.is_ok() {
            for node in nodes {
                self.lags.entry(*node).or_insert(cut);
            }
        }
        done
    }

    fn catch_up(&mut self, nodes: &[usize]) -> Result<(), String> {
        for node in nodes {
            self.lags.remove(node);
        }
        self.each(nodes, Masters::catch_up)
    }

    fn fail_over(&self, fault: usize, nodes: &[usize]) -> Result<(), String> {
        let from = self.clock.now();
        let done = self.each(nodes, Masters::fail_over);
        let now = Window { from, to: self.clock.now() };
        for node in nodes {
            self.network.upstream(*node, Some(self.cluster.address(*node)));
            self.kept_until(fault, *node, self.lags.get(node).copied().unwrap_or(now));
        }
        done
    }

    fn kept_until(&self, fault: usize, node: usize, until: Window) {
        self.report(Input::Recorded(Event::Kept { fault: fault + 1, node, until }));
    }
}

/// Timeout of an eviction, which takes milliseconds if there are few keys.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Poll interval during an eviction.
const POLL: Duration = Duration::from_millis(1);

/// One byte: less than any server needs for itself, so that it evicts every key that it may.
const NONE_LEFT: &[u8] = b"1";
/// No bound.
const NO_BOUND: &[u8] = b"0";

// Faults by commands to masters. If a master does not answer, the fault is reported as not carried
// out on it.

/// Lets the master refuse every write that needs more memory.
fn fill(rig: &Masters, node: usize) -> Result<(), String> {
    set(rig, node, b"maxmemory", NONE_LEFT)
}

/// Removes the bound.
fn free(rig: &Masters, node: usize) -> Result<(), String> {
    set(rig, node, b"maxmemory", NO_BOUND)
}

/// Lets the master follow a server that does not exist: nothing listens at port 1. So it keeps its
/// keys.
fn demote(rig: &Masters, node: usize) -> Result<(), String> {
    ok(rig, node, &[b"REPLICAOF", b"127.0.0.1", b"1"])
}

/// Makes it a master again.
fn promote(rig: &Masters, node: usize) -> Result<(), String> {
    ok(rig, node, &[b"REPLICAOF", b"NO", b"ONE"])
}

/// `FLUSHALL`.
fn flush(rig: &Masters, node: usize) -> Result<(), String> {
    ok(rig, node, &[b"FLUSHALL"])
}

/// Sets the fencing counter of a resource, by the master's own clock. Bypasses the proxies, like an
/// operator's mistake in a terminal. The counter never goes back.
const COUNT: &[u8] = b"\
local time = redis.call('TIME')
local number = tonumber(ARGV[2]) or time[1] * 1000000 + time[2] + ARGV[1]
number = math.max(number, tonumber(redis.call('GET', KEYS[1]) or 0))
return redis.call('SET', KEYS[1], string.format('%.0f', number), 'PX', ARGV[3])
";

/// Sets a fencing counter.
fn count(rig: &Masters, node: usize, resource: &str, ahead: Ahead) -> Result<(), String> {
    let by = match ahead {
        Ahead::By(by) => by.0.as_micros().to_string(),
        _ => "0".to_owned(),
    };
    let number = ahead.number().map_or_else(|| "none".to_owned(), |number| number.to_string());
    let key = counter_of(resource.as_bytes());
    let memory = FENCING_COUNTER_TTL.as_millis().to_string();
    let args = [&by, &number, &memory].map(String::as_bytes);
    ok(rig, node, &[b"EVAL", COUNT, b"1", &key, args[0], args[1], args[2]])
}

/// Lets a master evict every key that has a TTL, then restores its memory bound and policy. The
/// master's key counts show whether all are gone. No key is looked at, since a look lets keys
/// expire.
fn evict(rig: &Masters, node: usize) -> Result<(), String> {
    let before = [b"maxmemory-policy".as_slice(), b"maxmemory"].map(|name| get(rig, node, name));
    let [policy, bound] = before;
    let (policy, bound) = (policy?, bound?);
    // Set the policy before the bound, so that the master evicts and refuses nothing.
    let evicted = set(rig, node, b"maxmemory-policy", b"volatile-ttl")
        .and_then(|()| set(rig, node, b"maxmemory", NONE_LEFT))
        .and_then(|()| gone(rig, node));
    set(rig, node, b"maxmemory", &bound)?;
    set(rig, node, b"maxmemory-policy", &policy)?;
    evicted
}

/// Waits until no key with a TTL is left.
fn gone(rig: &Masters, node: usize) -> Result<(), String> {
    let until = Instant::now() + TIMEOUT;
    loop {
        // On any command, Redis evicts the keys for which it has no memory.
        let info = rig.info(node, "keyspace").map_err(|error| error.to_string())?;
        let left = mortal(&info);
        if left == 0 {
            return Ok(());
        }
        if Instant::now() >= until {
            return Err(format!("master {node} keeps {left} keys that it should evict"));
        }
        sleep(POLL);
    }
}

/// Takes the boot marker of a master to a step of a move. A master without one stays without one.
fn admit(rig: &Masters, node: usize, scenario: &Scenario, step: MoveStep) -> Result<(), String> {
    let reply = rig.command(node, &[b"GET", BOOT]).map_err(|error| error.to_string())?;
    let RespValue::Bulk(marker) = reply else { return Ok(()) };
    let marker = scenario.admitting(&String::from_utf8_lossy(&marker), step);
    marker.map_or(Ok(()), |marker| ok(rig, node, &[b"SET", BOOT, marker.as_bytes()]))
}

/// How many keys have a TTL, by `INFO keyspace`: `db0:keys=1,expires=1,avg_ttl=0`.
fn mortal(info: &str) -> u64 {
    let databases = info.lines().filter(|line| line.starts_with("db"));
    let counts = databases.filter_map(|line| line.split_once("expires=")?.1.split(',').next());
    counts.filter_map(|count| count.parse::<u64>().ok()).sum()
}

fn get(rig: &Masters, node: usize, name: &[u8]) -> Result<Vec<u8>, String> {
    let words: [&[u8]; 3] = [b"CONFIG", b"GET", name];
    let reply = rig.command(node, &words).map_err(|error| error.to_string())?;
    if let RespValue::Array(pair) = &reply
        && let [_, RespValue::Bulk(value)] = pair.as_slice()
    {
        return Ok(value.clone());
    }
    Err(format!("master {node} replies {reply:?} to CONFIG GET"))
}

fn set(rig: &Masters, node: usize, name: &[u8], value: &[u8]) -> Result<(), String> {
    ok(rig, node, &[b"CONFIG", b"SET", name, value])
}

fn ok(rig: &Masters, node: usize, words: &[&[u8]]) -> Result<(), String> {
    match rig.command(node, words).map_err(|error| error.to_string())? {
        RespValue::Status(ok) if ok.starts_with("OK") => Ok(()),
        reply => {
            let words: Vec<_> = words.iter().map(|word| String::from_utf8_lossy(word)).collect();
            Err(format!("master {node} replies {reply:?} to {}", words.join(" ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::mortal;

    #[test]
    fn keys_that_can_be_evicted_are_counted_in_all_databases() {
        assert_eq!(mortal("# Keyspace\r\n"), 0);
        assert_eq!(
            mortal("# Keyspace\r\ndb0:keys=3,expires=2,avg_ttl=5\r\ndb7:keys=1,expires=1"),
            3
        );
    }
}
