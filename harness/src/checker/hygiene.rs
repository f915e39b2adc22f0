//! Hygiene: is a key left at the end that no client holds? Did a process delete another's key? Did
//! a client that asked for several resources keep some of them without the others?

use std::collections::BTreeMap;

use crate::history::{Event, LeftKey, Ns, Phase};
use crate::scenario::Property;

use super::commands::{BOOKS, QUEUES};
use super::time::{self, Ms};
use super::{Case, Violation};

mod partial;

pub(crate) fn check(case: &Case<'_>) -> Vec<Violation> {
    let mut findings = left(case);
    findings.extend(foreign(case));
    findings.extend(partial::check(case));
    findings
}

fn bug(line: String, from: Ns, to: Ns) -> Violation {
    Violation::bug(Property::Hygiene, vec![line], from, to)
}

fn possible(line: String, from: Ns, to: Ns) -> Violation {
    Violation::possible(Property::Hygiene, vec![line], from, to)
}

/// The keys that are left on the masters. The harness asks the masters again until they are clean,
/// or until the longest TTL is over and every position in a fair queue has lapsed. The last reply
/// counts.
fn left(case: &Case<'_>) -> Vec<Violation> {
    let world = &case.world;
    let from = world.until(Phase::Drain);
    let mut last: BTreeMap<usize, (Ns, Option<&[LeftKey]>)> = BTreeMap::new();
    for record in world.records {
        if let Event::Keys { node, keys } = &record.event {
            last.insert(*node, (record.ns, keys.as_deref()));
        }
    }
    let mut findings = Vec::new();
    for (node, (ns, keys)) in &last {
        let Some(keys) = keys else {
            let line = format!("master {node} could not be asked for its keys");
            findings.push(possible(line, from, *ns));
            continue;
        };
        for queue in keys.iter().filter(|left| left.key.starts_with(QUEUES)) {
            let line = format!(
                "master {node} still has {} at {}: positions of processes that are gone lapse",
                queue.key,
                Ms(*ns)
            );
            findings.push(bug(line, from, *ns));
        }
        let left = keys.iter().filter(|left| !left.key.starts_with(BOOKS));
        for LeftKey { key, value, ttl_ms } in left.filter(|left| !is_wanted(case, &left.value, *ns))
        {
            let setter = case.keys.setter(value).unwrap_or("an unknown client");
            let ttl = ttl_ms.map_or("for ever".to_owned(), |ttl| format!("for {ttl} ms more"));
            let token = time::short(value);
            let line = format!(
                "master {node} still has {key} at {}, {ttl}: it was set by {setter}, token {token}",
                Ms(*ns)
            );
            findings.push(bug(line, from, *ns));
        }
    }
    let missing = (1..=world.n).filter(|node| !last.contains_key(node));
    findings.extend(missing.map(|node| {
        let line = format!("master {node} was never asked for its keys");
        possible(line, from, world.end)
    }));
    findings
}

/// Whether a client counts on a key, or may be about to. A client that was stopped during the run
/// may get its grant long after it resumed.
fn is_wanted(case: &Case<'_>, value: &str, at: Ns) -> bool {
    let holds = case.leases.iter().filter(|lease| lease.token == Some(value));
    let mut holds = holds.flat_map(|lease| &lease.holds);
    let asks = case.requests.iter().filter(|request| request.is_acquire());
    let mut asks = asks.filter(|request| request.asked <= at && request.replied() >= at);
    holds.any(|hold| (hold.outer.from..=hold.outer.to).contains(&at))
        || asks.any(|request| case.keys.setter(value) == Some(request.process))
}

/// The processes that hit another's key with a command without a token.
fn foreign(case: &Case<'_>) -> impl Iterator<Item = Violation> {
    case.keys.foreign.iter().map(|foreign| {
        let victim = &case.keys.all[foreign.victim];
        let did = match (foreign.deletes, foreign.sure) {
            (true, true) => "deleted",
            (true, false) => "may have deleted",
            (false, true) => "prolonged",
            (false, false) => "may have prolonged",
        };
        let line = format!(
            "{} {did} on master {} at {} the key that {} had set at {}, token {}",
            foreign.process,
            foreign.node,
            Ms(foreign.when.from),
            victim.process,
            Ms(victim.made.from),
            time::short(victim.token)
        );
        let found = if foreign.sure { bug } else { possible };
        found(line, foreign.when.from, foreign.when.to)
    })
}
