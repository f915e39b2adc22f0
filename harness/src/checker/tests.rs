//! Tests of the checker on histories written by hand: the files `tests/*.txt`, in the notation of
//! `notation.rs`.

use proptest::prelude::*;

use super::exclusion::overlaps;
use super::leases::Hold;
use crate::history::{Event, Window};
use crate::scenario::Scenario;

mod garbled;
pub(crate) mod notation;

#[test]
fn histories_have_their_verdicts() {
    for (file, text) in [
        ("causes", include_str!("tests/causes.txt")),
        ("exclusion", include_str!("tests/exclusion.txt")),
        ("fencing", include_str!("tests/fencing.txt")),
        ("holds", include_str!("tests/holds.txt")),
        ("keys", include_str!("tests/keys.txt")),
        ("measures", include_str!("tests/measures.txt")),
        ("outcome", include_str!("tests/outcome.txt")),
        ("progress", include_str!("tests/progress.txt")),
        ("validity", include_str!("tests/validity.txt")),
    ] {
        notation::check(file, text);
    }
}

#[test]
fn the_example_has_its_expected_result() {
    let text = include_str!("../../../scenarios/clock-step-one-holder.toml");
    let scenario: Scenario = toml::from_str(text).unwrap();
    let run = notation::Run::of(
        "0 c1 can deadline lost; 0 c2 can deadline lost; 0 fault net.drop c1 45 what request
        3 c1 gets t1 on 123 until 1980; 3.2 fault clock.step 1 by 3s; 3.2 clock 1 ahead 3000
        3.9 c1 reads 0; 150 healed 1; 301 c2 gets t2 on 145 until 2278
        302 c2 reads 0; 402 c2 writes 0 1; 403 c2 releases t2 on 145
        604 c1 writes 0 2; 605 c1 releases t1 on 23; 700 ends c1 c2",
    );
    let mut history = run.history();
    history.header.scenario = scenario;
    let verdict = super::check(&history);
    assert_eq!(verdict.outcome, super::Outcome::AsExpected, "{:?}", verdict.differences);
    // The run has the intended fault, but no step: the harness is blind.
    history.records.retain(|record| !matches!(record.event, Event::Clock { .. }));
    let lines = [
        "because: expected clock.step, which is no cause of what was observed",
        "because: observed unknown, which was not expected",
    ];
    assert_eq!(super::check(&history).differences, lines);
}

proptest! {
    #[test]
    fn the_sweep_finds_an_overlap_exactly_where_two_holds_overlap(
        spans in prop::collection::vec((0..40i64, 0..10i64), 0..12)
    ) {
        let hold = |(lease, (from, length)): (usize, &(i64, i64))| {
            let span = Window::new(*from, from + length);
            Hold { lease, inner: span, outer: span }
        };
        let mut holds: Vec<Hold> = spans.iter().enumerate().map(hold).collect();
        let found = overlaps(&mut holds, |hold| hold.inner);
        for (first, second, _) in &found {
            prop_assert!(first.inner.from < second.inner.to && second.inner.from < first.inner.to);
        }
        // The checker reports every hold that overlaps an earlier one, once.
        let wanted: Vec<usize> = holds.iter().enumerate().filter(|(place, hold)| {
            holds[..*place].iter().any(|before| before.inner.meet(hold.inner).is_some())
        }).map(|(_, hold)| hold.lease).collect();
        let found: Vec<usize> = found.iter().map(|(_, second, _)| second.lease).collect();
        prop_assert_eq!(found, wanted);
    }
}
