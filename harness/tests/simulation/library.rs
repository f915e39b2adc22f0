//! The library itself in virtual time: it does what the shipped machines do, a seed repeats it, and
//! drops of its futures break nothing.

use redquorum_checker::{Outcome, check};
use redquorum_scenario::Mutant;
use redquorum_scenario::client_protocol::FailureReason;
use redquorum_scenario::history::{Event, History};
use redquorum_search::chance::Search;
use redquorum_search::plan::Space;

use crate::support::named;

/// One that holds, one that breaks, the watchdog, the fair queue, and wake-ups that are lost.
const NAMES: [&str; 5] =
    ["calm", "clock-step-one-holder", "watchdog", "fair/words-lost", "wake-up-lost/late"];

#[test]
fn scenarios_come_out_as_expected_and_a_seed_repeats_them() {
    for name in NAMES {
        let run = named(name);
        let history = redquorum_harness::library::run(&run, 1);
        let verdict = check(&history);
        assert_eq!(verdict.outcome, Outcome::AsExpected, "{name}: {:?}", verdict.differences);
        let hash = redquorum_simulator::trace_hash(&history);
        assert_eq!(
            hash,
            redquorum_simulator::trace_hash(&redquorum_harness::library::run(&run, 1)),
            "{name}"
        );
        assert_ne!(
            hash,
            redquorum_simulator::trace_hash(&redquorum_harness::library::run(&run, 2)),
            "{name}"
        );
    }
}

#[test]
fn futures_that_are_dropped_at_random_polls_break_nothing() {
    // Seed 18158: after a pause a client finds its lease lost. It must not report as an
    // extension what a dropped extension moved before.
    for (seed, runs) in [(0, 40), (18_158, 1)] {
        let search = Search {
            space: Space::INSIDE,
            seed,
            runs,
            mutant: Mutant::None,
            play: |scenario, seed, _| redquorum_harness::library::run_with_drops(scenario, seed),
            jobs: 1,
        };
        assert_eq!(search.first(), None);
    }
}

#[test]
fn drops_at_random_polls_happen_and_only_when_asked_for() {
    let run = named("calm");
    let cancelled = |history: &History| {
        let is = |event: &Event| matches!(event, Event::Replied { reply, .. } if reply.why == Some(FailureReason::Cancelled));
        history.records.iter().any(|record| is(&record.event))
    };
    assert!((0..10).all(|seed| !cancelled(&redquorum_harness::library::run(&run, seed))));
    assert!((0..10).any(|seed| cancelled(&redquorum_harness::library::run_with_drops(&run, seed))));
}
