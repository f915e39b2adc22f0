//! Which schedules are inside the assumptions of the lock (A1 to A6 of `docs/safety.md`), and what must
//! not be seen of those that are, or of any.

use super::lessons::{Lesson, TTL};
use crate::judge::{Finding, Seen, Verdict};
use crate::scenario::{Cause, ClockHarm, Fault, Harm, Layer, NodeHarm, Persistence};

/// Whether nothing that a schedule does is outside the assumptions. In doubt it is outside.
pub(super) fn inside(lesson: &Lesson, faults: &[Fault]) -> bool {
    let rates = faults.iter().filter(|fault| matches!(fault.harm, Harm::Clock(_))).count();
    // The rates of one clock add up.
    rates <= 1 && faults.iter().all(|fault| is_assumed(lesson, fault))
}

fn is_assumed(lesson: &Lesson, fault: &Fault) -> bool {
    match &fault.harm {
        Harm::Node(NodeHarm::Restart { .. } | NodeHarm::Kill { .. } | NodeHarm::Stop { .. }) => {
            let ttl = super::lessons::length(TTL);
            // What comes back when all it knew has expired has forgotten nothing (A2).
            lesson.scenario.cluster.persistence == Persistence::AofAlways
                || fault.lasts.is_some_and(|lasts| lasts > ttl)
        }
        Harm::Clock(ClockHarm::Rate { factor, .. }) => {
            let share = f64::from(lesson.scenario.lock.drift_ppm) / 1e6;
            (1.0..=1.0 + share).contains(factor)
        }
        Harm::Clock(_) => false,
        Harm::Node(_) | Harm::Net(_) | Harm::Client(_) => true,
    }
}

/// What is wrong with a run whose faults are all inside, a line each.
pub(super) fn wrong_inside(lesson: &Lesson, verdict: &Verdict) -> Vec<String> {
    let bad = verdict.findings.iter().filter(|finding| !is_by_design(lesson, finding));
    bad.map(line).chain(strange(verdict)).collect()
}

/// What is wrong with any run: a violation that no fault explains.
pub(super) fn wrong_outside(verdict: &Verdict) -> Vec<String> {
    let unexplained = |finding: &&Finding| {
        finding.seen != Seen::Violated
            || finding.causes.is_empty()
            || finding.causes.iter().any(|cause| matches!(cause, Cause::Bug | Cause::Unknown))
    };
    verdict.findings.iter().filter(unexplained).map(line).chain(strange(verdict)).collect()
}

/// No lock can keep a client from acting late that is paused after its last look, or does not look.
fn is_by_design(lesson: &Lesson, finding: &Finding) -> bool {
    let late = |cause: &Cause| match cause {
        Cause::ClientPause => true,
        Cause::LateWrite => !lesson.looks,
        _ => false,
    };
    finding.layer == Layer::UnfencedResource
        && !finding.causes.is_empty()
        && finding.causes.iter().all(late)
}

fn line(finding: &Finding) -> String {
    let (layer, seen, story) = (finding.layer, finding.seen, finding.story.join("; "));
    format!("{layer} {seen:?} because {:?}: {story}", finding.causes)
}

/// What has no place in any run, but is no violation. That a fault waits for what never happens is
/// none.
fn strange(verdict: &Verdict) -> impl Iterator<Item = String> {
    let told = |line: &&String| {
        !line.starts_with("fault ")
            && !Layer::ALL.iter().any(|layer| line.starts_with(layer.name()))
    };
    verdict.differences.iter().filter(told).cloned()
}
