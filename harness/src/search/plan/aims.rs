//! When a fault strikes, and its target.

use super::dice::Dice;
use crate::name::Name;
use crate::scenario::{
    Class, Clients, Moment, Nodes, Role, Scenario, Side, Step, Way, What, When, Which,
};
use crate::search::lengths::of_millis;

/// One of the clients.
pub(super) fn name(dice: &mut Dice, scenario: &Scenario) -> Name {
    let index = dice.index(scenario.clients.len());
    scenario.clients[index].id.clone()
}

pub(super) fn one(dice: &mut Dice, scenario: &Scenario) -> Clients {
    Clients::Some(vec![name(dice, scenario)])
}

pub(super) fn clients(dice: &mut Dice, scenario: &Scenario) -> Clients {
    if dice.chance(1, 2) { Clients::All } else { one(dice, scenario) }
}

pub(super) fn nodes(dice: &mut Dice, scenario: &Scenario) -> Nodes {
    let all = scenario.cluster.nodes;
    match dice.below(8) {
        0 => Nodes::All,
        1..5 => {
            let mut some: Vec<usize> =
                (0..dice.within(1, 3)).map(|_| dice.index(all) + 1).collect();
            some.sort_unstable();
            some.dedup();
            Nodes::Some(some)
        }
        _ => Nodes::Role(Role {
            client: name(dice, scenario),
            granted: dice.chance(2, 3),
            first: dice.maybe(1, 2, |dice| dice.index(all) + 1),
        }),
    }
}

pub(super) fn class(dice: &mut Dice) -> Class {
    dice.pick(&[Class::Any, Class::Acquire, Class::Extend, Class::Release])
}

pub(super) fn side(dice: &mut Dice) -> Side {
    dice.pick(&[Side::Both, Side::Request, Side::Reply])
}

pub(super) fn which(dice: &mut Dice, scenario: &Scenario) -> Which {
    Which {
        clients: clients(dice, scenario),
        nodes: nodes(dice, scenario),
        what: side(dice),
        command: class(dice),
        index: dice.maybe(1, 2, |dice| dice.within(1, 20)),
        count: dice.maybe(1, 2, |dice| dice.within(1, 10)),
    }
}

/// All links between some clients and some masters.
pub(super) fn ties(dice: &mut Dice, scenario: &Scenario) -> Which {
    Which { clients: clients(dice, scenario), nodes: nodes(dice, scenario), ..Which::default() }
}

pub(super) fn when(dice: &mut Dice, scenario: &Scenario) -> When {
    match dice.below(4) {
        0 => When::At(of_millis(0)),
        1 => When::At(of_millis(dice.below(1_500))),
        _ => moment(dice, scenario),
    }
}

/// Before or after an action of a client. The draw omits actions that the client never does.
fn moment(dice: &mut Dice, scenario: &Scenario) -> When {
    let index = dice.index(scenario.clients.len());
    let client = scenario.clients[index].id.clone();
    let script = &scenario.clients[index].script;
    let granted = || script.iter().find_map(Step::resource).map_or_else(|| "L".into(), Name::from);
    let what = match dice.below(14) {
        0 => What::Asks(granted()),
        1 => What::Refused(granted()),
        2 => extended(script).unwrap_or_else(|| What::Granted(granted())),
        3 => What::Lost(granted()),
        4 => What::Releases(granted()),
        5 => What::Released(granted()),
        6 => touched(script, Way::Read).unwrap_or_else(|| What::Granted(granted())),
        7 => touched(script, Way::Write).unwrap_or_else(|| What::Granted(granted())),
        8 => What::Request(message(dice), class(dice)),
        9 => What::Reply(message(dice), class(dice)),
        _ => What::Granted(granted()),
    };
    if what.can_wait() && dice.chance(1, 2) {
        return When::Before(Moment { client, what, plus: of_millis(0) });
    }
    let plus = of_millis(if dice.chance(1, 3) { 0 } else { dice.below(200) });
    When::After(Moment { client, what, plus })
}

/// While the replies to a round are under way to a client.
pub(super) fn in_flight(dice: &mut Dice, scenario: &Scenario, client: Name) -> When {
    let masters = u64::try_from(scenario.cluster.nodes).unwrap_or(1);
    let number = u32::try_from(dice.within(1, masters)).unwrap_or(1);
    let class = dice.pick(&[Class::Acquire, Class::Acquire, Class::Extend]);
    When::Before(Moment { client, what: What::Reply(number, class), plus: of_millis(0) })
}

fn message(dice: &mut Dice) -> u32 {
    u32::try_from(dice.within(1, 12)).unwrap_or(1)
}

fn extended(script: &[Step]) -> Option<What> {
    script.iter().find_map(|step| match step {
        Step::Extend { resource, .. } | Step::Keep { resource, .. } => {
            Some(What::Extended(resource.clone()))
        }
        _ => None,
    })
}

fn touched(script: &[Step], wanted: Way) -> Option<What> {
    let what = if wanted == Way::Read { What::Reads } else { What::Writes };
    script.iter().find_map(|step| match step {
        Step::Touch { register, way, .. } if *way == wanted => Some(what(register.clone())),
        _ => None,
    })
}
