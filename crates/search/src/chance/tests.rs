//! Tests of a short search. Inside the assumptions nothing may go wrong, and mutants are found.

use std::fs;

use super::{Goal, Report, Search, goals};
use crate::Found;
use crate::plan::Space;
use redquorum_scenario::Mutant;
use redquorum_scenario::embedded_runs;

/// A search with the shipped machines.
fn search(space: Space, runs: u64, jobs: usize) -> Search {
    Search { space, seed: 0, runs, mutant: Mutant::None, play: redquorum_simulator::run, jobs }
}

fn report(space: Space, runs: u64, jobs: usize) -> Report {
    search(space, runs, jobs).run(&|_| true)
}

#[test]
fn the_report_does_not_hang_on_the_number_of_threads() {
    assert_eq!(report(Space::OUTSIDE, 200, 1), report(Space::OUTSIDE, 200, 3));
}

/// `redquorum-chaos search --runs 1 --seed NUMBER` shrinks a violation.
#[test]
fn inside_the_assumptions_every_goal_is_reached_and_nothing_goes_wrong() {
    let report = report(Space::INSIDE, 1_500, 2);
    assert_eq!(report.missed(false).collect::<Vec<Goal>>(), []);
    assert!(report.kinds.is_empty(), "{:#?}", report.kinds);
}

/// Scenarios in which the simulation or the checker was wrong, shrunk, each with its seed.
#[test]
fn violations_of_earlier_searches_stay_fixed() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/inside/found");
    let files: Vec<_> = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    assert!(files.len() > 30, "{}", files.len());
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let scenario = toml::from_str(&text).unwrap();
        let seed = text.lines().find_map(|line| line.strip_prefix("# --seed ")).unwrap();
        let found = Found::of(&scenario, seed.parse().unwrap(), Mutant::None);
        let mut kinds = found.map_or_else(Vec::new, |found| found.kinds());
        kinds.retain(|kind| !kind.is_by_design());
        assert_eq!(kinds, [], "{}", file.display());
    }
}

#[test]
fn every_mutant_that_shows_inside_the_assumptions_is_found() {
    let shows = |mutant: &Mutant| *mutant != Mutant::None && mutant.shows_inside();
    let is_missed = |mutant: &Mutant| {
        let search = Search { mutant: *mutant, ..search(Space::INSIDE, 1_500, 1) };
        search.first().is_none()
    };
    let missed: Vec<Mutant> = Mutant::clients().filter(shows).filter(is_missed).collect();
    assert_eq!(missed, []);
}

/// A known scenario reaches exactly these goals of those about owners and multi-locks, or of those
/// about waiters.
#[test]
fn goals_are_distinguished() {
    let owners = Goal::HandleLeft..=Goal::CollectUndone;
    let waiters = Goal::Woken..=Goal::FirstOverruled;
    for (about, name, goals) in [
        (&owners, "calm", &[][..]),
        (&owners, "reentry", &[Goal::Reacquired]),
        (&owners, "reentry/released-once", &[Goal::HandleLeft]),
        (&owners, "reentry/longer", &[Goal::HandleLeft, Goal::Prolonged]),
        (&owners, "several/one-taken", &[Goal::CollectUndone]),
        (&owners, "several/holder-dies", &[Goal::CollectUndone]),
        (&owners, "several/minority-silent", &[]),
        (&waiters, "one-master-hung", &[]),
        (&waiters, "wake-up-lost/calm", &[Goal::Woken]),
        (&waiters, "wake-up-lost/no-wake-up", &[Goal::Polled]),
        (&waiters, "waiter-gone/queued", &[Goal::Woken]),
        (&waiters, "waiter-gone/next-waiter", &[Goal::HandOff, Goal::HandedOffGone]),
    ] {
        for seed in 0..5 {
            let mut found = reached(name, seed);
            found.retain(|goal| about.contains(goal));
            assert_eq!(found, goals, "{name} with seed {seed}");
        }
    }
    for (name, goal) in [
        ("several", Goal::OppositeOrders),
        ("herd", Goal::Yielded),
        ("first-master/left-key", Goal::RefusedFirst),
        ("first-master/left-key", Goal::FirstOverruled),
    ] {
        for seed in 0..5 {
            assert!(reached(name, seed).contains(&goal), "{name} with seed {seed}: {goal}");
        }
    }
}

/// The goals that a known scenario reaches, sorted.
fn reached(name: &str, seed: u64) -> Vec<Goal> {
    let run = embedded_runs().find(|run| run.name == name).expect("it is there");
    let (_, mut goals) = goals::checked(&redquorum_simulator::run(&run, seed, Mutant::None));
    goals.sort_unstable();
    goals
}

#[test]
fn outside_of_the_assumptions_something_goes_wrong_for_a_reason() {
    let report = report(Space::OUTSIDE, 500, 2);
    assert!(!report.kinds.is_empty());
    let ours: Vec<_> = report.kinds.iter().filter(|(kind, _)| kind.is_unexplained()).collect();
    assert!(ours.is_empty(), "{ours:#?}");
}

#[test]
fn a_search_stops_when_its_caller_interrupts_it() {
    let report = search(Space::INSIDE, 100_000, 2).run(&|report| report.runs < 64);
    assert!((64..1_000).contains(&report.runs), "{}", report.runs);
}
