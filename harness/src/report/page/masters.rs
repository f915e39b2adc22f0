//! The lane of a master: the token on it, the commands that reached it, and its state.

use super::chart::{Bar, Drawing, Lane, Mark, ROW, pack};
use super::text::{cut, line, ms, name, token};
use redquorum_checker::{Presence, Strike};
use redquorum_scenario::history::{Act, Event, Ns, Outcome, Window};
use redquorum_scenario::{Heals, OnMaster, SetsClock};

/// The largest number of masters, and of resources of each, that the page draws.
const MOST: usize = 12;
const MOST_RESOURCES: usize = 4;

pub(super) fn lanes(drawing: &Drawing<'_>) -> Vec<Lane> {
    let history = drawing.run.history;
    let nodes = history.header.scenario.cluster.nodes.min(MOST);
    let mut commands: Vec<Vec<Mark>> = vec![Vec::new(); nodes + 1];
    for (record, entry) in history.records.iter().enumerate().filter(|_| drawing.full) {
        if let Event::Command { node, .. } = &entry.event
            && let Some(of_node) = commands.get_mut(*node)
        {
            of_node.extend(command(&entry.event, record, drawing));
        }
    }
    let lanes = (1..=nodes).map(|node| {
        let mut lane = Lane::new(format!("master {node}"), "master");
        let y = keys(node, drawing, &mut lane);
        let mut own = std::mem::take(&mut commands[node]);
        own.iter_mut().for_each(|mark| mark.y = y + 5);
        if !own.is_empty() {
            lane.caption(y, "commands");
        }
        lane.marks = own;
        let y = y + if drawing.full { 14 } else { 0 };
        lane.height = states(node, drawing, y, &mut lane) + 4;
        lane
    });
    lanes.collect()
}

/// The tokens on a master, a row for each resource.
fn keys(node: usize, drawing: &Drawing<'_>, lane: &mut Lane) -> u32 {
    let all = drawing.case.keys.all.iter();
    let own: Vec<&Presence<'_>> = all.filter(|key| key.node == node).collect();
    let mut resources: Vec<Option<&str>> = own.iter().map(|key| key.resource).collect();
    resources.sort_unstable();
    resources.dedup();
    let mut y = 3;
    for resource in resources.iter().take(MOST_RESOURCES) {
        let caption =
            resource.map_or_else(|| "token".to_owned(), |of| format!("token on {}", name(of)));
        lane.caption(y, &caption);
        for key in own.iter().filter(|key| key.resource == *resource) {
            lane.bars.extend(presence(key, drawing, y));
        }
        y += ROW;
    }
    y.max(3 + ROW)
}

/// The period in which a token is on the master for certain, and around it the period in which it
/// may be.
fn presence(key: &Presence<'_>, drawing: &Drawing<'_>, y: u32) -> Vec<Bar> {
    let Drawing { case, scale, .. } = *drawing;
    let owner = drawing.names.of_token(key.token).unwrap_or(key.process);
    let class = |what: &str| format!("{what} {}", drawing.names.class(owner));
    let (owner, end) = (name(owner), key.end(case));
    let title = |what: &str| {
        let (possible, end) = (scale.span_text(key.possible), cut(&end));
        format!("master {}: {what} of {owner} ({}), {possible}; {end}", key.node, token(key.token))
    };
    let mut bars = Vec::new();
    let (certain, possible) = (key.surely(), key.possible);
    let known = !certain.is_empty();
    let doubt = !known
        || possible.to.saturating_sub(certain.to) > 2_000_000
        || certain.from.saturating_sub(possible.from) > 2_000_000;
    if doubt {
        let from = if known { certain.to } else { possible.from };
        let text = match (known, end.starts_with("expired")) {
            (true, true) => format!("{owner}: expired, perhaps not yet removed"),
            _ => format!("{owner}: perhaps"),
        };
        let bar = scale.bar(Window::new(from, possible.to), y, ROW - 2, &class("possible"), &text);
        bars.push(bar.titled(title("perhaps the token")));
    }
    if known {
        let bar = scale.bar(certain, y, ROW - 2, &class("key"), &owner);
        bars.push(bar.titled(title("the token")));
    }
    bars
}

fn command(event: &Event, record: usize, drawing: &Drawing<'_>) -> Option<Mark> {
    let Drawing { scale, names, .. } = *drawing;
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

/// A state of a master: when, its class, its text and its title.
type State = (Window, &'static str, String, String);

/// Whether the master is down, paused or cut off, and what its clock shows.
fn states(node: usize, drawing: &Drawing<'_>, y: u32, lane: &mut Lane) -> u32 {
    let Drawing { case, scale, .. } = *drawing;
    let mut all: Vec<State> = clock(node, drawing);
    for strike in case.faults.strikes() {
        let is_clock = strike.fault.kind.row().clock == SetsClock::OfMaster;
        if !strike.hits_node(node) || strike.failed || is_clock {
            continue;
        }
        let (class, text) = state(strike, drawing);
        let title = format!("fault {}, {text}: {}", strike.number, scale.span_text(strike.span()));
        all.push((strike.span(), class, text, title));
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

fn state(strike: &Strike<'_>, drawing: &Drawing<'_>) -> (&'static str, String) {
    let row = strike.fault.kind.row();
    let kind = row.name;
    match (row.master, row.heals) {
        (OnMaster::Restarts, Heals::StartsAgain) => ("state down", format!("down ({kind})")),
        (OnMaster::Paused, _) => ("state paused", "paused".to_owned()),
        _ if strike.fault.clients.is_some() => {
            let all: Vec<String> = strike.clients(drawing.case).into_iter().map(name).collect();
            let hit = if all.len() > 3 { format!("{} clients", all.len()) } else { all.join(", ") };
            ("state net", format!("{kind} {hit}"))
        }
        _ => ("state odd", kind.to_owned()),
    }
}

/// The periods in which the wall clock of a master was wrong.
fn clock(node: usize, drawing: &Drawing<'_>) -> Vec<State> {
    let mut all: Vec<State> = Vec::new();
    let mut open: Option<usize> = None;
    for (record, entry) in drawing.run.history.records.iter().enumerate() {
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
        all.push((Window::new(since.to, Ns::MAX), "state clock", text, title));
    }
    all
}
