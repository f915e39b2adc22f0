//! Searches for runs in which the lock violates its guarantees, and turns each of them into a
//! scenario file.
//!
//! ```text
//! tape ─▶ plan ─▶ chance ─▶ Found ─▶ shrink ─▶ scenario_file
//!                   └ goals: what was reached
//! exhaustive: all schedules of a few faults on a few base scenarios
//! ```
//!
//! All runs are in virtual time, and a seed repeats them. `plan` draws scenarios from a tape of
//! choices; `chance` runs random ones on all cores; `exhaustive` runs all schedules without random
//! choices; `shrink` removes from a [`Found`] everything that it does not need; `scenario_file`
//! describes the rest. The verdict comes from the checkers in [`checker`](redquorum_checker).
//! `cli/search.rs` defines the options and the output.

#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use std::{fmt, thread};

use redquorum_checker::{Observed, Outcome, Verdict, Violation, check};
use redquorum_scenario::client_protocol::FENCING_COUNTER_TTL;
use redquorum_scenario::history::History;
use redquorum_scenario::{
    Cause, ClockFault, Expect, Fault, FaultKind, Known, Length, Lock, Loses, Mutant, Persistence,
    Property, Scenario,
};

pub mod chance;
pub mod exhaustive;
mod lengths;
pub mod plan;
pub mod scenario_file;
pub mod shrink;
mod tape;

/// Tests the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// A run in which something went wrong, with all that is needed to repeat it.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The scenario. It expects nothing, so that every violation is a difference.
    pub scenario: Scenario,
    /// The seed of its random choices.
    pub seed: u64,
    /// Whether the clients are mutants, and which one.
    pub mutant: Mutant,
    /// The verdict on it.
    pub verdict: Verdict,
}

/// What went wrong. A shrink must keep it, and two finds with the same kind are the same find.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kind {
    /// The property that was violated. None: no property is violated, but the run contradicts
    /// itself. For example, a client records an impossible time.
    pub property: Option<Property>,
    /// The causes, sorted. Empty: it is not certain that the property was violated.
    pub causes: Vec<Cause>,
}

impl Found {
    /// Runs a scenario. Returns none without a violation.
    pub fn of(scenario: &Scenario, seed: u64, mutant: Mutant) -> Option<Self> {
        let mut scenario = scenario.clone();
        scenario.expect = Expect::default();
        Self::in_history(&redquorum_simulator::run(&scenario, seed, mutant), mutant)
    }

    /// What went wrong in a run whose scenario expects nothing. Returns none if nothing did.
    pub fn in_history(history: &History, mutant: Mutant) -> Option<Self> {
        let verdict = check(history);
        let (scenario, seed) = (history.header.scenario.clone(), history.header.seed);
        (!kinds(&scenario, &verdict).is_empty()).then_some(Self { scenario, seed, mutant, verdict })
    }

    /// What went wrong, the worst first; there is at least one.
    pub fn kinds(&self) -> Vec<Kind> {
        kinds(&self.scenario, &self.verdict)
    }

    /// The worst kind of what went wrong.
    pub fn kind(&self) -> Kind {
        let found = self.kinds().into_iter().next();
        found.unwrap_or(Kind { property: None, causes: vec![Cause::Unknown] })
    }
}

/// Does numbered pieces of work on this many threads. `take` receives each result, and returns
/// whether to continue.
fn in_parallel<T>(
    threads: usize,
    pieces: u64,
    work: impl Fn(u64) -> T + Sync,
    take: impl FnMut(u64, T) -> bool + Send,
) {
    let (next, take) = (AtomicU64::new(0), Mutex::new(take));
    let run = || {
        loop {
            let piece = next.fetch_add(1, Ordering::Relaxed);
            if piece >= pieces {
                return;
            }
            let result = work(piece);
            if !take.lock().unwrap_or_else(PoisonError::into_inner)(piece, result) {
                next.store(pieces, Ordering::Relaxed);
            }
        }
    };
    thread::scope(|scope| (0..threads.max(1)).for_each(|_| drop(scope.spawn(run))));
}

/// Switches every defence of a lock on, for leases of up to this TTL, on masters that already have
/// a marker. Add a new defence here, and all searches use it.
fn defend(lock: &mut Lock, longest: Duration) {
    lock.guard = Some(Length(longest));
    lock.initialized = true;
}

/// Whether locks with these options detect masters that forgot.
const fn sees_amnesia(lock: &Lock) -> bool {
    lock.guard.is_some()
}

/// What went wrong in a run, each kind once. Violations that no fault explains come first; the
/// order of properties decides between the others.
pub fn kinds(scenario: &Scenario, verdict: &Verdict) -> Vec<Kind> {
    let mut kinds: Vec<Kind> = verdict.findings.iter().map(Kind::of).collect();
    if contradictions(verdict).next().is_some() || failed_tokens(scenario, verdict).is_some() {
        kinds.push(Kind { property: None, causes: vec![Cause::Bug] });
    }
    kinds.sort_by_key(|kind| (!kind.is_unexplained(), kind.clone()));
    kinds.dedup();
    kinds
}

/// Differences that must not appear in any run, and that are no violation of a property.
fn contradictions(verdict: &Verdict) -> impl Iterator<Item = &String> {
    verdict.differences.iter().filter(|line| is_contradiction(line))
}

/// Checks the run of a drawn scenario. A fault whose moment never comes is no error there.
pub fn check_drawn(history: &History) -> Verdict {
    let mut verdict = check(history);
    let struck_nothing =
        |line: &String| ["never struck", "failed to strike"].iter().any(|end| line.ends_with(end));
    if verdict.outcome == Outcome::NotSeen && verdict.differences.iter().all(struck_nothing) {
        verdict.outcome = Outcome::AsExpected;
    }
    verdict
}

/// Whether a difference is neither about a property nor about an event that a scenario must see. A
/// fault whose trigger never comes is no error.
fn is_contradiction(line: &str) -> bool {
    let of_scenario =
        ["fault ", "because: ", "acquires: ", "margin: ", "within: ", "commands: ", "overtaken: "];
    let property = Property::ALL.iter().any(|property| line.starts_with(property.name()));
    !property && !of_scenario.iter().any(|start| line.starts_with(start))
}

impl Kind {
    fn of(finding: &Violation) -> Self {
        let certain = finding.seen == Observed::Violated;
        let mut causes = if certain { finding.causes.clone() } else { Vec::new() };
        causes.sort_unstable();
        causes.dedup();
        Self { property: Some(finding.property), causes }
    }

    /// Whether no fault explains the violation: the lock is wrong, or this program is.
    pub fn is_unexplained(&self) -> bool {
        self.property.is_none()
            || self.causes.iter().any(|cause| matches!(cause, Cause::Bug | Cause::Unknown))
    }

    /// Whether it is only possible, and not certain, that something went wrong.
    pub const fn is_doubt(&self) -> bool {
        self.causes.is_empty()
    }

    /// Whether no lock could prevent it, although all faults are inside the assumptions. There are
    /// two cases:
    ///
    /// * a client is paused between its last check of the lease and its write;
    /// * a fencing token fails after a master has lost its counter.
    ///
    /// A master that stays down for the longest TTL does no harm to leases. It does harm to
    /// counters, which only tokens need.
    pub fn is_by_design(&self) -> bool {
        match self.property {
            Some(Property::UnfencedResource) => self.causes == [Cause::ClientPause],
            Some(Property::FencedResource) => !self.is_unexplained() && !self.is_doubt(),
            _ => false,
        }
    }

    /// All violations that no lock can prevent, as a scenario knows them.
    fn known_by_design() -> impl Iterator<Item = Known> {
        let kinds = Property::ALL.into_iter().flat_map(|property| {
            Cause::ALL.map(|cause| Self { property: Some(property), causes: vec![cause] })
        });
        kinds.filter(Self::is_by_design).filter_map(|kind| {
            let (property, because) = (kind.property?, *kind.causes.first()?);
            let reason = "no lock can prevent it".to_owned();
            Some(Known { property, because, reason, sometimes: true })
        })
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.property.map_or("contradiction", Property::name))?;
        let mut before = " (";
        for cause in &self.causes {
            write!(f, "{before}{cause}")?;
            before = ", ";
        }
        f.write_str(if self.is_doubt() { " (in doubt)" } else { ")" })
    }
}

/// A line of text if tokens failed where they must not: as long as no master can have lost a
/// counter, and all clients know the same masters, tokens grow, and registers that check them lose
/// no update. The rule uses only the faults of a scenario, not the verdict of the checkers.
fn failed_tokens(scenario: &Scenario, verdict: &Verdict) -> Option<String> {
    let bad =
        verdict.findings.iter().find(|finding| finding.property == Property::FencedResource)?;
    let why = bad.explanation.join("; ");
    (!tokens_may_fail(scenario))
        .then(|| format!("fencing tokens fail, and no counter was lost: {why}"))
}

/// Whether a scenario may lose a counter, or has clients whose quorums need not meet.
fn tokens_may_fail(scenario: &Scenario) -> bool {
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
    use redquorum_scenario::history::History;
    use redquorum_scenario::{Mutant, embedded_runs};

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
        assert!(tokens_may_fail(&scenario));
        assert_eq!(failed_tokens(&scenario, &verdict), None);
        // The scenario on masters that are known to keep every write.
        let mut durable = scenario;
        durable.cluster.persistence = Persistence::AofAlways;
        assert!(failed_tokens(&durable, &verdict).is_some());
    }

    #[test]
    fn no_pause_no_clock_and_no_network_is_an_excuse() {
        for name in ["fenced-pause", "fenced-pause/clock-step", "pause-in-flight", "duplicated-set"]
        {
            assert!(!tokens_may_fail(&run(name, Mutant::None).0), "{name}");
        }
        assert!(tokens_may_fail(&run("fenced-counter-expired", Mutant::None).0));
        assert!(tokens_may_fail(&run("node-lists-differ", Mutant::None).0));
    }
}
