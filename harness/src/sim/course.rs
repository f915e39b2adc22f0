//! A run that can be stopped between two things that happen, cloned, and given one more fault there,
//! as if that had stood in its scenario from the start. A search simulates with it once what many
//! schedules of faults have in common.

use std::sync::Arc;

use super::dice::Latency;
use super::world::{self, World};
use super::{LONGEST, TICK};
use crate::director::Place;
use crate::history::{Header, History, Phase, SCHEMA};
use crate::sabotage::Lie;
use crate::scenario::{Fault, Scenario, Side, What};

/// A run, somewhere on its way.
#[derive(Clone, Debug)]
pub struct Course {
    world: World,
    seed: u64,
    steps: u64,
}

impl Course {
    /// At its very beginning.
    pub fn new(scenario: &Scenario, seed: u64, latency: Latency, lie: Lie) -> Self {
        let mut world = World::new(scenario, seed, latency, lie);
        world.start();
        world.enter(TICK, world::What::Tick);
        Self { world, seed, steps: 0 }
    }

    /// Lets the next thing happen; false if that was all.
    pub fn step(&mut self) -> bool {
        let world = &mut self.world;
        if world.director.phase() == Some(Phase::End) || world.now >= LONGEST {
            return false;
        }
        self.steps += 1;
        if !world.began && world.all_ready() {
            world.begin();
            return true;
        }
        let what = world.next();
        let goes_on = what.is_some();
        what.into_iter().for_each(|what| world.let_happen(what));
        goes_on
    }

    /// How many things have happened.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// What came of it.
    pub fn finish(mut self) -> History {
        self.world.finish();
        let World { director, scenario, lie, .. } = self.world;
        let mut records = director.into_records();
        records.sort_by_key(|record| record.ns);
        let masters = format!("a model of Redis 7.0, {} masters", scenario.cluster.nodes);
        Header {
            schema: SCHEMA,
            scenario: Arc::unwrap_or_clone(scenario),
            seed: self.seed,
            backend: "sim".to_owned(),
            masters,
            client: (lie != Lie::None).then(|| format!("mutant {lie}")),
            harness: env!("CARGO_PKG_VERSION").to_owned(),
        }
        .with(records)
    }

    /// Goes on until all clients are ready and the run is about to begin: no fault of a scenario can
    /// strike earlier. From there on it notes its places.
    pub fn warm_up(&mut self) {
        while !self.world.all_ready() && self.step() {}
        // Of each kind of message one to every master, and the first of those that come next.
        self.note_places(Some(self.world.masters.len() + 1));
    }

    /// Notes no places any more: nothing more can be added.
    pub fn close(&mut self) {
        self.note_places(None);
    }

    fn note_places(&mut self, most: Option<usize>) {
        let most = most.map(|most| u32::try_from(most).unwrap_or(u32::MAX));
        self.world.director.note_places(most);
        self.world.rules.count(most.map(u64::from));
    }

    /// Whether faults can strike: not before the run begins, nor when all is being healed.
    pub fn is_running(&self) -> bool {
        self.world.director.phase() == Some(Phase::Run)
    }

    /// Whether the run has begun.
    pub fn has_begun(&self) -> bool {
        self.world.began
    }

    /// How many places have come.
    pub fn mark(&self) -> Mark {
        Mark(self.world.director.places().len(), self.world.rules.first().len())
    }

    /// The places that have come since then for the first time. A fault that strikes there is added
    /// before.
    pub fn places(&self, since: Mark) -> Vec<Place> {
        let gates = self.world.rules.first()[since.1..].iter().filter_map(|(kind, number)| {
            let (actor, side, class) = *kind;
            let process = &self.world.actors[actor].name;
            let mut clients = self.world.scenario.clients.iter();
            let client = clients.find(|client| client.process() == process)?.id.clone();
            let number = u32::try_from(*number).ok()?;
            let what = match side {
                Side::Reply => What::Reply(number, class),
                Side::Request | Side::Both => What::Request(number, class),
            };
            Some(Place { client, what, before: true })
        });
        let moments = self.world.director.places()[since.0..].iter().cloned();
        moments.chain(gates).collect()
    }

    /// Adds a fault that strikes at a place that has not come yet, or at the start of a run that has
    /// not begun.
    pub fn add(&mut self, fault: Fault) {
        let world = &mut self.world;
        let mut scenario = Scenario::clone(&world.scenario);
        scenario.faults.push(fault);
        let scenario = Arc::new(scenario);
        world.director.add(Arc::clone(&scenario));
        world.scenario = scenario;
        if world.began {
            world.gate_last();
        }
    }
}

/// How many places had come: see [`Course::mark`].
#[derive(Clone, Copy, Debug)]
pub struct Mark(usize, usize);
