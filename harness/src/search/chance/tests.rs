//! Tests of a short search. `tests/inside.rs` checks that nothing goes wrong inside the
//! assumptions.

use std::ops::RangeInclusive;

use super::{Goal, Report, Search, Through, goals};
use crate::mutants::Mutant;
use crate::scenario::embedded_runs;
use crate::search::plan::Space;
use crate::sim;

fn search(space: Space, runs: u64, jobs: usize) -> Report {
    let search =
        Search { space, seed: 0, runs, mutant: Mutant::None, through: Through::Machines, jobs };
    search.run(&|_| true)
}

#[test]
fn the_report_does_not_hang_on_the_number_of_threads() {
    assert_eq!(search(Space::OUTSIDE, 200, 1), search(Space::OUTSIDE, 200, 3));
}

#[test]
fn every_goal_is_reached() {
    let report = search(Space::INSIDE, 1_500, 2);
    assert_eq!(report.missed().collect::<Vec<Goal>>(), []);
}

/// The goals in a range that a known scenario reaches.
fn among(all: RangeInclusive<Goal>, name: &str, seed: u64) -> Vec<Goal> {
    let run = embedded_runs().find(|run| run.name == name).expect("it is there");
    let history = sim::run(&run, seed, Mutant::None);
    let (_, mut goals) = goals::checked(&history);
    goals.retain(|goal| all.contains(goal));
    goals.sort_unstable();
    goals
}

fn of_waits(name: &str, seed: u64) -> Vec<Goal> {
    among(Goal::Woken..=Goal::FirstOverruled, name, seed)
}

#[test]
fn goals_of_handles_and_multi_locks_are_distinguished() {
    for seed in 0..5 {
        for (name, goals) in [
            ("calm", &[][..]),
            ("reentry", &[Goal::Reacquired]),
            ("reentry/released-once", &[Goal::HandleLeft]),
            ("reentry/longer", &[Goal::HandleLeft, Goal::Prolonged]),
            ("several/one-taken", &[Goal::CollectUndone]),
            ("several/holder-dies", &[Goal::CollectUndone]),
            ("several/minority-silent", &[]),
        ] {
            let found = among(Goal::HandleLeft..=Goal::CollectUndone, name, seed);
            assert_eq!(found, goals, "{name} with seed {seed}");
        }
        let found = among(Goal::HandleLeft..=Goal::CollectUndone, "several", seed);
        assert!(found.contains(&Goal::OppositeOrders), "seed {seed}");
    }
}

#[test]
fn goals_of_waiters_are_distinguished() {
    for seed in 0..5 {
        for (name, goals) in [
            ("one-master-hung", &[][..]),
            ("wake-up-lost/calm", &[Goal::Woken]),
            ("wake-up-lost/nobody-says", &[Goal::Polled]),
            ("waiter-gone/queued", &[Goal::Woken]),
            ("waiter-gone/heir", &[Goal::HandOff, Goal::HandedOffGone]),
        ] {
            assert_eq!(of_waits(name, seed), goals, "{name} with seed {seed}");
        }
        for (name, goal) in [
            ("herd", Goal::Yielded),
            ("first-master/left-key", Goal::RefusedFirst),
            ("first-master/left-key", Goal::FirstOverruled),
        ] {
            assert!(of_waits(name, seed).contains(&goal), "{name} with seed {seed}: {goal}");
        }
    }
}

#[test]
fn outside_of_the_assumptions_something_goes_wrong_for_a_reason() {
    let report = search(Space::OUTSIDE, 500, 2);
    assert!(!report.kinds.is_empty());
    let ours: Vec<_> = report.kinds.iter().filter(|(kind, _)| kind.is_unexplained()).collect();
    assert!(ours.is_empty(), "{ours:#?}");
}

#[test]
fn a_search_stops_when_its_caller_interrupts_it() {
    let search = Search {
        space: Space::INSIDE,
        seed: 0,
        runs: 100_000,
        mutant: Mutant::None,
        through: Through::Machines,
        jobs: 2,
    };
    let report = search.run(&|report| report.runs < 64);
    assert!((64..1_000).contains(&report.runs), "{}", report.runs);
}
