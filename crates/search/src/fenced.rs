//! The rules for fencing tokens in every run, inside the assumptions of the lock or not. As long as
//! no master can have lost a counter, and all clients know the same masters, tokens grow, and
//! registers that check them lose no update. The rules use only the faults of a scenario, not the
//! verdict of the checkers.

use std::time::Duration;

use redquorum_checker::Verdict;
use redquorum_scenario::client_protocol::FENCING_COUNTER_TTL;
use redquorum_scenario::{ClockFault, Fault, FaultKind, Loses, Persistence, Property, Scenario};

/// A line of text if tokens failed where they must not.
pub(super) fn refuted(scenario: &Scenario, verdict: &Verdict) -> Option<String> {
    let bad =
        verdict.findings.iter().find(|finding| finding.property == Property::FencedResource)?;
    let why = bad.explanation.join("; ");
    (!may_fail(scenario)).then(|| format!("fencing tokens fail, and no counter was lost: {why}"))
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
    let long = |by: Duration| by >= FENCING_COUNTER_TTL;
    match fault.kind.row().loses {
        Loses::Keys | Loses::All | Loses::Latest => true,
        Loses::Memory => forgets,
        Loses::Nothing => match &fault.kind {
            FaultKind::Clock(ClockFault::Step { by }) => long(by.by.0),
            FaultKind::Clock(ClockFault::Strobe { by, .. }) => long(by.0),
            _ => false,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redquorum_checker::check;
    use redquorum_scenario::Mutant;
    use redquorum_scenario::embedded_runs;
    use redquorum_scenario::history::History;

    fn run(name: &str, mutant: Mutant) -> (Scenario, History) {
        let run = embedded_runs().find(|run| run.name == name).expect("it is there");
        let history = redquorum_simulator::run(&run, 1, mutant);
        (run, history)
    }

    #[test]
    fn a_lost_counter_explains_tokens_that_fail() {
        let (scenario, history) = run("fenced-client-skew", Mutant::None);
        let verdict = check(&history);
        assert!(verdict.findings.iter().any(|found| found.property == Property::FencedResource));
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
            assert!(!may_fail(&run(name, Mutant::None).0), "{name}");
        }
        assert!(may_fail(&run("fenced-counter-expired", Mutant::None).0));
        assert!(may_fail(&run("node-lists-differ", Mutant::None).0));
    }
}
