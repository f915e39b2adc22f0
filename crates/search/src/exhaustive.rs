//! Exhaustive search: all schedules of up to a given number of faults, on a few base scenarios,
//! from a vocabulary of faults and places. The finds are scenarios, which run on any backend.
//!
//! `base_scenarios.rs` defines the scenarios that are played, `vocabulary.rs` the faults that can
//! occur in them, `walk.rs` the walk through all schedules, `assumptions.rs` and `classes.rs` the
//! meaning of a run, `tally.rs` the counts, `defended.rs` the groups of schedules that show the
//! effect of the lock's defences, `table.rs` the tables. Nothing here is random: the result is the
//! same each time, on any number of threads.

use std::collections::BTreeMap;

use super::in_parallel;
use redquorum_scenario::Mutant;
use redquorum_scenario::history::History;

mod assumptions;
mod base_scenarios;
mod classes;
mod defended;
mod listing;
mod table;
mod tally;
#[cfg(test)]
mod tests;
mod vocabulary;
mod walk;

pub use base_scenarios::{BaseScenario, base_scenarios};
pub use classes::Class;
pub use defended::Row;
pub use listing::listing;
pub use table::{defences, protection, table};
pub use tally::{Broken, FailedSchedule, Family, Found, Tally};
pub use vocabulary::{Symmetry, vocabulary};
pub use walk::SEED;
use walk::{SearchSpace, Start};

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
