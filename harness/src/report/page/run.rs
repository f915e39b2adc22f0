//! The section of one run: its settings, its violations in the words of the checkers and as bars, a
//! table of its leases, its drawing, and its figures.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::super::{Ended, Entry, page, timeline};
use super::Run;
use super::chart::{Bar, Chart, Drawing, Lane, Names, ROW, Scale, Tick, cut, line, ms, name, pack};
use super::lanes::{self, granted};
use redquorum_checker::{
    Case, Observed, Violation, commands_per_acquisition, prepare, reason_to_hold, times,
};
use redquorum_scenario::history::{Event, Ns, Phase, Window};
use redquorum_scenario::{Property, Wanted};
use serde::Serialize;

/// A run with more events is summarised: the drawing omits commands and steps.
pub(super) const MOST_EVENTS: usize = 20_000;
/// The largest number of leases in the table.
const MOST_LEASES: usize = 60;

/// The values of a run that the template shows.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Section {
    about: String,
    source: Option<String>,
    setting: String,
    violations: Vec<ViolationView>,
    more_violations: usize,
    /// Why a run without violations holds under its faults.
    reason: Option<String>,
    notes: Vec<String>,
    pub(super) chart: Option<Chart>,
    leases: Vec<LeaseRow>,
    /// Why requests were refused.
    refusals: Vec<String>,
    /// What client processes wrote on standard error.
    errors: Vec<(String, String)>,
    figures: Vec<Figure>,
    /// The position of the first violation on the axis, from 0 to 1.
    focus: Option<(f64, f64)>,
}

#[derive(Clone, Debug, Serialize)]
struct LeaseRow {
    client: String,
    class: &'static str,
    resource: String,
    believed: String,
    ending: &'static str,
    supported: String,
    gap: String,
    granted: String,
    line: usize,
}

impl Section {
    /// The section of a run. A history that cannot be drawn yields a section with a note.
    pub(super) fn new(run: &Run<'_>) -> Self {
        let scenario = &run.history.header.scenario;
        let (violations, more_violations) = violation_views(run.entry);
        let section = Self {
            violations,
            more_violations,
            about: cut(&scenario.about),
            source: scenario.source.as_deref().map(cut),
            setting: setting(run),
            notes: run.entry.repeated.clone(),
            errors: errors(run.entry),
            ..Self::default()
        };
        let with_note = |mut section: Self, note: &str| {
            section.notes.push(note.to_owned());
            section
        };
        if run.history.records.is_empty() {
            return with_note(section, "The history has no events.");
        }
        // The history may come from any program. If the checkers panic on it, the other runs remain
        // in the report.
        let drawn = || prepare(run.history, |case| section.clone().drawn(run, case));
        catch_unwind(AssertUnwindSafe(drawn)).unwrap_or_else(|_| {
            with_note(section, "The checkers failed on this history: no timeline.")
        })
    }

    fn drawn(mut self, run: &Run<'_>, case: &Case<'_>) -> Self {
        let events = run.history.records.len();
        let full = events <= MOST_EVENTS;
        if !full {
            self.notes.push(format!(
                "Summarised: {events} events. Commands and steps are left out, and of each lane \
                 all but the first bars; history.jsonl has them."
            ));
        }
        let (names, scale) = (Names::new(run, case), scale(run, case));
        let drawing = Drawing { run, case, scale, names: &names, full };
        self.focus = focus(run, scale);
        if none_found(run) {
            self.reason = reason_to_hold(case).map(|reason| cut(&reason));
        }
        self.leases = leases(&drawing);
        self.refusals = timeline::refusals(case);
        self.figures = figures_of(case);
        if case.leases.len() > MOST_LEASES {
            let more = case.leases.len() - MOST_LEASES;
            self.notes.push(format!("The table of leases leaves out {more}."));
        }
        self.chart = Some(chart(&drawing));
        self
    }
}

/// What the client processes of a run that needs an explanation wrote on standard error.
fn errors(entry: &Entry) -> Vec<(String, String)> {
    let all = if page::is_needed(entry) { entry.errors() } else { Vec::new() };
    all.into_iter().map(|(process, lines)| (process, lines.join("\n"))).collect()
}

/// What a lease requires in this run.
fn setting(run: &Run<'_>) -> String {
    let scenario = &run.history.header.scenario;
    let (n, q) = (scenario.cluster.nodes, scenario.cluster.quorum());
    format!(
        "{n} masters. To hold a resource, a client sets a key with its token on at least {q} of \
         them, a quorum. A master drops the key {} later, by its own clock. The margin of a grant is \
         the number of masters that must forget the key before another client can get a quorum. \
         Masters of this run: {}. Harness {}.",
        scenario.lock.ttl,
        cut(&run.history.header.masters),
        cut(&run.history.header.harness)
    )
}

/// From the first event that matters to the last one.
fn scale(run: &Run<'_>, case: &Case<'_>) -> Scale {
    let records = &run.history.records;
    let end = records.iter().map(|record| record.ns).max().unwrap_or(0);
    let first = case.requests.iter().map(|request| request.asked).min().unwrap_or(0);
    let first = first.clamp(-10_000_000_000, 0);
    // A little room at both ends, so that marks there are complete.
    let room = end.saturating_sub(first) / 60;
    Scale::new(first.saturating_sub(room), end.saturating_add(room))
}

fn leases(drawing: &Drawing<'_>) -> Vec<LeaseRow> {
    let Drawing { case, scale, names, .. } = *drawing;
    let spans = |all: &[Window]| {
        let some: Vec<String> = all.iter().take(3).map(|window| scale.span_text(*window)).collect();
        let more =
            if all.len() > 3 { format!(" and {} more", all.len() - 3) } else { String::new() };
        if some.is_empty() { "—".to_owned() } else { some.join("; ") + &more }
    };
    let length = |all: &[Window]| {
        let all = all.iter().map(|window| window.to.saturating_sub(window.from));
        all.fold(0, Ns::saturating_add)
    };
    let rows = case.leases.iter().take(MOST_LEASES).map(|lease| LeaseRow {
        client: name(lease.client),
        class: names.class(lease.client),
        resource: name(lease.resource),
        believed: spans(&lease.believed().collect::<Vec<_>>()),
        ending: lease.ending.name(),
        supported: spans(&case.supported(lease)),
        gap: match length(case.hollow(lease)) {
            0 => "none".to_owned(),
            gap => ms(gap),
        },
        granted: granted(drawing, lease),
        line: line(lease.reply.record),
    });
    rows.collect()
}

fn chart(drawing: &Drawing<'_>) -> Chart {
    let Drawing { run, case, scale, .. } = *drawing;
    let mut lanes = Vec::new();
    lanes.extend(violation_lane(run, scale));
    lanes.extend(lanes::fault_lane(drawing));
    lanes.extend(lanes::client_lanes(drawing));
    lanes.extend(lanes::master_lanes(drawing));
    lanes.extend(lanes::register_lanes(drawing));
    let mut y = 22;
    for lane in &mut lanes {
        lane.limit(if drawing.full { 3_000 } else { 500 });
        // Captions, and therefore the name of the lane, need a line of their own.
        lane.height = lane.height.max(ROW + 6);
        lane.y = y;
        lane.bars.iter_mut().for_each(|bar| bar.y += y);
        lane.marks.iter_mut().for_each(|mark| mark.y += y);
        y += lane.height;
    }
    let phases = run.history.records.iter().filter_map(|record| match record.event {
        Event::Phase { phase: Phase::Heal } => Some(Tick {
            x: scale.x(record.ns),
            text: "all faults healed; every client acquires once more".to_owned(),
        }),
        _ => None,
    });
    let strikes = case.faults.strikes().iter().filter(|strike| !strike.failed).take(100);
    let strikes = strikes.map(|strike| Tick { x: scale.x(strike.at.from), text: String::new() });
    let (from, to) = scale.ends();
    Chart {
        lanes,
        ticks: scale.ticks(),
        overlaps: overlaps(run, scale, y),
        strikes: strikes.chain(phases).collect(),
        height: y + 4,
        from,
        to,
    }
}

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
fn none_found(run: &Run<'_>) -> bool {
    matches!(&run.entry.ended, Ended::Checked(verdict) if verdict.findings.is_empty())
}

/// The violations, in the words of the checkers.
pub(super) fn violation_views(entry: &Entry) -> (Vec<ViolationView>, usize) {
    let Ended::Checked(verdict) = &entry.ended else { return (Vec::new(), 0) };
    let mut findings: Vec<&Violation> = verdict.findings.iter().collect();
    // Mutual exclusion comes first: the other violations usually follow from it.
    findings.sort_by_key(|finding| (finding.property, finding.from));
    let all = findings.into_iter().take(MOST_FINDINGS).map(|finding| {
        let causes = finding.causes.iter().map(|cause| (cause.name(), cause.about()));
        ViolationView {
            property: page::title(finding.property),
            certain: finding.seen == Observed::Violated,
            causes: causes.collect(),
            expected: entry.expect.of(finding.property) == Wanted::Violated,
            lines: finding.explanation.iter().map(|line| cut(line)).collect(),
        }
    });
    (all.collect(), verdict.findings.len().saturating_sub(MOST_FINDINGS))
}

/// The first violation, and a short period around it.
fn focus(run: &Run<'_>, scale: Scale) -> Option<(f64, f64)> {
    let exclusion =
        findings(run).iter().find(|finding| finding.property == Property::MutualExclusion);
    let first = exclusion.or_else(|| findings(run).first())?;
    let (from, to) = (scale.part(first.from), scale.part(first.to));
    let context = ((to - from) * 0.5).max(0.002);
    Some(((from - context).max(0.0), (to + context).min(1.0)))
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

fn violation_lane(run: &Run<'_>, scale: Scale) -> Option<Lane> {
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
        let text = format!("✗ {} {verb}", page::title(finding.property));
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

/// Fewer values are no distribution.
const FEW: usize = 5;
/// The heights of the histogram's bars.
const HEIGHTS: [char; 9] = ['·', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const BARS: usize = 24;

/// The distribution of a time or of a number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Figure {
    what: &'static str,
    count: usize,
    least: String,
    median: String,
    most_of: String,
    most: String,
    /// The number of values in equal parts of the range, as bars.
    histogram: String,
}

/// The figures of a run with many leases: how long acquires and hand-overs took, and how many
/// commands an acquisition took.
fn figures_of(case: &Case<'_>) -> Vec<Figure> {
    let (acquires, hand_overs) = times(case);
    let figures = [
        figure("time to acquire", acquires, ms),
        figure("time from the end of a lease to the grant of a waiter", hand_overs, ms),
        figure("commands per acquisition", commands_per_acquisition(case), |count| {
            count.to_string()
        }),
    ];
    figures.into_iter().flatten().collect()
}

fn figure(what: &'static str, mut values: Vec<i64>, text: fn(i64) -> String) -> Option<Figure> {
    if values.len() < FEW {
        return None;
    }
    values.sort_unstable();
    let at = |part: usize| text(values[(values.len() - 1) * part / 10]);
    Some(Figure {
        what,
        count: values.len(),
        least: at(0),
        median: at(5),
        most_of: at(9),
        most: at(10),
        histogram: histogram(&values),
    })
}

/// A bar for each part of the range of sorted values. A part with a value has a visible bar.
fn histogram(values: &[i64]) -> String {
    let (least, most) = (values[0], values[values.len() - 1]);
    let mut counts = [0; BARS];
    for value in values {
        let part = i128::from(value - least) * BARS as i128 / i128::from((most - least).max(1));
        counts[usize::try_from(part).unwrap_or(0).min(BARS - 1)] += 1;
    }
    let highest = counts.into_iter().max().unwrap_or(1);
    counts
        .map(|count: usize| HEIGHTS[(count * (HEIGHTS.len() - 1)).div_ceil(highest)])
        .iter()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_takes_a_few_values() {
        let ms = |values: &[i64]| {
            figure("x", values.iter().map(|value| value * 1_000_000).collect(), ms)
        };
        assert_eq!(ms(&[1, 2, 3, 4]), None);
        let figure = ms(&[25, 1, 1, 1, 2, 1]).unwrap();
        assert_eq!((&*figure.least, &*figure.median, &*figure.most), ("1 ms", "1 ms", "25 ms"));
        assert_eq!(figure.histogram, format!("█▂{}▂", "·".repeat(21)));
        assert_eq!(ms(&[7; 5]).unwrap().histogram, format!("█{}", "·".repeat(23)));
    }
}
