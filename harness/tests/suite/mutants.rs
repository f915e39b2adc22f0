//! Every mutant is caught by the scenario that exists for it. The honest client, which has the same
//! shell, is not. `just mutants` prints the whole table.

use redquorum_harness::sabotage::Lie;
use redquorum_rig::trials::{Case, thrice, with_masters};

use crate::support::{Ended, ask, folder};

const CAUGHT: [(Lie, &str); 30] = [
    (Lie::NoDeadlineCheck, "pause-in-flight"),
    (Lie::T0AfterFirstReply, "slow-replies"),
    (Lie::WallClock, "client-wall-clock"),
    (Lie::SmallQuorum, "majority-killed"),
    (Lie::DriftIgnored, "clock-within-drift"),
    (Lie::PlainDel, "pause-in-critical-section"),
    (Lie::ReleaseAcknowledgedOnly, "reply-lost"),
    (Lie::ExtendWithoutTokenCheck, "extend-after-amnesia"),
    (Lie::ExtendCountsMinority, "extend-needs-a-quorum"),
    (Lie::OneToken, "calm"),
    (Lie::ServerTwice, "one-server-twice"),
    (Lie::SilentLoss, "holder-cut-off-stops"),
    (Lie::ErrorIsYes, "majority-killed"),
    (Lie::NoWatchdog, "watchdog"),
    (Lie::LeaksCancelled, "cancelled-acquire"),
    (Lie::ExtendsFromReply, "slow-replies"),
    (Lie::ReleasesMajority, "one-master-hung"),
    (Lie::LargestGrant, "fenced-counters-apart"),
    (Lie::MedianGrant, "fenced-counters-apart"),
    (Lie::FollowsLargest, "fenced-counter-poisoned/apart"),
    (Lie::EarlierNumber, "fenced-again"),
    (Lie::CertifiesAnywhere, "fenced-certify-late"),
    (Lie::StaysAtEnd, "fenced-counter-poisoned/three-at-end"),
    (Lie::HintUnclamped, "fenced-again"),
    (Lie::KeepsSome, "several/one-taken"),
    (Lie::DeafForEver, "wake-up-lost"),
    (Lie::CallsAlways, "waiters-at-peace"),
    (Lie::JumpsQueue, "fair/queues"),
    (Lie::KeepsPlace, "fair/first-gives-up"),
    (Lie::LosesPlace, "fair/patient"),
];

pub(crate) fn cases() -> Vec<Case> {
    let caught = CAUGHT.map(|(lie, scenario)| {
        with_masters(&format!("{lie}_is_caught_by_{scenario}"), move || {
            thrice(|| {
                let ended = run(lie, scenario);
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
                let ended = run(Lie::None, scenario);
                assert_eq!(ended.code, Some(0), "{}", ended.said);
            });
        })
    });
    caught.into_iter().chain(honest).collect()
}

fn run(lie: Lie, scenario: &str) -> Ended {
    let client = format!("{} --mutant {lie}", env!("CARGO_BIN_EXE_redquorum-mutant"));
    ask(&folder(&format!("mutant-{lie}-{scenario}")), &[scenario, "--client", &client])
}
