//! Votes: did a quorum grant the lease before the lock reported success? A vote that arrives later
//! does not count, nor does a reply that the lock mistook for a vote, even if all went well. And
//! did an extension revive a lease that had ended?

use crate::client_protocol::FailureReason;
use crate::history::{Ns, Window};
use crate::scenario::Property;

use super::causes;
use super::exclusion::believed;
use super::leases::{Extension, Lease};
use super::maps::count;
use super::requests::Request;
use super::time::{MS, Ms};
use super::{Case, Violation};

/// Two readings of the same clock may appear in the wrong order by up to this much.
const SKEW: Ns = MS;

pub(crate) fn check(case: &Case<'_>) -> Vec<Violation> {
    let mut findings = Vec::new();
    for lease in &case.leases {
        findings.extend(without_quorum(case, lease));
        for extension in &lease.extensions {
            findings.extend(extended_without_quorum(case, lease, extension));
            findings.extend(revived(case, lease, extension));
        }
    }
    findings
}

/// A lease that was handed out before a quorum had granted it.
fn without_quorum(case: &Case<'_>, lease: &Lease<'_>) -> Option<Violation> {
    lease.token?;
    // `validity.rs` reports this case already.
    if causes::too_few(case, lease).is_some() {
        return None;
    }
    let at = lease.reply.returned();
    let by = at.saturating_add(SKEW);
    let in_time = |delivered: Option<Ns>| delivered.is_some_and(|delivered| delivered <= by);
    let votes = lease.votes(&case.keys).filter(|key| in_time(key.delivered));
    let yes = count(votes.map(|key| key.node));
    let lock = case.world.lock_of(lease.process);
    (yes < lock.q).then(|| {
        let lines = vec![
            believed(lease),
            format!(
                "it was handed out when {yes} of {} masters had granted it, and it takes {}",
                lock.n, lock.q
            ),
        ];
        Violation::bug(Property::Validity, lines, lease.asked, at)
    })
}

/// A lease that was extended before a quorum had replied that it still has the key.
fn extended_without_quorum(
    case: &Case<'_>,
    lease: &Lease<'_>,
    extension: &Extension,
) -> Option<Violation> {
    let request = &case.requests[extension.request?];
    let reply = request.reply?;
    let at = reply.returned();
    if case.keys.is_opaque(request.process, lease.resource, Window::new(request.asked, reply.ns)) {
        return None;
    }
    let kept = case.keys.kept(request.process, lease.token?, begun(case, lease, request));
    let by = at.saturating_add(SKEW);
    let yes = kept.iter().filter(|kept| kept.was_there && kept.delivered <= by);
    let yes = count(yes.map(|kept| kept.node));
    let lock = case.world.lock_of(lease.process);
    (yes < lock.q).then(|| {
        let lines = vec![
            believed(lease),
            format!(
                "it was extended at {} when {yes} of {} masters had replied that they still have \
                 the key, and it takes {}",
                Ms(at),
                lock.n,
                lock.q
            ),
        ];
        Violation::bug(Property::Validity, lines, request.asked, at)
    })
}

/// When the round began that extended a lease for a request. A re-entry may return the deadline of
/// a round that another request began and that was not reported before: the watchdog's, or that of
/// a request that its client gave up.
fn begun(case: &Case<'_>, lease: &Lease<'_>, request: &Request<'_>) -> Ns {
    let reported = lease.extensions.iter().filter_map(|extension| extension.at);
    let reported = reported.filter(|at| *at < request.asked).max().unwrap_or(lease.start.to);
    let before = case.requests.iter().filter(|other| {
        request.again
            && (other.client, other.resource) == (request.client, request.resource)
            && (lease.start.to..request.asked).contains(&other.asked)
    });
    let rounds = before.filter_map(|other| {
        let why = other.reply.and_then(|reply| reply.why);
        match why {
            _ if other.op == "keep_alive" => Some(reported),
            Some(FailureReason::Cancelled) => Some(other.asked).filter(|asked| *asked >= reported),
            _ => None,
        }
    });
    rounds.min().unwrap_or(request.asked)
}

/// A lease that was extended after its end. A lost lease stays lost.
fn revived(case: &Case<'_>, lease: &Lease<'_>, extension: &Extension) -> Option<Violation> {
    let request = &case.requests[extension.request?];
    let reply = request.reply?;
    let called = reply.from.unwrap_or(request.asked).saturating_sub(SKEW);
    let lost = lease.lost.unwrap_or(Ns::MAX);
    let over = extension.before.to.min(lost);
    (called > over).then(|| {
        let lines = vec![
            believed(lease),
            format!(
                "{} asked at {} to extend it, when it was over since {}, and the extension \
                 succeeded: another client may have held it meanwhile",
                lease.client,
                Ms(called),
                Ms(over)
            ),
        ];
        Violation::bug(Property::Validity, lines, over, reply.returned())
    })
}
