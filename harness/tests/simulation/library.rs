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
    ["calm", "clock-step-one-holder", "watchdog", "fair/wake-ups-lost", "wake-up-lost/late"];

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
            play: |scenario, seed, _| redquorum_harness::library::run_with_neglect(scenario, seed),
            jobs: 1,
        };
        assert_eq!(search.first(), None);
    }
}

#[test]
fn callers_neglect_their_futures_only_when_asked_for() {
    let run = named("calm");
    let has = |history: &History, is: fn(&Event) -> bool| {
        history.records.iter().any(|record| is(&record.event))
    };
    let cancelled = |event: &Event| matches!(event, Event::Replied { reply, .. } if reply.why == Some(FailureReason::Cancelled));
    let unpolled = |event: &Event| matches!(event, Event::Unpolled { .. });
    let play = redquorum_harness::library::run;
    let neglect = redquorum_harness::library::run_with_neglect;
    for is in [cancelled, unpolled] {
        assert!((0..20).all(|seed| !has(&play(&run, seed), is)));
        assert!((0..20).any(|seed| has(&neglect(&run, seed), is)));
    }
}
