//! The rules for fencing tokens in every run, inside the assumptions of the lock or not. As long as
//! no master can have lost a counter, and all clients know the same masters, tokens grow, and
//! registers that check them lose no update. The rules use only the faults of a scenario, not the
//! verdict of the checkers.

use std::time::Duration;

use crate::judge::Verdict;
use crate::scenario::{ClockHarm, Fault, Harm, Layer, NodeHarm, Persistence, Scenario};
use crate::talk::FENCING_MEMORY;

/// A line of text if tokens failed where they must not.
pub(super) fn refuted(scenario: &Scenario, verdict: &Verdict) -> Option<String> {
    let bad = verdict.findings.iter().find(|finding| finding.layer == Layer::FencedResource)?;
    let story = bad.story.join("; ");
    (!may_fail(scenario)).then(|| format!("fencing tokens fail, and no counter was lost: {story}"))
}

/// Whether a scenario may lose a counter, or has clients whose quorums need not meet.
pub(super) fn may_fail(scenario: &Scenario) -> bool {
    let forgets = scenario.cluster.persistence == Persistence::None;
    let lists: Vec<_> = scenario.clients.iter().map(|client| scenario.list(client)).collect();
    scenario.faults.iter().any(|fault| loses(fault, forgets))
        || lists.iter().any(|one| lists.iter().any(|other| one.can_part_from(other)))
}

fn loses(fault: &Fault, forgets: bool) -> bool {
    // The heal of a step back is a step forward.
    let long = |by: Duration| by >= FENCING_MEMORY;
    match &fault.harm {
        Harm::Node(
            NodeHarm::Flush { .. }
            | NodeHarm::Evict { .. }
            | NodeHarm::PowerLoss { .. }
            | NodeHarm::Failover { .. },
        ) => true,
        Harm::Clock(ClockHarm::Step { by, .. }) => long(by.by.0),
        Harm::Clock(ClockHarm::Strobe { by, .. }) => long(by.0),
        harm => forgets && harm.starts_again(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::History;
    use crate::judge::judge;
    use crate::sabotage::Lie;
    use crate::scenario::embedded_runs;
    use crate::sim;

    fn run(name: &str, lie: Lie) -> (Scenario, History) {
        let run = embedded_runs().find(|run| run.name == name).expect("it is there");
        let history = sim::run(&run, 1, lie);
        (run, history)
    }

    #[test]
    fn a_lost_counter_explains_tokens_that_fail() {
        let (scenario, history) = run("fenced-client-skew", Lie::None);
        let verdict = judge(&history);
        assert!(verdict.findings.iter().any(|found| found.layer == Layer::FencedResource));
        assert!(may_fail(&scenario));
        assert_eq!(refuted(&scenario, &verdict), None);
        // The scenario on masters that are known to keep every write.
        let mut durable = scenario;
        durable.cluster.persistence = Persistence::AofAlways;
        assert!(refuted(&durable, &verdict).is_some());
    }

    #[test]
    fn no_pause_no_clock_and_no_network_is_an_excuse() {
        for name in ["fenced-pause", "fenced-pause/clock-step", "pause-in-flight", "duplicated-set"]
        {
            assert!(!may_fail(&run(name, Lie::None).0), "{name}");
        }
        assert!(may_fail(&run("fenced-counter-expired", Lie::None).0));
        assert!(may_fail(&run("node-lists-differ", Lie::None).0));
    }
}
