//! The lane of a client: its requests, when it believed that it held a lease, and when a quorum of
//! masters had its token.

use super::chart::{Bar, Drawing, Lane, Mark, ROW, Room};
use super::text::{cut, line, ms, name, token};
use redquorum_checker::{Lease, Request, believed, named};
use redquorum_scenario::client_protocol::{FailureReason, Op};
use redquorum_scenario::history::{Ns, Window};
use redquorum_scenario::{ClientFault, FaultKind, OnClient};

/// The largest number of client lanes.
const MOST_CLIENTS: usize = 40;

pub(super) fn lanes(drawing: &Drawing<'_>) -> Vec<Lane> {
    let clients = &drawing.run.history.header.scenario.clients;
    let lanes = clients.iter().take(MOST_CLIENTS).map(|client| {
        let mut lane = lane(drawing, &client.id);
        faults(drawing, client.process(), &mut lane);
        lane
    });
    let mut lanes: Vec<Lane> = lanes.collect();
    if let Some(last) = lanes.last_mut().filter(|_| clients.len() > MOST_CLIENTS) {
        last.note = format!("{} more clients are left out", clients.len() - MOST_CLIENTS);
    }
    lanes
}

fn lane(drawing: &Drawing<'_>, client: &str) -> Lane {
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
        let text = format!("{client} believes that it holds {resource}");
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
        nodes => format!("granted by {}{fence}", named(nodes)),
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
    let what = request.resource.map_or_else(|| op.clone(), |of| format!("{op} {}", name(of)));
    let asked = line(request.record);
    let lines = match request.reply {
        Some(reply) => format!("lines {asked} and {}", line(reply.record)),
        None => format!("line {asked}"),
    };
    let (client, when) = (name(request.client), drawing.scale.span_text(request.span()));
    (format!("{symbol} {what}: {word}"), format!("{client}: {what}: {word}, {when}, {lines}"))
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
fn faults(drawing: &Drawing<'_>, process: &str, lane: &mut Lane) {
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
