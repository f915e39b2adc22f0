//! One run on real parts. All events come through one channel, and the run handles them in the
//! order of arrival. Slow work runs on a thread of its own.
//!
//! This file has the course of a run, from its parts to its history. `start.rs` gets the clients
//! ready, `received.rs` interprets their messages, and `inject.rs` carries out faults. The
//! orchestrator makes all decisions.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use redquorum_rig::network::{Network, Traffic, TrafficEvent};

use super::clock::RunClock;
use super::inject::{Gates, Injector, Processes};
use super::tap::Tap;
use super::wire::Scripts;
use super::{Failure, GLANCE, RealBackend, ScenarioRunner, Signal, interrupted, start};
use crate::mutex::unpoisoned;
use redquorum_scenario::Scenario;
use redquorum_scenario::client_protocol::{Capability, Request};
use redquorum_scenario::history::{Header, History, Phase, Record};
use redquorum_scenario::name::Name;
use redquorum_simulator::orchestrator::{Input, Orchestrator, Order};

/// See the [module](self).
pub(super) fn run(
    ground: &RealBackend,
    scenario: &Scenario,
    seed: u64,
    progress: &mut dyn FnMut(&str),
) -> Result<History, Failure> {
    let wrong = |what: &str, error: io::Error| Failure::Environment(format!("{what}: {error}"));
    progress("starting masters");
    let cluster = ground.masters(scenario)?;
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
    start::initialize(scenario, &cluster).map_err(Failure::Environment)?;
    progress("starting clients");
    let (processes, client_clocks) = start::clients(ground, scenario, &cluster, &network, &signals)
        .map_err(|error| wrong("no client can be started", error))?;
    let processes = Arc::new(processes);
    let can = start::all_ready(ground.ready_timeout, &inbox, &processes)?;
    let orchestrator = Orchestrator::new(Arc::new(scenario.clone()));
    if let Some(why) = orchestrator.missing(&can) {
        return Err(Failure::Skipped(why));
    }
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
    let header = Header::new(scenario.clone(), seed, ground.backend(), cluster.describe());
    let header = Header { client: ground.client.clone(), ..header };
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
    pub(super) expected_to_die: BTreeSet<Name>,
    pub(super) clock: RunClock,
    pub(super) orchestrator: Orchestrator,
}

impl Run {
    /// Plays the run from start to end, with a thread for faults.
    fn play_with(
        &mut self,
        mut injector: Injector,
        can: BTreeMap<Name, Vec<Capability>>,
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
        can: BTreeMap<Name, Vec<Capability>>,
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
