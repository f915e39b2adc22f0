//! One run on real parts. All events come through one channel, and the run handles them in the
//! order of arrival. Slow work runs on a thread of its own.
//!
//! This file has the course of a run, from its parts to its history: it starts a process for each
//! client process of the scenario, behind proxies of its own, interprets their messages, and passes
//! orders and events. `inject.rs` carries out faults. The orchestrator makes all decisions.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use std::{fs, io, thread};

use super::inject::{Gates, Injector, Processes};
use super::wire::{Scripts, Tap};
use super::{Backend, Failure, GLANCE, ScenarioRunner, Signal, interrupted};
use crate::process::{ClientProcess, OutputEvent, errors_file};
use crate::{stamp, unpoisoned};
use redquorum_protocol::wire::{RESERVED, is_queue};
use redquorum_rig::network::{Network, Traffic, TrafficEvent};
use redquorum_rig::{Clock, Masters, RespValue, RigError};
use redquorum_scenario::client_protocol::{
    Capability, ClientLine, ClientReply, NODES_VARIABLE, Notice, OPTIONS_VARIABLE, Options,
    PROTOCOL, Request, announced, shown,
};
use redquorum_scenario::history::{Header, History, Ns, Phase, Record, left_of_each};
use redquorum_scenario::name::Name;
use redquorum_scenario::units::nanos;
use redquorum_scenario::{Fault, Scenario, SetsClock};
use redquorum_simulator::orchestrator::{Input, Orchestrator, Order, missing, processes_of};

/// The clock of a run: nanoseconds since its start. Only here do instants and the stamps of clients
/// become times of a history.
pub(super) fn run(
    backend: &Backend,
    scenario: &Scenario,
    seed: u64,
    folder: Option<&Path>,
    progress: &mut dyn FnMut(&str),
) -> Result<History, Failure> {
    let wrong = |what: &str, error: io::Error| Failure::Environment(format!("{what}: {error}"));
    progress("starting masters");
    let cluster = backend.masters(scenario)?;
    let (signals, inbox) = channel();
    let scripts = Arc::new(Scripts::default());
    let started = Arc::new(OnceLock::new());
    let tap = Arc::new(Mutex::new(Tap::new(Arc::clone(&scripts), Arc::clone(&started))));
    let gates = Gates::default();
    let network = Network::start(observer(&signals, &tap, &gates))
        .map_err(|error| wrong("no proxy can be started", error))?;
    for node in 1..=scenario.cluster.nodes {
        network.upstream(node, Some(cluster.address(node)));
    }
    initialize(scenario, &cluster).map_err(Failure::Environment)?;
    progress("starting clients");
    let (processes, client_clocks) =
        clients(backend, scenario, folder, &cluster, &network, &signals)
            .map_err(|error| wrong("no client can be started", error))?;
    let processes = Arc::new(processes);
    let (can, lock) = all_ready(backend.ready_timeout, &inbox, &processes)?;
    if let Some(why) = missing(scenario, &can) {
        return Err(Failure::Skipped(why));
    }
    let orchestrator = Orchestrator::new(Arc::new(scenario.clone()));
    let orchestrator = match backend.answer_timeout {
        Some(answer) => orchestrator.answers_within(answer),
        None => orchestrator,
    };
    if super::needs_syncs(scenario) {
        wait_for_a_second();
    }
    let clock = RunClock::start();
    // Set once, here. From now on, the tap reports traffic.
    let _ = started.set(clock);

    let mut injector = Injector {
        scenario: scenario.clone(),
        cluster: Arc::clone(&cluster),
        network,
        processes: Arc::clone(&processes),
        client_clocks,
        scripts,
        gates,
        clock,
        signals,
        there: BTreeMap::new(),
        lags: BTreeMap::new(),
        clocks: BTreeMap::new(),
    };
    orchestrator.gates().into_iter().for_each(|gate| injector.carry_out(gate));
    let (asked, expected_to_die) = (BTreeMap::new(), BTreeSet::new());
    let mut run = Run { inbox, processes, asked, expected_to_die, clock, orchestrator };
    run.play_with(injector, can, progress)?;
    let header = Header::new(scenario.clone(), seed, backend.backend(), cluster.describe());
    let header = Header { client: backend.client.clone(), lock, ..header };
    Ok(header.with(run.into_records(&mut unpoisoned(&tap))))
}

/// Waits for the next second of the wall clock. Masters with `everysec` sync when the second of
/// their wall clock has changed. If it matters which writes were synced, a run begins at the start
/// of a second, as in the simulation.
fn wait_for_a_second() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let rest =
        Duration::from_secs(1).saturating_sub(Duration::from_nanos(now.subsec_nanos().into()));
    thread::sleep(rest + Duration::from_millis(2));
}

/// The observer of the network's traffic.
fn observer(
    signals: &Sender<Signal>,
    tap: &Arc<Mutex<Tap>>,
    gates: &Gates,
) -> impl FnMut(Traffic) + Send + use<> {
    let (signals, tap, gates) = (signals.clone(), Arc::clone(tap), Arc::clone(gates));
    move |traffic| {
        // The send fails only if the run is over.
        let mut report = |input| drop(signals.send(Signal::Input(input)));
        if let TrafficEvent::Struck { rule, .. } = &traffic.event {
            let gate = unpoisoned(&gates).get(rule).copied();
            if let Some(fault) = gate {
                report(Input::Gated(fault));
            }
        }
        unpoisoned(&tap).passed(traffic, &mut report);
    }
}

/// The state of the run's own thread.
pub(super) struct Run {
    pub(super) inbox: Receiver<Signal>,
    pub(super) processes: Arc<Processes>,
    /// The open requests, with their processes.
    pub(super) asked: BTreeMap<u64, Name>,
    /// The processes that a fault kills.
    expected_to_die: BTreeSet<Name>,
    pub(super) clock: RunClock,
    pub(super) orchestrator: Orchestrator,
}

impl Run {
    /// Plays the run from start to end, with a thread for faults.
    fn play_with(
        &mut self,
        mut injector: Injector,
        can: Capabilities,
        progress: &mut dyn FnMut(&str),
    ) -> Result<(), Failure> {
        let (tasks, todo) = channel();
        let faults = thread::spawn(move || todo.into_iter().for_each(|it| injector.carry_out(it)));
        let played = self.play(can, &tasks, progress);
        // The thread ends with its work, and the network ends with the thread: nothing passes any
        // more.
        drop(tasks);
        if let Err(panic) = faults.join() {
            std::panic::resume_unwind(panic);
        }
        played
    }

    /// All records of the run, including what the tap knows of commands that are still open.
    fn into_records(mut self, tap: &mut Tap) -> Vec<Record> {
        let now = self.clock.now();
        tap.finish(&mut |input| self.orchestrator.handle(now, input, &mut Vec::new()));
        let mut records = self.orchestrator.into_records();
        // Records that arrived while the run ended may be out of order.
        records.sort_by_key(|record| record.ns);
        records
    }

    fn play(
        &mut self,
        can: Capabilities,
        tasks: &Sender<Order>,
        progress: &mut dyn FnMut(&str),
    ) -> Result<(), Failure> {
        let mut phase = None;
        let mut input = Some(Input::Begin(can));
        loop {
            let mut orders = Vec::new();
            if let Some(input) = input.take() {
                self.orchestrator.handle(self.clock.now(), input, &mut orders);
            }
            self.carry_out(orders, tasks);
            if phase != self.orchestrator.phase() {
                phase = self.orchestrator.phase();
                if phase == Some(Phase::End) {
                    return Ok(());
                }
                progress(doing(phase));
            }
            if interrupted() {
                return Err(Failure::Interrupted);
            }
            let now = Instant::now();
            let wake = self.orchestrator.next_wake().map(|at| self.clock.instant(at));
            let until = wake.unwrap_or(now + GLANCE).min(now + GLANCE);
            input = match self.inbox.recv_timeout(until.saturating_duration_since(now)) {
                Ok(Signal::Input(input)) => Some(input),
                Ok(Signal::ReceivedMessage(process, message)) => {
                    self.received(&process, &message.what)
                }
                Err(RecvTimeoutError::Timeout) => Some(Input::Wake),
                Err(RecvTimeoutError::Disconnected) => {
                    unreachable!("the thread of faults lives as long as its tasks")
                }
            };
        }
    }

    fn carry_out(&mut self, orders: Vec<Order>, tasks: &Sender<Order>) {
        for order in orders {
            if let Order::Strike { fault, processes, .. } = &order
                && self.orchestrator.kind(*fault).kills_clients()
            {
                self.expected_to_die.extend(processes.iter().cloned());
            }
            match order {
                Order::Request { process, request } => self.ask(&process, &request),
                Order::Kill { process } => {
                    if let Some(client) = self.processes.get(&process) {
                        // It is equally good if the process is gone already.
                        let _ = unpoisoned(client).kill();
                    }
                }
                // The send fails only if the thread panicked, which shows when it is joined.
                order => drop(tasks.send(order)),
            }
        }
    }

    fn ask(&mut self, process: &Name, request: &Request) {
        let Some(client) = self.processes.get(process) else { return };
        self.asked.insert(request.id, process.clone());
        let line = serde_json::to_string(request).unwrap_or_default();
        // If the client is gone, its last message reports that.
        let _ = unpoisoned(client).send(&line);
    }
}

/// What the run does in a phase, for the terminal.
const fn doing(phase: Option<Phase>) -> &'static str {
    match phase {
        Some(Phase::Run) | None => "running",
        Some(Phase::Heal) => "healing",
        Some(Phase::FinalAcquire) => "a last acquire",
        Some(Phase::Drain) => "looking at what is left",
        Some(Phase::End) => "over",
    }
}

/// What each process can do.
type Capabilities = BTreeMap<Name, Vec<Capability>>;

/// Timeout for a client to become ready.
pub(super) const READY: Duration = Duration::from_secs(10);

/// The wall clocks of client processes that have one of their own.
type Clocks = BTreeMap<Name, Clock>;

/// Starts each process that the scenario names, behind proxies of its own.
pub(super) fn clients(
    backend: &Backend,
    scenario: &Scenario,
    folder: Option<&Path>,
    cluster: &Masters,
    network: &Network,
    signals: &Sender<Signal>,
) -> io::Result<(Processes, Clocks)> {
    let (mut processes, mut clocks) = (BTreeMap::new(), BTreeMap::new());
    for name in scenario.processes() {
        let options = serde_json::to_string(&Options::of(scenario, name))?;
        let mut urls = Vec::new();
        // A client that lists a master under two names gets two addresses for it.
        for node in scenario.list_of(name).addresses() {
            urls.push(format!("redis://{}", network.listen(name, node)?));
        }
        let mut env: Vec<(&str, OsString)> =
            vec![(NODES_VARIABLE, urls.join(",").into()), (OPTIONS_VARIABLE, options.into())];
        if needs_clock(scenario, name) {
            let dir = cluster.dir(1).join(format!("clock-of-{name}"));
            fs::create_dir(&dir)?;
            let clock = Clock::create(&dir).map_err(io::Error::other)?;
            env.extend(clock.env());
            clocks.insert(name.to_owned(), clock);
        }
        let (to, of) = (signals.clone(), name.to_owned());
        let receive = move |message| drop(to.send(Signal::ReceivedMessage(of.clone(), message)));
        let errors = folder.map(|folder| folder.join(errors_file(name)));
        let process = ClientProcess::spawn(&backend.command, env, errors, receive)?;
        processes.insert(name.to_owned(), Mutex::new(process));
    }
    Ok((processes, clocks))
}

/// Sets the boot markers of the masters for guarded clients, so that the clients trust them. Does
/// nothing if the scenario wants the masters new.
fn initialize(scenario: &Scenario, cluster: &Masters) -> Result<(), String> {
    let failed = |node| move |error: RigError| format!("master {node} cannot be marked: {error}");
    if scenario.lock.guard.is_none() || !scenario.lock.initialized {
        return Ok(());
    }
    let nodes = 1..=scenario.cluster.nodes;
    for node in nodes.clone() {
        let info = cluster.info(node, "server").map_err(failed(node))?;
        let run_id = info.lines().find_map(|line| line.trim().strip_prefix("run_id:"));
        let marker = scenario.marker(node, run_id.unwrap_or_default()).unwrap_or_default();
        let set: [&[u8]; 3] = [b"SET", redquorum_protocol::wire::BOOT, marker.as_bytes()];
        cluster.command(node, &set).map_err(failed(node))?;
    }
    // Without this, a replica that is to lag would catch up first, and a fault would strike late.
    for node in nodes.filter(|_| scenario.cluster.replicas) {
        cluster.catch_up(node).map_err(failed(node))?;
    }
    Ok(())
}

/// Whether a fault sets the wall clock of this process.
fn needs_clock(scenario: &Scenario, process: &str) -> bool {
    let sets = |fault: &Fault| {
        fault.kind.row().clock == SetsClock::OfClient
            && processes_of(fault, scenario).iter().any(|hit| hit == process)
    };
    scenario.faults.iter().any(sets)
}

/// Waits for the first message of each client. Returns what each process can do, and the lock that
/// they announce.
fn all_ready(
    timeout: Duration,
    inbox: &Receiver<Signal>,
    processes: &Processes,
) -> Result<(Capabilities, Option<String>), Failure> {
    let until = Instant::now() + timeout;
    let (mut ready, mut lock) = (BTreeMap::new(), None);
    while ready.len() < processes.len() {
        if interrupted() {
            return Err(Failure::Interrupted);
        }
        let signal = match inbox.recv_timeout(GLANCE) {
            Ok(Signal::ReceivedMessage(process, message)) => Some((process, message)),
            _ => None,
        };
        match signal {
            Some((process, message)) => {
                let (can, name) = first_message(&message.what)
                    .map_err(|why| not_ready(processes, &process, &why))?;
                ready.insert(process, can);
                lock = lock.or(name);
            }
            None if Instant::now() >= until => {
                let late = processes.keys().find(|name| !ready.contains_key(*name));
                let late = late.map_or("", Name::as_str);
                let why = format!(
                    "it sends nothing for {} (--ready-timeout)",
                    humantime::format_duration(timeout)
                );
                return Err(not_ready(processes, late, &why));
            }
            None => {}
        }
    }
    Ok((ready, lock))
}

fn not_ready(processes: &Processes, process: &str, why: &str) -> Failure {
    let complaints = processes.get(process).map(|process| unpoisoned(process).complaints());
    let complaints = complaints.filter(|text| !text.is_empty());
    let behind = complaints.map(|text| format!("; it complains:\n{text}")).unwrap_or_default();
    Failure::Environment(format!(
        "the client of process {process} does not get ready: {why} (`client-check` reports what \
         is wrong with a driver){behind}"
    ))
}

/// What a client can do, and its lock, read from its first message.
fn first_message(event: &OutputEvent) -> Result<(Vec<Capability>, Option<String>), String> {
    let line = event.line()?;
    match ClientLine::read(line) {
        Ok(ClientLine::Notice(Notice::Ready { protocol: PROTOCOL, can, name, version })) => {
            Ok((can, announced(name, version)))
        }
        Ok(ClientLine::Notice(Notice::Ready { protocol, .. })) => {
            Err(format!("it has protocol {protocol}, and this harness {PROTOCOL}"))
        }
        Ok(_) => Err(format!("its first line is not `ready` but `{}`", shown(line))),
        Err(why) => Err(format!("its first line is `{}`: {why}", shown(line))),
    }
}

impl Run {
    /// Converts a message of a client process to an input for the orchestrator.
    pub(super) fn received(&mut self, process: &Name, event: &OutputEvent) -> Option<Input> {
        let broken = |why: String| Some(Input::Broken { process: process.clone(), why });
        let line = match event.line() {
            Ok(line) => line,
            Err(_)
                if matches!(event, OutputEvent::Closed(_))
                    && self.expected_to_die.contains(process) =>
            {
                return None;
            }
            Err(why) => return broken(why),
        };
        let line = match ClientLine::read(line) {
            Ok(line) => line,
            Err(why) => return broken(format!("it wrote `{}`: {why}", shown(line))),
        };
        if let ClientLine::Reply(ClientReply { id, .. }) = &line
            && self.asked.remove(id).as_ref() != Some(process)
        {
            return broken(format!(
                "it answered request {id}, which is not open: it was never asked, or is answered \
                 twice"
            ));
        }
        Input::of_client(line, |stamp| self.clock.stamp(stamp))
            .or_else(|| broken("it reported `ready` twice".to_owned()))
    }
}

/// Later than the end of any run.
const FAR: Duration = Duration::from_secs(3600);

/// See the [module](self).
#[derive(Clone, Copy, Debug)]
pub(super) struct RunClock {
    origin: Instant,
    /// `CLOCK_MONOTONIC` at the origin, for the stamps of clients.
    origin_ns: i64,
}

impl RunClock {
    /// Starts the clock of a run.
    ///
    /// Reads both clocks many times and keeps the pair of readings that lie closest together. A
    /// thread that is preempted between two readings therefore does no harm.
    pub(super) fn start() -> Self {
        let read = || {
            let before = stamp::now();
            let origin = Instant::now();
            let apart = stamp::now().saturating_sub(before);
            (apart, Self { origin, origin_ns: before.saturating_add(apart / 2) })
        };
        let mut best = read();
        for _ in 0..50 {
            let next = read();
            if next.0 < best.0 {
                best = next;
            }
        }
        best.1
    }

    pub(super) fn at(&self, instant: Instant) -> Ns {
        match instant.checked_duration_since(self.origin) {
            Some(after) => nanos(after),
            None => -nanos(self.origin.duration_since(instant)),
        }
    }

    pub(super) fn now(&self) -> Ns {
        self.at(Instant::now())
    }

    /// Converts a client's stamp.
    pub(super) fn stamp(&self, monotonic_ns: i64) -> Ns {
        monotonic_ns.saturating_sub(self.origin_ns)
    }

    /// The instant at which the run has this time.
    fn instant(&self, at: Ns) -> Instant {
        let after = Duration::from_nanos(u64::try_from(at).unwrap_or(0));
        self.origin.checked_add(after).unwrap_or_else(|| self.origin + FAR)
    }
}

/// A key on a master, read directly, past the proxies that inject faults. Call this only when no
/// property is checked yet, or any more: a read lets a master notice that a key has expired.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    pub(crate) name: Vec<u8>,
    /// `None`: the value is not a string.
    pub(crate) value: Option<Vec<u8>>,
    /// `None`: the key never expires.
    pub(crate) ttl_ms: Option<u64>,
}

/// The tokens that share a key and are not over, each with the rest of its time: the members of a
/// sorted set, whose scores are their ends by the master's clock. `None`: it is no such set.
fn shared_tokens(members: &RespValue, ttl_ms: Option<u64>) -> Option<Vec<(Vec<u8>, u64)>> {
    let RespValue::Array(members) = members else { return None };
    let (pairs, []) = members.as_chunks() else { return None };
    let ends = pairs.iter().map(|[token, end]| match token {
        RespValue::Bulk(token) => Some((token.clone(), end.text()?.parse().ok()?)),
        _ => None,
    });
    let ends: Vec<(Vec<u8>, u64)> = ends.collect::<Option<_>>()?;
    let ttl_ms = ttl_ms.filter(|_| !ends.is_empty())?;
    Some(left_of_each(ends, ttl_ms).collect())
}

/// All keys of a master, or why the master could not be asked. Leaves out the lock's own keys that
/// stay by design, but not the queues in which its clients wait.
pub(crate) fn keys_of(cluster: &Masters, node: usize) -> Result<Vec<Key>, String> {
    let ask = |words: &[&[u8]]| cluster.command(node, words).map_err(|error| error.to_string());
    let names = match ask(&[b"KEYS", b"*"])? {
        RespValue::Array(names) => names,
        other => return Err(format!("master {node} answers {other:?} to KEYS")),
    };
    let mut keys = Vec::new();
    for name in names {
        let RespValue::Bulk(name) = name else { continue };
        if name.starts_with(RESERVED) && !is_queue(&name) {
            continue;
        }
        let ttl_ms = match ask(&[b"PTTL", &name])? {
            // The key expired after `KEYS`. It may also expire before `GET`.
            RespValue::Integer(-2) => continue,
            RespValue::Integer(ms) => u64::try_from(ms).ok(),
            _ => None,
        };
        let value = match ask(&[b"GET", &name])? {
            RespValue::Bulk(value) => Some(value),
            RespValue::Nil => continue,
            _ if !is_queue(&name) => {
                let members = ask(&[b"ZRANGE", &name, b"0", b"-1", b"WITHSCORES"])?;
                if let Some(tokens) = shared_tokens(&members, ttl_ms) {
                    keys.extend(tokens.into_iter().map(|(token, ttl_ms)| Key {
                        name: name.clone(),
                        value: Some(token),
                        ttl_ms: Some(ttl_ms),
                    }));
                    continue;
                }
                None
            }
            _ => None,
        };
        keys.push(Key { name, value, ttl_ms });
    }
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_that_share_a_key_have_times_of_their_own() {
        let bulk = |text: &str| RespValue::Bulk(text.as_bytes().to_vec());
        let set = |parts: &[&str]| RespValue::Array(parts.iter().map(|part| bulk(part)).collect());
        let left = |parts: &[&str], ttl_ms| {
            let tokens = shared_tokens(&set(parts), ttl_ms)?;
            Some(tokens.into_iter().map(|(_, left)| left).collect::<Vec<_>>())
        };
        // The second token was over before the key was read.
        assert_eq!(
            left(&["a", "5000", "b", "4000", "c", "6000"], Some(1500)),
            Some(vec![500, 1500])
        );
        assert_eq!(left(&["a", "5000"], None), None, "a key without a TTL");
        assert_eq!(left(&["a", "5.5"], Some(100)), None, "scores that are no times");
        assert_eq!(left(&[], Some(100)), None);
        assert_eq!(shared_tokens(&RespValue::Error("WRONGTYPE".to_owned()), Some(100)), None);
    }
}
