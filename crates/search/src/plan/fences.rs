//! Leases with fencing tokens, and registers that check them: in every other scenario, beside the
//! registers that accept every write.

use super::rng::Rng;
use redquorum_scenario::name::Name;
use redquorum_scenario::{AccessKind, Scenario, Step};

pub(super) fn add(rng: &mut Rng, scenario: &mut Scenario) {
    if rng.chance(1, 2) {
        return;
    }
    scenario.lock.fencing = true;
    for client in &mut scenario.clients {
        let script = std::mem::take(&mut client.script);
        client.script = fenced(rng, script);
    }
}

/// The script, with a section under the token of each lease: the client presents it, reads, and
/// writes at the end or somewhere before it. Some clients take the token and touch no register.
fn fenced(rng: &mut Rng, script: Vec<Step>) -> Vec<Step> {
    let mut all = Vec::with_capacity(script.len() + 3);
    let (mut leases, mut writes): (Vec<Name>, bool) = (Vec::new(), false);
    for step in script {
        match &step {
            Step::Acquire { .. } => {
                leases = step.acquires().cloned().collect();
                if !rng.chance(5, 6) {
                    leases.clear();
                }
                writes = !leases.is_empty();
                all.push(step);
                let both =
                    |lease| [AccessKind::Present, AccessKind::Read].map(|way| touch(lease, way));
                all.extend(leases.iter().flat_map(both));
                continue;
            }
            Step::Release { .. } => {
                let leases = std::mem::take(&mut leases);
                let written = leases.iter().filter(|_| writes);
                all.extend(written.map(|lease| touch(lease, AccessKind::Write)));
            }
            // Early, and then perhaps no second time.
            Step::Work(_) | Step::Extend { .. } if rng.chance(1, 3) => {
                if !leases.is_empty() {
                    all.extend(leases.iter().map(|lease| touch(lease, AccessKind::Write)));
                    writes = rng.chance(1, 2);
                }
            }
            _ => {}
        }
        all.push(step);
    }
    all
}

/// The register of a resource that checks its tokens.
fn touch(resource: &Name, way: AccessKind) -> Step {
    let register = match resource.as_str() {
        "L" => "F",
        "M" => "G",
        _ => "H",
    };
    Step::Touch { register: register.into(), way, under: Some(resource.clone()), held: None }
}
