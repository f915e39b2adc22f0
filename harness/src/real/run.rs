//! One run on real parts. Everything that happens comes through one channel and is handled in the
//! order in which it came; what takes its time is done on a thread of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use redquorum_rig::network::{Network, Traffic};
use redquorum_rig::{Clock, Cluster};

use super::inject::{Injector, Processes};
use super::tap::{RunClock, Tap};
use super::wire::Scripts;
use super::{Failure, Ground, interrupted};
use crate::director::{Director, Input, Order};
use crate::history::{Header, History, Phase, SCHEMA};
use crate::process::{ClientProcess, Heard, Word};
use crate::scenario::{ClientHarm, Harm, Scenario};
use crate::talk::{
    Can, NODES_VARIABLE, Notice, OPTIONS_VARIABLE, Options, PROTOCOL, Request, Said,
};
use crate::units::millis;

/// How long a client may take to be ready.
const READY: Duration = Duration::from_secs(10);
/// How often it is looked whether Ctrl-C was pressed.
const GLANCE: Duration = Duration::from_millis(50);

/// What comes through the channel.
enum Signal {
    /// A client process said something.
    Heard(String, Heard),
    /// For the director.
    Told(Input),
}

/// What is done on the thread of faults.
enum Task {
    Strike { fault: usize, nodes: Vec<usize>, processes: Vec<String> },
    Cure(usize),
    Open(usize),
    Look,
}

pub(super) fn run(
    ground: &Ground,
    scenario: &Scenario,
    seed: u64,
    progress: &mut dyn FnMut(&str),
) -> Result<History, Failure> {
    let wrong =
        |what: &str, error: std::io::Error| Failure::Environment(format!("{what}: {error}"));
    progress("starting masters");
    let cluster = ground.masters(scenario)?;
    let (signals, inbox) = channel();
    let scripts = Arc::new(Scripts::default());
    let started = Arc::new(OnceLock::new());
    let tap = Arc::new(Mutex::new(Tap::new(Arc::clone(&scripts), Arc::clone(&started))));
    let gates = Arc::default();
    let network = Network::start(observer(&signals, &tap, &gates))
        .map_err(|error| wrong("no proxy can be started", error))?;
    for node in 1..=scenario.cluster.nodes {
        network.upstream(node, Some(cluster.address(node)));
    }
    progress("starting clients");
    let (processes, client_clocks) = clients(ground, scenario, &*cluster, &network, &signals)
        .map_err(|error| wrong("no client can be started", error))?;
    let mut stage = Stage {
        inbox,
        processes: Arc::new(processes),
        asked: BTreeMap::new(),
        expected_to_die: BTreeSet::new(),
        clock: RunClock::start(),
        director: Director::new(scenario),
    };
    let can = stage.all_ready()?;
    if let Some(why) = stage.director.missing(&can) {
        return Err(Failure::Skipped(why));
    }
    stage.clock = RunClock::start();
    let _ = started.set(stage.clock);

    let mut injector = Injector::new(
        scenario,
        Arc::clone(&cluster),
        Arc::new(network),
        Arc::clone(&stage.processes),
        scripts,
        stage.clock,
    );
    injector.client_clocks = client_clocks;
    injector.gates = gates;
    for order in stage.director.gates() {
        if let Order::Gate { fault, process, side, class, number } = order {
            injector.gate(fault, process, side, class, number);
        }
    }
    let (tasks, todo) = channel();
    let faults = thread::spawn(move || work(injector, &todo, &signals));
    let played = stage.play(can, &tasks, progress);
    // The thread ends with its work, and the network with the thread: nothing passes any more.
    drop(tasks);
    if let Err(panic) = faults.join() {
        std::panic::resume_unwind(panic);
    }
    played?;
    let mut tap = tap.lock().unwrap_or_else(PoisonError::into_inner);
    let now = stage.clock.now();
    tap.finish(&mut |input| stage.director.handle(now, input, &mut Vec::new()));
    let mut records = stage.director.into_records();
    // What was told while the run ended may stand behind it.
    records.sort_by_key(|record| record.ns);
    Ok(History {
        header: Header {
            schema: SCHEMA,
            scenario: scenario.clone(),
            seed,
            backend: ground.backend().to_owned(),
            masters: cluster.describe(),
            client: ground.client.clone(),
            harness: env!("CARGO_PKG_VERSION").to_owned(),
        },
        records,
    })
}

/// What the network tells of everything that passes.
fn observer(
    signals: &Sender<Signal>,
    tap: &Arc<Mutex<Tap>>,
    gates: &Arc<Mutex<std::collections::HashMap<redquorum_rig::network::RuleId, usize>>>,
) -> impl FnMut(Traffic) + Send + use<> {
    let (signals, tap, gates) = (signals.clone(), Arc::clone(tap), Arc::clone(gates));
    move |traffic| {
        // Nobody listens any more: the run is over.
        let mut tell = |input| drop(signals.send(Signal::Told(input)));
        if let Traffic::Struck { rule, .. } = &traffic {
            let gate = gates.lock().unwrap_or_else(PoisonError::into_inner).get(rule).copied();
            if let Some(fault) = gate {
                tell(Input::Gated(fault));
            }
        }
        tap.lock().unwrap_or_else(PoisonError::into_inner).passed(traffic, &mut tell);
    }
}

type Clocks = BTreeMap<String, Clock>;

/// Starts a process for each that the scenario names, behind proxies of its own.
fn clients(
    ground: &Ground,
    scenario: &Scenario,
    cluster: &dyn Cluster,
    network: &Network,
    signals: &Sender<Signal>,
) -> std::io::Result<(Processes, Clocks)> {
    let lock = &scenario.lock;
    let options = Options {
        ttl_ms: millis(lock.ttl.0),
        node_timeout_ms: millis(lock.node_timeout.0),
        drift_ppm: lock.drift_ppm,
        drift_ms: millis(lock.drift.0),
        fencing: lock.fencing,
    };
    let options = serde_json::to_string(&options)?;
    let (mut processes, mut clocks) = (BTreeMap::new(), BTreeMap::new());
    let needs_clock = |name: &str| {
        let of_it = |fault: &crate::scenario::Fault| {
            matches!(fault.harm, Harm::Client(ClientHarm::Clock { .. }))
                && crate::director::processes_of(&fault.harm, scenario).iter().any(|p| p == name)
        };
        scenario.faults.iter().any(of_it)
    };
    for name in scenario.processes() {
        let mut urls = Vec::new();
        for node in 1..=scenario.cluster.nodes {
            urls.push(format!("redis://{}", network.listen(name, node)?));
        }
        let mut env: Vec<(&str, OsString)> = vec![
            (NODES_VARIABLE, urls.join(",").into()),
            (OPTIONS_VARIABLE, options.clone().into()),
        ];
        if needs_clock(name) {
            let missing = || std::io::Error::other("the masters have no directory for a clock");
            let dir = cluster.scratch().ok_or_else(missing)?.join(format!("clock-of-{name}"));
            std::fs::create_dir(&dir)?;
            let clock = Clock::create(&dir).map_err(std::io::Error::other)?;
            env.extend(clock.env());
            clocks.insert(name.to_owned(), clock);
        }
        let (to, of) = (signals.clone(), name.to_owned());
        let hear = move |heard| drop(to.send(Signal::Heard(of.clone(), heard)));
        let process = ClientProcess::spawn(&ground.command, env, hear)?;
        processes.insert(name.to_owned(), Mutex::new(process));
    }
    Ok((processes, clocks))
}

/// The thread of faults.
fn work(mut injector: Injector, todo: &Receiver<Task>, signals: &Sender<Signal>) {
    let mut tell = |input| drop(signals.send(Signal::Told(input)));
    for task in todo {
        match task {
            Task::Strike { fault, nodes, processes } => {
                injector.strike(fault, nodes, processes, &mut tell);
            }
            Task::Cure(fault) => injector.cure(fault, &mut tell),
            Task::Open(fault) => injector.open(fault),
            Task::Look => injector.look(&mut tell),
        }
    }
}

/// What the run's own thread has at hand.
struct Stage {
    inbox: Receiver<Signal>,
    processes: Arc<Processes>,
    /// The requests that are open, and whose they are.
    asked: BTreeMap<u64, String>,
    /// The processes that a fault kills.
    expected_to_die: BTreeSet<String>,
    clock: RunClock,
    director: Director,
}

impl Stage {
    /// Waits for the first words of all clients.
    fn all_ready(&mut self) -> Result<BTreeMap<String, Vec<Can>>, Failure> {
        let until = Instant::now() + READY;
        let mut ready = BTreeMap::new();
        while ready.len() < self.processes.len() {
            if interrupted() {
                return Err(Failure::Interrupted);
            }
            let signal = match self.inbox.recv_timeout(GLANCE) {
                Ok(Signal::Heard(process, heard)) => Some((process, heard)),
                _ => None,
            };
            match signal {
                Some((process, heard)) => {
                    let can =
                        first_words(&heard.what).map_err(|why| self.not_ready(&process, &why))?;
                    ready.insert(process, can);
                }
                None if Instant::now() >= until => {
                    let late = self.processes.keys().find(|name| !ready.contains_key(*name));
                    let late = late.cloned().unwrap_or_default();
                    let why = format!("it says nothing for {} s", READY.as_secs());
                    return Err(self.not_ready(&late, &why));
                }
                None => {}
            }
        }
        Ok(ready)
    }

    fn not_ready(&self, process: &str, why: &str) -> Failure {
        let complaints = self
            .processes
            .get(process)
            .map(|process| process.lock().unwrap_or_else(PoisonError::into_inner).complaints());
        let complaints = complaints.filter(|text| !text.is_empty());
        let behind = complaints.map(|text| format!("; it complains:\n{text}")).unwrap_or_default();
        Failure::Environment(format!(
            "the client of process {process} does not get ready: {why} (`client-check` tells what \
             is wrong with a driver){behind}"
        ))
    }

    /// From the beginning to the end.
    fn play(
        &mut self,
        can: BTreeMap<String, Vec<Can>>,
        tasks: &Sender<Task>,
        progress: &mut dyn FnMut(&str),
    ) -> Result<(), Failure> {
        let mut phase = None;
        let mut input = Some(Input::Begin(can));
        loop {
            let mut orders = Vec::new();
            if let Some(input) = input.take() {
                self.director.handle(self.clock.now(), input, &mut orders);
            }
            self.carry_out(orders, tasks);
            if phase != self.director.phase() {
                phase = self.director.phase();
                progress(match phase {
                    Some(Phase::Run) | None => "running",
                    Some(Phase::Heal) => "healing",
                    Some(Phase::Witness) => "a last acquire",
                    Some(Phase::Settle) => "looking at what is left",
                    Some(Phase::End) => return Ok(()),
                });
            }
            if interrupted() {
                return Err(Failure::Interrupted);
            }
            let now = Instant::now();
            let wake = self.director.next_wake().map(|at| self.clock.instant(at));
            let until = wake.unwrap_or(now + GLANCE).min(now + GLANCE);
            input = match self.inbox.recv_timeout(until.saturating_duration_since(now)) {
                Ok(Signal::Told(input)) => Some(input),
                Ok(Signal::Heard(process, heard)) => self.heard(&process, &heard.what),
                Err(RecvTimeoutError::Timeout) => Some(Input::Wake),
                Err(RecvTimeoutError::Disconnected) => {
                    unreachable!("the thread of faults lives as long as its tasks")
                }
            };
        }
    }

    fn carry_out(&mut self, orders: Vec<Order>, tasks: &Sender<Task>) {
        // Its thread is gone only if it panicked, which is seen when it is joined.
        let give = |task| drop(tasks.send(task));
        for order in orders {
            match order {
                Order::Ask { process, request } => self.ask(&process, &request),
                Order::Strike { fault, nodes, processes } => {
                    let harm = self.director.harm(fault);
                    if matches!(harm, Harm::Client(ClientHarm::Kill { .. })) {
                        self.expected_to_die.extend(processes.iter().cloned());
                    }
                    give(Task::Strike { fault, nodes, processes });
                }
                Order::Cure(fault) => give(Task::Cure(fault)),
                Order::Kill { process } => {
                    if let Some(client) = self.processes.get(&process) {
                        // Gone already is as good.
                        let client = client.lock().unwrap_or_else(PoisonError::into_inner);
                        let _ = client.kill();
                    }
                }
                Order::Open(fault) => give(Task::Open(fault)),
                Order::Look => give(Task::Look),
                Order::Gate { .. } => unreachable!("gates are closed before the run"),
            }
        }
    }

    fn ask(&mut self, process: &str, request: &Request) {
        let Some(client) = self.processes.get(process) else { return };
        self.asked.insert(request.id, process.to_owned());
        let line = serde_json::to_string(request).unwrap_or_default();
        // A client that is gone is told of by its last word.
        let _ = client.lock().unwrap_or_else(PoisonError::into_inner).say(&line);
    }

    /// What a client process said, for the director.
    fn heard(&mut self, process: &str, word: &Word) -> Option<Input> {
        let broken = |why: String| Some(Input::Broken { process: process.to_owned(), why });
        let line = match word {
            Word::Line(line) => line,
            Word::TooLong => return broken("it said a line that is longer than 1 MiB".to_owned()),
            Word::NotUtf8 => return broken("it said a line that is not UTF-8".to_owned()),
            Word::Closed(_) if self.expected_to_die.contains(process) => return None,
            Word::Closed(how) => return broken(how.clone()),
        };
        let said = match Said::read(line) {
            Ok(said) => said,
            Err(why) => return broken(format!("it said `{}`: {why}", shortened(line))),
        };
        match said {
            Said::Answer(mut answer) => {
                match self.asked.remove(&answer.id) {
                    Some(asked) if asked == process => {}
                    _ => {
                        let id = answer.id;
                        return broken(format!(
                            "it answered request {id}, which is not open: it was never asked, or \
                             is answered twice"
                        ));
                    }
                }
                for stamp in [&mut answer.from_ns, &mut answer.at_ns, &mut answer.deadline_ns] {
                    *stamp = stamp.map(|stamp| self.clock.stamp(stamp));
                }
                Some(Input::Answered(answer))
            }
            Said::Notice(Notice::Lost { client, resource, at_ns }) => {
                Some(Input::Lost { client, resource, at: self.clock.stamp(at_ns) })
            }
            Said::Notice(Notice::Extended { client, resource, deadline_ns, .. }) => {
                let deadline = self.clock.stamp(deadline_ns);
                Some(Input::Extended { client, resource, deadline })
            }
            Said::Notice(Notice::Ready { .. }) => broken("it said `ready` twice".to_owned()),
        }
    }
}

/// What a client can do, if these are the first words that it should say.
fn first_words(word: &Word) -> Result<Vec<Can>, String> {
    let line = match word {
        Word::Line(line) => line,
        Word::TooLong => return Err("its first line is longer than 1 MiB".to_owned()),
        Word::NotUtf8 => return Err("its first line is not UTF-8".to_owned()),
        Word::Closed(how) => return Err(how.clone()),
    };
    match Said::read(line) {
        Ok(Said::Notice(Notice::Ready { protocol: PROTOCOL, can, .. })) => Ok(can),
        Ok(Said::Notice(Notice::Ready { protocol, .. })) => {
            Err(format!("it speaks protocol {protocol}, and this harness speaks {PROTOCOL}"))
        }
        Ok(_) => Err(format!("its first line is not `ready` but `{}`", shortened(line))),
        Err(why) => Err(format!("its first line is `{}`: {why}", shortened(line))),
    }
}

/// A line for a message.
fn shortened(line: &str) -> String {
    let mut short: String = line.chars().take(80).collect();
    if short.len() < line.len() {
        short.push('…');
    }
    short
}
