//! Masters that forget by other ways than a restart: by a command that clears them, by eviction, by
//! a loss of power, by a failover; and masters whose counters another client sets. All of it is
//! outside the assumptions, except for locks with a guard that detects it.

use super::rng::Rng;
use super::targets;
use crate::lengths::of_millis;
use redquorum_scenario::name::Name;
use redquorum_scenario::{
    Ahead, Fault, FaultKind, FaultTime, Length, NodeFault, Nodes, Persistence, Scenario, Step,
};

/// Adds such faults to every other scenario; `inside` the assumptions only those that a guard
/// detects.
pub(super) fn add(rng: &mut Rng, scenario: &mut Scenario, inside: bool) {
    let kind = rng.below(8);
    let unseen = [1, 4].contains(&kind);
    if kind > 4 || inside && unseen {
        return;
    }
    let nodes = targets::nodes(rng, scenario);
    let when = targets::when(rng, scenario);
    let lasts = rng.maybe(4, 5, |rng| of_millis(rng.within(1, 1_200)));
    let add = |scenario: &mut Scenario, when, lasts: Option<Length>, fault_kind| {
        scenario.faults.push(Fault { when, lasts, fault_kind: FaultKind::Node(fault_kind) });
    };
    match kind {
        0 => add(scenario, when, None, NodeFault::Flush { nodes }),
        1 => add(scenario, when, None, NodeFault::Evict { nodes }),
        2 => add(scenario, when, lasts, NodeFault::PowerLoss { nodes }),
        4 => {
            let far = [1, 60, 3_600, 86_400].map(|seconds| Ahead::By(of_millis(seconds * 1_000)));
            let ahead = rng
                .maybe(2, 3, |rng| rng.pick(&far))
                .unwrap_or_else(|| rng.pick(&[Ahead::Last, Ahead::End]));
            let acquires = scenario.clients.iter().flat_map(|client| &client.script);
            let first = acquires.filter_map(Step::resource).next();
            let resource = first.map_or_else(|| "L".into(), Name::from);
            add(scenario, when, None, NodeFault::Counter { nodes, resource, ahead });
        }
        _ => {
            // A master with a replica is not restarted, and has no clock to set.
            let other = |fault: &Fault| {
                fault.fault_kind.starts_again() || matches!(fault.fault_kind, FaultKind::Clock(_))
            };
            // A replica that is configured to sync every write looks like its master after a
            // restart.
            let unseen = scenario.cluster.persistence == Persistence::AofAlways;
            if scenario.faults.iter().any(other) || inside && unseen {
                return;
            }
            scenario.cluster.replicas = true;
            if rng.chance(3, 4) {
                let from_the_start = FaultTime::At(of_millis(0));
                let since =
                    if rng.chance(1, 2) { from_the_start } else { targets::when(rng, scenario) };
                let fault_kind = FaultKind::Node(NodeFault::Lag { nodes: Nodes::All });
                scenario.faults.push(Fault { when: since, lasts, fault_kind });
            }
            let fault_kind = FaultKind::Node(NodeFault::Failover { nodes });
            scenario.faults.push(Fault { when, lasts: None, fault_kind });
        }
    }
}
