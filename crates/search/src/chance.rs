//! Random search: runs random scenarios on all cores, up to a number of runs or until the caller
//! stops it.
//!
//! Each run has a number. Its scenario, its random choices and therefore its result follow from
//! that number alone. The report does not depend on the order of runs: it keeps the least number
//! that showed each [`Kind`], and how often the search saw each kind and each [`Goal`]. So the same
//! seed and number of runs give the same report on any number of threads. `goals.rs` lists the
//! situations that a search should reach.

use std::collections::BTreeMap;
use std::time::Duration;

use super::plan::Space;
use super::{Found, Kind, in_parallel, kinds};
use redquorum_scenario::history::History;
use redquorum_scenario::{Mutant, Scenario};

mod goals;
#[cfg(test)]
mod tests;

pub use goals::Goal;

/// The number of runs that a thread takes at a time.
const BATCH: u64 = 32;

/// What to run.
#[derive(Clone, Copy, Debug)]
pub struct Search {
    /// The space from which scenarios are drawn.
    pub space: Space,
    /// The number of the first run. Each run has the next number.
    pub seed: u64,
    /// The largest number of runs.
    pub runs: u64,
    /// Whether the clients are mutants, and which one.
    pub mutant: Mutant,
    /// Plays a run: [`redquorum_simulator::run`], or with clients of another kind.
    pub play: Play,
    /// The number of threads.
    pub jobs: usize,
}

/// Plays a run of a scenario from a seed, with the clients of a kind.
pub type Play = fn(&Scenario, u64, Mutant) -> History;

/// What the search saw.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The number of runs.
    pub runs: u64,
    /// The number of events in all runs, as a measure of their size.
    pub events: u64,
    /// The virtual time of all runs together.
    pub passed: Duration,
    /// Every kind of failure.
    pub kinds: BTreeMap<Kind, Sight>,
    /// The number of runs that reached each goal.
    pub goals: BTreeMap<Goal, u64>,
}

/// What the search saw of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sight {
    /// The least number of a run that showed it.
    pub first: u64,
    /// The number of runs that showed it.
    pub runs: u64,
}

impl Report {
    /// The goals that no run has reached, with the `library` or with the machines.
    pub fn missed(&self, library: bool) -> impl Iterator<Item = Goal> {
        Goal::all(library).filter(|goal| !self.goals.contains_key(goal))
    }

    fn add(&mut self, other: &Self) {
        self.runs += other.runs;
        self.events += other.events;
        self.passed = self.passed.saturating_add(other.passed);
        for (kind, sight) in &other.kinds {
            let of = self.kinds.entry(kind.clone()).or_insert(Sight { runs: 0, ..*sight });
            of.first = of.first.min(sight.first);
            of.runs += sight.runs;
        }
        for (goal, runs) in &other.goals {
            *self.goals.entry(*goal).or_default() += runs;
        }
    }
}

impl Search {
    /// Runs the search. Each thread in turn passes the report so far to `go_on`, which returns
    /// whether to continue.
    pub fn run(&self, go_on: &(dyn Fn(&Report) -> bool + Sync)) -> Report {
        let batch = |batch: u64| {
            let mut own = Report::default();
            for index in batch * BATCH..self.runs.min((batch + 1) * BATCH) {
                self.one(self.seed.wrapping_add(index), &mut own);
            }
            own
        };
        let mut report = Report::default();
        in_parallel(self.jobs, self.runs.div_ceil(BATCH), batch, |_, own| {
            report.add(&own);
            go_on(&report)
        });
        report
    }

    /// Executes the run of a number.
    fn one(&self, number: u64, report: &mut Report) {
        let history = self.history(number);
        let (verdict, goals) = goals::checked(&history);
        report.runs += 1;
        report.events += u64::try_from(history.records.len()).unwrap_or(u64::MAX);
        report.passed = report.passed.saturating_add(history.length().unwrap_or_default());
        for kind in kinds(&history.header.scenario, &verdict) {
            if self.is_wrong(&kind) {
                let sight = report.kinds.entry(kind).or_insert(Sight { first: number, runs: 0 });
                sight.runs += 1;
            }
        }
        for goal in goals {
            *report.goals.entry(goal).or_default() += 1;
        }
    }

    /// Whether this kind is reported.
    fn is_wrong(&self, kind: &Kind) -> bool {
        if self.space.inside { !kind.is_by_design() } else { !kind.is_doubt() }
    }

    /// The find of the run with this number.
    pub fn found(&self, number: u64) -> Option<Found> {
        Found::in_history(&self.history(number), self.mutant)
    }

    /// The history of the run with this number.
    pub fn history(&self, number: u64) -> History {
        let scenario = self.space.draw(number);
        (self.play)(&scenario, number, self.mutant)
    }

    /// The first run in which something goes wrong: after how many runs, the find and its kind.
    pub fn first(&self) -> Option<(u64, Found, Kind)> {
        (0..self.runs).find_map(|index| {
            let found = self.found(self.seed.wrapping_add(index))?;
            let kind = found.kinds().into_iter().find(|kind| self.is_wrong(kind))?;
            Some((index + 1, found, kind))
        })
    }
}
