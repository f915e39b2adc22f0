//! The geometry that both plots share: one panel for each network latency, one row for each
//! strategy.
//!
//! Panels are as wide as a phone, so that their text is readable without zooming.

use crate::recommend::{Assessment, Verdict};
use crate::results::{Contest, Outcome, Run, Workload};

/// The width of a panel.
pub(super) const WIDTH: f64 = 380.0;
/// Where the scale begins: to the right of the names of the strategies.
pub(super) const LEFT: f64 = 128.0;
/// Where the scale ends. Values are printed to the right of their bar.
pub(super) const RIGHT: f64 = 318.0;
/// The height of a row.
pub(super) const ROW: f64 = 26.0;
/// The space above the first row, for the labels of the axis.
pub(super) const TOP: f64 = 26.0;

/// The vertical middle of a row.
pub(super) fn middle(index: usize) -> f64 {
    TOP + ROW * (index as f64 + 0.5)
}

/// The height of a panel with this many rows.
pub(super) fn height(rows: usize) -> f64 {
    TOP + ROW * rows as f64 + 6.0
}

/// Rounds a coordinate to what a screen can show.
pub(super) fn round(coordinate: f64) -> f64 {
    (coordinate * 10.0).round() / 10.0
}

/// The network latencies of the throughput runs, in milliseconds.
pub(super) fn latencies(contest: &Contest) -> Vec<u32> {
    let mut latencies: Vec<_> =
        contest.runs.iter().filter(|it| is_measured(it)).map(|it| it.network_ms).collect();
    latencies.sort_unstable();
    latencies.dedup();
    latencies
}

/// The throughput runs of a strategy at a network latency.
pub(super) fn runs<'a>(
    contest: &'a Contest,
    strategy: &'a str,
    network_ms: u32,
) -> impl Iterator<Item = &'a Run> {
    contest.runs.iter().filter(move |run| {
        is_measured(run) && run.strategy == strategy && run.network_ms == network_ms
    })
}

/// Whether a strategy was wrong while nothing failed. Its bar is hatched.
pub(super) fn is_wrong(assessment: &Assessment) -> bool {
    assessment.workloads.iter().any(|(_, it)| matches!(it.verdict(), Verdict::Wrong(_)))
}

/// Why a strategy has no figures in a panel.
pub(super) fn absence(assessment: &Assessment) -> &'static str {
    match assessment.workload(Workload::Throughput) {
        Verdict::NotOffered(_) => "not offered",
        Verdict::Failed(_) => "not completed",
        Verdict::Correct | Verdict::Wrong(_) | Verdict::NotRun => "not run",
    }
}

fn is_measured(run: &Run) -> bool {
    let is_throughput = run.workload == Workload::Throughput && run.fault.is_none();
    is_throughput && matches!(run.outcome, Outcome::Measured(_))
}
