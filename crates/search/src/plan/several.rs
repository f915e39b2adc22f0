//! Clients that want several resources at once, beside clients that want one of them. Their sets
//! overlap, and each client names its set in an order of its own.

use super::clients;
use super::rng::Rng;
use crate::lengths::{millis, of_millis};
use redquorum_scenario::name::Name;
use redquorum_scenario::{AccessKind, Lock, Scenario, Step};

/// The resources, each with the register that it protects.
const ALL: [(&str, &str); 3] = [("L", "R"), ("M", "S"), ("N", "T")];

/// Adds such clients to every fourth scenario. It comes before the faults, some of which strike at
/// their actions.
pub(super) fn add(rng: &mut Rng, scenario: &mut Scenario) {
    if !rng.chance(1, 4) {
        return;
    }
    let shared = rng.chance(1, 3);
    for number in 1..=rng.within(1, 3) {
        let script = section(rng, &scenario.lock);
        scenario.clients.push(clients::client(rng, format!("s{number}").into(), script, shared));
    }
}

/// The steps from an acquire to its release, or to the release of each resource.
fn section(rng: &mut Rng, lock: &Lock) -> Vec<Step> {
    let mut rest = ALL.to_vec();
    let count = rng.pick(&[2, 2, 3]);
    let some: Vec<(Name, Name)> = (0..count)
        .map(|_| rest.remove(rng.index(rest.len())))
        .map(|(resource, register)| (resource.into(), register.into()))
        .collect();
    let names: Vec<Name> = some.iter().map(|(resource, _)| resource.clone()).collect();
    let mut script = vec![clients::acquire(rng, lock, &names)];
    // An update builds on a read under the same lease.
    let touched: Vec<_> = some.iter().filter(|_| rng.chance(1, 2)).collect();
    let touch = |way| touched.iter().map(move |(of, register)| clients::touch(register, way, of));
    script.extend(touch(AccessKind::Read));
    let resource = rng.pick(&names);
    match rng.below(8) {
        0 => script.push(Step::Extend { resource, ttl: None }),
        1 => {
            let most = of_millis(rng.within(1, 2_000));
            script.push(Step::Keep { resource, most });
        }
        // Waits until the leases are over by themselves, and a little longer.
        2 => script.push(Step::Work(of_millis(millis(lock.ttl) + rng.within(1, 100)))),
        _ => {}
    }
    script.push(Step::Work(of_millis(rng.within(1, clients::WORKS / 2))));
    script.extend(touch(AccessKind::Write));
    if rng.chance(3, 4) {
        script.extend(release(names));
    } else {
        for resource in names {
            script.extend(release(vec![resource]));
            script.push(Step::Work(of_millis(rng.within(1, 100))));
        }
        // A refusal of a register skips all steps up to one of these.
        clients::stay(lock, &mut script);
    }
    script
}

fn release(mut names: Vec<Name>) -> Option<Step> {
    let also = names.split_off(1.min(names.len()));
    names.pop().map(|resource| Step::Release { resource, also })
}
