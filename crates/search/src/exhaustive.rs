//! Exhaustive search: all schedules of up to a given number of faults, on a few base scenarios,
//! from a vocabulary of faults and places. The finds are scenarios, which run on any backend.
//!
//! The walk through the schedules is depth first. The search simulates a run up to the place where
//! the next fault strikes, clones it there, and continues with the fault. `base_scenarios.rs`
//! defines the scenarios that are played, and the faults that can occur in them, `tally.rs` the
//! meaning of a run and the counts, `table.rs` the tables. Nothing here is random: the result is
//! the same each time, on any number of threads.

use std::collections::BTreeMap;

use super::in_parallel;
use redquorum_scenario::history::History;
use redquorum_scenario::{Fault, FaultTime, Mutant, OnMaster};
use redquorum_simulator::orchestrator::Place;
use redquorum_simulator::{Course, Latency};

mod base_scenarios;
mod table;
mod tally;
#[cfg(test)]
mod tests;

pub use base_scenarios::{BaseScenario, Symmetry, base_scenarios, vocabulary};
pub use table::{Row, defences, listing, protection, table};
pub use tally::{Broken, Class, FailedSchedule, Family, Found, Tally};

/// The search space.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The base scenarios.
    pub bases: Vec<BaseScenario>,
    /// The largest number of faults in a schedule.
    pub faults: usize,
    /// Whether masters that are alike are distinguished.
    pub symmetry: Symmetry,
    /// The mutation of the clients.
    pub mutant: Mutant,
    /// The number of threads.
    pub threads: usize,
}

impl Plan {
    /// All base scenarios for this number of masters.
    pub fn new(nodes: usize, faults: usize) -> Self {
        let (bases, symmetry) = (base_scenarios(nodes), Symmetry::Folded);
        Self { bases, faults, symmetry, mutant: Mutant::None, threads: 1 }
    }

    /// The same base scenarios and faults, with every defence of the lock switched on.
    #[must_use]
    pub fn defended(self) -> Self {
        Self { bases: self.bases.into_iter().map(BaseScenario::defended).collect(), ..self }
    }

    /// Runs all schedules. `go_on` receives the number of finished parts and the number of all
    /// parts, and returns whether to continue. Parts that are not done by then count as cut.
    pub fn search(&self, go_on: &(dyn Fn(usize, usize) -> bool + Sync)) -> Tally {
        let spaces: Vec<SearchSpace> = self
            .bases
            .iter()
            .map(|base| SearchSpace {
                base: base.clone(),
                vocabulary: vocabulary(base, self.symmetry),
            })
            .collect();
        let mut tally = Tally::default();
        let mut work: Vec<(&SearchSpace, Start)> = Vec::new();
        for space in &spaces {
            let starts = space.starts(self.mutant, &mut |faults: &[usize], history: &History| {
                tally.add(space, faults, history);
            });
            if self.faults > 0 {
                work.extend(starts.into_iter().map(|start| (space, start)));
            }
        }
        tally.parts = work.len();
        let mut parts = BTreeMap::new();
        let walk = |number: u64| {
            let (space, start) = &work[usize::try_from(number).unwrap_or(usize::MAX)];
            let mut part = Tally::default();
            space.walk(start, self.faults, &mut |faults: &[usize], history: &History| {
                part.add(space, faults, history);
            });
            part
        };
        in_parallel(self.threads, work.len() as u64, walk, |number, part| {
            parts.insert(number, part);
            go_on(parts.len(), work.len())
        });
        tally.cut = work.len() - parts.len();
        // In the order of the parts, not in the order in which threads finished them.
        parts.into_values().for_each(|part| tally.append(part));
        tally
    }
}

/// The seed of the random choices: tokens, and the jitter of pauses.
pub const SEED: u64 = 1;

/// A base scenario and its vocabulary.
struct SearchSpace {
    base: BaseScenario,
    vocabulary: Vec<Fault>,
}

/// A run up to the place of one fault.
struct Start {
    course: Course,
    fault: usize,
}

/// Receives each schedule: its faults, by their index in the vocabulary, and the history of its
/// run.
trait Each: FnMut(&[usize], &History) {}

impl<T: FnMut(&[usize], &History)> Each for T {}

/// A schedule whose run is in progress.
struct Branch {
    course: Course,
    /// The step before which its last fault was added.
    since: u64,
    faults: Vec<usize>,
}

impl SearchSpace {
    /// Plays the run without a fault, and returns the places where the first fault can be added.
    fn starts(&self, mutant: Mutant, each: &mut impl Each) -> Vec<Start> {
        let mut course = Course::new(&self.base.scenario, SEED, Latency::Even, mutant);
        course.warm_up();
        let (history, next) = self.play(&course);
        if self.is_its_own(&[]) {
            each(&[], &history);
        }
        let mut starts = Vec::new();
        for (step, fault) in next {
            go_to(&mut course, step);
            starts.push(Start { course: course.clone(), fault });
        }
        starts
    }

    /// All schedules of up to `depth` faults that begin with this one.
    fn walk(&self, start: &Start, depth: usize, each: &mut impl Each) {
        self.branch(&start.course, &[], start.fault, depth, each);
    }

    fn branch(
        &self,
        course: &Course,
        before: &[usize],
        fault: usize,
        depth: usize,
        each: &mut impl Each,
    ) {
        let faults: Vec<usize> = before.iter().copied().chain([fault]).collect();
        let (counts, last) = (self.is_its_own(&faults), faults.len() == depth);
        if last && !counts {
            return;
        }
        let mut course = course.clone();
        let since = course.steps();
        course.add(self.vocabulary[fault].clone());
        if last {
            course.close();
            while course.step() {}
            return each(&faults, &course.finish());
        }
        let (history, next) = self.play(&course);
        if counts {
            each(&faults, &history);
        }
        self.go_on(Branch { course, since, faults }, next, depth, each);
    }

    fn go_on(&self, branch: Branch, next: Vec<(u64, usize)>, depth: usize, each: &mut impl Each) {
        let Branch { mut course, since, faults } = branch;
        for (step, fault) in next {
            // Two faults at one place are added in the order of the vocabulary.
            if step == since && faults.last().is_some_and(|last| fault <= *last) {
                continue;
            }
            // A master has one replica to fail over to. The vocabulary determines which masters one
            // fault hits.
            if self.fails_over(fault) && faults.iter().any(|before| self.fails_over(*before)) {
                continue;
            }
            go_to(&mut course, step);
            self.branch(&course, &faults, fault, depth, each);
        }
    }

    /// Plays a run to its end, and returns where one more fault can be added: the step that it must
    /// precede, and the fault.
    fn play(&self, course: &Course) -> (History, Vec<(u64, usize)>) {
        let mut course = course.clone();
        let mut next = Vec::new();
        if !course.has_begun() {
            let from_the_start =
                (0..self.vocabulary.len()).filter(|fault| self.is_there_from_the_start(*fault));
            next.extend(from_the_start.map(|fault| (course.steps(), fault)));
        }
        let mut mark = course.mark();
        loop {
            let step = course.steps();
            let goes_on = course.step();
            // Once the run heals all faults, no further fault strikes.
            if course.is_running() {
                let from = next.len();
                for place in course.places(mark) {
                    next.extend(self.at(&place).map(|fault| (step, fault)));
                }
                next[from..].sort_unstable();
                mark = course.mark();
            }
            if !goes_on {
                return (course.finish(), next);
            }
        }
    }

    fn is_its_own(&self, faults: &[usize]) -> bool {
        self.base.is_its_own(faults.iter().map(|fault| &self.vocabulary[*fault]))
    }

    fn fails_over(&self, fault: usize) -> bool {
        self.vocabulary[fault].kind.row().master == OnMaster::FailsOver
    }

    fn is_there_from_the_start(&self, fault: usize) -> bool {
        matches!(self.vocabulary[fault].when, FaultTime::At(_))
    }

    /// The faults that strike at this place.
    fn at(&self, place: &Place) -> impl Iterator<Item = usize> {
        let is = |(_, fault): &(usize, &Fault)| match &fault.when {
            FaultTime::At(_) => false,
            FaultTime::After(moment) => !place.before && moment.is_at(&place.client, &place.what),
            FaultTime::Before(moment) => place.before && moment.is_at(&place.client, &place.what),
        };
        self.vocabulary.iter().enumerate().filter(is).map(|(fault, _)| fault)
    }
}

fn go_to(course: &mut Course, step: u64) {
    while course.steps() < step && course.step() {}
}
