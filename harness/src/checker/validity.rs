//! Validity: is a lease handed out in time, is it true for as long as it promises, and is its owner
//! notified of its end?

use crate::history::{Ns, Phase, Window};
use crate::scenario::{Cause, Property};

use super::causes;
use super::exclusion::believed;
use super::keys::Presence;
use super::leases::{Ending, Lease};
use super::requests::Request;
use super::time::{MS, Ms};
use super::{Case, Violation};

/// A lease that is untrue for no longer than this shows the effect of clocks and schedulers, not of
/// locks.
const SHORT: Ns = MS;
/// The owner must be notified of the end within this time after the deadline.
const NOTIFIED_WITHIN: Ns = 250 * MS;

pub(crate) fn check(case: &Case<'_>) -> Vec<Violation> {
    let mut findings = Vec::new();
    findings.extend(case.requests.iter().filter_map(|request| late(case, request)));
    for lease in &case.leases {
        findings.extend(untrue(case, lease));
        findings.extend(over_a_gap(case, lease));
        findings.extend(not_notified(case, lease));
    }
    findings
}

/// A lease that was handed out or extended at its deadline or later.
fn late(case: &Case<'_>, request: &Request<'_>) -> Option<Violation> {
    let reply = request.reply.filter(|reply| reply.ok)?;
    if !matches!(request.op, "acquire" | "extend") {
        return None;
    }
    let at = reply.returned();
    let late = match (reply.deadline, reply.valid_ms) {
        // Without a stamp: when the client received the last reply that it needed.
        (Some(deadline), _) => reply.at.or_else(|| case.learnt(request, reply.ns))? >= deadline,
        (None, valid) => valid == Some(0),
    };
    if !late {
        return None;
    }
    // A client that is stopped between its last reading of the clock and its stamp cannot know.
    if case.paused_before_stamp(request, at).is_some() {
        return None;
    }
    let deadline = reply.deadline.unwrap_or(at);
    let lines = vec![format!(
        "{} was given {} at {}, until {}: nothing was left of it",
        request.client,
        request.resource.unwrap_or("its lease"),
        Ms(at),
        Ms(deadline)
    )];
    Some(Violation::bug(Property::Validity, lines, deadline.min(at), at))
}

/// A lease that was believed when it was no longer true, though no fault outside the assumptions
/// took it away.
fn untrue(case: &Case<'_>, lease: &Lease<'_>) -> Option<Violation> {
    if let Some((_, text)) = causes::too_few(case, lease) {
        let span = lease.span();
        return Some(Violation::bug(
            Property::Validity,
            vec![believed(lease), text],
            span.from,
            span.to,
        ));
    }
    let hollow = case.hollow(lease);
    let all = hollow.iter().map(|span| span.length()).fold(0, Ns::saturating_add);
    let first = *hollow.first()?;
    if all <= SHORT {
        return None;
    }
    let mut lines = vec![
        believed(lease),
        format!(
            "it was not true from {} on: fewer than {} masters",
            Ms(first.from),
            case.world.lock_of(lease.process).q
        ),
    ];
    let mut found = false;
    for key in lease.keys(&case.keys).filter(|key| key.sure) {
        if key.possible.to > hollow[hollow.len() - 1].from {
            continue;
        }
        let loss = causes::of_hollow(case, lease, key, key.possible.to);
        if let Some((Cause::Bug, text)) = loss {
            found = true;
            lines.push(format!("master {}: {text}", key.node));
        }
    }
    found
        .then(|| Violation::bug(Property::Validity, lines, first.from, hollow[hollow.len() - 1].to))
}

/// A lease that was extended although a quorum of masters had lacked its key at one time, so that a
/// rival may have held the resource. The replies to its own client showed that.
fn over_a_gap(case: &Case<'_>, lease: &Lease<'_>) -> Option<Violation> {
    let keys: Vec<&Presence<'_>> = lease.keys(&case.keys).collect();
    let lock = case.world.lock_of(lease.process);
    lease.extensions.iter().find_map(|extension| {
        let at_client = extension.at?;
        let begun = extension.request.map_or(at_client, |request| case.requests[request].asked);
        // The client may not have read a reply yet that arrived just before.
        let by = begun.saturating_sub(case.world.node_timeout / 2);
        let lacked = |node: usize, at: Ns| {
            let own = || keys.iter().filter(move |key| key.node == node);
            let before = own().rfind(|key| key.possible.from <= at).map(|key| &key.life);
            let there = own().any(|key| key.possible.from <= at && at < key.possible.to);
            let known = match before {
                // A key that was created anew is known to have been gone. The new key must come
                // before the old one would have expired by itself.
                Some(life) => own().any(|key| {
                    let anew = at <= key.made.from && key.made.to < life.expires.from;
                    anew && key.delivered.is_some_and(|delivered| delivered <= by)
                }),
                // The client does not know whether a late key of its attempt came before or after
                // another master lost its key.
                None => !own().any(|key| key.granted),
            };
            !there && known
        };
        let ends = keys.iter().map(|key| key.possible.to);
        let at = ends
            .filter(|at| lease.start.to < *at && *at < by)
            .find(|at| lock.masters.iter().filter(|node| lacked(**node, *at)).count() >= lock.q)?;
        let lines = vec![
            believed(lease),
            format!(
                "at {} a quorum of masters lacked its key, so that another may have held it; its \
                 client had replies that show it, and extended the lease at {}",
                Ms(at),
                Ms(at_client)
            ),
        ];
        Some(Violation::bug(Property::Validity, lines, at, at_client))
    })
}

/// A lease that ended at its deadline without a timely notice to its owner.
fn not_notified(case: &Case<'_>, lease: &Lease<'_>) -> Option<Violation> {
    if !case.world.tells_losses(lease.process) || lease.ending == Ending::Death {
        return None;
    }
    let deadline = lease.deadline.to;
    let mut by = deadline.saturating_add(NOTIFIED_WITHIN);
    // A paused process receives nothing.
    for pause in case.faults.pauses(lease.process) {
        let span = pause.span();
        if span.touches(Window::new(deadline, by)) {
            by = by.max(span.to.saturating_add(NOTIFIED_WITHIN));
        }
    }
    if lease.lost.is_some_and(|at| at <= by) {
        return None;
    }
    // After that, its clients may be gone.
    let over = case.world.until(Phase::Drain);
    let released = case.released(lease);
    let replaced = case.replaced(lease);
    let died = case.died(lease.process);
    if by >= over.min(released).min(died) || replaced <= deadline {
        return None;
    }
    let lines = vec![
        believed(lease),
        match lease.lost {
            Some(at) => format!(
                "it was notified of its loss only at {}, {} after the deadline",
                Ms(at),
                Ms(at.saturating_sub(deadline))
            ),
            None => format!("it was never notified of its loss, at least not by {}", Ms(over)),
        },
    ];
    Some(Violation::bug(Property::Validity, lines, deadline, lease.lost.unwrap_or(by)))
}
