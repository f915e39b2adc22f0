//! With a fault switched off, a scenario that expects a violation ends in `not-seen`. So each fault
//! is needed, and no checker sees a violation that is not there.

use redquorum_harness::scenario::embedded_runs;
use redquorum_rig::trials::{Case, with_masters};

use crate::support::{ask, folder};

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for run in embedded_runs().filter(|run| run.expect.any_violation()) {
        for number in 1..=run.faults.len() {
            let name = run.name.clone();
            let case = format!("{}_is_not_seen_without_its_fault_{number}", run.name);
            cases.push(with_masters(&case.clone(), move || is_blind(&case, &name, number)));
        }
    }
    assert!(!cases.is_empty());
    cases
}

fn is_blind(case: &str, name: &str, number: usize) {
    let number = number.to_string();
    // The program runs all variants of a name. The scenario itself is the first.
    let ended = ask(&folder(case), &[name, "--without-fault", &number]);
    let result = ended.result.expect("a result");
    let run = result.scenarios.iter().find(|run| run.name == name).expect("it was run");
    assert_eq!(run.outcome, "not-seen", "{}", ended.output);
    assert_eq!(ended.code, Some(2), "{}", ended.output);
}
