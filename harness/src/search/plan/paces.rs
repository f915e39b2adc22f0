//! Clients whose lease clocks run at other rates. Inside the assumptions the difference is at most
//! the drift allowance, and then no master's clock differs.

use super::aims;
use super::dice::Dice;
use crate::scenario::{ClientHarm, Fault, Harm, Scenario};
use crate::search::lengths::of_millis;

/// Derives another number from that of the scenario, so that its other faults do not depend on
/// these.
pub(super) const CHANCE: u64 = 0x0070_6163_6573;

/// Adds such a fault to every sixth scenario.
pub(super) fn add(dice: &mut Dice, scenario: &mut Scenario, inside: bool) {
    let drifts = |fault: &Fault| matches!(fault.harm, Harm::Clock(_));
    if !dice.chance(1, 6) || inside && scenario.faults.iter().any(drifts) {
        return;
    }
    let factor = if inside {
        let share = super::trouble::allowed(dice, scenario);
        if dice.chance(3, 4) { 1.0 - share } else { 1.0 + share }
    } else {
        dice.pick(&[0.1, 0.5, 0.9, 1.1, 2.0, 10.0])
    };
    let (when, clients) = (aims::when(dice, scenario), aims::one(dice, scenario));
    let lasts = dice.maybe(2, 3, |dice| of_millis(dice.within(1, 2_400)));
    let harm = Harm::Client(ClientHarm::Rate { clients, factor });
    scenario.faults.push(Fault { when, lasts, harm });
}
