//! Hygiene: is a key left at the end that no client holds? Did a process delete another's key? Did
//! a client that asked for several resources keep some of them without the others?

use std::collections::BTreeMap;

use super::case::{CLEANS_UP, Request};
use super::keys::BOOKS;
use super::leases::Lease;
use super::progress::{self, set_aside};
use super::time::{self, Ms};
use super::{Case, Violation};
use redquorum_protocol::wire::is_queue;
use redquorum_scenario::history::{Event, LeftKey, Ns, Phase, Window};
use redquorum_scenario::name::Name;
use redquorum_scenario::units::plural;
use redquorum_scenario::{Cause, Property};

pub(crate) fn check(case: &Case<'_>) -> Vec<Violation> {
    let mut findings = left(case);
    findings.extend(foreign(case));
    findings.extend(unread(case));
    let several = case.requests.iter().filter(|request| request.is_of_several());
    let several = several.filter(|request| request.is_acquire());
    findings.extend(several.filter_map(|request| partial(case, request)));
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
        let excused = case.faults.keep_positions(*node);
        for queue in keys.iter().filter(|left| is_queue(left.key.as_bytes()) && !excused) {
            let line = format!(
                "master {node} still has {} at {}, and no fault kept its waiters from leaving",
                queue.key,
                Ms(*ns)
            );
            findings.push(bug(line, from, *ns));
        }
        let left = keys.iter().filter(|left| !left.key.starts_with(BOOKS));
        for LeftKey { key, value, ttl_ms } in left.filter(|left| !is_wanted(case, left, *ns)) {
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
fn is_wanted(case: &Case<'_>, LeftKey { value, .. }: &LeftKey, at: Ns) -> bool {
    let is_its = |lease: &&Lease<'_>| lease.token == Some(value);
    let mut holds = case.leases.iter().filter(is_its).flat_map(|lease| &lease.holds);
    let asks = case.requests.iter().filter(|request| request.is_acquire());
    let mut asks = asks.filter(|request| request.span().contains(at));
    holds.any(|hold| hold.outer.contains(at))
        || asks.any(|request| case.keys.setter(value) == Some(request.process))
}

/// The processes that hit another's key with a command without a token.
fn foreign(case: &Case<'_>) -> impl Iterator<Item = Violation> {
    case.keys.foreign.iter().map(|foreign| {
        let victim = &case.keys.all[foreign.victim];
        let may = if foreign.sure { "" } else { "may have " };
        let did = if foreign.deletes { "deleted" } else { "prolonged" };
        let line = format!(
            "{} {may}{did} on master {} at {} the key that {} had set at {}, token {}",
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

/// A lease that was acquired by commands which the checker cannot interpret, beside other
/// processes: nothing is known of the keys that its process touched.
fn unread(case: &Case<'_>) -> Option<Violation> {
    let lease = case.leases.iter().find(|lease| {
        let during = Window::new(lease.asked, lease.reply.ns);
        let rivals = case.requests.iter().filter(|one| one.resource == Some(lease.resource));
        lease.token.is_none()
            && case.keys.is_opaque(lease.process, lease.resource, during)
            && rivals.filter(|one| one.is_acquire()).any(|one| one.process != lease.process)
    })?;
    let line = format!(
        "the harness does not understand the commands of {}, and cannot tell whether they touched \
         another client's key",
        lease.process
    );
    Some(possible(line, lease.asked, lease.reply.ns))
}

/// All or nothing: the first key of a request for several resources that was kept, while the client
/// waited for the others or after a refusal, for longer than it takes to learn that one is taken.
fn partial(case: &Case<'_>, request: &Request<'_>) -> Option<Violation> {
    let resource = request.resource?;
    // If several clients of one process want a resource, the record does not show whose attempt set
    // a key.
    let wants_too = |other: &Request<'_>| {
        (other.process, other.resource) == (request.process, request.resource)
            && other.client != request.client
            && other.is_acquire()
    };
    if case.requests.iter().any(wants_too) {
        return None;
    }
    let during = Window::new(request.asked, request.replied().min(case.world.end));
    let own = case.keys.all.iter().filter(|key| {
        key.process == request.process
            && key.resource == Some(resource)
            && key.sure
            && during.contains(key.made.from)
    });
    // These are the votes on the other resources, the replies that name the clients that hold them,
    // and the rounds that certify numbers.
    let rounds = if case.world.scenario.options_of(request.process).fencing { 5 } else { 3 };
    let timeouts = case.world.node_timeout.saturating_mul(rounds);
    let bound = timeouts.saturating_add(CLEANS_UP);
    own.filter(|key| !case.is_helpless(key, key.possible)).find_map(|key| {
        let delays = case.faults.delays(request.process, key.possible).saturating_mul(4);
        let longest = time::of(case.world.scenario.longest_ttl());
        let unpolled = request.unpolled.map(|_| set_aside(case.world.node_timeout, longest));
        let bound = bound.saturating_add(delays).saturating_add(unpolled.unwrap_or(0));
        // Once the key is granted with the others, the client keeps it by right.
        let right = case.lease_of(key.token).map_or(Ns::MAX, |lease| lease.start.from);
        let kept = Window::new(key.certain.from, key.certain.to.min(right));
        (kept.length() > bound).then(|| {
            let line = format!(
                "{} asked for {resource} and {} at {}, and kept {resource} on master {} from {} to \
                 {} without the others: at most {} would do",
                request.client,
                request.with().collect::<Vec<_>>().join(" and "),
                Ms(request.asked),
                key.node,
                Ms(kept.from),
                Ms(kept.to),
                Ms(bound)
            );
            bug(line, kept.from, kept.to)
        })
    })
}

/// Liveness: can each process that lives still acquire after everything is healed?
pub(crate) fn check_liveness(case: &Case<'_>) -> Vec<Violation> {
    let world = &case.world;
    let from = world.until(Phase::FinalAcquire);
    let to = world.until(Phase::Drain);
    let possible = |line: String| Violation::possible(Property::Liveness, vec![line], from, to);
    // If not everything was healed, no process can be blamed.
    let healed = case.faults.not_healed().next().is_none();
    let violated = |cause, lines: Vec<String>| match healed {
        true => Violation::certain(Property::Liveness, vec![cause], lines, from, to),
        false => possible(lines[0].clone()),
    };
    let bug = |line: &str| violated(Cause::Bug, vec![line.to_owned()]);
    if world.began(Phase::End).is_none() {
        return vec![possible("the run broke off before its end".to_owned())];
    }
    let final_acquires = case
        .requests
        .iter()
        .filter(|request| request.is_acquire() && request.phase == Phase::FinalAcquire);
    // For each process and resource: whether any request was granted, and the last reply.
    let mut asked: BTreeMap<(&str, &str), (bool, String)> = BTreeMap::new();
    let mut replies = 0;
    for request in final_acquires {
        let Some(resource) = request.resource else { continue };
        let (granted, last) = asked.entry((request.process, resource)).or_default();
        // A caller that does not poll its request can be too late. What the client does not support
        // says nothing about its lock.
        *granted |= request.granted() || request.unpolled.is_some() || request.is_given_up();
        replies += usize::from(request.reply.is_some());
        *last = match request.reply {
            Some(reply) => format!("was refused at {}", Ms(reply.ns)),
            None => "had no reply".to_owned(),
        };
    }
    let alive = |process: &&Name| case.death(process).is_none();
    let survivors: Vec<&Name> = world.scenario.processes().into_iter().filter(alive).collect();
    if survivors.is_empty() {
        return vec![bug("no client process is left for the final acquire")];
    }
    if replies == 0 {
        return vec![bug("no client answered after everything was healed")];
    }
    let mut findings = Vec::new();
    for process in survivors {
        let mut any = false;
        let lock = world.lock_of(process);
        for ((_, resource), (granted, last)) in asked.iter().filter(|((of, _), _)| *of == process) {
            any = true;
            if *granted || case.faults.refuses(world, process) {
                continue;
            }
            let mut lines =
                vec![format!("{process} asked for {resource} after the healing, and {last}")];
            let mut cause = Cause::Bug;
            let (n, q) = (lock.n, lock.q);
            let counts = |node: &&usize| !case.faults.is_spent(**node, resource, to);
            let counting: Vec<usize> = lock.masters.iter().filter(counts).copied().collect();
            if !lock.has_quorum() {
                cause = Cause::NodeLists;
                lines.push(format!("it knows {}, and its quorum is {q}", plural(n, "master")));
            } else if world.scenario.options_of(process).fencing && !lock.is_quorum(&counting) {
                cause = Cause::NodeCounter;
                lines.push(progress::spent(case, process, resource, to));
            }
            if case.faults.is_at_odds(process) {
                cause = Cause::MaxTtl;
                lines.push(format!(
                    "the guard of {process} has another longest TTL than the guards that marked \
                     the masters"
                ));
            }
            findings.push(violated(cause, lines));
        }
        if !any {
            findings.push(bug(&format!("{process} was never asked to acquire after the healing")));
        }
    }
    findings
}
