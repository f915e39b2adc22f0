//! Tests with planted finds: the essential faults are known, and must be what is left.

use std::ops::ControlFlow;

use super::{EFFORT, shrink_to, weight};
use crate::{Found, Kind, scenario_file};
use redquorum_scenario::{Mutant, Property, Scenario, Step};

/// Two essential faults among six others.
const PLANTED: &str = r#"
name = "planted"
about = "A test."
[[client]]
id = "c1"
script = ["acquire L wait 300ms", "read R", "work 613ms", "write R", "release L"]
[[client]]
id = "c2"
start = "307ms"
script = ["acquire L wait 200ms", "read R", "work 100ms", "write R", "release L"]
[[client]]
id = "c3"
script = ["acquire M", "work 10ms", "release M"]
loop = 3
think = "7ms"
[[fault]]
at = "17ms"
for = "40ms"
node.slow = { nodes = [2], by = "3ms" }
[[fault]]
at = "0s"
for = "401ms"
net.drop = { client = "c1", nodes = [4, 5], what = "request" }
[[fault]]
at = "33ms"
client.clock = { client = "c2", by = "-1h" }
[[fault]]
at = "35ms"
clock.step = { node = 2, by = "3s 17ms" }
[[fault]]
at = "900ms"
net.reset = { client = "c3" }
[[fault]]
after = "c3 granted M"
net.duplicate = { client = "c3", what = "request" }
[[fault]]
at = "1s"
for = "50ms"
node.pause = { nodes = [4] }
[[fault]]
at = "1s"
for = "51ms"
client.pause = { client = "c3" }
"#;

fn planted() -> Found {
    let scenario: Scenario = toml::from_str(PLANTED).unwrap();
    let found = Found::of(&scenario, 7, Mutant::None).unwrap();
    assert_eq!(found.kind().property, Some(Property::MutualExclusion));
    found
}

fn small(found: &Found) -> Found {
    shrink_to(found, &found.kind(), EFFORT, &mut |_| ControlFlow::Continue(()))
}

fn names(scenario: &Scenario) -> Vec<&str> {
    scenario.faults.iter().map(|fault| fault.kind.name()).collect()
}

#[test]
fn only_what_matters_is_left_and_described_by_moments_and_parts() {
    let found = planted();
    assert_eq!(names(&found.scenario).len(), 8);
    let small = small(&found);
    assert_eq!(names(&small.scenario), ["net.drop", "clock.step"]);
    assert_eq!(small.scenario.clients.len(), 2);
    assert_eq!(small.scenario.cluster.nodes, 3);
    assert_eq!(small.kind(), found.kind());
    assert!(weight(&small.scenario) < weight(&found.scenario));
    for fault in 0..small.scenario.faults.len() {
        let mut fewer = small.scenario.clone();
        fewer.faults.remove(fault);
        let without = Found::of(&fewer, small.seed, Mutant::None);
        assert_eq!(without.map(|found| found.kinds()), None, "without fault {}", fault + 1);
    }
    let text = scenario_file::file_of(&small, &small.kind());
    assert!(text.contains("after = \"c1 granted L\""), "{text}");
    assert!(text.contains("nodes = \"holder(c1)\""), "{text}");
    assert_eq!(small, self::small(&found), "the same find shrinks to the same scenario");
}

#[test]
fn a_mutant_is_kept_where_the_client_passes() {
    let mut scenario: Scenario = toml::from_str(PLANTED).unwrap();
    scenario.faults.clear();
    let found = Found::of(&scenario, 7, Mutant::PlainDel).unwrap();
    let small = small(&found);
    assert_eq!(small.scenario.clients.len(), 2);
    assert_eq!(Found::of(&small.scenario, small.seed, Mutant::None), None);
    assert!(Found::of(&small.scenario, small.seed, Mutant::PlainDel).is_some());
}

#[test]
fn handles_and_several_resources_that_do_not_matter_go() {
    let text = PLANTED
        .replacen("\"acquire L wait 300ms\"", "\"acquire L wait 300ms\", \"reacquire L\"", 1)
        .replacen("\"release L\"", "\"release L\", \"read R\", \"release L\"", 1)
        .replace("\"acquire L wait 200ms\"", "\"acquire N and L wait 200ms\"")
        .replace("\"write R\", \"release L\"]", "\"write R\", \"release N and L\"]");
    let scenario: Scenario = toml::from_str(&text).unwrap();
    let found = Found::of(&scenario, 7, Mutant::None).unwrap();
    assert_eq!(found.kind().property, Some(Property::MutualExclusion));
    let small = small(&found);
    let mut steps = small.scenario.clients.iter().flat_map(|client| &client.script);
    let more =
        |step: &Step| step.is_of_several() || matches!(step, Step::Acquire { again: true, .. });
    assert!(!steps.any(more), "{:?}", small.scenario.clients);
}

#[test]
fn a_shrink_that_is_stopped_returns_its_best() {
    let found = planted();
    let mut tries = 0;
    let rest = shrink_to(&found, &found.kind(), EFFORT, &mut |progress| {
        tries = progress.tries;
        if tries < 5 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    assert_eq!(tries, 5);
    assert_eq!(rest.kind(), found.kind());
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
