//! Crowds: several clients that wait for one resource, from one process or a few, beside the
//! others. Some give up while they wait or are queued. Faults also hit the messages that wake them.

use super::rng::Rng;
use super::{clients, targets, ttl};
use crate::lengths::of_millis;
use redquorum_scenario::name::Name;
use redquorum_scenario::{
    AccessKind, Class, Client, Fault, FaultTime, Lock, Messages, NetworkFault, Nodes, Scenario,
    Side, Step,
};

/// The largest crowd: twice the number of leases that a process may have in a row, and one more.
const MOST: u64 = 9;

/// Adds a crowd to every third scenario. It comes before the faults, some of which strike at the
/// crowd's actions.
pub(super) fn add(rng: &mut Rng, scenario: &mut Scenario) {
    if !rng.chance(1, 3) {
        return;
    }
    // How many of six have a process of their own.
    let alone = rng.pick(&[0, 0, 1, 1, 3, 6]);
    // All at the same time, or one after the other.
    let (start, apart) = (rng.below(500), rng.pick(&[0, 1, 20, 200]));
    let crowd: Vec<Client> = (1..=rng.within(2, MOST))
        .map(|number| {
            let process = rng.maybe(6 - alone, 6, |_| "crowd".into());
            let start = start + rng.below(apart + 1);
            member(rng, &scenario.lock, (number, process, start))
        })
        .collect();
    scenario.clients.extend(crowd);
}

fn member(
    rng: &mut Rng,
    lock: &Lock,
    (number, process, start): (u64, Option<Name>, u64),
) -> Client {
    let (resource, register) = (Name::from("L"), Name::from("R"));
    let touch = |way| clients::touch(&register, way, &resource);
    let mut script = vec![Step::Acquire {
        resource: resource.clone(),
        wait: of_millis(rng.within(50, 4_000)),
        ttl: rng.maybe(1, 8, |rng| ttl(rng, lock)),
        cancel: rng.maybe(1, 4, |rng| of_millis(rng.within(1, 600))),
        again: false,
        also: Vec::new(),
    }];
    if rng.chance(1, 2) {
        script.push(touch(AccessKind::Read));
        script.push(Step::Work(of_millis(rng.within(1, 30))));
        script.push(touch(AccessKind::Write));
    } else if rng.chance(1, 2) {
        script.push(Step::Work(of_millis(rng.within(1, 120))));
    }
    script.push(Step::Release { resource, also: Vec::new() });
    let start = of_millis(start);
    Client { process, start, ..Client::new(format!("q{number}"), script) }
}

/// Adds faults of the masters' push messages, to every fourth scenario.
pub(super) fn faults(rng: &mut Rng, scenario: &mut Scenario) {
    if !rng.chance(1, 4) {
        return;
    }
    let nodes = if rng.chance(1, 2) { Nodes::All } else { targets::nodes(rng, scenario) };
    let clients = targets::clients(rng, scenario);
    let messages = Messages {
        what: Side::Reply,
        command: Class::WakeUp,
        index: rng.maybe(1, 3, |rng| rng.within(1, 10)),
        count: rng.maybe(1, 3, |rng| rng.within(1, 5)),
    };
    let fault = match rng.below(4) {
        0 => NetworkFault::Hold(messages),
        1 => NetworkFault::Reset(messages),
        _ => NetworkFault::Drop(messages),
    };
    let when =
        if rng.chance(1, 2) { FaultTime::At(of_millis(0)) } else { targets::when(rng, scenario) };
    let lasts = rng.maybe(4, 5, |rng| of_millis(rng.within(1, 1_200)));
    scenario.faults.push(Fault::of_links(when, lasts, (clients, nodes), fault));
}
