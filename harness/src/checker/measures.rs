//! The measurements: nothing here affects the verdict.

use std::collections::BTreeMap;

use crate::history::{Ns, Phase};

use super::leases::Lease;
use super::time;
use super::{Case, Measures};

/// The leases that count: not those of the final acquires.
fn granted<'c, 'h>(case: &'c Case<'h>) -> Vec<&'c Lease<'h>> {
    case.leases.iter().filter(|lease| lease.phase != Phase::Witness).collect()
}

/// The times of the granted acquires, and those from the end of a lease to the next grant.
pub(crate) fn times(case: &Case<'_>) -> (Vec<Ns>, Vec<Ns>) {
    let granted = granted(case);
    let took = granted.iter().map(|lease| {
        let from = lease.answer.from.unwrap_or(lease.asked);
        lease.answer.returned().saturating_sub(from)
    });
    (took.collect(), hand_overs(&granted))
}

pub(crate) fn of(case: &Case<'_>) -> Measures {
    let granted = granted(case);
    let (took, hand_overs) = times(case);
    let hollow = granted.iter().flat_map(|lease| case.hollow(lease));
    Measures {
        grants: granted.len(),
        hollow_ns: hollow.map(|span| span.length()).fold(0, Ns::saturating_add),
        margins: granted
            .iter()
            .filter(|lease| lease.token.is_some())
            .map(|lease| case.margin(lease.process, lease.grants(&case.keys, true)))
            .collect(),
        acquire_ns: time::median(took),
        hand_over_ns: time::median(hand_overs),
    }
}

/// The times from the end of a lease to the next grant of the same resource to another client
/// that was already waiting.
fn hand_overs(granted: &[&Lease<'_>]) -> Vec<Ns> {
    let mut by_resource: BTreeMap<&str, Vec<&Lease<'_>>> = BTreeMap::new();
    for lease in granted {
        by_resource.entry(lease.resource).or_default().push(lease);
    }
    let mut times = Vec::new();
    for leases in by_resource.values_mut() {
        leases.sort_by_key(|lease| lease.start.to);
        for pair in leases.windows(2) {
            let end = pair[0].span().to;
            let next = pair[1].start.to;
            let waited = pair[1].asked <= end && next >= end;
            if waited && pair[0].client != pair[1].client {
                times.push(next.saturating_sub(end));
            }
        }
    }
    times
}
