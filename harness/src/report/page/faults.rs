//! The lane of faults: a flag where each fault struck, and a bar while it was in force.

use super::chart::{Drawing, Lane, Mark, ROW, pack};
use super::text::{cut, line, name};
use redquorum_checker::{Case, Strike, named};
use redquorum_scenario::history::{Event, Window};

pub(super) fn lane(drawing: &Drawing<'_>) -> Option<Lane> {
    let Drawing { run, case, scale, .. } = *drawing;
    let strikes = case.faults.strikes();
    if strikes.is_empty() {
        return None;
    }
    let mut lane = Lane::new("faults", "faults");
    // The checker has the faults in the order of these records.
    let records = run.history.records.iter().enumerate();
    let mut struck = records.filter(|(_, record)| matches!(record.event, Event::Struck { .. }));
    let windows: Vec<Window> = strikes.iter().map(Strike::span).collect();
    let (rows, count) = pack(scale, &windows, 0.14);
    for ((strike, span), row) in strikes.iter().zip(windows).zip(rows) {
        let y = 3 + row * ROW;
        let failed = if strike.failed { ", did not strike" } else { "" };
        let fault = format!("{} {}", strike.number, strike.fault.kind.name());
        let text = format!("{fault}{}{failed}", targets(case, strike));
        let place = struck.next().map_or(0, |(record, _)| line(record));
        let detail = serde_json::to_string(&strike.fault.effect()).unwrap_or_default();
        let title =
            format!("fault {text}, {}, line {place}: {}", scale.span_text(span), cut(&detail));
        let x = scale.x(span.from);
        let class = if strike.failed { "bad" } else { "fault" }.to_owned();
        if scale.part(span.to) > scale.part(span.from) {
            let bar = scale.bar(span, y, ROW - 3, "state fault", "");
            lane.bars.push(bar.titled(title.clone()));
        }
        lane.marks.push(Mark { x, y: y + 6, class, symbol: "flag", text, title, left: false });
    }
    lane.height = 6 + count * ROW;
    Some(lane)
}

/// The target of the fault, as in ` on masters 4, 5 for c1`.
fn targets(case: &Case<'_>, strike: &Strike<'_>) -> String {
    let mut text = match &strike.masters(case)[..] {
        [] => String::new(),
        nodes => format!(" on {}", named(nodes)),
    };
    let processes = strike.clients(case);
    if !processes.is_empty() && processes.len() <= 4 {
        let all: Vec<String> = processes.into_iter().map(name).collect();
        text += &format!(" for {}", all.join(", "));
    }
    text
}
