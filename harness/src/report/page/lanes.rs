//! The lanes of a drawing: one for each client, master and protected register, and one for the
//! faults.

use std::collections::BTreeMap;

use super::chart::{Bar, Drawing, Lane, Mark, ROW, Room, cut, line, ms, name, pack, token};
use redquorum_checker::{Case, Lease, Presence, Request, Strike, believed};
use redquorum_scenario::client_protocol::{FailureReason, Op};
use redquorum_scenario::history::{Act, Event, Ns, Outcome, Window};
use redquorum_scenario::{
    AccessKind, ClientFault, FaultKind, Heals, OnClient, OnMaster, SetsClock, numbered,
};

/// The largest number of client lanes.
const MOST_CLIENTS: usize = 40;

/// The lanes of clients: requests, when the client believed that it held a lease, and when a quorum
/// of masters had its token.
pub(super) fn client_lanes(drawing: &Drawing<'_>) -> Vec<Lane> {
    let clients = &drawing.run.history.header.scenario.clients;
    let lanes = clients.iter().take(MOST_CLIENTS).map(|client| {
        let mut lane = client_lane(drawing, &client.id);
        client_faults(drawing, client.process(), &mut lane);
        lane
    });
    let mut lanes: Vec<Lane> = lanes.collect();
    if let Some(last) = lanes.last_mut().filter(|_| clients.len() > MOST_CLIENTS) {
        last.note = format!("{} more clients are left out", clients.len() - MOST_CLIENTS);
    }
    lanes
}

fn client_lane(drawing: &Drawing<'_>, client: &str) -> Lane {
    let Drawing { case, scale, .. } = *drawing;
    let mut lane = Lane::new(name(client), &format!("client {}", drawing.names.class(client)));
    let mut y = 3;
    lane.caption(y, "requests");
    let own = || case.requests.iter().filter(|request| request.client == client);
    let steps = own().filter(|request| drawing.full && matches!(request.op, Op::Step { .. }));
    lane.marks.extend(steps.map(|request| step(drawing, request, y)));
    let mut own_requests =
        own().filter(|request| !matches!(request.op, Op::Step { .. })).peekable();
    let mut room = Room::default();
    while let Some(request) = own_requests.next() {
        let next = own_requests.peek().map_or(1.0, |next| scale.part(next.asked));
        let (text, title) = texts(drawing, request);
        let class = match request.ok() {
            Some(true) => "request done",
            Some(false) => "request refused",
            None => "request silent",
        };
        let bar = scale.bar(request.span(), y, ROW - 3, class, &text).titled(title);
        if bar.text.is_empty() {
            // A bar that is too short for its text has the text beside it, where there is room.
            let mut mark = step(drawing, request, y);
            mark.class = if request.ok() == Some(true) { "quiet" } else { "bad" }.to_owned();
            room.place(&mut mark, scale.part(request.asked), next, text);
            lane.marks.push(mark);
        }
        room.cover(scale.part(request.replied()));
        lane.bars.push(bar);
    }
    y += ROW;
    let own: Vec<&Lease<'_>> = case.leases.iter().filter(|lease| lease.client == client).collect();
    let mut resources: Vec<&str> = own.iter().map(|lease| lease.resource).collect();
    resources.sort_unstable();
    resources.dedup();
    for resource in resources.iter().take(4) {
        let suffix =
            if resources.len() > 1 { format!(" {}", name(resource)) } else { String::new() };
        lane.caption(y, &format!("believes{suffix}"));
        lane.caption(y + ROW, &format!("quorum{suffix}"));
        for lease in own.iter().filter(|lease| lease.resource == *resource) {
            hold(drawing, lease, y, &mut lane.bars);
        }
        y += 2 * ROW;
    }
    lane.height = y + 4;
    lane
}

/// The period in which a client believed that it held the lease, and below it the period in which a
/// quorum had the token.
fn hold(drawing: &Drawing<'_>, lease: &Lease<'_>, y: u32, bars: &mut Vec<Bar>) {
    let Drawing { case, scale, .. } = *drawing;
    let (client, resource) = (name(lease.client), name(lease.resource));
    let class = |what: &str| format!("{what} {}", drawing.names.class(lease.client));
    let key = lease.token.map_or_else(String::new, |of| format!(", token {}", token(of)));
    let title = |what: &str, window: Window| format!("{what}: {}{key}", scale.span_text(window));
    for believed_in in lease.believed().filter(|window| !window.is_empty()) {
        let holds = if lease.shared { "shares" } else { "holds" };
        let text = format!("{client} believes that it {holds} {resource}");
        let title = format!(
            "{}; {}; deadline {}; line {}",
            cut(&believed(lease)),
            granted(drawing, lease),
            ms(lease.deadline.to),
            line(lease.reply.record)
        );
        bars.push(scale.bar(believed_in, y, ROW - 2, &class("believed"), &text).titled(title));
    }
    let mut quorum = |window, class: &str, text: &str, title| {
        bars.push(scale.bar(window, y + ROW, ROW - 3, class, text).titled(title));
    };
    let certain = case.surely_supported(lease);
    for perhaps in case.supported(lease) {
        // Usually the true period is known. Then the bar below covers this one.
        let uncovered = certain.iter().map(|of| of.to).max().unwrap_or(perhaps.from);
        let rest = Window::new(uncovered.clamp(perhaps.from, perhaps.to), perhaps.to);
        if rest.length() > 2_000_000 {
            let what = format!(
                "Perhaps a quorum of masters has the token of {client} for {resource}, the record \
                 does not tell"
            );
            quorum(rest, &class("possible"), "perhaps a quorum", title(&what, perhaps));
        }
    }
    for supported in certain {
        let text = format!("quorum has the token of {client}");
        let what = format!("A quorum of masters has the token of {client} for {resource}");
        quorum(supported, &class("supported"), &text, title(&what, supported));
    }
    for gap in case.hollow(lease) {
        let what = format!(
            "Gap: {client} believes that it holds {resource}, and no quorum of masters has its \
             token"
        );
        quorum(*gap, "gap", "no quorum: the belief is wrong", title(&what, *gap));
    }
}

/// The masters that granted a lease.
pub(super) fn granted(drawing: &Drawing<'_>, lease: &Lease<'_>) -> String {
    let fence = lease.reply.fence.map_or_else(String::new, |of| format!(", fencing token {of}"));
    match &lease.masters(&drawing.case.keys)[..] {
        [] => format!("the masters that granted it are not known{fence}"),
        nodes => format!("granted by {}{fence}", numbered(nodes)),
    }
}

/// The text of a request with its result, and its title.
fn texts(drawing: &Drawing<'_>, request: &Request<'_>) -> (String, String) {
    let why = request.reply.and_then(|reply| reply.why);
    let (symbol, word) = match request.ok() {
        Some(true) => ("✓", "done".to_owned()),
        Some(false) => ("✗", why.map_or("refused", FailureReason::name).replace('-', " ")),
        None => ("?", "no reply".to_owned()),
    };
    let op = name(request.verb());
    let shared = if request.op.is_shared() { " shared" } else { "" };
    let what =
        request.resource.map_or_else(|| op.clone(), |of| format!("{op} {}{shared}", name(of)));
    let asked = line(request.record);
    let lines = match request.reply {
        Some(reply) => format!("lines {asked} and {}", line(reply.record)),
        None => format!("line {asked}"),
    };
    let (client, when) = (name(request.client), drawing.scale.span_text(request.span()));
    let text = request.reply.as_ref().and_then(|reply| reply.text.as_deref());
    let text = text.map(|text| format!(" ({})", cut(text))).unwrap_or_default();
    (format!("{symbol} {what}: {word}"), format!("{client}: {what}: {word}{text}, {when}, {lines}"))
}

fn step(drawing: &Drawing<'_>, request: &Request<'_>, y: u32) -> Mark {
    Mark {
        x: drawing.scale.x(request.asked),
        y: y + 6,
        class: if request.ok() == Some(false) { "bad" } else { "quiet" }.to_owned(),
        symbol: "tick",
        title: texts(drawing, request).1,
        ..Mark::default()
    }
}

/// The faults that hit the client itself.
fn client_faults(drawing: &Drawing<'_>, process: &str, lane: &mut Lane) {
    let Drawing { case, scale, .. } = *drawing;
    for strike in case.faults.strikes().iter().filter(|strike| !strike.failed) {
        let FaultKind::Client(kind) = &strike.fault.kind else { continue };
        if !strike.clients(case).contains(&process) {
            continue;
        }
        let span = strike.span();
        let (class, text, window) = match strike.fault.kind.row().client {
            OnClient::Paused if *kind == ClientFault::Suspend => {
                ("state paused", "suspended", span)
            }
            OnClient::Paused => ("state paused", "paused", span),
            OnClient::Killed => ("state down", "dead", Window::new(span.from, Ns::MAX)),
            OnClient::Runs => ("state odd", strike.fault.kind.name(), span),
        };
        let title = format!("{}: {text}, {}", strike.name(), scale.span_text(window));
        let y = lane.height;
        lane.bars.push(scale.bar(window, y, ROW - 3, class, text).titled(title));
        lane.caption(y, "state");
        lane.height += ROW;
    }
}

/// The largest number of masters, and of resources of each, that the page draws.
const MOST_MASTERS: usize = 12;
const MOST_RESOURCES: usize = 4;

/// The lanes of masters: the token on each, the commands that reached it, and its state.
pub(super) fn master_lanes(drawing: &Drawing<'_>) -> Vec<Lane> {
    let history = drawing.run.history;
    let nodes = history.header.scenario.cluster.nodes.min(MOST_MASTERS);
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

/// The largest number of rows for tokens that share a key.
const MOST_SHARED: u32 = 8;

/// The tokens on a master, a row for each resource. Tokens that share a key have rows side by side.
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
        let of_resource = own.iter().filter(|key| key.resource == *resource);
        let (mut shared, alone): (Vec<&&Presence<'_>>, Vec<_>) =
            of_resource.partition(|key| key.shared);
        shared.sort_by_key(|key| key.possible.from);
        let windows: Vec<Window> = shared.iter().map(|key| key.possible).collect();
        let (rows, count) = pack(drawing.scale, &windows, 0.0);
        for key in alone {
            lane.bars.extend(presence(key, drawing, y));
        }
        for (key, row) in shared.into_iter().zip(rows) {
            lane.bars.extend(presence(key, drawing, y + row.min(MOST_SHARED - 1) * ROW));
        }
        y += count.clamp(1, MOST_SHARED) * ROW;
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
        Act::Set { shared: true, .. } => "set shared",
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

/// The largest number of registers, and of clients of each, that have a row of their own.
const MOST_REGISTERS: usize = 8;
const MOST_ROWS: usize = 6;

/// The lanes of protected registers: reads and writes with their fencing tokens, and refusals.
pub(super) fn register_lanes(drawing: &Drawing<'_>) -> Vec<Lane> {
    let mut of: BTreeMap<&str, Vec<(usize, &Event)>> = BTreeMap::new();
    for (record, entry) in drawing.run.history.records.iter().enumerate() {
        if let Event::Touched { register, .. } = &entry.event {
            of.entry(register).or_default().push((record, &entry.event));
        }
    }
    let lanes = of.into_iter().take(MOST_REGISTERS);
    lanes.map(|(register, touches)| register_lane(register, &touches, drawing)).collect()
}

fn register_lane(register: &str, touches: &[(usize, &Event)], drawing: &Drawing<'_>) -> Lane {
    let mut lane = Lane::new(format!("register {}", name(register)), "register");
    let mut clients: Vec<&str> = Vec::new();
    let mut rows: Vec<Room> = Vec::new();
    let mut ats: Vec<f64> = Vec::new();
    for (record, touch) in touches {
        let Event::Touched { client, .. } = touch else { continue };
        let known = clients.iter().position(|one| *one == client.as_str());
        let row = known.unwrap_or_else(|| {
            clients.push(client);
            clients.len() - 1
        });
        let row = row.min(MOST_ROWS - 1);
        if rows.len() <= row {
            rows.push(Room::default());
        }
        let at = drawing.run.history.records[*record].ns;
        let Some(mut mark) = mark(touch, at, *record, drawing) else { continue };
        ats.push(drawing.scale.part(at));
        mark.y = 3 + 6 + u32::try_from(row).unwrap_or(0) * ROW;
        lane.marks.push(mark);
    }
    for index in 0..lane.marks.len() {
        let (y, at) = (lane.marks[index].y, ats[index]);
        let later = lane.marks.iter().zip(&ats).skip(index + 1);
        let next = later.take(64).find(|(mark, _)| mark.y == y).map_or(1.0, |(_, at)| *at);
        let mark = &mut lane.marks[index];
        let text = std::mem::take(&mut mark.text);
        rows[usize::try_from(y / ROW).unwrap_or(0)].place(mark, at, next, text);
    }
    for (row, client) in clients.iter().take(MOST_ROWS).enumerate() {
        let more = clients.len() > MOST_ROWS && row + 1 == MOST_ROWS;
        let text = if more { "others".to_owned() } else { name(client) };
        lane.caption(3 + u32::try_from(row).unwrap_or(0) * ROW, &text);
    }
    lane.height = 7 + u32::try_from(rows.len()).unwrap_or(0) * ROW;
    lane
}

fn mark(touch: &Event, at: Ns, record: usize, drawing: &Drawing<'_>) -> Option<Mark> {
    let Drawing { scale, names, .. } = *drawing;
    let Event::Touched { client, register, way, seen, version, sent, fence, refused } = touch
    else {
        return None;
    };
    let fenced = fence.map_or_else(String::new, |fence| format!(" under {fence}"));
    let what = match way {
        AccessKind::Read => format!("read version {seen}"),
        AccessKind::Write if seen.saturating_add(1) == *version || *refused => {
            format!("write on version {seen}")
        }
        AccessKind::Write => {
            format!("write on version {seen}, overwrites {}", version.saturating_sub(1))
        }
        AccessKind::Present => "present".to_owned(),
    };
    let (symbol, end, class) = match (refused, way) {
        (true, _) => ("cross", " refused", "bad"),
        (false, AccessKind::Write) => ("square", "", names.class(client)),
        (false, _) => ("ring", "", names.class(client)),
    };
    let sent = sent.map_or_else(String::new, |sent| format!(", sent {}", ms(sent)));
    let title = format!(
        "{}: {what} of {}{fenced}{}, {}{sent}, line {}",
        name(client),
        name(register),
        if *refused { ": refused" } else { ": accepted" },
        ms(at),
        line(record)
    );
    let text = format!("{what}{fenced}{end}");
    Some(Mark { x: scale.x(at), y: 0, class: class.to_owned(), symbol, text, title, left: false })
}

/// The lane of faults: a flag where each fault struck, and a bar while it was in force.
pub(super) fn fault_lane(drawing: &Drawing<'_>) -> Option<Lane> {
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
        nodes => format!(" on {}", numbered(nodes)),
    };
    let processes = strike.clients(case);
    if !processes.is_empty() && processes.len() <= 4 {
        let all: Vec<String> = processes.into_iter().map(name).collect();
        text += &format!(" for {}", all.join(", "));
    }
    text
}
