//! Clients whose lease clocks run at other rates. Inside the assumptions the difference is at most
//! the drift allowance, and then no master's clock differs.

use super::rng::Rng;
use super::targets;
use crate::lengths::of_millis;
use redquorum_scenario::{ClientFault, Fault, FaultKind, Scenario};

/// Adds such a fault to every sixth scenario.
pub(super) fn add(rng: &mut Rng, scenario: &mut Scenario, inside: bool) {
    let drifts = |fault: &Fault| matches!(fault.fault_kind, FaultKind::Clock(_));
    if !rng.chance(1, 6) || inside && scenario.faults.iter().any(drifts) {
        return;
    }
    let factor = if inside {
        let share = super::faults::allowed(rng, scenario);
        if rng.chance(3, 4) { 1.0 - share } else { 1.0 + share }
    } else {
        rng.pick(&[0.1, 0.5, 0.9, 1.1, 2.0, 10.0])
    };
    let (when, clients) = (targets::when(rng, scenario), targets::one(rng, scenario));
    let lasts = rng.maybe(2, 3, |rng| of_millis(rng.within(1, 2_400)));
    let fault_kind = FaultKind::Client(ClientFault::Rate { clients, factor });
    scenario.faults.push(Fault { when, lasts, fault_kind });
}
