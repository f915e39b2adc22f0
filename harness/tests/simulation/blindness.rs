//! Without one of its faults, a scenario that expects a violation ends in `not-seen`. So each fault
//! is needed, and no checker sees a violation that is not there. `tests/agree.rs` shows that real
//! masters give the same verdicts, and `tests/suite/program.rs` leaves out one fault there.

use redquorum_checker::{Outcome, check};
use redquorum_scenario::Mutant;

use crate::support::runs;

#[test]
fn no_violation_is_seen_without_its_fault() {
    let mut left_out = 0;
    for run in runs().into_iter().filter(|run| run.expect.any_violation()) {
        for fault in 0..run.faults.len() {
            let mut without = run.clone();
            without.faults.remove(fault);
            let verdict = check(&redquorum_simulator::run(&without, 1, Mutant::None));
            let lines = &verdict.differences;
            assert_eq!(verdict.outcome, Outcome::NotSeen, "{}, fault {fault}: {lines:?}", run.name);
            left_out += 1;
        }
    }
    assert!(left_out > 30, "{left_out} faults were left out");
}
