//! A run leaves nothing behind: memory does not grow with the number of runs. This is a program of
//! its own, because it counts every byte that the program allocates.

use std::alloc::System;

use redquorum_checker::{Outcome, check};
use redquorum_scenario::Mutant;
use redquorum_scenario::{Scenario, embedded_runs};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// The bytes still allocated after `rounds` runs of each scenario, and the bytes allocated in
/// total.
fn left(scenarios: &[Scenario], rounds: u64) -> (usize, usize) {
    let region = Region::new(HEAP);
    for seed in 0..rounds {
        for scenario in scenarios {
            let verdict = check(&redquorum_simulator::run(scenario, seed, Mutant::None));
            assert_eq!(verdict.outcome, Outcome::AsExpected, "{}", scenario.name);
        }
    }
    let change = region.change();
    (change.bytes_allocated.saturating_sub(change.bytes_deallocated), change.bytes_allocated)
}

/// One test only, so that no other thread allocates.
#[test]
fn memory_does_not_grow_with_the_number_of_runs() {
    let scenarios: Vec<Scenario> = embedded_runs().collect();
    // The first round allocates what is kept for good, such as tables of a library.
    left(&scenarios, 1);
    let (kept, taken) = left(&scenarios, 1);
    assert!(taken > 1_000_000, "only {taken} bytes were seen: this does not count");
    assert_eq!(kept, 0);
    let (kept, _) = left(&scenarios, 3);
    assert_eq!(kept, 0);

    // The counter would show bytes that a run keeps.
    let region = Region::new(HEAP);
    let history = redquorum_simulator::run(&scenarios[0], 1, Mutant::None);
    assert!(region.change().bytes_allocated > region.change().bytes_deallocated);
    drop(history);
}
