//! Without its first fault, a scenario that expects a violation ends in `not-seen`, on real masters
//! as in virtual time. There `tests/simulation/blindness.rs` leaves out every fault of every
//! variant.

use redquorum_harness::checker::{Outcome, check};
use redquorum_harness::scenario::{Scenario, embedded_runs};
use redquorum_rig::trials::{Case, thrice, with_masters};

use crate::support::processes;

pub(crate) fn cases() -> Vec<Case> {
    let is_needed = |run: &Scenario| run.expect.any_violation() && !run.faults.is_empty();
    let first = embedded_runs().filter(|run| is_needed(run) && !run.name.contains('/'));
    let cases: Vec<Case> = first.map(case).collect();
    assert!(cases.len() > 10, "{} scenarios", cases.len());
    cases
}

fn case(mut run: Scenario) -> Case {
    run.faults.remove(0);
    with_masters(&format!("{}_is_not_seen_without_its_first_fault", run.name), move || {
        let backend = processes();
        thrice(|| {
            let verdict = check(&backend.run(&run, 1, &mut |_| {}).unwrap());
            assert_eq!(verdict.outcome, Outcome::NotSeen, "{:?}", verdict.differences);
        });
    })
}
