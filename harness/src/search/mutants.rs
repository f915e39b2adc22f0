//! How soon the random search notices a lie, and how small what it found becomes.

use std::ops::ControlFlow;

use super::chance::Search;
use super::plan::Space;
use super::{Found, Kind, shrink};
use crate::sabotage::Lie;

/// A lie that was noticed.
#[derive(Clone, Debug)]
pub struct Caught {
    /// After how many runs.
    pub runs: u64,
    /// What it was caught by.
    pub kind: Kind,
    /// What is left of the run.
    pub small: Found,
}

/// Draws scenarios inside the assumptions, from a seed on, until a lie is noticed where the truth
/// passes; none: it was not, in so many.
pub fn catch(lie: Lie, seed: u64, runs: u64) -> Option<Caught> {
    let search = Search { space: Space::INSIDE, seed, runs, lie, jobs: 1 };
    let (runs, found, kind) = search.first()?;
    let on = &mut |_: shrink::Progress<'_>| ControlFlow::Continue(());
    let small = shrink::shrink_to(&found, &kind, shrink::EFFORT, on);
    Some(Caught { runs, kind, small })
}

impl Caught {
    /// How many faults it takes.
    pub fn faults(&self) -> usize {
        self.small.scenario.faults.len()
    }
}
