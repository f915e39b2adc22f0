//! The rule that each mutant breaks.

use super::machines::rules::*;
use super::{broken_by, fencing, machines};
use redquorum_scenario::Mutant;

#[test]
fn each_mutant_breaks_the_rule_that_is_there_for_it() {
    let unique = "tokens are unique";
    let table = [
        (Mutant::AssumesCleanUps, NO_KEY_OUTLIVES_ITS_CLEAN_UP),
        (Mutant::ReleaseAcknowledgedOnly, NO_KEY_OUTLIVES_ITS_CLEAN_UP),
        (Mutant::LeavesLost, NO_KEY_OUTLIVES_ITS_CLEAN_UP),
        (Mutant::KillsNone, A_CLEAN_UP_COMES_BEHIND),
        (Mutant::CleansUpFirst, A_CLEAN_UP_COMES_BEHIND),
        (Mutant::SendsAgain, A_TOKEN_IS_SET_ONCE),
        (Mutant::OneToken, A_TOKEN_IS_SET_ONCE),
        (Mutant::ErrorIsYes, A_BELIEVED_HOLD_IS_TRUE),
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
        (Mutant::LargestGrant, unique),
        (Mutant::MedianGrant, unique),
        (Mutant::CertifiesAnywhere, unique),
        (Mutant::HandsOverToken, unique),
        (Mutant::StaysAtEnd, unique),
        (Mutant::FollowsLargest, "no larger number than needed"),
    ];
    for (mutant, rule) in table {
        assert_eq!(broken_by(mutant), Some(rule), "{mutant}");
    }
    // This one takes a million states: `just mutants` has it.
    let checked = table.iter().map(|(mutant, _)| *mutant).chain([Mutant::RepairsUncounted]);
    let checked: Vec<Mutant> = checked.collect();
    for mutant in Mutant::ALL {
        let has_bounds =
            machines::Scope::against(mutant).is_some() || fencing::Scope::against(mutant).is_some();
        assert_eq!(checked.contains(&mutant), has_bounds, "{mutant}");
        assert!(has_bounds || Mutant::clients().any(|client| client == mutant), "{mutant}");
    }
}
