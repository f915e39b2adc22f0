//! A run that can stop between two events, be cloned, and get one more fault there. The result is
//! the same as if the scenario had contained the fault from the start. A search uses this to
//! simulate the common part of many fault schedules only once.

use std::sync::Arc;
use std::time::Duration;

use super::process::AnyProcess;
use super::rng::Latency;
use super::world::World;
use crate::orchestrator::Place;
use redquorum_scenario::Mutant;
use redquorum_scenario::history::{History, Phase};
use redquorum_scenario::{EventKind, Fault, Scenario};

/// A run in progress.
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
    pub(super) fn start_in(&mut self, time: Duration) {
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
