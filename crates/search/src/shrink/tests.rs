//! Tests with finds of the random search: what is left must be needed, and read well.

use std::ops::ControlFlow;

use super::{EFFORT, shrink_to, size};
use crate::plan::Space;
use crate::{Found, Kind, scenario_file};
use redquorum_scenario::{Cause, Mutant, Property, Scenario, Step};

/// The first run of a space that shows a kind, in a scenario that is as wanted.
fn first(space: Space, mutant: Mutant, kind: &Kind, wanted: fn(&Scenario) -> bool) -> Found {
    let found = (0..5_000).find_map(|number| {
        let scenario = Some(space.draw(number)).filter(wanted)?;
        Found::of(&scenario, number, mutant).filter(|found| found.kinds().contains(kind))
    });
    found.expect("a run shows it")
}

fn two_holders(cause: Cause) -> Kind {
    Kind { property: Some(Property::MutualExclusion), causes: vec![cause] }
}

/// Two leases at a time, for a clock was set.
fn clock_step(wanted: fn(&Scenario) -> bool) -> Found {
    first(Space::OUTSIDE, Mutant::None, &two_holders(Cause::ClockStep), wanted)
}

fn small(space: Space, found: &Found, kind: &Kind) -> Found {
    shrink_to(Some(space), found, kind, EFFORT, &mut |_| ControlFlow::Continue(()))
}

#[test]
fn only_what_matters_is_left_and_described_by_moments_and_roles() {
    let kind = two_holders(Cause::ClockStep);
    let found = clock_step(|scenario| scenario.faults.len() > 4 && scenario.clients.len() > 3);
    let small = small(Space::OUTSIDE, &found, &kind);
    assert!(size(&small.scenario) < size(&found.scenario));
    assert_eq!((small.scenario.clients.len(), small.scenario.cluster.nodes), (2, 3));
    assert!(small.kinds().contains(&kind));
    for fault in 0..small.scenario.faults.len() {
        let mut fewer = small.scenario.clone();
        fewer.faults.remove(fault);
        let without = Found::of(&fewer, small.seed, Mutant::None);
        let kinds = without.map_or_else(Vec::new, |found| found.kinds());
        assert!(!kinds.contains(&kind), "without fault {}", fault + 1);
    }
    let text = scenario_file::file_of(&small, &kind);
    assert!(text.contains("after = \"") && text.contains(" granted L\""), "{text}");
    assert!(text.contains("nodes = \"holder(") || text.contains("nodes = \"others("), "{text}");
    let again = self::small(Space::OUTSIDE, &found, &kind);
    assert_eq!(small, again, "the same find shrinks to the same scenario");
}

#[test]
fn a_mutant_is_kept_where_the_client_passes() {
    let kind = two_holders(Cause::Bug);
    let found = first(Space::INSIDE, Mutant::PlainDel, &kind, |_| true);
    let small = small(Space::INSIDE, &found, &kind);
    assert_eq!(small.scenario.clients.len(), 2);
    assert_eq!(Found::of(&small.scenario, small.seed, Mutant::None), None);
    assert!(Found::of(&small.scenario, small.seed, Mutant::PlainDel).is_some());
}

#[test]
fn handles_and_several_resources_that_do_not_matter_go() {
    let again = |step: &Step| matches!(step, Step::Acquire { again: true, .. });
    let has = |scenario: &Scenario, is: fn(&Step) -> bool| {
        scenario.clients.iter().flat_map(|client| &client.script).any(is)
    };
    let found = clock_step(|scenario| {
        let mut steps = scenario.clients.iter().flat_map(|client| &client.script);
        let several = steps.clone().any(Step::is_of_several);
        several && steps.any(|step| matches!(step, Step::Acquire { again: true, .. }))
    });
    let small = small(Space::OUTSIDE, &found, &two_holders(Cause::ClockStep));
    assert!(!has(&small.scenario, again) && !has(&small.scenario, Step::is_of_several));
}

#[test]
fn a_shrink_that_is_stopped_returns_its_best() {
    let (found, kind) = (clock_step(|_| true), two_holders(Cause::ClockStep));
    let mut tries = 0;
    let rest = shrink_to(Some(Space::OUTSIDE), &found, &kind, EFFORT, &mut |progress| {
        tries = progress.tries;
        if tries < 5 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    assert_eq!(tries, 5);
    assert!(rest.kinds().contains(&kind));
}

/// Two runs that the checkers could not explain: a final acquire that was granted again what its
/// client still held, and a clock that was set at the very instant at which the key was gone.
#[test]
fn the_effect_of_a_clock_is_not_taken_for_a_bug() {
    let text = r#"
        name = "anew"
        about = "A test."
        [[client]]
        id = "c1"
        script = ["acquire L"]
        [[client]]
        id = "c2"
        start = "1s"
        script = ["acquire L"]
        [[fault]]
        at = "0s"
        net.drop = { nodes = [4, 5] }
        [[fault]]
        after = "c1 granted L"
        clock.step = { by = "10s", nodes = "holder(c1)" }
    "#;
    let scenario: Scenario = toml::from_str(text).unwrap();
    let found = Found::of(&scenario, 0, Mutant::None).unwrap();
    let unexplained: Vec<_> = found.kinds().into_iter().filter(Kind::is_unexplained).collect();
    assert_eq!(unexplained, [], "{:#?}", found.verdict.findings);
}
