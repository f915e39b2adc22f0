//! The section of one run: its settings, its violations, a table of its leases, and its drawing.

use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::Serialize;

use super::chart::{Chart, Drawing, ROW, Scale, Tick};
use super::clients::granted;
use super::names::Names;
use super::text::{cut, line, ms, name};
use super::violations::{self, ViolationView};
use super::{Run, clients, faults, figures, masters, registers};
use redquorum_checker::{Case, prepare, reason_to_hold};
use redquorum_scenario::history::{Event, Ns, Phase, Window};

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
    figures: Vec<figures::Figure>,
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
        let (violations, more_violations) = violations::views(run.entry);
        let section = Self {
            violations,
            more_violations,
            about: cut(&scenario.about),
            source: scenario.source.as_deref().map(cut),
            setting: setting(run),
            notes: run.entry.repeated.clone(),
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
        self.focus = violations::focus(run, scale);
        if violations::none_found(run) {
            self.reason = reason_to_hold(case).map(|reason| cut(&reason));
        }
        self.leases = leases(&drawing);
        self.figures = figures::of(case);
        if case.leases.len() > MOST_LEASES {
            let more = case.leases.len() - MOST_LEASES;
            self.notes.push(format!("The table of leases leaves out {more}."));
        }
        self.chart = Some(chart(&drawing));
        self
    }
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
    lanes.extend(violations::lane(run, scale));
    lanes.extend(faults::lane(drawing));
    lanes.extend(clients::lanes(drawing));
    lanes.extend(masters::lanes(drawing));
    lanes.extend(registers::lanes(drawing));
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
        overlaps: violations::overlaps(run, scale, y),
        strikes: strikes.chain(phases).collect(),
        height: y + 4,
        from,
        to,
    }
}
