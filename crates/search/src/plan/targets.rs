//! When a fault strikes, and its target.

use super::rng::Rng;
use crate::lengths::of_millis;
use redquorum_scenario::name::Name;
use redquorum_scenario::{
    AccessKind, Class, Clients, EventKind, FaultTime, Messages, Moment, Nodes, Role, Scenario,
    Side, Step,
};

/// One of the clients.
pub(super) fn name(rng: &mut Rng, scenario: &Scenario) -> Name {
    let index = rng.index(scenario.clients.len());
    scenario.clients[index].id.clone()
}

pub(super) fn one(rng: &mut Rng, scenario: &Scenario) -> Clients {
    Clients::Some(vec![name(rng, scenario)])
}

pub(super) fn clients(rng: &mut Rng, scenario: &Scenario) -> Clients {
    if rng.chance(1, 2) { Clients::All } else { one(rng, scenario) }
}

pub(super) fn nodes(rng: &mut Rng, scenario: &Scenario) -> Nodes {
    let all = scenario.cluster.nodes;
    match rng.below(8) {
        0 => Nodes::All,
        1..5 => {
            let mut some: Vec<usize> = (0..rng.within(1, 3)).map(|_| rng.index(all) + 1).collect();
            some.sort_unstable();
            some.dedup();
            Nodes::Some(some)
        }
        _ => Nodes::Role(Role {
            client: name(rng, scenario),
            granted: rng.chance(2, 3),
            first: rng.maybe(1, 2, |rng| rng.index(all) + 1),
        }),
    }
}

pub(super) fn class(rng: &mut Rng) -> Class {
    rng.pick(&[Class::Any, Class::Acquire, Class::Extend, Class::Release])
}

pub(super) fn side(rng: &mut Rng) -> Side {
    rng.pick(&[Side::Both, Side::Request, Side::Reply])
}

/// Some clients and some masters, and messages between them.
pub(super) fn which(rng: &mut Rng, scenario: &Scenario) -> ((Clients, Nodes), Messages) {
    let links = links(rng, scenario);
    let messages = Messages {
        what: side(rng),
        command: class(rng),
        index: rng.maybe(1, 2, |rng| rng.within(1, 20)),
        count: rng.maybe(1, 2, |rng| rng.within(1, 10)),
    };
    (links, messages)
}

/// The links between some clients and some masters.
pub(super) fn links(rng: &mut Rng, scenario: &Scenario) -> (Clients, Nodes) {
    (clients(rng, scenario), nodes(rng, scenario))
}

pub(super) fn when(rng: &mut Rng, scenario: &Scenario) -> FaultTime {
    match rng.below(4) {
        0 => FaultTime::At(of_millis(0)),
        1 => FaultTime::At(of_millis(rng.below(1_500))),
        _ => moment(rng, scenario),
    }
}

/// Before or after an action of a client. The draw omits actions that the client never does.
fn moment(rng: &mut Rng, scenario: &Scenario) -> FaultTime {
    let index = rng.index(scenario.clients.len());
    let client = scenario.clients[index].id.clone();
    let script = &scenario.clients[index].script;
    let granted = || script.iter().find_map(Step::resource).map_or_else(|| "L".into(), Name::from);
    let what = match rng.below(14) {
        0 => EventKind::Asks(granted()),
        1 => EventKind::Refused(granted()),
        2 => extended(script).unwrap_or_else(|| EventKind::Granted(granted())),
        3 => EventKind::Lost(granted()),
        4 => EventKind::Releases(granted()),
        5 => EventKind::Released(granted()),
        6 => touched(script, AccessKind::Read).unwrap_or_else(|| EventKind::Granted(granted())),
        7 => touched(script, AccessKind::Write).unwrap_or_else(|| EventKind::Granted(granted())),
        8 => EventKind::Request(message(rng), class(rng)),
        9 => EventKind::Reply(message(rng), class(rng)),
        _ => EventKind::Granted(granted()),
    };
    if what.can_wait() && rng.chance(1, 2) {
        return FaultTime::Before(Moment { client, what, plus: of_millis(0) });
    }
    let plus = of_millis(if rng.chance(1, 3) { 0 } else { rng.below(200) });
    FaultTime::After(Moment { client, what, plus })
}

/// While the replies to a round are under way to a client.
pub(super) fn in_flight(rng: &mut Rng, scenario: &Scenario, client: Name) -> FaultTime {
    let masters = u64::try_from(scenario.cluster.nodes).unwrap_or(1);
    let number = u32::try_from(rng.within(1, masters)).unwrap_or(1);
    let class = rng.pick(&[Class::Acquire, Class::Acquire, Class::Extend]);
    FaultTime::Before(Moment { client, what: EventKind::Reply(number, class), plus: of_millis(0) })
}

fn message(rng: &mut Rng) -> u32 {
    u32::try_from(rng.within(1, 12)).unwrap_or(1)
}

fn extended(script: &[Step]) -> Option<EventKind> {
    script.iter().find_map(|step| match step {
        Step::Extend { resource, .. } | Step::Keep { resource, .. } => {
            Some(EventKind::Extended(resource.clone()))
        }
        _ => None,
    })
}

fn touched(script: &[Step], wanted: AccessKind) -> Option<EventKind> {
    let what = if wanted == AccessKind::Read { EventKind::Reads } else { EventKind::Writes };
    script.iter().find_map(|step| match step {
        Step::Touch { register, way, .. } if *way == wanted => Some(what(register.clone())),
        _ => None,
    })
}
