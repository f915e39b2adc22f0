//! Events outside the assumptions that are no faults of masters, clocks or links: clients that know
//! different masters, or one master by two addresses, and requests that reach a register late. They
//! are drawn after all else, so that a number stands for the same clients and faults as it would
//! without them.

use super::aims;
use super::dice::Dice;
use crate::scenario::{
    Clients, Fault, Harm, Moment, Nodes, ResourceHarm, Scenario, Step, Touches, Way, What, When,
};
use crate::search::lengths::of_millis;

pub(super) fn draw(dice: &mut Dice, scenario: &mut Scenario) {
    if dice.chance(1, 6) {
        let fault = late(dice, scenario);
        scenario.faults.extend(fault);
    }
    if dice.chance(1, 8) {
        lists(dice, scenario);
    }
}

/// A client whose reads or writes come late; none if no client reads or writes.
fn late(dice: &mut Dice, scenario: &Scenario) -> Option<Fault> {
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
    let (client, register, way) = dice.pick(&all);
    let (what, moment) = match way {
        Way::Present => (Touches::Both, What::Presents(register)),
        Way::Read => (Touches::Read, What::Reads(register)),
        Way::Write => (Touches::Write, What::Writes(register)),
    };
    let what = if dice.chance(1, 4) { Touches::Both } else { what };
    let when = match dice.chance(1, 2) {
        true => When::Before(Moment { client: client.clone(), what: moment, plus: of_millis(0) }),
        false => aims::when(dice, scenario),
    };
    let lasts = dice.maybe(1, 2, |dice| of_millis(dice.within(1, 1_200)));
    let (clients, by) = (Clients::Some(vec![client.clone()]), of_millis(dice.within(1, 2_500)));
    Some(Fault { when, lasts, harm: Harm::Resource(ResourceHarm::Delay { clients, what, by }) })
}

/// Each process knows some of the masters, in some order, and perhaps one of them twice.
fn lists(dice: &mut Dice, scenario: &mut Scenario) {
    let all = scenario.cluster.nodes;
    let processes: Vec<_> = scenario.processes().into_iter().cloned().collect();
    for process in processes {
        if dice.chance(1, 3) {
            continue;
        }
        let mut rest: Vec<usize> = (1..=all).collect();
        let many = 1 + dice.index(all);
        let mut list: Vec<usize> = (0..many).map(|_| rest.remove(dice.index(rest.len()))).collect();
        if dice.chance(1, 4) {
            list.push(dice.pick(&list));
        }
        let of_process = scenario.clients.iter_mut().filter(|client| *client.process() == process);
        of_process.for_each(|client| client.nodes = Some(list.clone()));
    }
    // A part names masters that its client knows.
    let known: Vec<_> = scenario.clients.iter().map(|client| scenario.list(client)).collect();
    for fault in &mut scenario.faults {
        let Some(Nodes::Role(role)) = fault.harm.nodes_mut() else { continue };
        let own = scenario.clients.iter().position(|client| client.id == role.client);
        let most = own.map_or(all, |own| known[own].masters().len());
        role.first = role.first.map(|first| first.min(most));
    }
}
