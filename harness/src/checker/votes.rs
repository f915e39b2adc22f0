//! Votes: did a quorum grant the lease before the lock reported success? A vote that arrives later
//! does not count, nor does a reply that the lock mistook for a vote, even if all went well. And
//! did an extension revive a lease that had ended?

use crate::history::Ns;
use crate::scenario::{Cause, Property};

use super::causes;
use super::exclusion::believed;
use super::leases::{Extension, Lease};
use super::maps::count;
use super::time::{MS, Ms, Span};
use super::{Case, Observed, Violation};

/// Two readings of the same clock may appear in the wrong order by up to this much.
const SKEW: Ns = MS;

pub(super) fn check(case: &Case<'_>) -> Vec<Violation> {
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

fn bug(story: Vec<String>, from: Ns, to: Ns) -> Violation {
    let causes = vec![Cause::Bug];
    Violation { layer: Property::Validity, seen: Observed::Violated, story, causes, from, to }
}

/// A lease that was handed out before a quorum had granted it.
fn unheard(case: &Case<'_>, lease: &Lease<'_>) -> Option<Violation> {
    lease.token?;
    // `validity.rs` reports this case already.
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

/// A lease that was extended before a quorum had replied that it still has the key.
fn unheard_of(case: &Case<'_>, lease: &Lease<'_>, extension: &Extension) -> Option<Violation> {
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

/// A lease that was extended after its end. A lost lease stays lost.
fn revived(case: &Case<'_>, lease: &Lease<'_>, extension: &Extension) -> Option<Violation> {
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
