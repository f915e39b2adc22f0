//! Situations in the life of a deployment: silent waiters, recycled connections, demoted masters,
//! and callers that do not poll.

use std::collections::{BTreeMap, BTreeSet};

use redquorum_protocol::wire::TURN_MS;

use super::{Goal, Request, RunView};
use redquorum_checker::Strike;
use redquorum_scenario::history::{Act, Event, Ns, Outcome, Phase};
use redquorum_scenario::{FaultKind, NetworkFault, NodeFault};

const TURN: Ns = TURN_MS.cast_signed() * 1_000_000;

pub(super) fn reached(seen: &RunView<'_, '_>) -> Vec<Goal> {
    let has = |goal, occurred: bool| occurred.then_some(goal);
    let goals = [
        has(Goal::PassedOver, is_passed_over(seen)),
        has(Goal::Recycled, is_recycled(seen)),
        has(Goal::Promoted, is_promoted(seen)),
        has(Goal::Unpolled, is_unpolled(seen)),
    ];
    goals.into_iter().flatten().collect()
}

/// Whether a fair waiter got its lease although another one had come before it, was silent for a
/// turn, and still was in the queues.
fn is_passed_over(seen: &RunView<'_, '_>) -> bool {
    let case = seen.case;
    let silences = |strike: &Strike<'_>, process: &str| {
        let cut = matches!(strike.fault.kind, FaultKind::Net(NetworkFault::Cut(_)));
        (cut || strike.fault.kind.pauses_clients()) && strike.hits_process(process)
    };
    let fair = |request: &&Request<'_>| {
        request.is_acquire_of_run() && seen.scenario.options_of(request.process).fair
    };
    let all: Vec<&Request<'_>> = case.requests.iter().filter(fair).collect();
    all.iter().filter(|request| request.granted()).any(|granted| {
        all.iter().any(|other| {
            (other.resource, other.op.wait_ms() > 0) == (granted.resource, true)
                && other.process != granted.process
                && other.asked < granted.asked
                && other.replied() > granted.replied()
                && case.faults.strikes().iter().any(|strike| {
                    let span = strike.span();
                    silences(strike, other.process)
                        && other.asked < span.from
                        && span.from + TURN < granted.replied()
                        && granted.replied() < span.to
                })
        })
    })
}

/// Whether all connections to a master were reset at least twice, and a client used a third one.
fn is_recycled(seen: &RunView<'_, '_>) -> bool {
    let resets = |node: usize| {
        let of = |strike: &&Strike<'_>| {
            matches!(&strike.fault.kind, FaultKind::Net(NetworkFault::Reset(messages))
                if messages.index.is_none())
                && strike.hits_node(node)
        };
        seen.case.faults.strikes().iter().filter(of).count()
    };
    let mut used: BTreeMap<(&str, usize), BTreeSet<u64>> = BTreeMap::new();
    for record in seen.case.world.records {
        if let Event::Command { process, node, connection, .. } = &record.event {
            used.entry((process, *node)).or_default().insert(*connection);
        }
    }
    used.iter().any(|((_, node), connections)| connections.len() > 2 && resets(*node) > 1)
}

/// Whether a master refused a command while it was demoted, and granted after its promotion.
fn is_promoted(seen: &RunView<'_, '_>) -> bool {
    let case = seen.case;
    let heals = case.world.until(Phase::Heal);
    let demoted = case.faults.strikes().iter().filter(|strike| {
        matches!(strike.fault.kind, FaultKind::Node(NodeFault::Demote)) && !strike.failed
    });
    let mut all = demoted.filter_map(|strike| Some((strike, strike.healed?)));
    all.any(|(strike, healed)| {
        (1..=case.world.n).filter(|node| strike.hits_node(*node)).any(|node| {
            let has = |wanted: &dyn Fn(&Act, Outcome, Ns) -> bool| {
                case.world.records.iter().any(|record| match &record.event {
                    Event::Command { node: on, act, sent, result, .. } => {
                        *on == node && wanted(act, *result, *sent)
                    }
                    _ => false,
                })
            };
            has(&|_, result, sent| result == Outcome::Error && strike.span().contains(sent))
                && has(&|act, result, sent| {
                    matches!(act, Act::Set { .. })
                        && result == Outcome::Done
                        && (healed.to..heals).contains(&sent)
                })
        })
    })
}

/// Whether a client got a lease while the request of another one for it, made before, was not
/// polled. That one was answered later.
fn is_unpolled(seen: &RunView<'_, '_>) -> bool {
    let acquires = || seen.case.requests.iter().filter(|request| request.is_acquire_of_run());
    acquires().any(|unpolled| {
        let Some(span) = unpolled.unpolled.filter(|_| !unpolled.is_given_up()) else {
            return false;
        };
        acquires().any(|other| {
            other.granted()
                && other.resource == unpolled.resource
                && other.client != unpolled.client
                && (span.from..span.to).contains(&other.replied())
        })
    })
}
