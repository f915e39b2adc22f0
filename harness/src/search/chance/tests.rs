//! A short search: that nothing goes wrong inside the assumptions is for `tests/inside.rs`.

use super::{Goal, Report, Search};
use crate::sabotage::Lie;
use crate::search::plan::Space;

fn search(space: Space, runs: u64, jobs: usize) -> Report {
    let search = Search { space, seed: 0, runs, lie: Lie::None, jobs };
    search.run(&|_| true)
}

#[test]
fn the_report_does_not_hang_on_the_number_of_threads() {
    assert_eq!(search(Space::OUTSIDE, 200, 1), search(Space::OUTSIDE, 200, 3));
}

#[test]
fn every_goal_is_reached() {
    let report = search(Space::INSIDE, 1_500, 2);
    assert_eq!(report.missed().collect::<Vec<Goal>>(), []);
}

#[test]
fn outside_of_the_assumptions_something_goes_wrong_for_a_reason() {
    let report = search(Space::OUTSIDE, 500, 2);
    assert!(!report.kinds.is_empty());
    let ours: Vec<_> = report.kinds.iter().filter(|(kind, _)| kind.is_unexplained()).collect();
    assert!(ours.is_empty(), "{ours:#?}");
}

#[test]
fn who_says_stop_is_heard() {
    let search = Search { space: Space::INSIDE, seed: 0, runs: 100_000, lie: Lie::None, jobs: 2 };
    let report = search.run(&|report| report.runs < 64);
    assert!((64..1_000).contains(&report.runs), "{}", report.runs);
}
