//! The violations: in the words of the checkers, and as bars of a drawing.

use serde::Serialize;

use super::chart::{Bar, Lane, ROW, Scale, pack};
use super::text::cut;
use super::{Run, overview};
use crate::report::{Ended, Entry};
use redquorum_checker::{Observed, Violation};
use redquorum_scenario::history::Window;
use redquorum_scenario::{Property, Wanted};

/// The largest number of violations in the list.
const MOST_FINDINGS: usize = 20;

#[derive(Clone, Debug, Serialize)]
pub(super) struct ViolationView {
    property: String,
    certain: bool,
    causes: Vec<(&'static str, &'static str)>,
    expected: bool,
    lines: Vec<String>,
}

fn findings<'r>(run: &Run<'r>) -> &'r [Violation] {
    match &run.entry.ended {
        Ended::Checked(verdict) => &verdict.findings,
        _ => &[],
    }
}

/// Whether the checkers checked the run and found no violation.
pub(super) fn none_found(run: &Run<'_>) -> bool {
    matches!(&run.entry.ended, Ended::Checked(verdict) if verdict.findings.is_empty())
}

/// The violations, in the words of the checkers.
pub(super) fn views(entry: &Entry) -> (Vec<ViolationView>, usize) {
    let Ended::Checked(verdict) = &entry.ended else { return (Vec::new(), 0) };
    let mut findings: Vec<&Violation> = verdict.findings.iter().collect();
    // Mutual exclusion comes first: the other violations usually follow from it.
    findings.sort_by_key(|finding| (finding.property, finding.from));
    let all = findings.into_iter().take(MOST_FINDINGS).map(|finding| {
        let causes = finding.causes.iter().map(|cause| (cause.name(), cause.about()));
        ViolationView {
            property: overview::title(finding.property),
            certain: finding.seen == Observed::Violated,
            causes: causes.collect(),
            expected: entry.expect.of(finding.property) == Wanted::Violated,
            lines: finding.explanation.iter().map(|line| cut(line)).collect(),
        }
    });
    (all.collect(), verdict.findings.len().saturating_sub(MOST_FINDINGS))
}

/// The first violation, and a short period around it.
pub(super) fn focus(run: &Run<'_>, scale: Scale) -> Option<(f64, f64)> {
    let exclusion =
        findings(run).iter().find(|finding| finding.property == Property::MutualExclusion);
    let first = exclusion.or_else(|| findings(run).first())?;
    let (from, to) = (scale.part(first.from), scale.part(first.to));
    let around = ((to - from) * 0.5).max(0.002);
    Some(((from - around).max(0.0), (to + around).min(1.0)))
}

/// The periods in which two clients believed at once that they hold the resource, drawn over all
/// lanes.
pub(super) fn overlaps(run: &Run<'_>, scale: Scale, height: u32) -> Vec<Bar> {
    let certain = findings(run).iter().filter(|finding| {
        finding.property == Property::MutualExclusion && finding.seen == Observed::Violated
    });
    let bars = certain.take(200).map(|finding| {
        let window = Window { from: finding.from, to: finding.to };
        let title = cut(&finding.explanation.join("; "));
        scale.bar(window, 20, height - 20, "overlap", "").titled(title)
    });
    bars.collect()
}

pub(super) fn lane(run: &Run<'_>, scale: Scale) -> Option<Lane> {
    let findings = findings(run);
    if findings.is_empty() {
        return None;
    }
    let mut lane = Lane::new("violations", "violations");
    let some = &findings[..findings.len().min(200)];
    let windows: Vec<Window> =
        some.iter().map(|finding| Window { from: finding.from, to: finding.to }).collect();
    let (rows, count) = pack(scale, &windows, 0.2);
    for ((finding, window), row) in some.iter().zip(&windows).zip(rows) {
        let certain = finding.seen == Observed::Violated;
        let verb = if certain { "violated" } else { "perhaps violated" };
        let text = format!("✗ {} {verb}", overview::title(finding.property));
        let class = if certain { "violation" } else { "violation open" };
        let title = format!(
            "{text}, {}: {}",
            scale.span_text(*window),
            cut(&finding.explanation.join("; "))
        );
        // The text may go beyond its bar: the row is free there.
        let bar = Bar { text, ..scale.bar(*window, 3 + row * ROW, ROW - 3, class, "") };
        lane.bars.push(bar.titled(title));
    }
    lane.height = 6 + count * ROW;
    Some(lane)
}
