//! Exhaustive search: all schedules of up to so many faults, on a few lessons, from a vocabulary of
//! faults and places. What it finds are scenarios, which can be run anywhere.
//!
//! `lessons.rs` has what is played, `vocabulary.rs` what can go wrong in it, `walk.rs` the way through
//! all of it, `assumptions.rs` and `classes.rs` what a run shows, `tally.rs` what is counted. Nothing
//! here is left to chance: the result is the same each time, on any number of threads.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::history::History;
use crate::sabotage::Lie;

mod assumptions;
mod classes;
mod lessons;
mod tally;
#[cfg(test)]
mod tests;
mod vocabulary;
mod walk;

pub use classes::Class;
pub use lessons::{Lesson, lessons};
pub use tally::{Found, Tally, Wrong};
pub use vocabulary::{Symmetry, vocabulary};
pub use walk::SEED;
use walk::{Ground, Start};

/// What to search.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The lessons.
    pub lessons: Vec<Lesson>,
    /// Up to so many faults.
    pub faults: usize,
    /// Whether masters that are alike are told apart.
    pub symmetry: Symmetry,
    /// What the clients get wrong.
    pub lie: Lie,
    /// On so many threads.
    pub threads: usize,
}

/// Runs all schedules of a plan.
pub fn search(plan: &Plan) -> Tally {
    let mut tally = Tally::default();
    let grounds: Vec<Ground> = plan
        .lessons
        .iter()
        .map(|lesson| Ground {
            lesson: lesson.clone(),
            vocabulary: vocabulary(lesson, plan.symmetry),
        })
        .collect();
    let mut work: Vec<(&Ground, Start)> = Vec::new();
    for ground in &grounds {
        let starts = ground.starts(plan.lie, &mut |faults: &[usize], history: &History| {
            tally.add(ground, faults, history);
        });
        if plan.faults > 0 {
            work.extend(starts.into_iter().map(|start| (ground, start)));
        }
    }
    let next = AtomicUsize::new(0);
    let parts: Mutex<Vec<(usize, Tally)>> = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..plan.threads.max(1) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some((ground, start)) = work.get(number) else { break };
                    let mut part = Tally::default();
                    ground.walk(start, plan.faults, &mut |faults: &[usize], history: &History| {
                        part.add(ground, faults, history);
                    });
                    parts.lock().unwrap_or_else(|broken| broken.into_inner()).push((number, part));
                }
            });
        }
    });
    let mut parts = parts.into_inner().unwrap_or_else(|broken| broken.into_inner());
    // The order in which threads were done is chance.
    parts.sort_by_key(|(number, _)| *number);
    parts.into_iter().for_each(|(_, part)| tally.append(part));
    tally
}
