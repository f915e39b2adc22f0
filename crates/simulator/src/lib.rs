//! The simulation runs a scenario in virtual time, from one seed, thousands of times faster than on
//! real masters. The client processes drive the shipped machines. Masters, network and clocks are
//! models.
//!
//! Nothing here reads a clock or opens a socket, and every random number comes from the seed. The
//! same seed therefore gives the same history, to the byte. The state of a run can be cloned.
//!
//! Reading order:
//!
//! - [`run`]
//! - `world.rs`: the pending events; pauses and deaths of processes
//! - `client_machine.rs`: a client process as a state machine
//! - the crate `redquorum-redis-model`: the model of Redis
//! - `wires.rs` with `rules.rs`: messages, and the faults of the network
//! - `faults.rs`: how each kind of fault strikes and heals
//! - [`SimulatedProcess`]: what a client process is. The shipped machines, honest or mutant, are
//!   here; the harness has one more kind: the library itself

#![forbid(unsafe_code)]
#![expect(missing_docs, reason = "fields of events, effects and orders are what they are called")]

use std::hash::Hasher;
use std::sync::Arc;
use std::time::Duration;

use client_machine::{Clocks, Honest, InputContext, Process, ProcessEvent};
use orchestrator::Place;
use redquorum_protocol::Time;
use redquorum_scenario::client_protocol::{Capability, Options};
use redquorum_scenario::history::{History, Phase};
use redquorum_scenario::{EventKind, Fault, Mutant, Scenario};
use rustc_hash::FxHasher;
use world::{World, WorldEvent};

pub mod client_machine;
mod faults;
pub mod mutants;
pub mod orchestrator;
mod rng;
mod rules;
mod wires;
pub mod world;

pub use rng::Latency;

/// Tests the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// Latency of a message between the harness and a process, in nanoseconds.
const PIPE: u64 = 30_000;
/// How long the harness takes to carry out a fault, in nanoseconds.
const DOING: u64 = 50_000;
/// How long a master takes to start, in nanoseconds.
const RESTART: u64 = 25_000_000;
/// A resumed master serves all of its connections within this time, in nanoseconds.
const TURN: u64 = 200_000;
/// Interval of the masters' active expiry cycle, in nanoseconds.
const TICK: u64 = 100_000_000;
/// What the wall clocks show at the start: far enough from zero to be set back.
const EPOCH: u64 = 1_000_000_000 * 1_000_000_000;
/// Timeout of a connection attempt, unless the node timeout is longer.
const CONNECT: Duration = Duration::from_secs(1);
/// Number of requests that the handshake has on the wire.
const GREETING: u64 = 4;
/// Upper bound of a run, in virtual nanoseconds. A longer run is a bug in the harness.
const LONGEST: u64 = 3_600 * 1_000_000_000;

/// Runs one of a scenario's [runs](Scenario::runs). With any [`Mutant`] but `None`, the clients are
/// mutants.
pub fn run(scenario: &Scenario, seed: u64, mutant: Mutant) -> History {
    let mut course = Course::new(scenario, seed, Latency::Chance, mutant);
    while course.step() {}
    course.finish()
}

/// Like [`run`] with honest clients, but a master takes this long to start. A container on a busy
/// machine takes much longer than a process.
pub fn run_with_slow_starts(scenario: &Scenario, seed: u64, start: Duration) -> History {
    let mut course = Course::new(scenario, seed, Latency::Chance, Mutant::None);
    course.start_in(start);
    while course.step() {}
    course.finish()
}

/// Runs one of a scenario's [runs](Scenario::runs) with client processes of another kind. The
/// history names them as its `backend`.
pub fn run_with<P: SimulatedProcess>(scenario: &Scenario, seed: u64, backend: &str) -> History {
    let mut world = World::<P>::new(scenario, seed, Latency::Chance, Mutant::None);
    world.start();
    while world.step() {}
    world.into_history(seed, backend)
}

/// Hashes the whole history, to the byte. Two runs of one scenario from one seed have the same
/// hash.
pub fn trace_hash(history: &History) -> u64 {
    let mut bytes = Vec::new();
    if let Err(error) = history.write(&mut bytes) {
        unreachable!("memory takes everything: {error}");
    }
    let mut hash = FxHasher::default();
    hash.write(&bytes);
    hash.finish()
}

impl<P: SimulatedProcess> World<P> {
    /// Begins the run. All clients are ready.
    pub(crate) fn begin(&mut self) {
        self.began = true;
        self.origin = self.now;
        let can = self.actors.iter().map(|actor| (actor.name.clone(), Capability::of_this_lock()));
        let can = can.collect();
        for order in self.orchestrator.gates() {
            self.carry_out(order);
        }
        self.handle_input(crate::orchestrator::Input::Begin(can));
    }

    fn handle(&mut self, what: WorldEvent) {
        match what {
            WorldEvent::AtMaster(id) => self.at_master(id),
            WorldEvent::Serve(node, connection) => self.serve(node, connection),
            WorldEvent::Hangup(id) => self.hang_up(id),
            WorldEvent::AtClient(id) => self.at_client(id),
            WorldEvent::Ended(id, why) => self.ended(id, why),
            WorldEvent::Connect(id) => self.connect(id),
            WorldEvent::GiveUp(id) => self.give_up(id),
            WorldEvent::AtProcess(actor) => {
                if let Some(request) = self.actors[actor].asked.pop_front() {
                    self.happen(actor, crate::client_machine::ProcessEvent::Requested(request));
                }
            }
            WorldEvent::Wake(actor) => self.wake(actor),
            WorldEvent::Tell => {
                if let Some(input) = self.inputs.pop_front() {
                    self.handle_input(input);
                }
            }
            WorldEvent::Gated(fault) => self.handle_input(crate::orchestrator::Input::Gated(fault)),
            WorldEvent::Direct => {
                if self.now >= self.direct_at {
                    self.direct_at = u64::MAX;
                    self.handle_input(crate::orchestrator::Input::Wake);
                }
            }
            WorldEvent::Do(order) => self.do_order(*order),
            WorldEvent::Up(up) => self.up(&up),
            WorldEvent::Tick => {
                self.tick();
                self.enter(self.now + TICK, WorldEvent::Tick);
            }
        }
    }
}

/// A run that can stop between two events, be cloned, and get one more fault there. The result is
/// the same as if the scenario had contained the fault from the start. A search uses this to
/// simulate the common part of many fault schedules only once.
#[derive(Clone, Debug)]
pub struct Course {
    world: World<AnyProcess>,
    seed: u64,
    steps: u64,
}

impl Course {
    /// Creates a run at its very beginning.
    pub fn new(scenario: &Scenario, seed: u64, latency: Latency, mutant: Mutant) -> Self {
        let mut world = World::new(scenario, seed, latency, mutant);
        world.start();
        Self { world, seed, steps: 0 }
    }

    /// Sets how long a master takes to start.
    fn start_in(&mut self, time: Duration) {
        self.world.restart = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    }

    /// Handles the next event. Returns `false` if there is none.
    pub fn step(&mut self) -> bool {
        let goes_on = self.world.step();
        self.steps += u64::from(goes_on);
        goes_on
    }

    /// How many events have been handled.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Ends the run and returns its history.
    pub fn finish(self) -> History {
        self.world.into_history(self.seed, "sim")
    }

    /// Advances until all clients are ready and the run is about to begin. No fault of a scenario
    /// can strike earlier. From there on, the run notes its places.
    pub fn warm_up(&mut self) {
        while !self.world.all_ready() && self.step() {}
        // Of each kind of message: one to every master, and the first of the next ones.
        self.note_places(Some(self.world.masters.len() + 1));
    }

    /// Stops noting places: no fault can be added any more.
    pub fn close(&mut self) {
        self.note_places(None);
    }

    fn note_places(&mut self, most: Option<usize>) {
        let most = most.map(|most| u32::try_from(most).unwrap_or(u32::MAX));
        self.world.orchestrator.note_places(most);
        self.world.rules.count(most);
    }

    /// Whether faults can strike: the run has begun, and the harness is not healing all faults yet.
    pub fn is_running(&self) -> bool {
        self.world.orchestrator.phase() == Some(Phase::Run)
    }

    /// Whether the run has begun.
    pub fn has_begun(&self) -> bool {
        self.world.began
    }

    /// Marks how many places have come.
    pub fn mark(&self) -> Mark {
        Mark(self.world.orchestrator.places().len(), self.world.rules.first().len())
    }

    /// The places that have come for the first time since the mark. An added fault strikes before
    /// its place.
    pub fn places(&self, since: Mark) -> Vec<Place> {
        let gates = self.world.rules.first()[since.1..].iter().filter_map(|(kind, number)| {
            let (actor, side, class) = *kind;
            let process = &self.world.actors[actor].name;
            let mut clients = self.world.scenario.clients.iter();
            let client = clients.find(|client| client.process() == process)?.id.clone();
            let what = EventKind::of_message(side, *number, class);
            Some(Place { client, what, before: true })
        });
        let moments = self.world.orchestrator.places()[since.0..].iter().cloned();
        moments.chain(gates).collect()
    }

    /// Adds a fault. It strikes at a place that has not come yet, or at the start of a run that has
    /// not begun.
    pub fn add(&mut self, fault: Fault) {
        let world = &mut self.world;
        let mut scenario = Scenario::clone(&world.scenario);
        scenario.faults.push(fault);
        let scenario = Arc::new(scenario);
        world.orchestrator.add(Arc::clone(&scenario));
        world.scenario = scenario;
        if world.began {
            world.gate_last();
        }
    }
}

/// How many places had come: see [`Course::mark`].
#[derive(Clone, Copy, Debug)]
pub struct Mark(usize, usize);

/// A client process: gets events and returns effects, and reads no clock.
pub trait SimulatedProcess {
    /// Starts a process with so many masters, which it dials.
    fn start(
        options: Options,
        nodes: usize,
        mutant: Mutant,
        context: &mut InputContext<'_>,
    ) -> Self;

    /// Whether the process has tried every master.
    fn is_ready(&self) -> bool;

    /// Handles an event and adds its effects.
    fn handle(&mut self, event: ProcessEvent, context: &mut InputContext<'_>);

    /// When to report [`ProcessEvent::Wake`], by the monotonic clock.
    fn next_wake(&self, clocks: Clocks) -> Time;
}

/// The shipped machines, honest or mutant.
#[derive(Clone, Debug)]
pub enum AnyProcess {
    Honest(Process<Honest>),
    Mutant(Process<Mutant>),
}

impl SimulatedProcess for AnyProcess {
    fn start(
        options: Options,
        nodes: usize,
        mutant: Mutant,
        context: &mut InputContext<'_>,
    ) -> Self {
        match mutant {
            Mutant::None => Self::Honest(Process::start(options, nodes, Honest, context)),
            mutant => Self::Mutant(Process::start(options, nodes, mutant, context)),
        }
    }

    fn is_ready(&self) -> bool {
        match self {
            Self::Honest(process) => process.is_ready(),
            Self::Mutant(process) => process.is_ready(),
        }
    }

    fn handle(&mut self, event: ProcessEvent, context: &mut InputContext<'_>) {
        match self {
            Self::Honest(process) => process.handle(event, context),
            Self::Mutant(process) => process.handle(event, context),
        }
    }

    fn next_wake(&self, clocks: Clocks) -> Time {
        match self {
            Self::Honest(process) => process.next_wake(clocks),
            Self::Mutant(process) => process.next_wake(clocks),
        }
    }
}
