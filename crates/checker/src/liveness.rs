//! Liveness: can each process that lives still acquire after everything is healed?

use std::collections::BTreeMap;

use redquorum_scenario::history::Phase;
use redquorum_scenario::name::Name;
use redquorum_scenario::units::plural;
use redquorum_scenario::{Cause, Property};

use super::progress;
use super::time::Ms;
use super::{Case, Violation};

pub(crate) fn check(case: &Case<'_>) -> Vec<Violation> {
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
            let counting = lock.masters.iter().filter(counts).count();
            if n < q {
                cause = Cause::NodeLists;
                lines.push(format!("it knows {}, and its quorum is {q}", plural(n, "master")));
            } else if world.scenario.options_of(process).fencing && counting < q {
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
