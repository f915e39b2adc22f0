//! The lane of faults: a flag where each fault struck, and a bar while it was in force.

use super::Run;
use super::chart::{Lane, Mark, ROW, Scale, pack};
use super::text::{cut, line};
use crate::checker::timeline::{FaultSpan, Timeline};
use crate::history::{Event, Window};
use crate::scenario::FaultKind;

pub(super) fn lane(run: &Run<'_>, timeline: &Timeline, scale: Scale) -> Option<Lane> {
    if timeline.faults.is_empty() {
        return None;
    }
    let mut lane =
        Lane { label: "faults".to_owned(), class: "faults".to_owned(), ..Lane::default() };
    // The timeline lists the faults in the order of these records.
    let records = run.history.records.iter().enumerate();
    let struck = records.filter(|(_, record)| matches!(record.event, Event::Struck { .. }));
    let struck: Vec<usize> = struck.map(|(index, _)| index).collect();
    let windows: Vec<Window> = timeline.faults.iter().map(|fault| fault.span).collect();
    let (rows, count) = pack(scale, &windows, 0.14);
    for ((index, fault), row) in timeline.faults.iter().enumerate().zip(rows) {
        let y = 3 + row * ROW;
        let failed = if fault.failed { ", did not strike" } else { "" };
        let text = format!("{} {}{}{failed}", fault.fault, fault.fault_kind.name(), targets(fault));
        let place = struck.get(index).map_or(0, |record| line(*record));
        let title = format!(
            "fault {text}, {}, line {place}: {}",
            scale.told(fault.span),
            cut(&detail(&fault.fault_kind))
        );
        let x = scale.x(fault.span.from);
        let class = if fault.failed { "bad" } else { "fault" }.to_owned();
        if scale.part(fault.span.to) > scale.part(fault.span.from) {
            let bar = scale.bar(fault.span, y, ROW - 3, "state fault", "");
            lane.bars.push(bar.titled(title.clone()));
        }
        lane.marks.push(Mark { x, y: y + 6, class, symbol: "flag", text, title, left: false });
    }
    lane.height = 6 + count * ROW;
    Some(lane)
}

/// The target of the fault, as in ` on masters 4, 5 for c1`.
fn targets(fault: &FaultSpan) -> String {
    let nodes: Vec<String> = fault.nodes.iter().map(usize::to_string).collect();
    let mut text = match nodes.len() {
        0 => String::new(),
        1 => format!(" on master {}", nodes[0]),
        _ => format!(" on masters {}", nodes.join(", ")),
    };
    if !fault.processes.is_empty() && fault.processes.len() <= 4 {
        let all: Vec<String> = fault.processes.iter().map(|of| super::text::name(of)).collect();
        text += &format!(" for {}", all.join(", "));
    }
    text
}

/// The fault as the history records it.
fn detail(fault_kind: &FaultKind) -> String {
    serde_json::to_string(fault_kind).unwrap_or_default()
}
