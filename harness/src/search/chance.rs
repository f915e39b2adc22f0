//! Random search: scenarios by chance, on all cores, until there were so many or somebody says so.
//!
//! Each run has a number, and its scenario, its chance and so its result follow from that number alone.
//! What is remembered of a run does not hang on the order of runs: of every [`Kind`] the least number
//! that showed it, and how often it and each [`Goal`] were seen. So the same seed and as many runs
//! give the same report on any number of threads. `goals.rs` says what a search should have come by.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use super::plan::Space;
use super::{Found, Kind, kinds};
use crate::judge::judge;
use crate::sabotage::Lie;
use crate::sim;

mod goals;
#[cfg(test)]
mod tests;

pub use goals::Goal;

/// How many runs a thread takes at a time.
const BATCH: u64 = 32;

/// What to run.
#[derive(Clone, Copy, Debug)]
pub struct Search {
    /// Where scenarios are drawn from.
    pub space: Space,
    /// The number of the first run; each has the next.
    pub seed: u64,
    /// How many runs at most.
    pub runs: u64,
    /// Whether clients lie, and how.
    pub lie: Lie,
    /// On how many threads.
    pub jobs: usize,
}

/// What was seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// How many runs.
    pub runs: u64,
    /// How many events they had, all together: how large they were.
    pub events: u64,
    /// How much virtual time passed in them, all together.
    pub passed: Duration,
    /// Every kind of thing that went wrong.
    pub kinds: BTreeMap<Kind, Sight>,
    /// In how many runs each goal was reached.
    pub goals: BTreeMap<Goal, u64>,
}

/// What was seen of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sight {
    /// The least number of a run that showed it.
    pub first: u64,
    /// In how many it showed.
    pub runs: u64,
}

impl Report {
    /// The goals that no run has reached.
    pub fn missed(&self) -> impl Iterator<Item = Goal> {
        Goal::ALL.into_iter().filter(|goal| !self.goals.contains_key(goal))
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
    /// Runs it. Whoever is asked whether to go on is told what there is so far, by each thread in turn.
    pub fn run(&self, go_on: &(dyn Fn(&Report) -> bool + Sync)) -> Report {
        let next = AtomicU64::new(0);
        let report = Mutex::new(Report::default());
        thread::scope(|scope| {
            for _ in 0..self.jobs.max(1) {
                scope.spawn(|| self.work(&next, &report, go_on));
            }
        });
        report.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(
        &self,
        next: &AtomicU64,
        report: &Mutex<Report>,
        go_on: &(dyn Fn(&Report) -> bool + Sync),
    ) {
        loop {
            let from = next.fetch_add(BATCH, Ordering::Relaxed);
            if from >= self.runs {
                return;
            }
            let mut own = Report::default();
            for index in from..self.runs.min(from + BATCH) {
                self.one(self.seed.wrapping_add(index), &mut own);
            }
            let mut all = unpoisoned(report);
            all.add(&own);
            if !go_on(&all) {
                next.store(self.runs, Ordering::Relaxed);
            }
        }
    }

    /// The run of a number.
    fn one(&self, number: u64, report: &mut Report) {
        let history = sim::run(&self.space.draw(number), number, self.lie);
        let verdict = judge(&history);
        report.runs += 1;
        report.events += u64::try_from(history.records.len()).unwrap_or(u64::MAX);
        report.passed = report.passed.saturating_add(history.length().unwrap_or_default());
        for kind in kinds(&history.header.scenario, &verdict) {
            if self.is_wrong(&kind) {
                let sight = report.kinds.entry(kind).or_insert(Sight { first: number, runs: 0 });
                sight.runs += 1;
            }
        }
        for goal in goals::reached(&history, &verdict) {
            *report.goals.entry(goal).or_default() += 1;
        }
    }

    /// Whether something of this kind is worth to be told.
    fn is_wrong(&self, kind: &Kind) -> bool {
        if self.space.inside { !kind.is_by_design() } else { !kind.is_doubt() }
    }

    /// The find of a number that showed something.
    pub fn found(&self, number: u64) -> Option<Found> {
        Found::of(&self.space.draw(number), number, self.lie)
    }

    /// The first run in which something goes wrong: after how many, the find and its kind.
    pub fn first(&self) -> Option<(u64, Found, Kind)> {
        (0..self.runs).find_map(|index| {
            let found = self.found(self.seed.wrapping_add(index))?;
            let kind = found.kinds().into_iter().find(|kind| self.is_wrong(kind))?;
            Some((index + 1, found, kind))
        })
    }
}

fn unpoisoned<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
