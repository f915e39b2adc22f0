//! Exhaustive search: all schedules of up to a given number of faults, on a few base scenarios,
//! from a vocabulary of faults and places. The finds are scenarios, which run on any backend.
//!
//! `lessons.rs` defines the scenarios that are played, `vocabulary.rs` the faults that can occur in
//! them, `walk.rs` the walk through all schedules, `assumptions.rs` and `classes.rs` the meaning of
//! a run, `tally.rs` the counts, `table.rs` the table of smallest schedules, `defended.rs` the
//! effect of the lock's defences. Nothing here is random: the result is the same each time, on any
//! number of threads.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::history::History;
use crate::mutants::Mutant;

mod assumptions;
mod classes;
mod defended;
mod lessons;
mod listing;
mod table;
mod tally;
#[cfg(test)]
mod tests;
mod vocabulary;
mod walk;

pub use classes::Class;
pub use defended::{Row, defences};
pub use lessons::{BaseScenario, lessons};
pub use listing::listing;
pub use table::{protection, table};
pub use tally::{Broken, FailedSchedule, Family, Found, Tally};
pub use vocabulary::{Symmetry, vocabulary};
pub use walk::SEED;
use walk::{SearchSpace, Start};

/// The search space.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The base scenarios.
    pub lessons: Vec<BaseScenario>,
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
        let (lessons, symmetry) = (lessons(nodes), Symmetry::Folded);
        Self { lessons, faults, symmetry, mutant: Mutant::None, threads: 1 }
    }

    /// The same base scenarios and faults, with every defence of the lock switched on.
    #[must_use]
    pub fn defended(self) -> Self {
        Self { lessons: self.lessons.into_iter().map(BaseScenario::defended).collect(), ..self }
    }

    /// Runs all schedules. `go_on` receives the number of finished parts and the number of all
    /// parts, and returns whether to continue. Parts that are not done by then count as cut.
    pub fn search(&self, go_on: &(dyn Fn(usize, usize) -> bool + Sync)) -> Tally {
        let grounds: Vec<SearchSpace> = self
            .lessons
            .iter()
            .map(|lesson| SearchSpace {
                lesson: lesson.clone(),
                vocabulary: vocabulary(lesson, self.symmetry),
            })
            .collect();
        let mut tally = Tally::default();
        let mut work: Vec<(&SearchSpace, Start)> = Vec::new();
        for ground in &grounds {
            let starts = ground.starts(self.mutant, &mut |faults: &[usize], history: &History| {
                tally.add(ground, faults, history);
            });
            if self.faults > 0 {
                work.extend(starts.into_iter().map(|start| (ground, start)));
            }
        }
        tally.parts = work.len();
        let parts = self.walk(&work, go_on);
        tally.cut = work.len() - parts.len();
        parts.into_iter().for_each(|part| tally.append(part));
        tally
    }

    fn walk(
        &self,
        work: &[(&SearchSpace, Start)],
        go_on: &(dyn Fn(usize, usize) -> bool + Sync),
    ) -> Vec<Tally> {
        let next = AtomicUsize::new(0);
        let parts = Mutex::new(BTreeMap::new());
        thread::scope(|scope| {
            for _ in 0..self.threads.max(1) {
                scope.spawn(|| {
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        let Some((ground, start)) = work.get(number) else { break };
                        let mut part = Tally::default();
                        ground.walk(
                            start,
                            self.faults,
                            &mut |faults: &[usize], history: &History| {
                                part.add(ground, faults, history);
                            },
                        );
                        let mut parts = parts.lock().unwrap_or_else(PoisonError::into_inner);
                        parts.insert(number, part);
                        if !go_on(parts.len(), work.len()) {
                            next.store(work.len(), Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        // In the order of the parts, not in the order in which threads finished them.
        parts.into_inner().unwrap_or_else(PoisonError::into_inner).into_values().collect()
    }
}
