//! The measurements: nothing here affects the verdict.

use std::collections::BTreeMap;

use redquorum_scenario::history::{Event, Ns, Phase};

use super::commands::BOOKS;
use super::leases::Lease;
use super::maps::{Map, Set};
use super::time;
use super::{Case, Measures};

/// The leases that count: not those of the final acquires.
fn granted<'c, 'h>(case: &'c Case<'h>) -> Vec<&'c Lease<'h>> {
    case.leases.iter().filter(|lease| lease.phase != Phase::FinalAcquire).collect()
}

/// The times of the granted acquires, and those from the end of a lease to the next grant.
pub fn times(case: &Case<'_>) -> (Vec<Ns>, Vec<Ns>) {
    let granted = granted(case);
    let took = granted.iter().map(|lease| lease.reply.returned().saturating_sub(lease.called()));
    (took.collect(), hand_overs(&granted))
}

/// When a command was sent, and its token.
type SentCommand<'a> = (Ns, Option<&'a str>);

/// The number of commands that a client sent for each granted acquire: those that touch the
/// key of the resource, from the call to the grant. Clients that share a process do not
/// count, because a command does not name its client.
pub fn commands(case: &Case<'_>) -> Vec<i64> {
    let mut clients: Map<&str, usize> = Map::default();
    for client in &case.world.scenario.clients {
        *clients.entry(client.process()).or_default() += 1;
    }
    let mut sent_for: Map<(&str, &str), Vec<SentCommand<'_>>> = Map::default();
    for record in case.world.records {
        let Event::Command { process, act, sent, .. } = &record.event else { continue };
        let key = act.key().filter(|key| !key.starts_with(BOOKS));
        if let Some(resource) = key.and_then(|key| case.world.resource(key)) {
            sent_for.entry((process, resource)).or_default().push((*sent, act.token()));
        }
    }
    sent_for.values_mut().for_each(|commands| commands.sort_unstable());
    // The clean-up of an earlier lease may still be in progress.
    let tokens: Set<&str> = case.leases.iter().filter_map(|lease| lease.token).collect();
    let alone = granted(case).into_iter().filter(|lease| clients.get(lease.process) == Some(&1));
    let count = alone.filter_map(|lease| {
        let commands = sent_for.get(&(lease.process, lease.resource))?;
        let begin = commands.partition_point(|(sent, _)| *sent < lease.called());
        let end = commands.partition_point(|(sent, _)| *sent <= lease.reply.returned());
        let is_own = |token: Option<&str>| {
            token == lease.token || token.is_none_or(|token| !tokens.contains(token))
        };
        let own = commands.get(begin..end)?.iter().filter(|(_, token)| is_own(*token)).count();
        i64::try_from(own).ok()
    });
    count.collect()
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
            // With fewer certain grants than a quorum there is no margin: `validity` says why.
            .filter(|margin| *margin >= 0)
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
