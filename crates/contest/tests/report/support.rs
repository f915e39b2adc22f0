//! A synthetic contest, and ways to change its figures.

use redquorum_contest::results::{Contest, Fault, Figures, Outcome, Run, Workload};

/// The contest of `tests/report/fixture/contest.json`. No database produced its figures.
pub(crate) fn fixture() -> Contest {
    let text = include_str!("fixture/contest.json");
    serde_json::from_str(text).expect("the fixture has the format of contest.json")
}

/// Changes the figures of all measured runs that `keep` selects, and checks that there are some.
pub(crate) fn change(
    contest: &mut Contest,
    keep: impl Fn(&Run) -> bool,
    edit: impl Fn(&mut Figures),
) {
    let mut changed = 0;
    for run in contest.runs.iter_mut().filter(|run| keep(run)) {
        if let Outcome::Measured(figures) = &mut run.outcome {
            edit(figures);
            changed += 1;
        }
    }
    assert!(changed > 0, "no run of the fixture was changed");
}

/// Whether a run is one of a strategy under a workload, without a fault.
pub(crate) fn is(run: &Run, strategy: &str, workload: Workload) -> bool {
    run.strategy == strategy && run.is_of(workload)
}

pub(crate) fn under(run: &Run, strategy: &str, fault: Fault) -> bool {
    run.strategy == strategy && run.fault == Some(fault)
}

pub(crate) fn oversell(figures: &mut Figures) {
    figures.rows = figures.places + 1;
    figures.counter = figures.rows;
    figures.oversold = 1;
}
