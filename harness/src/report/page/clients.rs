//! The lane of a client: its requests, when it believed that it held a lease, and when a quorum of
//! masters had its token.

use super::Run;
use super::chart::{Bar, Lane, Mark, ROW, Room, Scale};
use super::run::{Detail, Names};
use super::text::{cut, line, ms, name, token};
use crate::checker::timeline::{LeaseSpan, RequestSpan, Timeline};
use crate::client_protocol::FailureReason;
use crate::history::Window;
use crate::scenario::{ClientFault, FaultKind};

/// The largest number of client lanes.
const MOST_CLIENTS: usize = 40;

pub(super) fn lanes(
    run: &Run<'_>,
    timeline: &Timeline,
    scale: Scale,
    names: &Names<'_>,
    detail: Detail,
) -> Vec<Lane> {
    let clients = &run.history.header.scenario.clients;
    let lanes = clients.iter().take(MOST_CLIENTS).map(|client| {
        let mut lane = lane(&client.id, timeline, scale, names, detail);
        faults(client.process(), timeline, scale, &mut lane);
        lane
    });
    let mut lanes: Vec<Lane> = lanes.collect();
    if let Some(last) = lanes.last_mut().filter(|_| clients.len() > MOST_CLIENTS) {
        last.note = format!("{} more clients are left out", clients.len() - MOST_CLIENTS);
    }
    lanes
}

fn lane(
    client: &str,
    timeline: &Timeline,
    scale: Scale,
    names: &Names<'_>,
    detail: Detail,
) -> Lane {
    let mut lane = Lane {
        label: name(client),
        class: format!("client {}", names.class(client)),
        ..Lane::default()
    };
    let mut y = 3;
    lane.caption(y, "requests");
    let own = || timeline.requests.iter().filter(|request| request.client == client);
    let steps = own().filter(|request| detail == Detail::Full && request.op == "step");
    lane.marks.extend(steps.map(|request| step(request, scale, y)));
    let mut own_requests = own().filter(|request| request.op != "step").peekable();
    let mut room = Room::default();
    while let Some(request) = own_requests.next() {
        let next = own_requests.peek().map_or(1.0, |next| scale.part(next.span.from));
        let at = scale.part(request.span.from);
        let bar = asked(request, scale, y);
        if bar.text.is_empty() {
            // A bar that is too short for its text has the text beside it, where there is room.
            let (symbol, word) = result(request);
            let text = format!("{symbol} {}: {word}", what(request));
            let mut mark = Mark { title: bar.title.clone(), ..step(request, scale, y) };
            mark.class = if request.ok == Some(true) { "quiet" } else { "bad" }.to_owned();
            room.place(&mut mark, at, next, text);
            lane.marks.push(mark);
        }
        room.cover(scale.part(request.span.to));
        lane.bars.push(bar);
    }
    y += ROW;
    let own: Vec<&LeaseSpan> =
        timeline.leases.iter().filter(|lease| lease.client == client).collect();
    let mut resources: Vec<&str> = own.iter().map(|lease| lease.resource.as_str()).collect();
    resources.sort_unstable();
    resources.dedup();
    for resource in resources.iter().take(4) {
        let suffix =
            if resources.len() > 1 { format!(" {}", name(resource)) } else { String::new() };
        lane.caption(y, &format!("believes{suffix}"));
        lane.caption(y + ROW, &format!("quorum{suffix}"));
        for lease in own.iter().filter(|lease| lease.resource == *resource) {
            hold(lease, scale, names, y, &mut lane.bars);
        }
        y += 2 * ROW;
    }
    lane.height = y + 4;
    lane
}

/// The period in which a client believed that it held the lease, and below it the period in which a
/// quorum had the token.
fn hold(lease: &LeaseSpan, scale: Scale, names: &Names<'_>, y: u32, bars: &mut Vec<Bar>) {
    let (client, resource) = (name(&lease.client), name(&lease.resource));
    let class = names.class(&lease.client);
    let key =
        lease.token.as_deref().map_or_else(String::new, |of| format!(", token {}", token(of)));
    for believed in lease.believed.iter().filter(|window| window.from < window.to) {
        let text = format!("{client} believes that it holds {resource}");
        let title = format!(
            "{}; {}; deadline {}; line {}",
            cut(&lease.sentence),
            granted(lease),
            ms(lease.deadline),
            line(lease.record)
        );
        let class = format!("believed {class}");
        bars.push(scale.bar(*believed, y, ROW - 2, &class, &text).titled(title));
    }
    for perhaps in &lease.supported {
        let title = format!(
            "Perhaps a quorum of masters has the token of {client} for {resource}, the record \
             does not tell: {}{key}",
            scale.told(*perhaps)
        );
        // Usually the true period is known. Then the bar below covers this one.
        let uncovered = lease.certain.iter().map(|of| of.to).max().unwrap_or(perhaps.from);
        let rest = Window { from: uncovered.clamp(perhaps.from, perhaps.to), to: perhaps.to };
        if rest.to.saturating_sub(rest.from) > 2_000_000 {
            let class = format!("possible {class}");
            bars.push(scale.bar(rest, y + ROW, ROW - 3, &class, "perhaps a quorum").titled(title));
        }
    }
    for supported in &lease.certain {
        let text = format!("quorum has the token of {client}");
        let title = format!(
            "A quorum of masters has the token of {client} for {resource}: {}{key}",
            scale.told(*supported)
        );
        let class = format!("supported {class}");
        bars.push(scale.bar(*supported, y + ROW, ROW - 3, &class, &text).titled(title));
    }
    for gap in &lease.gaps {
        let text = "no quorum: the belief is wrong";
        let title = format!(
            "Gap: {client} believes that it holds {resource}, and no quorum of masters has its \
             token: {}{key}",
            scale.told(*gap)
        );
        bars.push(scale.bar(*gap, y + ROW, ROW - 3, "gap", text).titled(title));
    }
}

/// The masters that granted a lease.
pub(super) fn granted(lease: &LeaseSpan) -> String {
    let masters: Vec<String> = lease.masters.iter().map(usize::to_string).collect();
    let fence = lease.fence.map_or_else(String::new, |of| format!(", fencing token {of}"));
    match masters.len() {
        0 => format!("the masters that granted it are not known{fence}"),
        1 => format!("granted by master {}{fence}", masters[0]),
        _ => format!("granted by masters {}{fence}", masters.join(", ")),
    }
}

/// The request and its result: a symbol and a word.
fn result(request: &RequestSpan) -> (&'static str, String) {
    match (request.ok, request.why) {
        (Some(true), _) => ("✓", "done".to_owned()),
        (Some(false), why) => ("✗", why.map_or("refused", word).to_owned()),
        (None, _) => ("?", "no reply".to_owned()),
    }
}

const fn word(why: FailureReason) -> &'static str {
    match why {
        FailureReason::Taken => "taken",
        FailureReason::NoQuorum => "no quorum",
        FailureReason::Late => "late",
        FailureReason::Lost => "lost",
        FailureReason::Cancelled => "cancelled",
        FailureReason::Unsupported => "unsupported",
        FailureReason::Error => "error",
    }
}

fn asked(request: &RequestSpan, scale: Scale, y: u32) -> Bar {
    let (symbol, word) = result(request);
    let what = what(request);
    let class = match request.ok {
        Some(true) => "request done",
        Some(false) => "request refused",
        None => "request silent",
    };
    scale
        .bar(request.span, y, ROW - 3, class, &format!("{symbol} {what}: {word}"))
        .titled(title(request, &what, &word, scale))
}

fn step(request: &RequestSpan, scale: Scale, y: u32) -> Mark {
    let (_, word) = result(request);
    Mark {
        x: scale.x(request.span.from),
        y: y + 6,
        class: if request.ok == Some(false) { "bad" } else { "quiet" }.to_owned(),
        symbol: "tick",
        title: title(request, &what(request), &word, scale),
        ..Mark::default()
    }
}

fn what(request: &RequestSpan) -> String {
    let op = name(&request.op);
    request.resource.as_deref().map_or_else(|| op.clone(), |of| format!("{op} {}", name(of)))
}

fn title(request: &RequestSpan, what: &str, word: &str, scale: Scale) -> String {
    let (asked, answered) = request.records;
    let lines = match answered {
        Some(answered) => format!("lines {} and {}", line(asked), line(answered)),
        None => format!("line {}", line(asked)),
    };
    format!("{}: {what}: {word}, {}, {lines}", name(&request.client), scale.told(request.span))
}

/// The faults that hit the client itself.
fn faults(process: &str, timeline: &Timeline, scale: Scale, lane: &mut Lane) {
    for fault in timeline.faults.iter().filter(|fault| !fault.failed) {
        let FaultKind::Client(fault_kind) = &fault.fault_kind else { continue };
        if !fault.processes.iter().any(|hit| hit == process) {
            continue;
        }
        let (class, text, window) = match fault_kind {
            ClientFault::Pause { .. } => ("state paused", "paused", fault.span),
            ClientFault::Suspend { .. } => ("state paused", "suspended", fault.span),
            ClientFault::Kill { .. } => {
                ("state down", "dead", Window { from: fault.span.from, to: i64::MAX })
            }
            _ => ("state odd", fault.fault_kind.name(), fault.span),
        };
        let title = format!(
            "fault {}, {}: {text}, {}",
            fault.fault,
            fault.fault_kind.name(),
            scale.told(window)
        );
        let y = lane.height;
        lane.bars.push(scale.bar(window, y, ROW - 3, class, text).titled(title));
        lane.caption(y, "state");
        lane.height += ROW;
    }
}
