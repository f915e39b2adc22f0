//! The ground that scenarios are run on, chosen once per invocation: real masters, or the simulation
//! where there are none.
//!
//! `run.rs` is one run: it moves what the director says to the parts, and what the parts say to
//! the director. `start.rs` gets clients ready, `heard.rs` understands them; `inject.rs` carries out
//! faults; `tap.rs` and `wire.rs` make sense of what passes on the network; `clock.rs` is the time of
//! a run, `keys.rs` looks at masters when it is over. Nothing is decided here, and nothing judged.

use std::ffi::OsString;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redquorum_rig::{Cluster, Masters, clocks_supported, find_server};

use crate::history::History;
use crate::sabotage::Lie;
use crate::scenario::{ClientHarm, Harm, NodeHarm, Persistence, Scenario};
use crate::sim;

mod clock;
mod heard;
mod inject;
pub(crate) mod keys;
pub(crate) mod lateness;
mod run;
mod start;
mod tap;
mod wire;

/// What the masters are to be run by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// Containers if they are built in and an engine answers, else processes if there is a server,
    /// else the simulation.
    #[default]
    Auto,
    /// The simulation, in virtual time.
    Sim,
    /// `redis-server` processes.
    Process,
    /// Containers.
    Container,
}

/// What an invocation asks for.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// What the masters are to be run by.
    pub choice: Choice,
    /// The command of the clients, for a shell; none: the built-in one.
    pub client: Option<String>,
    /// The image of the masters, if they are containers.
    pub image: Option<String>,
}

/// Why a scenario was not run to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Failure {
    /// Something is missing here: what, and what to do.
    Environment(String),
    /// It cannot be run on this ground or with this client, and why.
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

/// What runs the masters and the clients.
#[derive(Clone, Debug)]
pub struct Ground {
    kind: Kind,
    why: String,
    client: Option<String>,
    command: Vec<OsString>,
}

#[derive(Clone, Debug)]
enum Kind {
    Sim,
    Process,
    #[cfg(feature = "containers")]
    Container {
        image: Option<String>,
    },
}

impl Ground {
    /// Looks at what there is, and chooses.
    ///
    /// # Errors
    /// [`Failure::Environment`]: what was asked for is not there, or nothing is.
    pub fn prepare(setup: &Setup) -> Result<Self, Failure> {
        let (kind, why) = choose(setup)?;
        let command = match &setup.client {
            // A shell, so that what a person would type works; its place is taken by the client.
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
        Ok(Self { kind, why, client: setup.client.clone(), command })
    }

    /// The same ground with another command for the clients, word by word.
    #[must_use]
    pub fn with_command(mut self, name: &str, command: Vec<OsString>) -> Self {
        self.client = Some(name.to_owned());
        self.command = command;
        self
    }

    /// What it is and why: `redis-server 7.0.15 (/usr/bin/redis-server), because no container
    /// engine answers`.
    pub fn describe(&self) -> String {
        self.why.clone()
    }

    /// All grounds that are at hand here, the simulation first; and why the others are not.
    pub fn all(setup: &Setup) -> (Vec<Self>, Vec<String>) {
        let (mut grounds, mut missing) = (Vec::new(), Vec::new());
        for choice in [Choice::Sim, Choice::Process, Choice::Container] {
            match Self::prepare(&Setup { choice, ..setup.clone() }) {
                Ok(ground) => grounds.push(ground),
                Err(why) => missing.push(why.to_string()),
            }
        }
        (grounds, missing)
    }

    /// `sim`, `process` or `container`.
    pub fn backend(&self) -> &'static str {
        match self.kind {
            Kind::Sim => "sim",
            Kind::Process => "process",
            #[cfg(feature = "containers")]
            Kind::Container { .. } => "container",
        }
    }

    /// Whether a scenario can be run here.
    ///
    /// # Errors
    /// Why not.
    pub fn can(&self, scenario: &Scenario) -> Result<(), String> {
        if !matches!(self.kind, Kind::Sim) && (needs_clocks(scenario) || needs_syncs(scenario)) {
            clocks_supported().map_err(|error| error.to_string())?;
        }
        let unable = |fault: &crate::scenario::Fault| match fault.harm {
            Harm::Client(ClientHarm::Suspend { .. }) => Some(inject::NO_SUSPEND),
            Harm::Client(ClientHarm::Rate { .. }) => Some(inject::NO_RATE),
            _ => None,
        };
        let is_sim = matches!(self.kind, Kind::Sim);
        match scenario.faults.iter().filter(|_| !is_sim).find_map(unable) {
            Some(why) => Err(why.to_owned()),
            None => Ok(()),
        }
    }

    /// Runs one of a scenario's [runs](Scenario::runs) to its end.
    ///
    /// # Errors
    /// See [`Failure`].
    pub fn run(
        &self,
        scenario: &Scenario,
        seed: u64,
        progress: &mut dyn FnMut(&str),
    ) -> Result<History, Failure> {
        self.can(scenario).map_err(Failure::Skipped)?;
        match self.kind {
            Kind::Sim => Ok(sim::run(scenario, seed, Lie::None)),
            _ => run::run(self, scenario, seed, progress),
        }
    }

    /// Starts the masters of a scenario.
    fn masters(&self, scenario: &Scenario) -> Result<Arc<dyn Cluster>, Failure> {
        let wrong = |error: redquorum_rig::RigError| Failure::Environment(error.to_string());
        let nodes = scenario.cluster.nodes;
        let persistence = match scenario.cluster.persistence {
            Persistence::None => redquorum_rig::Persistence::None,
            Persistence::AofEverysec => redquorum_rig::Persistence::AofEverysec,
            Persistence::AofAlways => redquorum_rig::Persistence::AofAlways,
        };
        let (clocks, syncs) = (needs_clocks(scenario), needs_syncs(scenario));
        let replicas = scenario.cluster.replicas;
        match &self.kind {
            Kind::Sim => unreachable!("a simulation starts no masters"),
            Kind::Process => {
                let builder = Masters::builder().count(nodes).persistence(persistence);
                let builder = if clocks { builder.clocks() } else { builder };
                let builder = if syncs { builder.syncs() } else { builder };
                let builder = if replicas { builder.replicas() } else { builder };
                Ok(Arc::new(builder.start().map_err(wrong)?))
            }
            #[cfg(feature = "containers")]
            Kind::Container { image } => {
                let builder = redquorum_rig::Containers::builder();
                let builder = builder.count(nodes).persistence(persistence);
                let builder = if clocks { builder.clocks() } else { builder };
                let builder = if syncs { builder.syncs() } else { builder };
                let builder = if replicas { builder.replicas() } else { builder };
                let builder = match image {
                    Some(image) => builder.image(image),
                    None => builder,
                };
                Ok(Arc::new(builder.start().map_err(wrong)?))
            }
        }
    }
}

/// Whether a scenario sets anybody's wall clock.
fn needs_clocks(scenario: &Scenario) -> bool {
    scenario.faults.iter().any(|fault| fault.harm.sets_a_clock())
}

/// Whether it must be known what masters synced: where a loss of power takes the rest.
fn needs_syncs(scenario: &Scenario) -> bool {
    let power = |fault: &crate::scenario::Fault| {
        matches!(fault.harm, Harm::Node(NodeHarm::PowerLoss { .. }))
    };
    scenario.cluster.persistence == Persistence::AofEverysec && scenario.faults.iter().any(power)
}

#[cfg(not(feature = "containers"))]
fn choose(setup: &Setup) -> Result<(Kind, String), Failure> {
    if setup.choice == Choice::Container {
        return Err(Failure::Environment(
            "masters in containers are not built into this program: use `just chaos`, or build \
             with `--features containers`"
                .to_owned(),
        ));
    }
    match setup.choice {
        Choice::Sim => simulation(setup, ""),
        Choice::Auto => processes_or_simulation(setup, "containers are not built in"),
        _ => processes(""),
    }
}

#[cfg(feature = "containers")]
fn choose(setup: &Setup) -> Result<(Kind, String), Failure> {
    let containers = || {
        let builder = redquorum_rig::Containers::builder();
        let builder = match &setup.image {
            Some(image) => builder.image(image),
            None => builder,
        };
        let what = builder.prepare().map_err(|error| error.to_string())?;
        // What a run that was killed has left with the engine is removed now, and told.
        let swept = redquorum_rig::Containers::sweep().map_err(|error| error.to_string())?;
        Ok::<_, String>(match swept.len() {
            0 => what,
            1 => format!("{what}; removed a container that an earlier run had left"),
            many => format!("{what}; removed {many} containers that an earlier run had left"),
        })
    };
    let image = setup.image.clone();
    match setup.choice {
        Choice::Sim => simulation(setup, ""),
        Choice::Process => processes(""),
        Choice::Container => {
            containers().map(|what| (Kind::Container { image }, what)).map_err(Failure::Environment)
        }
        // What keeps containers from being used is told, also where there is something else.
        Choice::Auto => match containers() {
            Ok(what) => {
                let why = format!("{what}, because a container engine answers");
                Ok((Kind::Container { image }, why))
            }
            Err(why) if setup.image.is_some() => Err(Failure::Environment(why)),
            Err(why) => processes_or_simulation(setup, &format!("containers cannot be had: {why}")),
        },
    }
}

/// Without containers, and why.
fn processes_or_simulation(setup: &Setup, why: &str) -> Result<(Kind, String), Failure> {
    match processes(&format!(", because {why}")) {
        Err(missing) if setup.client.is_none() => {
            simulation(setup, &format!(", because {why}, and {missing}"))
        }
        found => found,
    }
}

fn simulation(setup: &Setup, why: &str) -> Result<(Kind, String), Failure> {
    if setup.client.is_some() {
        return Err(Failure::Environment(
            "a client of your own needs real masters: use --backend process or container"
                .to_owned(),
        ));
    }
    Ok((Kind::Sim, format!("the shipped machines and a model of Redis, in virtual time{why}")))
}

fn processes(why: &str) -> Result<(Kind, String), Failure> {
    match find_server() {
        Ok(server) => Ok((Kind::Process, format!("{server}{why}"))),
        Err(error) => Err(Failure::Environment(error.to_string())),
    }
}

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Whether Ctrl-C was pressed: what is under way is to be ended in order.
pub fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::Acquire)
}

/// Says that it was.
pub fn interrupt() {
    INTERRUPTED.store(true, Ordering::Release);
}
