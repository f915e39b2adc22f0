//! Mutual exclusion: do believed holds of one resource overlap?
//!
//! The checker goes through the holds in the order of their starts. It compares each hold with the
//! earlier one that lasts longest: if any two holds overlap, such a pair does. Holds that only
//! touch do not overlap, and a hold that ends where it begins overlaps nothing. A lease may be
//! handed over at the very nanosecond at which it was released.

use std::collections::BTreeMap;

use crate::scenario::{Cause, Property};

use super::causes::{self, Explanation};
use super::keys::Presence;
use super::leases::{Ending, Hold, Lease};
use super::time::{Ms, Span};
use super::{Case, Observed, Violation};

/// Two leases that were believed at the same time.
pub(super) struct Clash {
    /// The earlier lease, and the rival's.
    pub(super) leases: [usize; 2],
    pub(super) both: Span,
    pub(super) finding: Violation,
}

pub(super) fn check(case: &Case<'_>) -> Vec<Clash> {
    let mut by_resource: BTreeMap<&str, Vec<Hold>> = BTreeMap::new();
    for lease in &case.leases {
        by_resource.entry(lease.resource).or_default().extend(&lease.holds);
    }
    let mut clashes = Vec::new();
    for holds in by_resource.values_mut() {
        for (first, second, both) in overlaps(holds, |hold| hold.inner) {
            clashes.push(violated(case, first.lease, second.lease, both));
        }
        for (first, second, both) in overlaps(holds, |hold| hold.outer) {
            if first.inner.meet(second.inner).is_none() {
                clashes.push(doubtful(case, first.lease, second.lease, both));
            }
        }
    }
    clashes
}

/// The causes of the overlaps of two clients within a span. [`overlaps`] pairs each hold with the
/// one that lasts longest. Where more than two clients overlap, it may therefore not pair these
/// two.
pub(super) fn between(case: &Case<'_>, clients: [&str; 2], within: Span) -> Vec<Cause> {
    let of = |client: &str| {
        let own = case.leases.iter().enumerate().filter(move |(_, lease)| lease.client == client);
        own.flat_map(|(index, lease)| lease.holds.iter().map(move |hold| (index, hold.inner)))
            .collect::<Vec<_>>()
    };
    let (one, other) = (of(clients[0]), of(clients[1]));
    let mut causes = Vec::new();
    for (first, span) in &one {
        for (second, rival) in &other {
            let same = case.leases[*first].resource == case.leases[*second].resource;
            let both = span.meet(*rival).filter(|both| same && both.touches(within));
            let Some(both) = both else { continue };
            let [owner, rival] =
                if span.from <= rival.from { [*first, *second] } else { [*second, *first] };
            causes.extend(violated(case, owner, rival, both).finding.causes);
        }
    }
    causes.sort_unstable();
    causes.dedup();
    causes
}

/// Pairs each hold that overlaps an earlier one with the earlier hold that lasts longest.
pub(super) fn overlaps(
    holds: &mut [Hold],
    span: impl Fn(&Hold) -> Span,
) -> Vec<(Hold, Hold, Span)> {
    holds.sort_by_key(|hold| (span(hold).from, span(hold).to, hold.lease));
    let mut longest: Option<Hold> = None;
    let mut found = Vec::new();
    for hold in holds.iter().filter(|hold| !span(hold).is_empty()) {
        if let Some(before) = longest
            && before.lease != hold.lease
            && let Some(both) = span(&before).meet(span(hold))
        {
            found.push((before, *hold, both));
        }
        if longest.is_none_or(|before| span(hold).to > span(&before).to) {
            longest = Some(*hold);
        }
    }
    found
}

fn violated(case: &Case<'_>, first: usize, second: usize, both: Span) -> Clash {
    let (owner, rival) = (&case.leases[first], &case.leases[second]);
    let mut story = told(case, owner, rival);
    let reasons = why(case, owner, rival, both);
    let mut causes: Vec<Cause> = reasons.iter().map(|(cause, _)| *cause).collect();
    causes.sort_unstable();
    causes.dedup();
    story.extend(reasons.into_iter().map(|(_, line)| line));
    let finding = Violation {
        layer: Property::MutualExclusion,
        seen: Observed::Violated,
        story,
        causes,
        from: both.from,
        to: both.to,
    };
    Clash { leases: [first, second], both, finding }
}

fn doubtful(case: &Case<'_>, first: usize, second: usize, both: Span) -> Clash {
    let (owner, rival) = (&case.leases[first], &case.leases[second]);
    let mut story = told(case, owner, rival);
    story.push(format!(
        "both may have counted on it from {} to {}: they do not say exactly from when to when",
        Ms(both.from),
        Ms(both.to)
    ));
    let finding = Violation {
        layer: Property::MutualExclusion,
        seen: Observed::Inconclusive,
        story,
        causes: Vec::new(),
        from: both.from,
        to: both.to,
    };
    Clash { leases: [first, second], both, finding }
}

/// The report text: which client believed what, from when to when.
fn told(case: &Case<'_>, owner: &Lease<'_>, rival: &Lease<'_>) -> Vec<String> {
    let mut nodes: Vec<usize> =
        owner.keys(&case.keys).filter(|key| key.granted && key.sure).map(|key| key.node).collect();
    nodes.sort_unstable();
    nodes.dedup();
    let margin = case.margin(owner.process, nodes.len());
    vec![
        believed(owner),
        believed(rival),
        match nodes.len() {
            0 => format!("it is not known which masters granted {}", owner.client),
            _ => format!("{} was granted by {} (margin {margin})", owner.client, named(&nodes)),
        },
    ]
}

/// `c1 believed that it holds L from 12.3 ms to 1978.3 ms (deadline), token 3f2a…`.
pub(super) fn believed(lease: &Lease<'_>) -> String {
    let span = lease.span();
    let ending = match lease.ending {
        Ending::Deadline => "deadline",
        Ending::Release => "release",
        Ending::Lost => "told of its loss",
        Ending::Death => "death",
        Ending::Replaced => "granted anew",
    };
    format!(
        "{} believed that it holds {} from {} to {} ({ending}){}",
        lease.client,
        lease.resource,
        Ms(span.from),
        Ms(span.to),
        causes::token(lease)
    )
}

/// Why the rival got in: the cause and a line for each master that granted it although the owner's
/// key should have been there.
fn why(case: &Case<'_>, owner: &Lease<'_>, rival: &Lease<'_>, both: Span) -> Vec<(Cause, String)> {
    let mut found: Vec<(Cause, String)> = Vec::new();
    for lease in [owner, rival] {
        if let Some(Explanation { cause, text }) = causes::too_few(case, lease) {
            found.push((cause, text));
        }
    }
    if owner.token == rival.token && owner.token.is_some() {
        let text = format!("{} and {} have the same token", owner.client, rival.client);
        found.push((Cause::Bug, text));
    }
    // For each master, the key that let the rival in last. A key that was set later did not let it
    // in.
    let mut let_in: BTreeMap<usize, &Presence<'_>> = BTreeMap::new();
    for key in rival.keys(&case.keys).filter(|key| key.sure && key.made.to <= both.to) {
        let last = let_in.entry(key.node).or_insert(key);
        if last.made.from < key.made.from {
            *last = key;
        }
    }
    // The number of masters that granted the rival without breaking a promise to the owner.
    let mut free: usize = 0;
    for let_in in let_in.into_values().filter(|key| owner.token != Some(key.token)) {
        // The owner's key that was there before. Only a key that was certainly set counts.
        let before = owner
            .keys(&case.keys)
            .filter(|key| key.sure && key.node == let_in.node)
            .filter(|key| key.made.from < let_in.made.from)
            .max_by_key(|key| key.made.from);
        let loss = before.and_then(|key| causes::of_loss(case, owner, key, let_in.made.to));
        let Some(Explanation { cause, text }) = loss else {
            free += 1;
            continue;
        };
        let line = format!(
            "master {} let {} in at {}: {text}",
            let_in.node,
            rival.client,
            Ms(let_in.made.from)
        );
        found.push((cause, line));
    }
    found.extend(apart(case, owner, rival, free));
    if found.is_empty() {
        found.push((Cause::Unknown, "no master is known to have let both in".to_owned()));
    }
    found
}

/// Whether both clients had quorums because they know different masters. Then no master had to
/// forget for the rival to get in.
fn apart(
    case: &Case<'_>,
    owner: &Lease<'_>,
    rival: &Lease<'_>,
    free: usize,
) -> Option<(Cause, String)> {
    let (own, others) = (case.world.lock_of(owner.process), case.world.lock_of(rival.process));
    if free < others.q || !own.can_part_from(others) {
        return None;
    }
    let line = format!(
        "{} knows {} and {} knows {}: their quorums of {} and {} need not meet",
        owner.client,
        named(&own.masters),
        rival.client,
        named(&others.masters),
        own.q,
        others.q
    );
    Some((Cause::NodeLists, line))
}

/// `masters 1, 2, 3`.
fn named(nodes: &[usize]) -> String {
    let names: Vec<String> = nodes.iter().map(usize::to_string).collect();
    format!("master{} {}", if nodes.len() == 1 { "" } else { "s" }, names.join(", "))
}
