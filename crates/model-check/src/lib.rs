//! Model checking: explores every state that a model can reach within stated bounds.
//!
//! The simulation samples long runs; this takes short ones and leaves none out. `explore.rs` knows
//! nothing of locks: it walks through the states of a [`Model`], breadth first, and returns the
//! shortest way to the first state that breaks a rule. The model is [`machines`]: the shipped
//! claims and links between clients and masters that are cut off, sleep, stall and err. What holds
//! for any number of masters is proved, in `proof`.
//!
//! The code is pure: no clock, no randomness, no Tokio, no Redis. The command line measures time
//! and memory.

#![forbid(unsafe_code)]

use redquorum_scenario::Mutant;
use redquorum_scenario::units::plural;

mod explore;
pub mod machines;

pub use explore::{Broken, Counterexample, Explored, Fairness, Model, explore};

/// Tests the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// More states than any run needs that shows an error of a mutant.
const MOST: usize = 4_000_000;

/// The rule that a mutant breaks first, if the model has it.
pub fn broken_by(mutant: Mutant) -> Option<&'static str> {
    let scope = machines::Scope::against(mutant)?;
    let broken = machines::model_check(scope, mutant, MOST).explored.broken;
    broken.map(|counterexample| counterexample.broken.rule)
}

/// A bound in words: a number and a noun, or none for zero.
fn counted(number: u8, what: &str) -> Option<String> {
    (number > 0).then(|| plural(number, what))
}

/// The rule that each mutant breaks.
#[cfg(test)]
mod tests {
    use super::machines::rules::*;
    use super::{broken_by, machines};
    use redquorum_scenario::Mutant;

    #[test]
    fn each_mutant_breaks_the_rule_that_is_there_for_it() {
        let table = [
            (Mutant::AssumesCleanUps, NO_KEY_OUTLIVES_ITS_CLEAN_UP),
            (Mutant::ReleaseAcknowledgedOnly, NO_KEY_OUTLIVES_ITS_CLEAN_UP),
            (Mutant::LeavesLost, NO_KEY_OUTLIVES_ITS_CLEAN_UP),
            (Mutant::KillsNone, A_CLEAN_UP_COMES_BEHIND),
            (Mutant::CleansUpFirst, A_CLEAN_UP_COMES_BEHIND),
            (Mutant::SendsAgain, A_TOKEN_IS_SET_ONCE),
            (Mutant::OneToken, A_TOKEN_IS_SET_ONCE),
            (Mutant::ErrorIsYes, A_BELIEVED_HOLD_IS_TRUE),
            (Mutant::Evicts, A_BELIEVED_HOLD_IS_TRUE),
            (Mutant::DriftIgnored, A_BELIEVED_HOLD_IS_TRUE),
            (Mutant::MixesRounds, A_BELIEVED_HOLD_IS_TRUE),
            (Mutant::ExtendsByLess, A_DEADLINE_MOVES_BY_SUCCESS),
            (Mutant::NoDeadlineCheck, HANDED_OUT_IN_TIME),
            (Mutant::RevivesLost, LOST_IS_FINAL),
            (Mutant::NeverRetries, CLEAN_UPS_COMPLETE),
            (Mutant::NeverReads, "every run ends"),
            (Mutant::NeverWoken, NO_WAITER_IS_FORGOTTEN),
            (Mutant::DropsLooks, NO_WAITER_IS_FORGOTTEN),
            (Mutant::WakesNone, NO_WAITER_IS_FORGOTTEN),
            (Mutant::LeavesInSilence, NO_WAITER_IS_FORGOTTEN),
            (Mutant::WakesGone, NO_WAITER_IS_FORGOTTEN),
            (Mutant::CallsAlways, A_FAILURE_WAKES_NO_WAITER),
            (Mutant::KeepsPlace, NO_POSITION_STAYS),
        ];
        for (mutant, rule) in table {
            assert_eq!(broken_by(mutant), Some(rule), "{mutant}");
        }
        for mutant in Mutant::ALL {
            let has_bounds = machines::Scope::against(mutant).is_some();
            assert_eq!(table.iter().any(|(it, _)| *it == mutant), has_bounds, "{mutant}");
            assert!(has_bounds || Mutant::clients().any(|client| client == mutant), "{mutant}");
        }
    }
}
