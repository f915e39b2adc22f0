//! Crowds: several clients that wait for one resource, from one process or a few, beside the
//! others. Some give up while they wait or are queued. Faults also hit the messages that wake them.

use super::dice::Dice;
use super::{aims, people, ttl};
use crate::name::Name;
use crate::scenario::{
    Class, Client, Fault, Harm, Lock, NetHarm, Nodes, Scenario, Side, Step, Way, When, Which,
};
use crate::search::lengths::of_millis;

/// Derives another number from that of the scenario, so that the other clients of a number are the
/// same with a crowd and without.
pub(super) const CHANCE: u64 = 0x0063_726f_7764;

/// The largest crowd: twice the number of leases that a process may have in a row, and one more.
const MOST: u64 = 9;

/// Adds a crowd to every third scenario. It comes before the faults, some of which strike at the
/// crowd's actions.
pub(super) fn add(dice: &mut Dice, scenario: &mut Scenario) {
    if !dice.chance(1, 3) {
        return;
    }
    // How many of six have a process of their own.
    let alone = dice.pick(&[0, 0, 1, 1, 3, 6]);
    // All at the same time, or one after the other.
    let (start, apart) = (dice.below(500), dice.pick(&[0, 1, 20, 200]));
    let crowd: Vec<Client> = (1..=dice.within(2, MOST))
        .map(|number| {
            let process = dice.maybe(6 - alone, 6, |_| "crowd".into());
            let start = start + dice.below(apart + 1);
            member(dice, &scenario.lock, (number, process, start))
        })
        .collect();
    scenario.clients.extend(crowd);
}

fn member(
    dice: &mut Dice,
    lock: &Lock,
    (number, process, start): (u64, Option<Name>, u64),
) -> Client {
    let (resource, register) = (Name::from("L"), Name::from("R"));
    let touch = |way| people::touch(&register, way, &resource);
    let mut script = vec![Step::Acquire {
        resource: resource.clone(),
        wait: of_millis(dice.within(50, 4_000)),
        ttl: dice.maybe(1, 8, |dice| ttl(dice, lock)),
        cancel: dice.maybe(1, 4, |dice| of_millis(dice.within(1, 600))),
        again: false,
        also: Vec::new(),
    }];
    if dice.chance(1, 2) {
        script.push(touch(Way::Read));
        script.push(Step::Work(of_millis(dice.within(1, 30))));
        script.push(touch(Way::Write));
    } else if dice.chance(1, 2) {
        script.push(Step::Work(of_millis(dice.within(1, 120))));
    }
    script.push(Step::Release { resource, also: Vec::new() });
    Client {
        id: format!("q{number}").into(),
        process,
        nodes: None,
        guard: None,
        fencing: None,
        fair: None,
        start: of_millis(start),
        script,
        count: 1,
        rounds: None,
        think: of_millis(0),
    }
}

/// Adds faults of the masters' push messages, to every fourth scenario.
pub(super) fn trouble(dice: &mut Dice, scenario: &mut Scenario) {
    if !dice.chance(1, 4) {
        return;
    }
    let nodes = if dice.chance(1, 2) { Nodes::All } else { aims::nodes(dice, scenario) };
    let which = Which {
        clients: aims::clients(dice, scenario),
        nodes,
        what: Side::Reply,
        command: Class::WakeUp,
        index: dice.maybe(1, 3, |dice| dice.within(1, 10)),
        count: dice.maybe(1, 3, |dice| dice.within(1, 5)),
    };
    let harm = match dice.below(4) {
        0 => NetHarm::Hold(which),
        1 => NetHarm::Reset(which),
        _ => NetHarm::Drop(which),
    };
    let when = if dice.chance(1, 2) { When::At(of_millis(0)) } else { aims::when(dice, scenario) };
    let lasts = dice.maybe(4, 5, |dice| of_millis(dice.within(1, 1_200)));
    scenario.faults.push(Fault { when, lasts, harm: Harm::Net(harm) });
}
