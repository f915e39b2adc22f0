//! Measures after how many runs the random search detects a mutant, and how small its finds become.

use std::ops::ControlFlow;

use super::chance::{Search, Through};
use super::plan::Space;
use super::{Found, Kind, shrink};
use crate::mutants::Mutant;

/// A mutant that was detected.
#[derive(Clone, Debug)]
pub struct Caught {
    /// The number of runs until then.
    pub runs: u64,
    /// The kind of violation that showed it.
    pub kind: Kind,
    /// The shrunk run.
    pub small: Found,
}

/// Draws scenarios inside the assumptions, from a seed on, until one detects the mutant and passes
/// without the mutation. Returns none if `runs` scenarios did not detect it.
pub fn catch(mutant: Mutant, seed: u64, runs: u64) -> Option<Caught> {
    let search =
        Search { space: Space::INSIDE, seed, runs, mutant, through: Through::Machines, jobs: 1 };
    let (runs, found, kind) = search.first()?;
    let on = &mut |_: shrink::Progress<'_>| ControlFlow::Continue(());
    let small = shrink::shrink_to(&found, &kind, shrink::EFFORT, on);
    Some(Caught { runs, kind, small })
}

impl Caught {
    /// The number of faults in the shrunk run.
    pub fn faults(&self) -> usize {
        self.small.scenario.faults.len()
    }
}
