//! Decides which schedules are inside the assumptions of the lock (A1 to A6 of `docs/safety.md`),
//! and which violations must not occur in those, or in any schedule.

use super::base_scenarios::{BaseScenario, TTL};
use crate::{Kind, contradictions, fenced, sees_amnesia};
use redquorum_checker::{Verdict, Violation};
use redquorum_scenario::{
    Assumed, Cause, ClientFault, ClockFault, Fault, FaultKind, Persistence, Property, Scenario,
    SetsClock,
};

/// Whether a schedule does nothing that is outside the assumptions. Returns `false` in case of
/// doubt.
pub(super) fn inside(base: &BaseScenario, faults: &[Fault]) -> bool {
    let is_rate = |fault: &&Fault| {
        matches!(fault.kind.row().clock, SetsClock::OfMaster | SetsClock::OfLeases)
    };
    let rates = faults.iter().filter(is_rate).count();
    // The rates of one clock add up, and so do those of a master and of a client.
    // A guard detects that masters may have forgotten (A2).
    let sees = sees_amnesia(&base.scenario.lock);
    let is_assumed =
        |fault: &Fault| is_assumed(base, fault) || sees && fault.kind.removes_markers(false);
    !base.parted && rates <= 1 && faults.iter().all(is_assumed)
}

/// Whether a fault is inside the assumptions of a lock without defences.
pub(super) fn is_assumed(base: &BaseScenario, fault: &Fault) -> bool {
    let share = f64::from(base.scenario.lock.drift_ppm) / 1e6;
    match fault.kind.row().assumed {
        Assumed::Always => true,
        Assumed::Never => false,
        Assumed::IfLong => {
            let ttl = crate::lengths::of_millis(TTL);
            // A master that comes back after all its keys would have expired has forgotten nothing
            // (A2).
            base.scenario.cluster.persistence == Persistence::AofAlways
                || fault.lasts.is_some_and(|lasts| lasts > ttl)
        }
        Assumed::IfSlight => match &fault.kind {
            FaultKind::Clock(ClockFault::Rate { factor }) => (1.0..=1.0 + share).contains(factor),
            // A clock that runs fast ends leases early, but it counts as outside: it shortens
            // quarantines too.
            FaultKind::Client(ClientFault::Rate { factor }) => (1.0 - share..=1.0).contains(factor),
            // In case of doubt, a fault is outside.
            _ => false,
        },
    }
}

/// The errors of a run whose faults are all inside, one line each.
pub(super) fn wrong_inside(
    base: &BaseScenario,
    scenario: &Scenario,
    verdict: &Verdict,
) -> Vec<String> {
    // A guard keeps leases apart, but it does not restore a counter.
    let counters = fenced::may_fail(scenario);
    let lost = |finding: &Violation| counters && Kind::of(finding).is_by_design();
    let excused = |finding: &Violation| {
        is_by_design(base, finding) || finding.property == Property::FencedResource && lost(finding)
    };
    let bad = verdict.findings.iter().filter(|finding| !excused(finding));
    bad.map(line).chain(contradictions(verdict).cloned()).collect()
}

/// The errors of any run: violations that no fault explains, one line each.
pub(super) fn wrong_outside(verdict: &Verdict) -> Vec<String> {
    let unexplained = |finding: &&Violation| {
        let kind = Kind::of(finding);
        kind.is_doubt() || kind.is_unexplained()
    };
    verdict
        .findings
        .iter()
        .filter(unexplained)
        .map(line)
        .chain(contradictions(verdict).cloned())
        .collect()
}

/// Some late writes no lock can prevent: the client is paused after its last check, or does not
/// check, or its write is delayed on its way.
fn is_by_design(base: &BaseScenario, finding: &Violation) -> bool {
    let late = |cause: &Cause| match cause {
        Cause::ClientPause | Cause::ResourceDelay => true,
        Cause::LateWrite => !base.looks,
        _ => false,
    };
    finding.property == Property::UnfencedResource
        && !finding.causes.is_empty()
        && finding.causes.iter().all(late)
}

fn line(finding: &Violation) -> String {
    let Violation { property, seen, explanation, causes, .. } = finding;
    format!("{property} {seen:?} because {causes:?}: {}", explanation.join("; "))
}
