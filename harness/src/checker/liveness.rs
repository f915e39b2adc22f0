//! Liveness: can each process that lives still acquire after everything is healed?

use std::collections::BTreeMap;

use crate::history::Phase;
use crate::name::Name;
use crate::scenario::{Cause, Property};

use super::progress;
use super::time::Ms;
use super::{Case, Observed, Violation};

pub(super) fn check(case: &Case<'_>) -> Vec<Violation> {
    let world = &case.world;
    let from = world.began(Phase::Witness).unwrap_or(world.end);
    let to = world.began(Phase::Settle).unwrap_or(world.end);
    // If not everything was healed, no process can be blamed.
    let healed = case.faults.not_cured().next().is_none();
    let finding = |seen, story: String| Violation {
        layer: Property::Liveness,
        seen: if healed { seen } else { Observed::Inconclusive },
        story: vec![story],
        causes: if healed && seen == Observed::Violated { vec![Cause::Bug] } else { Vec::new() },
        from,
        to,
    };
    if world.began(Phase::End).is_none() {
        return vec![finding(
            Observed::Inconclusive,
            "the run broke off before its end".to_owned(),
        )];
    }
    let witnesses = case
        .requests
        .iter()
        .filter(|request| request.is_acquire() && request.phase == Phase::Witness);
    // For each process and resource: whether any request was granted, and the last answer.
    let mut asked: BTreeMap<(&str, &str), (bool, String)> = BTreeMap::new();
    let mut answers = 0;
    for request in witnesses {
        let Some(resource) = request.resource else { continue };
        let (granted, last) = asked.entry((request.process, resource)).or_default();
        *granted |= request.granted();
        answers += usize::from(request.answer.is_some());
        *last = match request.answer {
            Some(answer) => format!("was refused at {}", Ms(answer.ns)),
            None => "had no answer".to_owned(),
        };
    }
    let alive = |process: &&Name| case.death(process).is_none();
    let survivors: Vec<&Name> = world.scenario.processes().into_iter().filter(alive).collect();
    if survivors.is_empty() {
        return vec![finding(
            Observed::Violated,
            "no client process lives to bear witness".to_owned(),
        )];
    }
    if answers == 0 {
        let story = "no client answered after everything was healed".to_owned();
        return vec![finding(Observed::Violated, story)];
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
            let story = format!("{process} asked for {resource} after the healing, and {last}");
            let mut found = finding(Observed::Violated, story);
            if lock.n < lock.q && !found.causes.is_empty() {
                found.causes = vec![Cause::NodeLists];
                let (n, q) = (lock.n, lock.q);
                found.story.push(format!(
                    "it knows {n} master{}, and its quorum is {q}",
                    if n == 1 { "" } else { "s" }
                ));
            }
            let counts = |node: &&usize| !case.faults.is_spent(**node, resource, to);
            if world.scenario.options_of(process).fencing
                && lock.masters.iter().filter(counts).count() < lock.q
                && lock.n >= lock.q
                && !found.causes.is_empty()
            {
                found.causes = vec![Cause::NodeCounter];
                found.story.push(progress::spent(case, process, resource, to));
            }
            if case.faults.is_at_odds(process) && !found.causes.is_empty() {
                found.causes = vec![Cause::MaxTtl];
                found.story.push(format!(
                    "the guard of {process} has another longest TTL than that of others, who marked \
                     the masters"
                ));
            }
            findings.push(found);
        }
        if !any {
            let story = format!("{process} was never asked to acquire after the healing");
            findings.push(finding(Observed::Violated, story));
        }
    }
    findings
}
