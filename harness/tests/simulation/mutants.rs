//! In virtual time, some scenario catches every mutant. The honest client passes all scenarios,
//! with any seed.

use redquorum_checker::{Observed, Outcome, check};
use redquorum_scenario::Mutant;
use redquorum_scenario::{Property, Scenario};

use crate::support::{named, runs};

#[test]
fn some_scenario_catches_every_mutant() {
    let runs = runs();
    for mutant in Mutant::clients().filter(|mutant| *mutant != Mutant::None) {
        // A mutation that shows only under rare timing may need another seed.
        let differs = |run: &&Scenario, seed| {
            check(&redquorum_simulator::run(run, seed, mutant)).outcome == Outcome::Differs
        };
        let caught = (1..=3).find_map(|seed| runs.iter().find(|run| differs(run, seed)));
        assert!(caught.is_some(), "{mutant} passes everything");
    }
}

/// How a run shows a mutant: it violates a property, or a difference starts with these words.
enum Sign {
    Violated(Property),
    Line(&'static str),
}

/// These scenarios see these mutants from every seed. `the_honest_client_passes_everything` shows
/// that they see nothing where nothing is wrong.
#[test]
fn a_mutant_is_seen_where_its_bug_matters_from_every_seed() {
    use Sign::{Line, Violated};
    for (name, mutant, sign) in [
        ("one-server-twice", Mutant::ServerTwice, Violated(Property::MutualExclusion)),
        ("waiters-at-peace", Mutant::CallsAlways, Line("commands: c")),
        ("wake-up-lost/calm", Mutant::NeverWoken, Violated(Property::Progress)),
        ("wake-up-lost/of-two-masters", Mutant::NeverWoken, Violated(Property::Progress)),
        ("waiter-gone", Mutant::NeverWoken, Violated(Property::Progress)),
        ("herd", Mutant::NeverWoken, Violated(Property::Progress)),
        ("fair/queues", Mutant::JumpsQueue, Line("overtaken: late")),
        ("fair/first-gives-up", Mutant::KeepsPlace, Line("within: a")),
        ("fair/patient", Mutant::LosesPlace, Line("overtaken: ")),
        ("reentry/released-once", Mutant::FirstReleaseFrees, Violated(Property::MutualExclusion)),
        ("reentry", Mutant::ReentersDead, Violated(Property::Validity)),
    ] {
        for seed in 0..10 {
            let verdict = check(&redquorum_simulator::run(&named(name), seed, mutant));
            assert_eq!(verdict.outcome, Outcome::Differs, "{mutant}, {name}, seed {seed}");
            let seen = match sign {
                Violated(property) => verdict.observed[&property] == Observed::Violated,
                Line(start) => verdict.differences.iter().any(|line| line.starts_with(start)),
            };
            assert!(seen, "{mutant}, {name}, seed {seed}: {verdict:?}");
        }
    }
}

/// If the connections of a waiter suffer as well, the checkers excuse its delay, but the scenario
/// bounds it. For some seeds the mutant attempts in time by chance.
#[test]
fn a_waiter_that_is_not_woken_is_too_late_for_its_scenario() {
    for name in ["wake-up-lost", "wake-up-lost/late", "wake-up-lost/no-wake-up"] {
        let slow = (0..10).filter(|seed| {
            let verdict = check(&redquorum_simulator::run(&named(name), *seed, Mutant::NeverWoken));
            verdict.differences.iter().any(|line| line.starts_with("within: c2"))
        });
        assert!(slow.count() > 0, "{name}: seen for none of 10 seeds");
    }
}

#[test]
fn the_honest_client_passes_everything_with_any_seed() {
    for run in runs() {
        for seed in 0..10 {
            let verdict = check(&redquorum_simulator::run(&run, seed, Mutant::None));
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
