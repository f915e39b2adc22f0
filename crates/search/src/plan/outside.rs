//! Events outside the assumptions that are no faults of masters, clocks or links: clients that know
//! different masters, or one master by two addresses, and requests that reach a register late. They
//! are drawn after all else, so that a number stands for the same clients and faults as it would
//! without them.

use super::rng::Rng;
use super::targets;
use crate::lengths::of_millis;
use redquorum_scenario::{
    AccessKind, Clients, EventKind, Fault, FaultKind, FaultTime, Moment, Nodes, ResourceFault,
    Scenario, Step, Touches,
};

pub(super) fn draw(rng: &mut Rng, scenario: &mut Scenario) {
    if rng.chance(1, 6) {
        let fault = late(rng, scenario);
        scenario.faults.extend(fault);
    }
    if rng.chance(1, 8) {
        lists(rng, scenario);
    }
}

/// A client whose reads or writes come late; none if no client reads or writes.
fn late(rng: &mut Rng, scenario: &Scenario) -> Option<Fault> {
    let touch = |step: &Step| match step {
        Step::Touch { register, way, .. } => Some((register.clone(), *way)),
        _ => None,
    };
    let touches = scenario.clients.iter().flat_map(|client| {
        client.script.iter().filter_map(touch).map(|(register, way)| (&client.id, register, way))
    });
    let all: Vec<_> = touches.collect();
    if all.is_empty() {
        return None;
    }
    let (client, register, way) = rng.pick(&all);
    let (what, moment) = match way {
        AccessKind::Present => (Touches::Both, EventKind::Presents(register)),
        AccessKind::Read => (Touches::Read, EventKind::Reads(register)),
        AccessKind::Write => (Touches::Write, EventKind::Writes(register)),
    };
    let what = if rng.chance(1, 4) { Touches::Both } else { what };
    let when = match rng.chance(1, 2) {
        true => {
            FaultTime::Before(Moment { client: client.clone(), what: moment, plus: of_millis(0) })
        }
        false => targets::when(rng, scenario),
    };
    let lasts = rng.maybe(1, 2, |rng| of_millis(rng.within(1, 1_200)));
    let (clients, by) = (Clients::Some(vec![client.clone()]), of_millis(rng.within(1, 2_500)));
    Some(Fault {
        when,
        lasts,
        fault_kind: FaultKind::Resource(ResourceFault::Delay { clients, what, by }),
    })
}

/// Each process knows some of the masters, in some order, and perhaps one of them twice.
fn lists(rng: &mut Rng, scenario: &mut Scenario) {
    let all = scenario.cluster.nodes;
    let processes: Vec<_> = scenario.processes().into_iter().cloned().collect();
    for process in processes {
        if rng.chance(1, 3) {
            continue;
        }
        let mut rest: Vec<usize> = (1..=all).collect();
        let many = 1 + rng.index(all);
        let mut list: Vec<usize> = (0..many).map(|_| rest.remove(rng.index(rest.len()))).collect();
        if rng.chance(1, 4) {
            list.push(rng.pick(&list));
        }
        let of_process = scenario.clients.iter_mut().filter(|client| *client.process() == process);
        of_process.for_each(|client| client.nodes = Some(list.clone()));
    }
    // A part names masters that its client knows.
    let known: Vec<_> = scenario.clients.iter().map(|client| scenario.list(client)).collect();
    for fault in &mut scenario.faults {
        let Some(Nodes::Role(role)) = fault.fault_kind.nodes_mut() else { continue };
        let own = scenario.clients.iter().position(|client| client.id == role.client);
        let most = own.map_or(all, |own| known[own].masters().len());
        role.first = role.first.map(|first| first.min(most));
    }
}
