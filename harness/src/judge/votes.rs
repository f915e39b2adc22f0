//! Votes: had a quorum said yes when a lock said so? What it got later, or took for a yes, does not
//! count, even if all went well. And was a lease brought back to life?

use crate::history::Ns;
use crate::scenario::{Cause, Layer};

use super::causes;
use super::exclusion::believed;
use super::leases::{Extension, Lease};
use super::maps::count;
use super::time::{MS, Ms, Span};
use super::{Case, Finding, Seen};

/// By so much two readings of the same clock may seem to be in the wrong order.
const SKEW: Ns = MS;

pub(super) fn check(case: &Case<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for lease in &case.leases {
        findings.extend(unheard(case, lease));
        for extension in &lease.extensions {
            findings.extend(unheard_of(case, lease, extension));
            findings.extend(revived(case, lease, extension));
        }
    }
    findings
}

fn bug(story: Vec<String>, from: Ns, to: Ns) -> Finding {
    let causes = vec![Cause::Bug];
    Finding { layer: Layer::Validity, seen: Seen::Violated, story, causes, from, to }
}

/// A lease that was handed out before a quorum had said yes.
fn unheard(case: &Case<'_>, lease: &Lease<'_>) -> Option<Finding> {
    lease.token?;
    // That one is told already.
    if causes::too_few(case, lease).is_some() {
        return None;
    }
    let at = lease.answer.at.unwrap_or(lease.answer.ns);
    let by = at.saturating_add(SKEW);
    let heard = |delivered: Option<Ns>| delivered.is_some_and(|delivered| delivered <= by);
    let votes = lease.votes(&case.keys).filter(|key| heard(key.delivered));
    let yes = count(votes.map(|key| key.node));
    let lock = case.world.lock_of(lease.process);
    (yes < lock.q).then(|| {
        let story = vec![
            believed(lease),
            format!(
                "it was handed out when {yes} of {} masters had said yes, and it takes {}",
                lock.n, lock.q
            ),
        ];
        bug(story, lease.asked, at)
    })
}

/// A lease that was extended before a quorum had said that it still has the key.
fn unheard_of(case: &Case<'_>, lease: &Lease<'_>, extension: &Extension) -> Option<Finding> {
    let request = &case.requests[extension.request?];
    let answer = request.answer?;
    let at = answer.at.unwrap_or(answer.ns);
    if case.keys.is_opaque(request.process, lease.resource, Span::new(request.asked, answer.ns)) {
        return None;
    }
    let kept = case.keys.kept(request.process, lease.token?, request.asked);
    let by = at.saturating_add(SKEW);
    let yes = kept.iter().filter(|kept| kept.was_there && kept.delivered <= by);
    let yes = count(yes.map(|kept| kept.node));
    let lock = case.world.lock_of(lease.process);
    (yes < lock.q).then(|| {
        let story = vec![
            believed(lease),
            format!(
                "it was extended at {} when {yes} of {} masters had said that they still have the \
                 key, and it takes {}",
                Ms(at),
                lock.n,
                lock.q
            ),
        ];
        bug(story, request.asked, at)
    })
}

/// A lease that was extended after its end: lost is final.
fn revived(case: &Case<'_>, lease: &Lease<'_>, extension: &Extension) -> Option<Finding> {
    let request = &case.requests[extension.request?];
    let answer = request.answer?;
    let called = answer.from.unwrap_or(request.asked).saturating_sub(SKEW);
    let lost = lease.lost.unwrap_or(Ns::MAX);
    let over = extension.before.to.min(lost);
    (called > over).then(|| {
        let story = vec![
            believed(lease),
            format!(
                "{} asked at {} to extend it, when it was over since {}, and was told that it is \
                 extended: somebody else may have had it meanwhile",
                lease.client,
                Ms(called),
                Ms(over)
            ),
        ];
        bug(story, over, answer.at.unwrap_or(answer.ns))
    })
}
