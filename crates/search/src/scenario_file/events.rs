//! The events of a run in sentences, one for each important event.

use std::collections::BTreeSet;

use redquorum_checker::{Verdict, named};
use redquorum_scenario::AccessKind;
use redquorum_scenario::client_protocol::{ClientReply, Each, FailureReason, Op};
use redquorum_scenario::history::{Act, Event, History, Ns, Outcome, Phase, Record};
use redquorum_scenario::name::Name;

/// The largest number of sentences.
const MOST: usize = 24;
/// How many sentences describe the beginning, if not all fit.
const FIRST: usize = 6;

/// The sentences, in the order of time, each with its time.
pub(super) fn of(history: &History, verdict: &Verdict) -> Vec<String> {
    let last = verdict.findings.iter().map(|finding| finding.from).max();
    let mut lines = Vec::new();
    for record in &history.records {
        let sentences = event(history, record).into_iter();
        lines.extend(sentences.map(|line| format!("{:>8}  {line}", time(record.ns))));
        // The report omits events after the last violation.
        if matches!(record.event, Event::Phase { phase: Phase::Heal })
            && last.is_some_and(|last| last <= record.ns)
        {
            break;
        }
    }
    if lines.len() > MOST {
        let rest = lines.split_off(FIRST);
        let left_out = rest.len() - (MOST - FIRST);
        lines.push(format!("{:>8}  ({left_out} events more)", "…"));
        lines.extend(rest.into_iter().skip(left_out));
    }
    lines
}

/// `1978 ms`.
fn time(ns: Ns) -> String {
    format!("{} ms", ns / 1_000_000)
}

fn event(history: &History, record: &Record) -> Vec<String> {
    let one = match &record.event {
        Event::Phase { phase } => match phase {
            Phase::Heal => Some("everything is healed".to_owned()),
            Phase::FinalAcquire => Some("every client that lives acquires once more".to_owned()),
            Phase::Drain => Some("one TTL passes, and the keys are looked at".to_owned()),
            Phase::Run | Phase::End => None,
        },
        Event::Replied { client, reply } => return replied(history, record.ns, client, reply),
        Event::Lost { client, resource, .. } => {
            Some(format!("{client} is notified that its lease of {resource} is lost"))
        }
        Event::Extended { client, resource, deadline } => {
            Some(format!("{client}'s watchdog extends {resource} until {}", time(*deadline)))
        }
        Event::Unpolled { client, to, .. } => {
            Some(format!("{client} does not poll its request until {}", time(*to)))
        }
        Event::Touched { client, register, way, seen, version, sent, fence, refused } => {
            let mut line = match refused {
                true => format!("{client} may not {way} {register}"),
                false => touch(client, register, *way, *seen, *version),
            };
            if let Some(token) = fence {
                line += &format!(" under token {token}");
            }
            let sent = sent.map(|sent| format!(" (sent at {})", time(sent)));
            Some(line + &sent.unwrap_or_default())
        }
        Event::Struck { fault, nodes, processes, failed, .. } => {
            let name = history.header.scenario.fault(*fault).map(|fault| fault.kind.name());
            name.map(|name| struck(*fault, name, nodes, processes, failed.as_deref()))
        }
        Event::Healed { fault, .. } => Some(format!("fault {fault} is healed")),
        Event::Broken { process, why } => Some(format!("{process} breaks: {why}")),
        Event::Keys { node, keys: Some(keys) } if !keys.is_empty() => {
            let names: Vec<&str> = keys.iter().map(|left| left.key.as_str()).collect();
            Some(format!("master {node} still has {}", names.join(", ")))
        }
        _ => None,
    };
    one.into_iter().collect()
}

/// What a reply means for each resource of its request.
fn replied(history: &History, ns: Ns, client: &str, reply: &ClientReply) -> Vec<String> {
    let asked = history.records.iter().find_map(|record| match &record.event {
        Event::Requested(request) if request.id == reply.id => Some(&request.op),
        _ => None,
    });
    let Some(op) = asked else { return Vec::new() };
    let resources = op.resources().iter().enumerate();
    resources
        .filter_map(|(place, of)| of_resource(history, ns, client, reply, (op, place, of)))
        .collect()
}

fn of_resource(
    history: &History,
    ns: Ns,
    client: &str,
    reply: &ClientReply,
    (op, place, resource): (&Op, usize, &Name),
) -> Option<String> {
    let Each { token, deadline_ns, .. } = reply.of(place);
    let until = deadline_ns.map_or_else(String::new, |at| format!(", until {}", time(at)));
    let reason = reply.why.map_or("an error", FailureReason::about);
    Some(match (op, reply.ok) {
        (Op::Acquire { .. } | Op::AcquireAll { .. }, true) if reply.handles > Some(1) => {
            format!("{client} is granted {resource} again{until}")
        }
        (Op::Acquire { .. } | Op::AcquireAll { .. }, true) => {
            let by = granted(history, ns, token.as_ref());
            format!("{client} is granted {resource}{by}{until}")
        }
        (Op::AcquireAll { resources, .. }, false) => {
            let mut others = resources.clone();
            others.remove(place);
            let others = others.join(" and ");
            format!("{client} is refused {resource} together with {others}: {reason}")
        }
        (Op::Acquire { .. }, false) => format!("{client} is refused {resource}: {reason}"),
        (Op::Extend { .. }, true) => format!("{client} extends {resource}{until}"),
        (Op::Extend { .. }, false) => format!("{client} cannot extend {resource}: {reason}"),
        (Op::Release { .. } | Op::ReleaseAll { .. }, _) if reply.handles.is_some() => {
            format!("{client} gives one of its handles of {resource} back")
        }
        (Op::Release { .. } | Op::ReleaseAll { .. }, _) => {
            format!("{client} gives {resource} back")
        }
        (Op::Step { .. }, false) => {
            format!("{client} finds that it does not hold {resource} any more, and stops")
        }
        (Op::KeepAlive { .. } | Op::Cancel { .. } | Op::Step { .. }, _) => return None,
    })
}

/// ` by masters 1, 2, 3`.
fn granted(history: &History, by: Ns, token: Option<&Name>) -> String {
    let granted = |record: &Record| match &record.event {
        Event::Command {
            act: Act::Set { token: set, .. },
            node,
            delivered: Some(delivered),
            result: Outcome::Done,
            ..
        } if Some(set) == token && *delivered <= by => Some(*node),
        _ => None,
    };
    let nodes: BTreeSet<usize> = history.records.iter().filter_map(granted).collect();
    if nodes.is_empty() {
        return String::new();
    }
    format!(" by {}", named(&nodes.into_iter().collect::<Vec<_>>()))
}

fn touch(client: &str, register: &str, way: AccessKind, seen: u64, version: u64) -> String {
    match way {
        AccessKind::Present => format!("{client} presents itself to {register}"),
        AccessKind::Read => format!("{client} reads {register}: version {seen}"),
        AccessKind::Write if seen + 1 == version => {
            format!("{client} writes {register}: version {version}")
        }
        AccessKind::Write => format!(
            "{client} writes {register} on top of version {seen}, though version {} is there: an \
             update is lost",
            version - 1
        ),
    }
}

fn struck(
    fault: usize,
    name: &str,
    nodes: &[usize],
    processes: &[Name],
    failed: Option<&str>,
) -> String {
    let mut line = format!("fault {fault} strikes: {name}");
    if !nodes.is_empty() {
        line += &format!(", {}", named(nodes));
    }
    if !processes.is_empty() {
        let names: Vec<&str> = processes.iter().map(Name::as_str).collect();
        line += &format!(", {}", names.join(", "));
    }
    if let Some(why) = failed {
        line += &format!(", and fails: {why}");
    }
    line
}
