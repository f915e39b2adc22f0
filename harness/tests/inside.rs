//! Inside the assumptions nothing may ever go wrong: random scenarios in virtual time, with only
//! those faults that the lock promises to survive.
//!
//! `PROPTEST_CASES=20000 cargo test --release --test inside` checks more of them. So does
//! `redquorum-chaos search`, which draws the same scenarios. A failing scenario is shrunk, and
//! printed as a scenario file.

use std::fs;
use std::ops::ControlFlow;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use redquorum_harness::mutants::Mutant;
use redquorum_harness::search::chance::{Search, Through};
use redquorum_harness::search::plan::Space;
use redquorum_harness::search::{Found, scenario_file, shrink};

/// As many cases as an unoptimised build runs in a few seconds.
const CASES: u32 = 1_000;
/// The number of runs within which the search must catch a mutant.
const LIMIT: u64 = 1_500;

/// The failure of a run, with a scenario file that shows it.
fn wrong(found: Option<Found>) -> Option<String> {
    let found = found?;
    let kind = found.kinds().into_iter().find(|kind| !kind.is_by_design())?;
    let small =
        shrink::shrink_to(&found, &kind, shrink::EFFORT, &mut |_| ControlFlow::Continue(()));
    Some(format!("{kind}\n{}", scenario_file::file_of(&small, &kind)))
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
        assert_eq!(wrong(found), None, "{}", file.display());
    }
}

#[test]
fn mutants_are_found() {
    let mut missed = Vec::new();
    for mutant in
        Mutant::clients().filter(|mutant| *mutant != Mutant::None && mutant.shows_inside())
    {
        let search = Search {
            space: Space::INSIDE,
            seed: 0,
            runs: LIMIT,
            mutant,
            through: Through::Machines,
            jobs: 1,
        };
        match search.first() {
            Some((after, _, kind)) => println!("{mutant}: after {after} runs, {kind}"),
            None => missed.push(mutant.name()),
        }
    }
    assert!(missed.is_empty(), "not found in {LIMIT} runs: {}", missed.join(", "));
}
