//! Fencing tokens: is each token unique, and larger than that of every acquire that had returned
//! before its own acquire was called? And is no update lost in a register that is accessed with
//! tokens?
//!
//! The check compares stamps of one machine. It is exact for clients that report when they were
//! called and when they returned. For other clients, it uses the times of the request and of the
//! answer.
//!
//! Registers: is an update lost when a client writes on top of a version that it read before? Each
//! access was applied at the very moment at which it was recorded, so this check is exact. Without
//! fencing tokens, this is a property of its own.

use std::collections::BTreeMap;

use super::case::Reply;
use super::exclusion::{self, Clash, Reason};
use super::leases::Lease;
use super::maps::Map;
use super::time::{self, Ms};
use super::{Case, Observed, Violation};
use redquorum_scenario::client_protocol::{FENCING_COUNTER_TTL, Op};
use redquorum_scenario::history::{Event, Ns, Record, Window};
use redquorum_scenario::{AccessKind, Cause, Property};

struct Fenced<'c, 'a> {
    lease: &'c Lease<'a>,
    token: u64,
    called: Ns,
    returned: Ns,
}

pub(crate) fn check(case: &Case<'_>) -> Vec<Violation> {
    let mut of_resource: BTreeMap<&str, Vec<Fenced<'_, '_>>> = BTreeMap::new();
    let mut findings = Vec::new();
    for lease in &case.leases {
        findings.extend(lease.again.iter().filter_map(|reply| another(lease, reply)));
        // A shared lease has no token of its own.
        if lease.shared {
            continue;
        }
        let Some(token) = lease.reply.fence else {
            findings.extend(without_token(case, lease));
            continue;
        };
        // A waiting acquire makes many attempts. The attempt that won sent nothing before its first
        // key was set.
        let first = lease.votes(&case.keys).map(|key| key.made.from).min();
        let called = lease.called().max(first.unwrap_or(Ns::MIN));
        let fenced = Fenced { lease, token, called, returned: lease.reply.returned() };
        of_resource.entry(lease.resource).or_default().push(fenced);
    }
    findings.extend(of_resource.values().flat_map(|leases| wrong(case, leases)));
    let causes: Vec<Cause> = findings.iter().flat_map(|finding| finding.causes.clone()).collect();
    findings.extend(check_fenced(case, &causes));
    findings
}

/// Whether a client was granted a fencing token, or accessed a register with one.
pub(crate) fn is_used(case: &Case<'_>) -> bool {
    let presented = |event: &Event| matches!(event, Event::Touched { fence: Some(_), .. });
    case.leases.iter().any(|lease| lease.reply.fence.is_some())
        || case.world.records.iter().any(|record| presented(&record.event))
}

fn bug(line: String, at: Ns) -> Violation {
    Violation::bug(Property::FencedResource, vec![line], at, at)
}

/// A handle whose fencing token is missing, or differs from that of its lease.
fn another(lease: &Lease<'_>, reply: &Reply<'_>) -> Option<Violation> {
    if reply.fence == lease.reply.fence {
        return None;
    }
    let named = |token: Option<u64>| token.map_or("none".to_owned(), |token| token.to_string());
    let (was, is) = (named(lease.reply.fence), named(reply.fence));
    let what = format!(
        "again at {}, and the fencing token of the same lease was {was} and is {is}: whatever was \
         presented under one of them is refused under the other",
        Ms(reply.returned())
    );
    Some(bug(format!("{} acquired {} {what}", lease.client, lease.resource), reply.returned()))
}

/// The violations among the fencing tokens of one resource.
fn wrong(case: &Case<'_>, leases: &[Fenced<'_, '_>]) -> Vec<Violation> {
    let mut findings = Vec::new();
    let mut by_token: BTreeMap<u64, &Fenced<'_, '_>> = BTreeMap::new();
    for fenced in leases {
        if let Some(first) = by_token.insert(fenced.token, fenced) {
            findings.push(violation(case, first, fenced, "the same"));
        }
    }
    let mut called: Vec<&Fenced<'_, '_>> = leases.iter().collect();
    let mut returned = called.clone();
    called.sort_by_key(|fenced| fenced.called);
    returned.sort_by_key(|fenced| fenced.returned);
    let mut over = 0;
    let mut largest = 0;
    for fenced in called {
        while let Some(before) = returned.get(over).filter(|before| before.returned < fenced.called)
        {
            largest = largest.max(before.token);
            over += 1;
        }
        if largest <= fenced.token {
            continue;
        }
        // Report one that nothing excuses, if there is one among the larger tokens: others may be
        // excused.
        let larger = returned[..over].iter().filter(|before| before.token > fenced.token);
        let all: Vec<Violation> =
            larger.map(|before| violation(case, before, fenced, "a smaller one")).collect();
        let bug = all.iter().position(|finding| finding.causes.contains(&Cause::Bug));
        findings.extend(all.into_iter().nth(bug.unwrap_or(0)));
    }
    findings
}

fn violation(
    case: &Case<'_>,
    before: &Fenced<'_, '_>,
    after: &Fenced<'_, '_>,
    what: &str,
) -> Violation {
    let lines = vec![
        format!(
            "{} was granted {} with fencing token {} at {}",
            before.lease.client,
            before.lease.resource,
            before.token,
            Ms(before.returned)
        ),
        format!(
            "{} was granted it with {what} at {}, asked for at {}: {}",
            after.lease.client,
            Ms(after.returned),
            Ms(after.called),
            after.token
        ),
    ];
    let mut reasons = forgotten(case, before.lease, after.lease);
    if reasons.is_empty() {
        let line = "no master that granted both had lost its counter in between";
        reasons.push((Cause::Bug, line.to_owned()));
    } else {
        reasons.extend(behind(case, after.lease));
    }
    let (from, to) = (before.returned.min(after.returned), after.returned);
    Violation::explained(Property::FencedResource, lines, reasons, from, to)
}

/// A client that supports fencing tokens, and returned none, or no valid one.
fn without_token(case: &Case<'_>, lease: &Lease<'_>) -> Option<Violation> {
    if !case.world.is_fenced(lease.process) {
        return None;
    }
    let (client, resource, at) = (lease.client, lease.resource, lease.reply.ns);
    let line = format!("{client} was granted {resource} at {} without a fencing token", Ms(at));
    Some(bug(line, at))
}

/// Why masters that granted both leases may have continued from a smaller number.
fn forgotten(case: &Case<'_>, before: &Lease<'_>, after: &Lease<'_>) -> Vec<Reason> {
    let set = |lease: &Lease<'_>, node: usize| {
        lease.votes(&case.keys).find(|key| key.node == node).map(|key| key.life.set)
    };
    // Two quorums share at least this many masters. If fewer masters lost their counters, a master
    // with its counter intact was in both.
    let (own, others) = (case.world.lock_of(before.process), case.world.lock_of(after.process));
    let known = |node: &usize| own.masters.contains(node) || others.masters.contains(node);
    let all = (1..=case.world.n).filter(known).count();
    let shared = (own.q + others.q).saturating_sub(all).max(1);
    let mut nodes = 0;
    let mut why: Vec<Reason> = Vec::new();
    for node in 1..=case.world.n {
        let (Some(first), Some(second)) = (set(before, node), set(after, node)) else { continue };
        let so_far = why.len();
        let lost = case.faults.losses(node).find(|loss| {
            loss.at.to >= first.from && loss.at.from <= second.to && !loss.keeps(first)
        });
        if let Some(loss) = lost {
            let name = case.faults.name(loss.fault);
            let line = format!("master {node} lost its counter at {} ({name})", Ms(loss.at.from));
            why.push((loss.cause, line));
        }
        let gain = case.clocks.gain(node, first.from, second.to);
        if let Some(gain) = gain.filter(|gain| gain.all >= time::of(FENCING_COUNTER_TTL)) {
            let by = Ms(gain.by);
            let line =
                format!("the counter of master {node} expired: its clock was set {by} forward");
            why.push((gain.cause, line));
        }
        nodes += usize::from(why.len() > so_far);
    }
    if nodes < shared {
        why.clear();
    }
    if why.is_empty() && own.can_part_from(others) {
        let line = "they know different masters, and their quorums need not meet".to_owned();
        why.push((Cause::NodeLists, line));
    }
    why
}

/// Whether the wall clock of a lease's client was set.
fn behind(case: &Case<'_>, lease: &Lease<'_>) -> Option<Reason> {
    let name = case.faults.wall_clock(lease.process, lease.reply.ns)?.name();
    let line =
        format!("the wall clock of {}, which gives the hint then, was set ({name})", lease.client);
    Some((Cause::ClientClock, line))
}

/// A report lists at most this many of the updates that a write discards: the last ones.
const LISTED: usize = 8;

#[derive(Clone, Copy)]
struct Write<'a> {
    client: &'a str,
    /// When the client read the version that the write is based on.
    read: Ns,
    /// When the client sent the write, and when it was applied.
    sent: Ns,
    at: Ns,
}

#[derive(Default)]
struct Register<'a> {
    version: Option<u64>,
    reads: Map<&'a str, Ns>,
    writes: Vec<Write<'a>>,
}

/// A write that discarded updates: its register, the version that it was based on, and the writes
/// in between.
struct Loss<'a> {
    register: &'a str,
    seen: u64,
    write: Write<'a>,
    lost: Vec<Write<'a>>,
}

/// Updates that are lost without fencing tokens.
pub(crate) fn check_registers(case: &Case<'_>, clashes: &[Clash]) -> Vec<Violation> {
    losses(case, false).iter().map(|loss| unfenced(case, clashes, loss)).collect()
}

/// Updates that are lost under fencing tokens. `causes` are those of tokens that do not grow. If
/// there are none, the register itself is at fault.
pub(crate) fn check_fenced(case: &Case<'_>, causes: &[Cause]) -> Vec<Violation> {
    let finding = |loss: &Loss<'_>| {
        let causes = if causes.is_empty() { vec![Cause::Unknown] } else { causes.to_vec() };
        loss.violation(Property::FencedResource, causes)
    };
    losses(case, true).iter().map(finding).collect()
}

fn losses<'a>(case: &Case<'a>, fenced: bool) -> Vec<Loss<'a>> {
    let mut registers: Map<&str, Register<'_>> = Map::default();
    let mut found = Vec::new();
    for Record { ns, event } in case.world.records {
        let Event::Touched { client, register, way, seen, version, sent, fence, refused } = event
        else {
            continue;
        };
        if *refused || fence.is_some() != fenced {
            continue;
        }
        let state = registers.entry(register).or_default();
        let known = state.version.replace(*version);
        match way {
            AccessKind::Present => {}
            AccessKind::Read => {
                state.reads.insert(client, *ns);
            }
            AccessKind::Write => {
                // A client that never read has nothing to base its write on: there is no critical
                // section.
                let Some(read) = state.reads.get(client.as_str()).copied() else { continue };
                let sent = sent.unwrap_or(*ns).min(*ns);
                let write = Write { client, read, sent, at: *ns };
                let others = state.writes.iter().rev().take_while(|other| other.at >= read);
                let lost: Vec<Write<'_>> = others
                    .filter(|other| other.client != client.as_str())
                    .take(LISTED)
                    .copied()
                    .collect();
                if known.is_some_and(|known| known != *seen) && !lost.is_empty() {
                    found.push(Loss { register, seen: *seen, write, lost });
                }
                state.writes.push(write);
            }
        }
    }
    found
}

impl Loss<'_> {
    fn explanation(&self) -> Vec<String> {
        let Self { register, seen, write, lost } = self;
        let client = write.client;
        let mut lines =
            vec![format!("{client} read version {seen} of {register} at {}", Ms(write.read))];
        for other in lost.iter().rev() {
            lines.push(format!("{} wrote {register} at {}", other.client, Ms(other.at)));
        }
        lines.push(format!(
            "{client} wrote {register} at {} on top of version {seen}: what came between is lost",
            Ms(write.at)
        ));
        lines
    }

    fn violation(&self, property: Property, causes: Vec<Cause>) -> Violation {
        Violation::certain(property, causes, self.explanation(), self.write.read, self.write.at)
    }
}

fn unfenced(case: &Case<'_>, clashes: &[Clash], loss: &Loss<'_>) -> Violation {
    let Loss { write, lost, .. } = loss;
    let (write, client) = (*write, write.client);
    let mut causes = Vec::new();
    let section = Window::new(write.read, write.at.saturating_add(1));
    for clash in clashes.iter().filter(|clash| clash.finding.seen == Observed::Violated) {
        let names = clash.leases.map(|lease| case.leases[lease].client);
        let ours = names.contains(&client) && lost.iter().any(|one| names.contains(&one.client));
        if ours && clash.both.touches(section) {
            causes.extend(&clash.finding.causes);
        }
    }
    if causes.is_empty() {
        let between = |one: &Write<'_>| exclusion::between(case, [one.client, client], section);
        causes.extend(lost.iter().flat_map(between));
    }
    if !causes.is_empty() {
        return loss.violation(Property::UnfencedResource, causes);
    }
    let writes = || lost.iter().rev().chain([&write]);
    let mut reasons: Vec<Reason> = writes().filter_map(|one| outside(case, *one)).collect();
    if reasons.is_empty() {
        reasons.extend(writes().filter_map(|one| shared(case, *one)));
    }
    if reasons.is_empty() {
        reasons.push((Cause::Unknown, "nothing on record says why both could write".to_owned()));
    }
    let lines = loss.explanation();
    Violation::explained(Property::UnfencedResource, lines, reasons, write.read, write.at)
}

/// Whether a client wrote while it had only a shared lease.
fn shared(case: &Case<'_>, write: Write<'_>) -> Option<Reason> {
    let Write { client, read, at, .. } = write;
    let mut own = case.leases.iter().filter(|lease| lease.client == client);
    let lease = own.rfind(|lease| lease.start.from <= read).filter(|lease| lease.shared)?;
    let line = format!(
        "{client} wrote at {} under a shared lease of {}, which keeps no other shared lease out",
        Ms(at),
        lease.resource
    );
    Some((Cause::SharedWrite, line))
}

/// Why a client wrote when it no longer counted on a lease.
fn outside(case: &Case<'_>, write: Write<'_>) -> Option<Reason> {
    let Write { client, read, sent, at } = write;
    let mut own = case.leases.iter().filter(|lease| lease.client == client);
    let lease = own.rfind(|lease| lease.start.from <= read)?;
    let mut gaps = lease.holds.windows(2).map(|pair| (pair[0].outer.to, pair[1].outer.from));
    let within = gaps.clone().find(|(over, again)| *over <= at && at < *again);
    // A lease that was over, and extended later: what came in between came after its end.
    let end = within.map_or(lease.span().to, |(over, _)| over);
    if at < end {
        let (over, again) = gaps.rfind(|(over, again)| read < *over && *again <= at)?;
        let line = format!(
            "the lease of {client} was over at {}, and its lock extended it at {}: others could \
             write in between",
            Ms(over),
            Ms(again)
        );
        return Some((Cause::Bug, line));
    }
    let after = Ms(at.saturating_sub(end));
    if sent < end {
        return Some(delayed(case, write, end));
    }
    if let Some(checked) = false_check(case, lease, Window::new(end, sent)) {
        let line = format!(
            "{client} wrote {after} after the end of its lease: at {} its lock said that it still \
             holds it, and no quorum of masters had its key",
            Ms(checked)
        );
        return Some((Cause::Bug, line));
    }
    let looked = case.last_look(client, read, sent);
    let paused = case.faults.pauses(lease.process).find(|pause| {
        let span = pause.span();
        span.touches(Window::new(looked, sent)) && span.from <= end && end <= span.to
    });
    let (cause, how) = match paused {
        Some(pause) => {
            let (from, to) = (Ms(pause.span().from), Ms(pause.span().to.min(at)));
            let how = format!(": it was paused from {from} to {to} ({}), and", pause.name());
            (Cause::ClientPause, how)
        }
        None => (Cause::LateWrite, ", awake: it".to_owned()),
    };
    let looked = Ms(looked);
    let line = format!(
        "{client} wrote {after} after the end of its lease{how} had last looked at its deadline at \
         {looked}"
    );
    Some((cause, line))
}

/// When a client was told that it still holds a lease whose keys were gone, if the call began and
/// returned in this window. A call that was made of a paused client begins when that is woken.
fn false_check(case: &Case<'_>, lease: &Lease<'_>, within: Window) -> Option<Ns> {
    let token = lease.token?;
    let is_check = |op: &Op| matches!(op, Op::Step { check: Some(of), .. } if of == lease.resource);
    let own = case.requests.iter().filter(|one| one.client == lease.client && is_check(one.op));
    let held = own.filter_map(|one| {
        let reply = one.reply.filter(|reply| reply.ok)?;
        let stopped = case.faults.pauses(lease.process).filter(|pause| pause.at.to <= one.asked);
        let woken = stopped.filter_map(|pause| pause.healed).map(|healed| healed.from);
        let began = woken.fold(one.asked, Ns::max);
        let returned = reply.returned();
        let is_within = within.from <= began && returned <= within.to;
        let call = Window::new(began, returned);
        let keys = case.keys.of_token(token, lease.resource, call);
        let there: Vec<usize> = keys.map(|key| key.node).collect();
        let is_false = !case.world.lock_of(lease.process).is_quorum(&there);
        (is_within && is_false).then_some(returned)
    });
    held.max()
}

/// A write that was sent in time, and was still on its way when the lease ended.
fn delayed(case: &Case<'_>, write: Write<'_>, end: Ns) -> Reason {
    let Write { client, sent, at, .. } = write;
    let mut faults = case.faults.on_the_way(client, AccessKind::Write);
    let fault =
        faults.find(|fault| fault.span().touches(Window::new(sent, sent.saturating_add(1))));
    let Some(fault) = fault else {
        let line = format!("nothing on record says why a write of {client} took until {}", Ms(at));
        return (Cause::Unknown, line);
    };
    let (sent, came, late) = (Ms(sent), Ms(at), Ms(at.saturating_sub(end)));
    let line = format!(
        "{client} sent that write at {sent}, in time, and it came at {came}, {late} after the end \
         of its lease ({})",
        fault.name()
    );
    (Cause::ResourceDelay, line)
}
