//! The backend that runs scenarios, chosen once per invocation: real masters, or the simulation if
//! there are none.
//!
//! `run.rs` is one run: it passes the orchestrator's orders to the parts, and the parts' events to
//! the orchestrator. It gets clients ready, has the time of a run, and looks at the masters when
//! the run is over. `inject.rs` carries out faults. `wire.rs` interprets the traffic on the
//! network, and `script.rs` the scripts of other locks.
//!
//! This module decides nothing, and it checks no property of the lock.

use std::ffi::OsString;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::process::ReceivedMessage;
use clap::ValueEnum;
use redquorum_rig::{Masters, clocks_supported, containers, find_server};
use redquorum_scenario::history::History;
use redquorum_scenario::name::Name;
use redquorum_scenario::{ClientFault, FaultKind, Mutant, NodeFault, Persistence, Scenario};
use redquorum_simulator::orchestrator::Input;

mod inject;
pub(crate) mod run;
mod script;
pub(crate) mod wire;

/// How often the run checks whether Ctrl-C was pressed.
const GLANCE: Duration = Duration::from_millis(50);

/// A message in the channel.
enum Signal {
    /// A message of a client process.
    ReceivedMessage(Name, ReceivedMessage),
    /// An input for the orchestrator.
    Input(Input),
}

/// What runs the masters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum BackendKind {
    /// Containers if an engine answers and they are built in, else processes if there is a server,
    /// else the simulation.
    #[default]
    Auto,
    /// The simulation, in virtual time: the same seed gives the same results, to the byte.
    Sim,
    /// The library itself and models of masters, in virtual time: the same seed gives the same
    /// results.
    Library,
    /// `redis-server` processes.
    Process,
    /// Containers.
    Container,
    /// Every available backend, with a comparison of their verdicts.
    All,
}

/// The options of an invocation.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// The requested backend. [`Backend::prepare`] takes [`BackendKind::All`] for
    /// [`BackendKind::Auto`].
    pub backend: BackendKind,
    /// The shell command of the clients. `None` means the built-in client.
    pub client: Option<String>,
    /// The image of the masters, if they are containers.
    pub image: Option<String>,
    /// How long all clients of a run may take until they are ready. `None` means ten seconds.
    pub ready_timeout: Option<Duration>,
    /// How long a client may take for a reply, in addition to the wait of its request. `None` means
    /// five seconds.
    pub answer_timeout: Option<Duration>,
}

/// Why a scenario did not run to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Failure {
    /// Something is missing on this machine: what, and how to fix it.
    Environment(String),
    /// This backend or client cannot run the scenario: why.
    Skipped(String),
    /// Ctrl-C.
    Interrupted,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Environment(why) | Self::Skipped(why) => f.write_str(why),
            Self::Interrupted => f.write_str("interrupted"),
        }
    }
}

/// A backend that runs scenarios, several of them at once: real masters, the simulation, or a
/// double in tests.
pub trait ScenarioRunner: Sync {
    /// A description of the backend, and why it was chosen.
    fn describe(&self) -> String;

    /// `process`, `container`, ….
    fn backend(&self) -> &str;

    /// Whether this backend can run a scenario.
    ///
    /// # Errors
    ///
    /// Why it cannot.
    fn can(&self, scenario: &Scenario) -> Result<(), String>;

    /// Runs one of a scenario's [runs](Scenario::runs) to its end, and reports its progress. If
    /// there is a folder, the standard error of each client goes to a file there.
    ///
    /// # Errors
    ///
    /// Why it did not run to its end.
    fn run(
        &self,
        scenario: &Scenario,
        seed: u64,
        folder: Option<&Path>,
        progress: &mut dyn FnMut(&str),
    ) -> Result<History, Failure>;

    /// Whether time is virtual. Nothing is late then, and a seed gives the same history each time.
    fn is_virtual(&self) -> bool {
        false
    }

    /// Starts to measure how late this machine runs what is due. The function returns the longest
    /// delay so far. In virtual time nothing is late.
    fn lateness(&self) -> Box<dyn Fn() -> Duration> {
        Box::new(|| Duration::ZERO)
    }
}

/// The backend: runs the masters and the clients.
#[derive(Clone, Debug)]
pub struct Backend {
    /// Neither [`BackendKind::Auto`] nor [`BackendKind::All`].
    kind: BackendKind,
    image: Option<String>,
    why: String,
    client: Option<String>,
    command: Vec<OsString>,
    ready_timeout: Duration,
    answer_timeout: Option<Duration>,
}

impl Backend {
    /// Looks at the environment and chooses a backend.
    ///
    /// # Errors
    ///
    /// [`Failure::Environment`] if the requested backend is missing, or if none is available.
    pub fn prepare(setup: &Setup) -> Result<Self, Failure> {
        let (kind, why) = choose(setup)?;
        let command = match &setup.client {
            // A shell, so that the command works as if typed. `exec` replaces the shell with the
            // client.
            Some(command) => {
                vec!["/bin/sh".into(), "-c".into(), format!("exec {command}").into()]
            }
            None => {
                let own = std::env::current_exe().map_err(|error| {
                    Failure::Environment(format!("this program cannot be found again: {error}"))
                })?;
                vec![own.into(), "client".into()]
            }
        };
        let ready_timeout = setup.ready_timeout.unwrap_or(run::READY);
        let (client, image) = (setup.client.clone(), setup.image.clone());
        let answer_timeout = setup.answer_timeout;
        Ok(Self { kind, image, why, client, command, ready_timeout, answer_timeout })
    }

    /// The same backend with another command for the clients, given word by word.
    #[must_use]
    pub fn with_command(mut self, name: &str, command: Vec<OsString>) -> Self {
        self.client = Some(name.to_owned());
        self.command = command;
        self
    }

    /// All backends that are available here, the simulation first, and why the others are missing.
    pub fn all(setup: &Setup) -> (Vec<Self>, Vec<String>) {
        let (mut backends, mut missing) = (Vec::new(), Vec::new());
        for backend in
            [BackendKind::Sim, BackendKind::Library, BackendKind::Process, BackendKind::Container]
        {
            match Self::prepare(&Setup { backend, ..setup.clone() }) {
                Ok(backend) => backends.push(backend),
                Err(why) => missing.push(why.to_string()),
            }
        }
        (backends, missing)
    }

    /// Starts the masters of a scenario.
    fn masters(&self, scenario: &Scenario) -> Result<Arc<Masters>, Failure> {
        let wrong = |error: redquorum_rig::RigError| Failure::Environment(error.to_string());
        let nodes = scenario.cluster.nodes;
        let (clocks, syncs) = (needs_clocks(scenario), needs_syncs(scenario));
        let replicas = scenario.cluster.replicas;
        let builder = Masters::builder().count(nodes).persistence(scenario.cluster.persistence);
        let builder = match self.kind {
            BackendKind::Container => builder.containers(self.image.as_deref()),
            _ => builder,
        };
        let builder = if clocks { builder.clocks() } else { builder };
        let builder = if syncs { builder.syncs() } else { builder };
        let builder = if replicas { builder.replicas() } else { builder };
        Ok(Arc::new(builder.start().map_err(wrong)?))
    }
}

impl ScenarioRunner for Backend {
    /// `redis-server 7.0.15 (/usr/bin/redis-server), because no container engine answers`.
    fn describe(&self) -> String {
        self.why.clone()
    }

    fn backend(&self) -> &str {
        match self.kind {
            BackendKind::Sim => "sim",
            BackendKind::Library => "library",
            BackendKind::Process => "process",
            BackendKind::Container | BackendKind::Auto | BackendKind::All => "container",
        }
    }

    fn can(&self, scenario: &Scenario) -> Result<(), String> {
        let is_real = !self.is_virtual();
        if is_real && (needs_clocks(scenario) || needs_syncs(scenario)) {
            clocks_supported().map_err(|error| error.to_string())?;
        }
        let unable = |fault: &redquorum_scenario::Fault| match fault.kind {
            FaultKind::Client(ClientFault::Suspend) if is_real => Some(inject::NO_SUSPEND),
            FaultKind::Client(ClientFault::Suspend) if self.kind == BackendKind::Library => {
                Some(NO_OTHER_TIMERS)
            }
            FaultKind::Client(ClientFault::Rate { .. }) if is_real => Some(inject::NO_RATE),
            _ => None,
        };
        let why = scenario.faults.iter().find_map(unable);
        why.map_or(Ok(()), |why| Err(why.to_owned()))
    }

    fn run(
        &self,
        scenario: &Scenario,
        seed: u64,
        folder: Option<&Path>,
        progress: &mut dyn FnMut(&str),
    ) -> Result<History, Failure> {
        self.can(scenario).map_err(Failure::Skipped)?;
        match self.kind {
            BackendKind::Sim => Ok(redquorum_simulator::run(scenario, seed, Mutant::None)),
            BackendKind::Library => Ok(crate::library::run(scenario, seed)),
            _ => run::run(self, scenario, seed, folder, progress),
        }
    }

    fn is_virtual(&self) -> bool {
        matches!(self.kind, BackendKind::Sim | BackendKind::Library)
    }

    fn lateness(&self) -> Box<dyn Fn() -> Duration> {
        if self.is_virtual() {
            return Box::new(|| Duration::ZERO);
        }
        let lateness = Lateness::watch();
        Box::new(move || lateness.worst())
    }
}

/// Why the library in virtual time cannot run a scenario with this fault.
const NO_OTHER_TIMERS: &str = "the library in virtual time has one clock: client.suspend stops its \
                               timers, but not the clock by which it measures leases";

/// Whether a scenario sets a wall clock.
fn needs_clocks(scenario: &Scenario) -> bool {
    scenario.faults.iter().any(|fault| fault.kind.sets_a_wall_clock())
}

/// Whether the run must know which writes the masters synced: a power loss takes all others.
fn needs_syncs(scenario: &Scenario) -> bool {
    let power = |fault: &redquorum_scenario::Fault| {
        matches!(fault.kind, FaultKind::Node(NodeFault::PowerLoss))
    };
    scenario.cluster.persistence == Persistence::AofEverysec && scenario.faults.iter().any(power)
}

fn choose(setup: &Setup) -> Result<(BackendKind, String), Failure> {
    match setup.backend {
        BackendKind::Sim | BackendKind::Library if setup.client.is_some() => {
            Err(Failure::Environment(
                "a client of your own needs real masters: use --backend process or container"
                    .into(),
            ))
        }
        BackendKind::Sim => Ok(simulation("")),
        BackendKind::Library => {
            let what = "the library and a model of Redis, in virtual time";
            Ok((BackendKind::Library, what.to_owned()))
        }
        BackendKind::Process => processes("").map_err(Failure::Environment),
        BackendKind::Container => {
            let what = prepare_containers(setup).map_err(Failure::Environment)?;
            Ok((BackendKind::Container, what))
        }
        BackendKind::Auto | BackendKind::All if cfg!(not(feature = "containers")) => {
            processes_or_simulation(setup, "containers are not built in")
        }
        // The reason why containers are unavailable is reported, even if another backend is
        // available.
        BackendKind::Auto | BackendKind::All => match prepare_containers(setup) {
            Ok(what) => {
                Ok((BackendKind::Container, format!("{what}, because a container engine answers")))
            }
            Err(why) if setup.image.is_some() => Err(Failure::Environment(why)),
            Err(why) => processes_or_simulation(setup, &format!("containers cannot be had: {why}")),
        },
    }
}

/// Finds or pulls the image, and removes the containers that a killed run has left. Returns a
/// description of both.
fn prepare_containers(setup: &Setup) -> Result<String, String> {
    if cfg!(not(feature = "containers")) {
        return Err("masters in containers are not built into this program: use `just chaos`, or \
                    build with `--features containers`"
            .to_owned());
    }
    let what = containers::prepare(setup.image.as_deref()).map_err(|error| error.to_string())?;
    let swept = containers::sweep().map_err(|error| error.to_string())?;
    Ok(match swept.len() {
        0 => what,
        1 => format!("{what}; removed a container that an earlier run had left"),
        many => format!("{what}; removed {many} containers that an earlier run had left"),
    })
}

/// Chooses between processes and the simulation, since containers are unavailable for the reason
/// `why`.
fn processes_or_simulation(setup: &Setup, why: &str) -> Result<(BackendKind, String), Failure> {
    match processes(&format!(", because {why}")) {
        Err(missing) if setup.client.is_none() => {
            Ok(simulation(&format!(", because {why}, and {missing}")))
        }
        found => found.map_err(Failure::Environment),
    }
}

fn simulation(why: &str) -> (BackendKind, String) {
    (BackendKind::Sim, format!("the shipped machines and a model of Redis, in virtual time{why}"))
}

fn processes(why: &str) -> Result<(BackendKind, String), String> {
    let server = find_server().map_err(|error| error.to_string())?;
    Ok((BackendKind::Process, format!("{server}{why}")))
}

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Whether Ctrl-C was pressed. The run then ends in order.
pub fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::Acquire)
}

/// Records that Ctrl-C was pressed.
pub fn interrupt() {
    INTERRUPTED.store(true, Ordering::Release);
}

/// How long the watching thread sleeps each time.
const STEP: Duration = Duration::from_millis(5);

/// Whether this machine ran everything in time during a run: a thread sleeps again and again, and
/// notes how late it wakes up.
///
/// Clients and masters of a run are processes of this machine. The machine may stall for longer
/// than a reply may take, because of other virtual machines or of a build beside the run. Then
/// acquires fail although no fault of the scenario touches them.
struct Lateness {
    state: Arc<State>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct State {
    done: AtomicBool,
    worst_ns: AtomicU64,
}

impl Lateness {
    /// Starts the watching thread.
    fn watch() -> Self {
        let state = Arc::new(State::default());
        let watched = Arc::clone(&state);
        let thread = thread::spawn(move || {
            while !watched.done.load(Ordering::Relaxed) {
                let before = Instant::now();
                thread::sleep(STEP);
                let late = before.elapsed().saturating_sub(STEP).as_nanos();
                watched
                    .worst_ns
                    .fetch_max(u64::try_from(late).unwrap_or(u64::MAX), Ordering::Relaxed);
            }
        });
        Self { state, thread: Some(thread) }
    }

    /// The largest delay so far.
    fn worst(&self) -> Duration {
        Duration::from_nanos(self.state.worst_ns.load(Ordering::Relaxed))
    }
}

impl Drop for Lateness {
    fn drop(&mut self) {
        self.state.done.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // The thread ends within one step.
            drop(thread.join());
        }
    }
}
