//! Fencing tokens: is each token unique, and larger than that of every acquire that had returned
//! before its own acquire was called? And is no update lost in a register that is accessed with
//! tokens?
//!
//! The check compares stamps of one machine. It is exact for clients that report when they were
//! called and when they returned. For other clients, it uses the times of the request and of the
//! answer.

use std::collections::BTreeMap;

use redquorum_scenario::client_protocol::FENCING_COUNTER_TTL;
use redquorum_scenario::history::{Event, Ns};
use redquorum_scenario::{Cause, Property};

use super::causes::Reason;
use super::leases::Lease;
use super::register;
use super::requests::Reply;
use super::time::{self, Ms};
use super::{Case, Violation};

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
        let Some(token) = lease.reply.fence else {
            findings.extend(without_token(case, lease));
            continue;
        };
        // A waiting acquire makes many attempts. The attempt that won sent nothing before its first
        // key was set.
        let first = lease.votes(&case.keys).map(|key| key.life.set.from).min();
        let called = lease.called().max(first.unwrap_or(Ns::MIN));
        let fenced = Fenced { lease, token, called, returned: lease.reply.returned() };
        of_resource.entry(lease.resource).or_default().push(fenced);
    }
    findings.extend(of_resource.values().flat_map(|leases| wrong(case, leases)));
    let causes: Vec<Cause> = findings.iter().flat_map(|finding| finding.causes.clone()).collect();
    findings.extend(register::fenced(case, &causes));
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
