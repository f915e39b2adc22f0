//! The section of one run: its settings, its violations, a table of its leases, and its drawing.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::Serialize;

use super::chart::{Chart, ROW, Scale, Tick};
use super::clients::granted;
use super::text::{cut, line, ms, name};
use super::violations::{self, ViolationView};
use super::{Run, clients, faults, masters, registers};
use crate::checker::timeline::{LeaseSpan, Timeline, timeline};
use crate::history::{Event, Ns, Phase, Window};

/// A run with more events is summarised: the drawing omits commands and steps.
pub(super) const MOST_EVENTS: usize = 20_000;
/// The largest number of leases in the table.
const MOST_LEASES: usize = 60;

/// The level of detail of a drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Detail {
    Full,
    Summary,
}

/// The values of a run that the template shows.
#[derive(Debug, Serialize)]
pub(super) struct Section {
    about: String,
    source: Option<String>,
    setting: String,
    violations: Vec<ViolationView>,
    more_violations: usize,
    notes: Vec<String>,
    chart: Option<Chart>,
    leases: Vec<LeaseRow>,
    /// The position of the first violation on the axis, from 0 to 1.
    focus: Option<(f64, f64)>,
}

#[derive(Debug, Serialize)]
struct LeaseRow {
    client: String,
    class: String,
    resource: String,
    believed: String,
    ending: &'static str,
    supported: String,
    gap: String,
    granted: String,
    line: usize,
}

/// The colour of each client, and the client of each token.
pub(super) struct Names<'a> {
    classes: BTreeMap<&'a str, &'static str>,
    tokens: BTreeMap<&'a str, &'a str>,
}

const CLASSES: [&str; 8] = ["k0", "k1", "k2", "k3", "k4", "k5", "k6", "k7"];

impl<'a> Names<'a> {
    fn new(run: &Run<'a>, timeline: &'a Timeline) -> Self {
        let mut classes = BTreeMap::new();
        for (index, client) in run.history.header.scenario.clients.iter().enumerate() {
            let class = CLASSES[index % CLASSES.len()];
            classes.insert(client.id.as_str(), class);
            classes.entry(client.process().as_str()).or_insert(class);
        }
        let of_token = |lease: &'a LeaseSpan| {
            lease.token.as_deref().map(|token| (token, lease.client.as_str()))
        };
        Self { classes, tokens: timeline.leases.iter().filter_map(of_token).collect() }
    }

    /// The CSS class of a client, or of a process.
    pub(super) fn class(&self, name: &str) -> &'static str {
        self.classes.get(name).copied().unwrap_or("k7")
    }

    /// The client that was granted a token.
    pub(super) fn of_token(&self, token: &str) -> Option<&'a str> {
        self.tokens.get(token).copied()
    }
}

impl Section {
    /// The section of a run. A history that cannot be drawn yields a section that says so.
    pub(super) fn new(run: &Run<'_>) -> Self {
        let scenario = &run.history.header.scenario;
        let (violations, more_violations) = violations::told(run.entry);
        let mut section = Self {
            violations,
            more_violations,
            about: cut(&scenario.about),
            source: scenario.source.as_deref().map(cut),
            setting: setting(run),
            notes: run.entry.repeated.clone(),
            chart: None,
            leases: Vec::new(),
            focus: None,
        };
        if run.history.records.is_empty() {
            section.notes.push("The history has no events.".to_owned());
            return section;
        }
        // The history may come from any program. If the checkers panic on it, the other runs remain
        // in the report.
        let Ok(timeline) = catch_unwind(AssertUnwindSafe(|| timeline(run.history))) else {
            section.notes.push("The checkers failed on this history: no timeline.".to_owned());
            return section;
        };
        let events = run.history.records.len();
        let detail = if events > MOST_EVENTS { Detail::Summary } else { Detail::Full };
        if detail == Detail::Summary {
            section.notes.push(format!(
                "Summarised: {events} events. Commands and steps are left out, and of each lane \
                 all but the first bars; history.jsonl has them."
            ));
        }
        let names = Names::new(run, &timeline);
        let scale = scale(run, &timeline);
        section.focus = violations::focus(run, scale);
        section.leases = leases(&timeline, &names, scale);
        if timeline.leases.len() > MOST_LEASES {
            let more = timeline.leases.len() - MOST_LEASES;
            section.notes.push(format!("The table of leases leaves out {more}."));
        }
        section.chart = Some(chart(run, &timeline, scale, &names, detail));
        section
    }
}

#[cfg(test)]
impl Section {
    pub(super) fn into_chart(self) -> Option<Chart> {
        self.chart
    }
}

/// What a lease requires in this run.
fn setting(run: &Run<'_>) -> String {
    let scenario = &run.history.header.scenario;
    let (n, q) = (scenario.cluster.nodes, scenario.cluster.quorum());
    format!(
        "{n} masters. A client holds a resource while its token is on {q} of them, a quorum. A \
         master drops the token {} after it was set, by its own clock. Masters of this run: {}. \
         Harness {}.",
        scenario.lock.ttl,
        cut(&run.history.header.masters),
        cut(&run.history.header.harness)
    )
}

/// From the first event that matters to the last one.
fn scale(run: &Run<'_>, timeline: &Timeline) -> Scale {
    let records = &run.history.records;
    let end = records.iter().map(|record| record.ns).max().unwrap_or(0);
    let first = timeline.requests.iter().map(|request| request.span.from).min().unwrap_or(0);
    let first = first.clamp(-10_000_000_000, 0);
    // A little room at both ends, so that marks there are complete.
    let room = end.saturating_sub(first) / 60;
    Scale::new(first.saturating_sub(room), end.saturating_add(room))
}

fn leases(timeline: &Timeline, names: &Names<'_>, scale: Scale) -> Vec<LeaseRow> {
    let spans = |all: &[Window]| {
        let some: Vec<String> = all.iter().take(3).map(|window| scale.told(*window)).collect();
        let more =
            if all.len() > 3 { format!(" and {} more", all.len() - 3) } else { String::new() };
        if some.is_empty() { "—".to_owned() } else { some.join("; ") + &more }
    };
    let length = |all: &[Window]| {
        let all = all.iter().map(|window| window.to.saturating_sub(window.from));
        all.fold(0, Ns::saturating_add)
    };
    let rows = timeline.leases.iter().take(MOST_LEASES).map(|lease| LeaseRow {
        client: name(&lease.client),
        class: names.class(&lease.client).to_owned(),
        resource: name(&lease.resource),
        believed: spans(&lease.believed),
        ending: lease.ending,
        supported: spans(&lease.supported),
        gap: match length(&lease.gaps) {
            0 => "none".to_owned(),
            gap => ms(gap),
        },
        granted: granted(lease),
        line: line(lease.record),
    });
    rows.collect()
}

fn chart(
    run: &Run<'_>,
    timeline: &Timeline,
    scale: Scale,
    names: &Names<'_>,
    detail: Detail,
) -> Chart {
    let mut lanes = Vec::new();
    lanes.extend(violations::lane(run, scale));
    lanes.extend(faults::lane(run, timeline, scale));
    lanes.extend(clients::lanes(run, timeline, scale, names, detail));
    lanes.extend(masters::lanes(run, timeline, scale, names, detail));
    lanes.extend(registers::lanes(run, scale, names));
    let mut y = 22;
    for lane in &mut lanes {
        lane.limit(if detail == Detail::Full { 3_000 } else { 500 });
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
    let strikes = timeline.faults.iter().filter(|fault| !fault.failed).take(100);
    let strikes = strikes.map(|fault| Tick { x: scale.x(fault.span.from), text: String::new() });
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
