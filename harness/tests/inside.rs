//! Inside the assumptions nothing may ever go wrong: random scenarios in virtual time, with only
//! those faults that the lock promises to survive.
//!
//! `PROPTEST_CASES=20000 cargo test --release --test inside` checks more of them. So does
//! `redquorum-chaos search`, which draws the same scenarios. A failing scenario is shrunk, and
//! printed as a scenario file.

use std::ops::ControlFlow;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use redquorum_harness::mutants::Mutant;
use redquorum_harness::search::chance::{Search, Through};
use redquorum_harness::search::plan::Space;
use redquorum_harness::search::{Found, shrink, story};

/// As many cases as an unoptimised build runs in a few seconds.
const CASES: u32 = 1_000;
/// The number of runs within which the search must catch a mutant.
const PATIENCE: u64 = 1_500;

/// Scenarios in which the simulation or the checker was wrong.
const FOUND: [(&str, &str); 31] = [
    ("delays-add-up", include_str!("inside/found/delays-add-up.toml")),
    ("asked-for-less", include_str!("inside/found/asked-for-less.toml")),
    ("fault-that-fails", include_str!("inside/found/fault-that-fails.toml")),
    ("kept", include_str!("inside/found/kept.toml")),
    ("untold", include_str!("inside/found/untold.toml")),
    ("straggler", include_str!("inside/found/straggler.toml")),
    ("straggler-twice", include_str!("inside/found/straggler-twice.toml")),
    ("late-replies", include_str!("inside/found/late-replies.toml")),
    ("extended-at-last", include_str!("inside/found/extended-at-last.toml")),
    ("extended-late", include_str!("inside/found/extended-late.toml")),
    ("kept-too-late", include_str!("inside/found/kept-too-late.toml")),
    ("backlog", include_str!("inside/found/backlog.toml")),
    ("backlog-of-copies", include_str!("inside/found/backlog-of-copies.toml")),
    ("half-cut-rival", include_str!("inside/found/half-cut-rival.toml")),
    ("copies-kept-back", include_str!("inside/found/copies-kept-back.toml")),
    ("reset-between-replies", include_str!("inside/found/reset-between-replies.toml")),
    ("reply-of-the-dead", include_str!("inside/found/reply-of-the-dead.toml")),
    ("not-worth-a-round", include_str!("inside/found/not-worth-a-round.toml")),
    ("held-at-a-gate", include_str!("inside/found/held-at-a-gate.toml")),
    ("granted-at-the-end", include_str!("inside/found/granted-at-the-end.toml")),
    ("reset-and-pause", include_str!("inside/found/reset-and-pause.toml")),
    ("kept-back-since", include_str!("inside/found/kept-back-since.toml")),
    ("end-behind-a-cut", include_str!("inside/found/end-behind-a-cut.toml")),
    ("in-its-own-way", include_str!("inside/found/in-its-own-way.toml")),
    ("gate-and-reset", include_str!("inside/found/gate-and-reset.toml")),
    ("set-again", include_str!("inside/found/set-again.toml")),
    ("not-shortened", include_str!("inside/found/not-shortened.toml")),
    ("vigil-near-its-end", include_str!("inside/found/vigil-near-its-end.toml")),
    ("flush-seen-late", include_str!("inside/found/flush-seen-late.toml")),
    ("hold-after-kill", include_str!("inside/found/hold-after-kill.toml")),
    ("given-up-and-extended", include_str!("inside/found/given-up-and-extended.toml")),
];

/// The failure of a run, with a scenario file that shows it.
fn wrong(found: Option<Found>) -> Option<String> {
    let found = found?;
    let kind = found.kinds().into_iter().find(|kind| !kind.is_by_design())?;
    let small =
        shrink::shrink_to(&found, &kind, shrink::EFFORT, &mut |_| ControlFlow::Continue(()));
    Some(format!("{kind}\n{}", story::file_of(&small, &kind)))
}

/// A fixed seed, unless the environment asks for another number of cases. A change must not fail
/// because of an old bug in a new random scenario: `search` looks for those.
fn config() -> ProptestConfig {
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    if std::env::var_os("PROPTEST_CASES").is_some() {
        return config;
    }
    ProptestConfig { cases: CASES, rng_seed: RngSeed::Fixed(1), ..config }
}

proptest! {
    #![proptest_config(config())]

    // A smaller number is another scenario, so proptest does not shrink it. The scenario itself is
    // shrunk.
    #[test]
    fn nothing_goes_wrong(number in any::<u64>().no_shrink()) {
        let wrong = wrong(Found::of(&Space::INSIDE.draw(number), number, Mutant::None));
        prop_assert!(wrong.is_none(), "{}", wrong.unwrap_or_default());
    }
}

/// Failures that this test found in the past, shrunk, each with its seed.
#[test]
fn what_was_found_stays_mended() {
    for (name, text) in FOUND {
        let scenario = toml::from_str(text).unwrap();
        let seed = text.lines().find_map(|line| line.strip_prefix("# --seed ")).unwrap();
        let found = Found::of(&scenario, seed.parse().unwrap(), Mutant::None);
        assert_eq!(wrong(found), None, "{name}");
    }
}

#[test]
fn lies_are_found_out() {
    let mut missed = Vec::new();
    for mutant in
        Mutant::ALL.into_iter().filter(|mutant| *mutant != Mutant::None && mutant.shows_inside())
    {
        let search = Search {
            space: Space::INSIDE,
            seed: 0,
            runs: PATIENCE,
            mutant,
            through: Through::Machines,
            jobs: 1,
        };
        match search.first() {
            Some((after, _, kind)) => println!("{mutant}: after {after} runs, {kind}"),
            None => missed.push(mutant.name()),
        }
    }
    assert!(missed.is_empty(), "in {PATIENCE} runs nobody noticed {}", missed.join(", "));
}
