//! Every client that lies is caught in virtual time, and soon; the honest one never is.

use std::time::{Duration, Instant};

use redquorum_harness::judge::Outcome;
use redquorum_harness::sabotage::Lie;

use crate::support::{played, runs};

/// How many seeds the honest client is tried with.
const SEEDS: u64 = 20;
/// How long it may take until a lie is caught.
const SOON: Duration = Duration::from_secs(1);

#[test]
fn the_honest_client_passes_everything() {
    for run in runs() {
        for seed in 0..SEEDS {
            let (_, verdict) = played(&run, seed, Lie::None);
            let told = (&verdict.differences, &verdict.findings);
            assert_eq!(verdict.outcome, Outcome::AsExpected, "{} {seed}: {told:?}", run.name);
        }
    }
}

#[test]
fn every_lie_is_caught_within_a_second() {
    let runs = runs();
    for lie in Lie::ALL.into_iter().filter(|lie| *lie != Lie::None) {
        let start = Instant::now();
        // What was not seen is no catch: a lie must be seen.
        let caught = |run| played(run, 1, lie).1.outcome == Outcome::Differs;
        let by = runs.iter().find(|run| caught(run)).map(|run| &run.name);
        assert!(by.is_some(), "nothing catches {lie}");
        assert!(start.elapsed() < SOON, "{lie} is caught by {by:?} after {:?}", start.elapsed());
    }
}
