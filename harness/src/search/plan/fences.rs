//! Leases with fencing tokens, and registers that check them: in every other scenario, beside the
//! registers that take what comes.

use super::dice::Dice;
use crate::name::Name;
use crate::scenario::{Scenario, Step, Way};

/// Makes another number of a scenario's, so that the clients and faults of a number are the same with
/// fencing tokens and without.
pub(super) const CHANCE: u64 = 0x66_656e_6365;

pub(super) fn add(dice: &mut Dice, scenario: &mut Scenario) {
    if dice.chance(1, 2) {
        return;
    }
    scenario.lock.fencing = true;
    for client in &mut scenario.clients {
        let script = std::mem::take(&mut client.script);
        client.script = fenced(dice, script);
    }
}

/// The script, with a section under each lease's token: presented, read, and written at the end or
/// somewhere before it. Some take the token and touch nothing.
fn fenced(dice: &mut Dice, script: Vec<Step>) -> Vec<Step> {
    let mut all = Vec::with_capacity(script.len() + 3);
    let (mut lease, mut writes): (Option<Name>, bool) = (None, false);
    for step in script {
        match &step {
            Step::Acquire { resource, .. } => {
                lease = Some(resource.clone()).filter(|_| dice.chance(5, 6));
                writes = lease.is_some();
                let resource = resource.clone();
                all.push(step);
                if lease.is_some() {
                    all.extend([Way::Present, Way::Read].map(|way| touch(&resource, way)));
                }
                continue;
            }
            Step::Release { .. } => {
                if let Some(resource) = lease.take().filter(|_| writes) {
                    all.push(touch(&resource, Way::Write));
                }
            }
            // Early, and then perhaps not once more.
            Step::Work(_) | Step::Extend { .. } if dice.chance(1, 3) => {
                if let Some(resource) = &lease {
                    all.push(touch(resource, Way::Write));
                    writes = dice.chance(1, 2);
                }
            }
            _ => {}
        }
        all.push(step);
    }
    all
}

/// The register of a resource that checks its tokens.
fn touch(resource: &Name, way: Way) -> Step {
    let register = if resource == "L" { "F" } else { "G" };
    Step::Touch { register: register.into(), way, under: Some(resource.clone()), held: None }
}
