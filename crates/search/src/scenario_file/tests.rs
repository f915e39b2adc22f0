//! Tests of the written files: each is read again, and comes out as it says.

use super::{file_of, layout, name};
use crate::Found;
use crate::plan::Space;
use redquorum_checker::{Outcome, check};
use redquorum_scenario::Mutant;
use redquorum_scenario::{Scenario, makes_sense, read};

fn scenario_of(text: &str) -> Scenario {
    let scenario: Scenario = toml::from_str(text).unwrap();
    scenario.runs().remove(0)
}

fn clock_step() -> Scenario {
    scenario_of(include_str!("../../../../scenarios/clock-step-one-holder.toml"))
}

/// Reads a file as `run` would.
fn again(found: &Found) -> Scenario {
    let text = file_of(found, &found.kind());
    let path = format!("{}.toml", name(&found.kind(), found.mutant));
    read(&path, &text).unwrap_or_else(|problems| panic!("{problems}\n{text}"))
}

#[test]
fn a_file_comes_out_as_it_expects() {
    let found = Found::of(&clock_step(), 3, Mutant::None).unwrap();
    let again = again(&found);
    assert!(again.expect.any_violation());
    for seed in [found.seed, 11, 12] {
        let verdict = check(&redquorum_simulator::run(&again, seed, Mutant::None));
        assert_eq!(verdict.outcome, Outcome::AsExpected, "{:?}", verdict.differences);
    }
}

#[test]
fn a_file_about_a_mutant_expects_the_result_of_the_client() {
    let scenario = scenario_of(include_str!("../../../../scenarios/calm.toml"));
    let found = Found::of(&scenario, 3, Mutant::SmallQuorum).unwrap();
    let again = again(&found);
    let outcome = |mutant| check(&redquorum_simulator::run(&again, found.seed, mutant)).outcome;
    assert_eq!(outcome(Mutant::None), Outcome::AsExpected);
    assert_eq!(outcome(Mutant::SmallQuorum), Outcome::Differs);
}

#[test]
fn events_are_in_order() {
    let found = Found::of(&clock_step(), 3, Mutant::None).unwrap();
    let text = file_of(&found, &found.kind());
    let places = [
        "fault 1 strikes: net.drop",
        "c1 is granted L by masters 1, 2, 3",
        "fault 2 strikes: clock.step, master 1",
        "c2 is granted L by masters 1, 4, 5",
        "an update is lost",
    ];
    let places: Vec<_> = places.iter().map(|part| text.find(part).expect(part)).collect();
    assert!(places.is_sorted(), "{text}");
    assert!(text.lines().filter(|line| line.starts_with('#')).all(|line| line.len() <= 110));
}

#[test]
fn a_random_scenario_is_valid_and_its_file_leaves_nothing_out() {
    let scenarios =
        [Space::INSIDE, Space::OUTSIDE].map(|space| (0..500).map(move |number| space.draw(number)));
    for scenario in scenarios.into_iter().flatten() {
        assert!(makes_sense(&scenario), "{scenario:#?}");
        let text = layout::toml(&scenario);
        let again: Scenario = toml::from_str(&text).unwrap_or_else(|why| panic!("{why}\n{text}"));
        assert_eq!(again, scenario, "{text}");
    }
}
