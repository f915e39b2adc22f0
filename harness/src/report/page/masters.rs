//! The lane of a master: the token on it, the commands that reached it, and its state.

use super::Run;
use super::chart::{Bar, Lane, Mark, ROW, Scale, pack};
use super::run::{Detail, Names};
use super::text::{line, ms, name, token};
use crate::checker::timeline::{FaultSpan, KeySpan, Timeline};
use crate::history::{Act, Event, Ns, Outcome, Window};
use crate::scenario::{FaultKind, NodeFault};

/// The largest number of masters, and of resources of each, that the page draws.
const MOST: usize = 12;
const MOST_RESOURCES: usize = 4;

pub(super) fn lanes(
    run: &Run<'_>,
    timeline: &Timeline,
    scale: Scale,
    names: &Names<'_>,
    detail: Detail,
) -> Vec<Lane> {
    let nodes = run.history.header.scenario.cluster.nodes.min(MOST);
    let mut commands: Vec<Vec<Mark>> = vec![Vec::new(); nodes + 1];
    if detail == Detail::Full {
        for (record, entry) in run.history.records.iter().enumerate() {
            if let Event::Command { node, .. } = &entry.event
                && let Some(of_node) = commands.get_mut(*node)
            {
                of_node.extend(command(&entry.event, record, scale, names));
            }
        }
    }
    let lanes = (1..=nodes).map(|node| {
        let mut lane =
            Lane { label: format!("master {node}"), class: "master".to_owned(), ..Lane::default() };
        let y = keys(node, timeline, scale, names, &mut lane);
        let mut own = std::mem::take(&mut commands[node]);
        own.iter_mut().for_each(|mark| mark.y = y + 5);
        if !own.is_empty() {
            lane.caption(y, "commands");
        }
        lane.marks = own;
        let y = y + if detail == Detail::Full { 14 } else { 0 };
        lane.height = states(node, run, timeline, scale, y, &mut lane) + 4;
        lane
    });
    lanes.collect()
}

/// The tokens on a master, a row for each resource.
fn keys(node: usize, timeline: &Timeline, scale: Scale, names: &Names<'_>, lane: &mut Lane) -> u32 {
    let own: Vec<&KeySpan> = timeline.keys.iter().filter(|key| key.node == node).collect();
    let mut resources: Vec<Option<&str>> = own.iter().map(|key| key.resource.as_deref()).collect();
    resources.sort_unstable();
    resources.dedup();
    let mut y = 3;
    for resource in resources.iter().take(MOST_RESOURCES) {
        let caption =
            resource.map_or_else(|| "token".to_owned(), |of| format!("token on {}", name(of)));
        lane.caption(y, &caption);
        for key in own.iter().filter(|key| key.resource.as_deref() == *resource) {
            lane.bars.extend(presence(key, scale, names, y));
        }
        y += ROW;
    }
    y.max(3 + ROW)
}

/// The period in which a token is on the master for certain, and around it the period in which it
/// may be.
fn presence(key: &KeySpan, scale: Scale, names: &Names<'_>, y: u32) -> Vec<Bar> {
    let owner = names.of_token(&key.token).unwrap_or(&key.process);
    let class = names.class(owner);
    let title = |what: &str| {
        format!(
            "master {}: {what} of {} ({}), {}; {}",
            key.node,
            name(owner),
            token(&key.token),
            scale.told(key.possible),
            name_of_end(key)
        )
    };
    let mut bars = Vec::new();
    let doubt = key.certain.from >= key.certain.to
        || key.possible.to.saturating_sub(key.certain.to) > 2_000_000
        || key.certain.from.saturating_sub(key.possible.from) > 2_000_000;
    if doubt {
        let class = format!("possible {class}");
        let known = key.certain.from < key.certain.to;
        let from = if known { key.certain.to } else { key.possible.from };
        let rest = Window { from, to: key.possible.to };
        let text = match (known, key.end.starts_with("expired")) {
            (true, true) => format!("{}: expired, perhaps not yet removed", name(owner)),
            _ => format!("{}: perhaps", name(owner)),
        };
        bars.push(scale.bar(rest, y, ROW - 2, &class, &text).titled(title("perhaps the token")));
    }
    if key.certain.from < key.certain.to {
        let class = format!("key {class}");
        let text = name(owner);
        bars.push(scale.bar(key.certain, y, ROW - 2, &class, &text).titled(title("the token")));
    }
    bars
}

fn name_of_end(key: &KeySpan) -> String {
    super::text::cut(&key.end)
}

fn command(event: &Event, record: usize, scale: Scale, names: &Names<'_>) -> Option<Mark> {
    let Event::Command { process, act, sent, replied, result, .. } = event else { return None };
    let verb = match act {
        Act::Set { .. } => "set",
        Act::Keep { .. } => "extend",
        Act::Delete { .. } => "delete",
        Act::Certify { .. } => "certify",
        Act::Other { command, .. } => command,
    };
    let (symbol, word) = match result {
        Outcome::Done => ("dot", "done"),
        Outcome::Created => ("dot", "created"),
        Outcome::Refused => ("cross", "refused"),
        Outcome::Error => ("cross", "error"),
        Outcome::Silent => ("ring", "no reply"),
    };
    let client = act.token().and_then(|token| names.of_token(token)).unwrap_or(process);
    let at: Ns = replied.unwrap_or(*sent);
    let title = format!(
        "{} {} {}: {word}, {}, line {}",
        name(client),
        name(verb),
        act.key().map(name).unwrap_or_default(),
        ms(at),
        line(record)
    );
    let class = names.class(client).to_owned();
    Some(Mark { x: scale.x(at), class, symbol, title, ..Mark::default() })
}

/// Whether the master is down, paused or cut off, and what its clock shows.
fn states(
    node: usize,
    run: &Run<'_>,
    timeline: &Timeline,
    scale: Scale,
    y: u32,
    lane: &mut Lane,
) -> u32 {
    let mut all: Vec<(Window, &'static str, String, String)> = clock(node, run);
    for fault in &timeline.faults {
        if !fault.nodes.contains(&node)
            || fault.failed
            || matches!(fault.fault_kind, FaultKind::Clock(_))
        {
            continue;
        }
        let (class, text) = state(fault);
        let title = format!("fault {}, {text}: {}", fault.fault, scale.told(fault.span));
        all.push((fault.span, class, text, title));
    }
    all.sort_by_key(|(window, ..)| (window.from, window.to));
    let windows: Vec<Window> = all.iter().map(|(window, ..)| *window).collect();
    let (rows, count) = pack(scale, &windows, 0.05);
    for ((window, class, text, title), row) in all.into_iter().zip(rows) {
        let y = y + row * ROW;
        if scale.part(window.to) - scale.part(window.from) < 0.02 {
            let class = class.to_owned();
            let x = scale.x(window.from);
            lane.marks.push(Mark { x, y: y + 6, class, symbol: "flag", text, title, left: false });
        } else {
            lane.bars.push(scale.bar(window, y, ROW - 3, class, &text).titled(title));
        }
    }
    if count > 0 {
        lane.caption(y, "state");
    }
    y + count * ROW
}

fn state(fault: &FaultSpan) -> (&'static str, String) {
    let name = fault.fault_kind.name();
    match &fault.fault_kind {
        FaultKind::Node(
            NodeFault::Kill { .. } | NodeFault::Stop { .. } | NodeFault::PowerLoss { .. },
        ) => ("state down", format!("down ({name})")),
        FaultKind::Node(NodeFault::Pause { .. }) => ("state paused", "paused".to_owned()),
        FaultKind::Net(_) => {
            let all: Vec<String> = fault.processes.iter().map(|of| super::text::name(of)).collect();
            let hit = if all.len() > 3 { format!("{} clients", all.len()) } else { all.join(", ") };
            ("state net", format!("{name} {hit}"))
        }
        _ => ("state odd", name.to_owned()),
    }
}

/// The periods in which the wall clock of a master was wrong.
fn clock(node: usize, run: &Run<'_>) -> Vec<(Window, &'static str, String, String)> {
    let mut all: Vec<(Window, &'static str, String, String)> = Vec::new();
    let mut open: Option<usize> = None;
    for (record, entry) in run.history.records.iter().enumerate() {
        let Event::Clock { node: of, since, ahead, rate, strobe_by, .. } = &entry.event else {
            continue;
        };
        if *of != node {
            continue;
        }
        if let Some(before) = open.take() {
            all[before].0.to = since.to;
        }
        let mut text = Vec::new();
        if *ahead != 0 {
            let sign = if *ahead > 0 { "+" } else { "" };
            text.push(format!("clock {sign}{}", ms(*ahead)));
        }
        if (*rate - 1.0).abs() > f64::EPSILON {
            text.push(format!("clock × {rate}"));
        }
        if *strobe_by != 0 {
            text.push(format!("clock jumps by {}", ms(*strobe_by)));
        }
        if text.is_empty() {
            continue;
        }
        let text = text.join(", ");
        let title = format!("master {node}: {text} since {}, line {}", ms(since.to), line(record));
        open = Some(all.len());
        all.push((Window { from: since.to, to: Ns::MAX }, "state clock", text, title));
    }
    all
}
