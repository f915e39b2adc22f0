//! Masters that come back slowly, as containers on a busy machine do.
//!
//! In many scenarios a client depends on a master that was down. Each must leave so much time that
//! its result is the same on a slow machine: no one who sees it fail there could tell why.

use std::time::Duration;

use redquorum_checker::{Outcome, check};
use redquorum_scenario::Scenario;
use redquorum_simulator::run_with_slow_starts;

use crate::support::{runs, scenario};

/// How long an engine on a busy machine takes to start a container again. A process takes less.
const SLOW: Duration = Duration::from_secs(2);

/// Whether a master comes back in a run, before its end.
fn starts_again(run: &Scenario) -> bool {
    run.faults.iter().any(|fault| {
        let at_once = fault.kind.is_at_once();
        fault.kind.starts_again() && (at_once || fault.lasts.is_some())
    })
}

/// What differs in a run whose masters start slowly, if anything does.
fn differs(run: &Scenario, seed: u64, start: Duration) -> Option<String> {
    let verdict = check(&run_with_slow_starts(run, seed, start));
    let differs = verdict.outcome == Outcome::Differs || verdict.outcome == Outcome::NotSeen;
    differs.then(|| format!("{}, seed {seed}: {:?}", run.name, verdict.differences))
}

#[test]
fn masters_have_the_time_that_they_need_to_come_back() {
    let runs: Vec<Scenario> = runs().into_iter().filter(starts_again).collect();
    assert!(runs.len() > 20, "{}", runs.len());
    let seeds = |run| (0..5).find_map(move |seed| differs(run, seed, SLOW));
    let wrong: Vec<String> = runs.iter().filter_map(seeds).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_scenario_that_leaves_too_little_time_would_be_seen() {
    for (start, is_hasty) in [("500ms", true), ("4s", false)] {
        let run = scenario(&format!(
            "name = \"t\"\nabout = \"A test.\"\n\
             [[client]]\nid = \"c\"\nstart = \"{start}\"\nscript = [\"acquire L wait 1s\"]\n\
             [[fault]]\nat = \"0s\"\nfor = \"100ms\"\nnode.kill = {{ nodes = [1, 2, 3] }}\n\
             [expect]\nacquires = {{ c = \"granted\" }}\n"
        ));
        assert!(starts_again(&run));
        assert_eq!(differs(&run, 0, Duration::from_millis(25)), None);
        assert_eq!(differs(&run, 0, SLOW).is_some(), is_hasty, "{start}");
    }
}
