//! In virtual time, some scenario catches every mutant, within a second of real time. The honest
//! client passes all scenarios, with any seed. The same seed gives the same history, to the byte.

use std::time::{Duration, Instant};

use redquorum_harness::checker::{Observed, Outcome, judge};
use redquorum_harness::history::History;
use redquorum_harness::mutants::Mutant;
use redquorum_harness::scenario::{Property, Scenario, embedded_runs};
use redquorum_harness::sim;

fn runs() -> Vec<Scenario> {
    embedded_runs().collect()
}

fn bytes(history: &History) -> Vec<u8> {
    let mut bytes = Vec::new();
    history.write(&mut bytes).expect("memory takes everything");
    bytes
}

#[test]
fn every_lie_is_caught_within_a_second() {
    let runs = runs();
    for mutant in Mutant::ALL.into_iter().filter(|mutant| *mutant != Mutant::None) {
        let start = Instant::now();
        // A mutation that shows only under rare timing may need another seed.
        let differs =
            |run: &&Scenario, seed| judge(&sim::run(run, seed, mutant)).outcome == Outcome::Differs;
        let caught = (1..=3).find_map(|seed| runs.iter().find(|run| differs(run, seed)));
        let took = start.elapsed();
        assert!(caught.is_some(), "{mutant} passes everything");
        // A debug build on a busy machine is some ten times slower.
        let within = Duration::from_secs(if cfg!(debug_assertions) { 20 } else { 1 });
        assert!(took < within, "{mutant} was caught after {took:?}");
    }
}

#[test]
fn one_server_that_votes_twice_lets_a_rival_in_and_one_that_does_not_keeps_it_out() {
    let run = named("one-server-twice");
    for seed in 0..10 {
        let seen =
            |mutant| judge(&sim::run(&run, seed, mutant)).observed[&Property::MutualExclusion];
        assert_eq!(seen(Mutant::None), Observed::Safe, "seed {seed}");
        assert_eq!(seen(Mutant::ServerTwice), Observed::Violated, "seed {seed}");
    }
}

fn named(name: &str) -> Scenario {
    runs().into_iter().find(|run| run.name == name).expect("it is there")
}

#[test]
fn two_who_wait_would_wake_each_other_if_attempts_that_failed_called() {
    let run = named("waiters-at-peace");
    for seed in 0..10 {
        let verdict = judge(&sim::run(&run, seed, Mutant::CallsAlways));
        assert_eq!(verdict.outcome, Outcome::Differs, "seed {seed}");
        let busy = |line: &String| line.starts_with("commands: c");
        assert!(verdict.differences.iter().any(busy), "{:?}", verdict.differences);
    }
}

#[test]
fn who_hears_nobody_and_does_not_look_is_seen_wherever_it_waits() {
    for name in ["wake-up-lost/calm", "wake-up-lost/of-two-masters", "waiter-gone", "herd"] {
        for seed in 0..10 {
            let verdict = judge(&sim::run(&named(name), seed, Mutant::DeafForEver));
            assert_eq!(
                verdict.observed[&Property::Progress],
                Observed::Violated,
                "{name}, seed {seed}"
            );
        }
    }
    // If its connections suffer as well, the checkers excuse the delay, but the scenario bounds it.
    // For some seeds the mutant attempts in time by chance.
    for name in ["wake-up-lost", "wake-up-lost/late", "wake-up-lost/nobody-says"] {
        let slow = (0..10).filter(|seed| {
            let verdict = judge(&sim::run(&named(name), *seed, Mutant::DeafForEver));
            verdict.differences.iter().any(|line| line.starts_with("within: c2"))
        });
        let slow = slow.count();
        assert!(slow > 0, "{name}: seen for none of 10 seeds");
    }
}

#[test]
fn who_keeps_no_order_is_seen_where_others_wait() {
    for (name, mutant, part) in [
        ("fair/queues", Mutant::JumpsQueue, "overtaken: late"),
        ("fair/first-gives-up", Mutant::KeepsPlace, "within: a"),
        ("fair/patient", Mutant::LosesPlace, "overtaken: "),
    ] {
        for seed in 0..10 {
            let verdict = judge(&sim::run(&named(name), seed, mutant));
            let tells = |line: &String| line.starts_with(part);
            assert!(verdict.differences.iter().any(tells), "{mutant}, seed {seed}: {verdict:?}");
        }
    }
}

#[test]
fn handles_that_are_not_counted_or_not_looked_at_are_seen() {
    let seen = |name: &str, mutant: Mutant, layer: Property| {
        let run = runs().into_iter().find(|run| run.name == name).expect("it is there");
        (0..5).map(|seed| judge(&sim::run(&run, seed, mutant)).observed[&layer]).collect::<Vec<_>>()
    };
    for (name, mutant, layer) in [
        ("reentry/released-once", Mutant::FirstReleaseFrees, Property::MutualExclusion),
        ("reentry", Mutant::ReentersDead, Property::Validity),
    ] {
        assert_eq!(seen(name, Mutant::None, layer), [Observed::Safe; 5], "{name}");
        assert_eq!(seen(name, mutant, layer), [Observed::Violated; 5], "{mutant}");
    }
}

#[test]
fn the_honest_client_passes_everything_with_any_seed() {
    for run in runs() {
        for seed in 0..10 {
            let verdict = judge(&sim::run(&run, seed, Mutant::None));
            assert_eq!(
                verdict.outcome,
                Outcome::AsExpected,
                "{} with seed {seed}: {:?}\n{:#?}",
                run.name,
                verdict.differences,
                verdict.findings
            );
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_history_and_another_seed_another() {
    for run in runs() {
        let first = bytes(&sim::run(&run, 7, Mutant::None));
        assert_eq!(first, bytes(&sim::run(&run, 7, Mutant::None)), "{}", run.name);
        assert_ne!(first, bytes(&sim::run(&run, 8, Mutant::None)), "{}", run.name);
    }
}
