//! The totals of all runs in one sentence: the same on the terminal and in `report.html`.

use std::fmt::Write as _;

use super::{Ended, Entry};
use redquorum_checker::Outcome;

/// `130 scenarios must hold: 130 do. 58 must break: 58 did, for the named cause.` Runs that were
/// skipped, or that have no verdict, follow at the end.
pub(crate) fn sentence(entries: &[Entry]) -> String {
    let (mut hold, mut holds, mut fail, mut failed, mut open) = (0, 0, 0, 0, 0);
    for entry in entries {
        let Ended::Checked(verdict) = &entry.ended else {
            open += 1;
            continue;
        };
        let good = usize::from(verdict.outcome == Outcome::AsExpected);
        if entry.expect.any_violation() {
            fail += 1;
            failed += good;
        } else {
            hold += 1;
            holds += good;
        }
    }
    // A scenario that runs on several backends, or several times, counts as several runs.
    let first = entries.first();
    let once = entries
        .iter()
        .all(|entry| entry.time == 0 && Some(&entry.backend) == first.map(|e| &e.backend));
    let noun = match (once, hold) {
        (true, 1) => "scenario",
        (true, _) => "scenarios",
        (false, 1) => "run",
        (false, _) => "runs",
    };
    let does = if holds == 1 { "does" } else { "do" };
    let mut text = format!(
        "{hold} {noun} must hold: {holds} {does}. {fail} must break: {failed} did, for the named cause."
    );
    if open > 0 {
        _ = write!(text, " {open} not checked.");
    }
    text
}
