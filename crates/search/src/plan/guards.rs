//! Locks with every defence, in every other scenario. In most sets of clients all have them, in
//! others some do not. Some clients take no fencing tokens among others that do.

use std::time::Duration;

use super::rng::Rng;
use crate::lengths::of_millis;
use crate::{defend, sees_amnesia};
use redquorum_scenario::name::Name;
use redquorum_scenario::{Client, OwnGuard, Scenario, Step};

/// It comes before the faults: those that a guard detects are inside the assumptions of clients
/// with a guard.
pub(super) fn add(rng: &mut Rng, scenario: &mut Scenario, inside: bool) {
    if rng.chance(1, 2) {
        let spare = if rng.chance(1, 2) { 0 } else { rng.within(1, 500) };
        let longest = scenario.longest_ttl() + Duration::from_millis(spare);
        defend(&mut scenario.lock, longest);
        scenario.lock.initialized = !rng.chance(1, 8);
        if rng.chance(1, 4) {
            for process in some(rng, scenario) {
                let own = match !inside && rng.chance(1, 3) {
                    // The masters carry markers for the other guards. This client gets nothing, and
                    // reports why.
                    true => OwnGuard::UpTo(of_millis(rng.within(6_001, 7_000))),
                    false => OwnGuard::Whether(false),
                };
                clients(scenario, &process, |client| client.guard = Some(own));
            }
        }
    }
    if scenario.lock.fencing && rng.chance(1, 4) {
        for process in some(rng, scenario) {
            clients(scenario, &process, without_tokens);
        }
    }
}

/// Some of the processes, or none.
fn some(rng: &mut Rng, scenario: &Scenario) -> Vec<Name> {
    let all = scenario.processes().into_iter().cloned();
    all.filter(|_| rng.chance(1, 2)).collect()
}

fn clients(scenario: &mut Scenario, process: &Name, change: impl FnMut(&mut Client)) {
    let own = scenario.clients.iter_mut().filter(|client| client.process() == process);
    own.for_each(change);
}

fn without_tokens(client: &mut Client) {
    client.fencing = Some(false);
    client.script.retain(|step| !matches!(step, Step::Touch { under: Some(_), .. }));
}

/// Whether every client detects masters that may have forgotten.
pub(super) fn all_see_amnesia(scenario: &Scenario) -> bool {
    scenario.clients.iter().all(|client| sees_amnesia(&client.options(&scenario.lock)))
}
