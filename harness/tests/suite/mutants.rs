//! Every mutant is caught by the scenario that exists for it. The honest client, which has the same
//! shell, is not. `just mutants` prints the whole table.

use redquorum_harness::mutants::Mutant;
use redquorum_rig::trials::{Case, thrice, with_masters};

use crate::support::{Ended, ask, folder};

const CAUGHT: [(Mutant, &str); 30] = [
    (Mutant::NoDeadlineCheck, "pause-in-flight"),
    (Mutant::T0AfterFirstReply, "slow-replies"),
    (Mutant::WallClock, "client-wall-clock"),
    (Mutant::SmallQuorum, "majority-killed"),
    (Mutant::DriftIgnored, "clock-within-drift"),
    (Mutant::PlainDel, "pause-in-critical-section"),
    (Mutant::ReleaseAcknowledgedOnly, "reply-lost"),
    (Mutant::ExtendWithoutTokenCheck, "extend-after-amnesia"),
    (Mutant::ExtendCountsMinority, "extend-needs-a-quorum"),
    (Mutant::OneToken, "calm"),
    (Mutant::ServerTwice, "one-server-twice"),
    (Mutant::SilentLoss, "holder-cut-off-stops"),
    (Mutant::ErrorIsYes, "majority-killed"),
    (Mutant::NoWatchdog, "watchdog"),
    (Mutant::LeaksCancelled, "cancelled-acquire"),
    (Mutant::ExtendsFromReply, "slow-replies"),
    (Mutant::ReleasesMajority, "one-master-hung"),
    (Mutant::LargestGrant, "fenced-counters-apart"),
    (Mutant::MedianGrant, "fenced-counters-apart"),
    (Mutant::FollowsLargest, "fenced-counter-poisoned/apart"),
    (Mutant::EarlierNumber, "fenced-again"),
    (Mutant::CertifiesAnywhere, "fenced-certify-late"),
    (Mutant::StaysAtEnd, "fenced-counter-poisoned/three-at-end"),
    (Mutant::HintUnclamped, "fenced-again"),
    (Mutant::KeepsSome, "several/one-taken"),
    (Mutant::DeafForEver, "wake-up-lost"),
    (Mutant::CallsAlways, "waiters-at-peace"),
    (Mutant::JumpsQueue, "fair/queues"),
    (Mutant::KeepsPlace, "fair/first-gives-up"),
    (Mutant::LosesPlace, "fair/patient"),
];

pub(crate) fn cases() -> Vec<Case> {
    let caught = CAUGHT.map(|(mutant, scenario)| {
        with_masters(&format!("{mutant}_is_caught_by_{scenario}"), move || {
            thrice(|| {
                let ended = run(mutant, scenario);
                assert_eq!(ended.code, Some(1), "{}", ended.said);
            });
        })
    });
    let mut scenarios: Vec<&str> = CAUGHT.map(|(_, scenario)| scenario).to_vec();
    scenarios.sort_unstable();
    scenarios.dedup();
    let honest = scenarios.into_iter().map(|scenario| {
        with_masters(&format!("the_honest_mutant_passes_{scenario}"), move || {
            thrice(|| {
                let ended = run(Mutant::None, scenario);
                assert_eq!(ended.code, Some(0), "{}", ended.said);
            });
        })
    });
    caught.into_iter().chain(honest).collect()
}

fn run(mutant: Mutant, scenario: &str) -> Ended {
    let client = format!("{} --mutant {mutant}", env!("CARGO_BIN_EXE_redquorum-mutant"));
    ask(&folder(&format!("mutant-{mutant}-{scenario}")), &[scenario, "--client", &client])
}
