//! Owners that acquire a resource again while they hold it: at once or after a while, for longer or
//! not. They release the handles before the end of the first one, after it, or never.

use super::rng::Rng;
use super::{clients, ttl};
use crate::lengths::{millis, of_millis};
use redquorum_scenario::name::Name;
use redquorum_scenario::{AccessKind, Lock, Scenario, Step};

/// The longest TTL of a lock. No guard covers a shorter one.
const LONGEST: u64 = 6_000;

/// Lets most clients of every fourth scenario acquire again the resources that they hold. It comes
/// before the faults, some of which strike at a step.
pub(super) fn add(rng: &mut Rng, scenario: &mut Scenario) {
    if !rng.chance(1, 4) {
        return;
    }
    for client in &mut scenario.clients {
        if rng.chance(2, 3) {
            let script = std::mem::take(&mut client.script);
            let sections = sections(script).into_iter();
            let lock = &scenario.lock;
            client.script = sections.flat_map(|section| reentered(rng, lock, section)).collect();
        }
    }
}

/// The script in parts, each from an acquire to its release.
fn sections(script: Vec<Step>) -> Vec<Vec<Step>> {
    let mut sections: Vec<Vec<Step>> = Vec::new();
    for step in script {
        match sections.last_mut() {
            Some(section) if !matches!(step, Step::Acquire { .. }) => section.push(step),
            _ => sections.push(vec![step]),
        }
    }
    sections
}

fn reentered(rng: &mut Rng, lock: &Lock, mut section: Vec<Step>) -> Vec<Step> {
    // In a request for several resources each has an owner of its own, which no other client
    // shares.
    let resource = match section.first() {
        Some(Step::Acquire { resource, also, .. }) if also.is_empty() => resource.clone(),
        _ => return section,
    };
    for _ in 0..rng.within(1, 2) {
        enter(rng, lock, &resource, &mut section);
    }
    let handles = section.iter().flat_map(Step::acquires).count();
    if section.iter().flat_map(Step::releases).count() < handles {
        // Here, and not at the end: the steps between are skipped if the next section is refused.
        clients::stay(lock, &mut section);
    }
    section
}

/// Adds one more handle, and its end.
fn enter(rng: &mut Rng, lock: &Lock, resource: &Name, section: &mut Vec<Step>) {
    let release = || Step::Release { resource: resource.clone(), also: Vec::new() };
    let mut at = 1 + rng.index(section.len() - 1);
    // A re-entry and the read behind it stay together.
    if matches!(section[at - 1], Step::Acquire { again: true, .. }) && is_read(&section[at]) {
        at += 1;
    }
    let mut steps = match rng.below(8) {
        // Waits until the lease is over by itself, and a little longer.
        0 => vec![Step::Work(of_millis(millis(lock.ttl) + rng.within(1, 100)))],
        1..4 => vec![work(rng)],
        _ => Vec::new(),
    };
    steps.push(acquire(rng, lock, resource));
    // It may be another lease. An update must not build on a read under the lease before.
    let read = section[..at].iter().find(|step| is_read(step)).cloned();
    steps.extend(read.clone());
    let behind = at + steps.len();
    section.splice(at..at, steps);
    // If the re-entry fails, its client skips all steps up to the release. The first read of the
    // section is not among them: later updates build on it.
    let first = match &read {
        None => section[behind..].iter().position(is_read),
        Some(_) => None,
    };
    match rng.below(6) {
        // The handle is never released.
        0 => {}
        // It outlives the first handle.
        1 | 2 if first.is_none() => {
            section.push(work(rng));
            section.extend(
                read.and_then(written)
                    .map(|register| clients::touch(&register, AccessKind::Write, resource)),
            );
            section.push(release());
        }
        _ => {
            let most = first.map_or(section.len() - behind, |first| first + 1);
            let place = behind + rng.index(most);
            section.insert(place, release());
        }
    }
}

fn work(rng: &mut Rng) -> Step {
    Step::Work(of_millis(rng.within(1, clients::WORKS)))
}

fn is_read(step: &Step) -> bool {
    matches!(step, Step::Touch { way: AccessKind::Read, .. })
}

fn written(step: Step) -> Option<Name> {
    match step {
        Step::Touch { register, .. } => Some(register),
        _ => None,
    }
}

fn acquire(rng: &mut Rng, lock: &Lock, resource: &Name) -> Step {
    let longer = |rng: &mut Rng| (millis(lock.ttl) + rng.within(1, 1_000)).min(LONGEST);
    Step::Acquire {
        resource: resource.clone(),
        also: Vec::new(),
        // If the lease is over, it asks like any other client.
        wait: of_millis(if rng.chance(1, 2) { 0 } else { rng.within(1, 1_500) }),
        ttl: match rng.below(6) {
            0 => Some(ttl(rng, lock)),
            1 | 2 => Some(of_millis(longer(rng))),
            _ => None,
        },
        cancel: rng.maybe(1, 8, |rng| of_millis(rng.within(1, 60))),
        again: true,
    }
}
