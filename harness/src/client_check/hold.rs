//! Hold: the checks of a lease's life: its release, its extensions, its re-entry and its end.

use std::time::Duration;

use super::peer::Fault;
use super::{CheckResult, OPTIONS, Session, cannot, fine, no_lease, step_op};
use crate::stamp;
use redquorum_scenario::client_protocol::{Capability, ClientReply, FailureReason, Notice, Op};

/// How late a driver may report a loss on a busy machine.
const LATE: Duration = Duration::from_millis(500);

const EXPIRING: &str = "check-expired";
const EXPIRING_TTL_MS: u64 = 600;

pub(super) fn checked_step(session: &mut Session) -> CheckResult {
    let resource = session.lease()?.resource;
    let reply = session.request("c1", step_op(Some(resource)))?;
    ensure!(
        reply.ok,
        "a step that checks `{resource}` was refused although the client holds it: {reply}"
    );
    let reply = session.request("c3", step_op(Some(resource)))?;
    ensure!(
        reply.why == Some(FailureReason::Lost),
        "a step that checks `{resource}` was asked of a client that does not hold it, and answered \
         {reply}; say \"why\":\"lost\""
    );
    fine("done by the holder, refused to other clients")
}

pub(super) fn release(session: &mut Session) -> CheckResult {
    let grant = session.grant.take().ok_or_else(no_lease)?;
    let reply = session.release("c1", grant.resource)?;
    ensure!(reply.ok, "a lease that was held was not released: {reply}");
    let left = session.keys.gone(grant.resource)?;
    ensure!(
        left == 0,
        "a second after the release {left} of {} masters have the key: delete it on all",
        session.keys.len()
    );
    fine("no master has the key any more")
}

pub(super) fn extend(session: &mut Session) -> CheckResult {
    let (resource, ttl_ms) = ("check-extend", OPTIONS.ttl_ms);
    let grant = session.acquire(resource, ttl_ms)?;
    session.peer.pass(Duration::from_millis(400))?;
    let reply = session.request("c1", Op::Extend { resource: resource.into(), ttl_ms })?;
    let left = longest(session, resource)?;
    session.release("c1", resource)?;
    ensure!(reply.ok, "a lease that is held was not extended, with all masters up: {reply}");
    ensure!(
        left + 200 >= ttl_ms,
        "it was extended by {ttl_ms} ms, and at once the masters keep the key for no more than \
         {left} ms: \"ttl_ms\" counts from the extension"
    );
    later(session, grant.reply.deadline_ns, &reply)
}

/// The remaining TTL of the key on the master where it lives longest.
fn longest(session: &Session, resource: &str) -> Result<u64, Fault> {
    let keys = session.keys.of(resource)?;
    Ok(keys.iter().flatten().filter_map(|key| key.ttl_ms).max().unwrap_or(0))
}

fn later(session: &Session, old: Option<i64>, reply: &ClientReply) -> CheckResult {
    if !session.can(Capability::Deadline) {
        let valid = reply.valid_ms.unwrap_or(0);
        ensure!(
            (1..=OPTIONS.ttl_ms).contains(&valid),
            "the answer to an extend has no \"valid_ms\" of at most the TTL: {reply}"
        );
        return fine(format!("valid for another {valid} ms"));
    }
    let Some(new) = reply.deadline_ns else {
        return wrong!("it can `deadline`, and the answer to an extend has no \"deadline_ns\"");
    };
    ensure!(
        old.is_none_or(|old| new > old),
        "it was extended, and \"deadline_ns\" is {new}, no later than it was ({})",
        old.unwrap_or_default()
    );
    fine("the deadline and the keys live on")
}

pub(super) fn keep_alive(session: &mut Session) -> CheckResult {
    let (resource, ttl_ms) = ("check-alive", 800);
    session.acquire(resource, ttl_ms)?;
    let op = Op::KeepAlive { resource: resource.into(), max_ms: 10_000 };
    let reply = session.request("c1", op)?;
    if !reply.ok {
        session.release("c1", resource)?;
        return wrong!("it was not kept alive: {reply}");
    }
    session.peer.pass(Duration::from_millis(ttl_ms * 2))?;
    let left = longest(session, resource)?;
    let notice = session.peer.notice(Duration::ZERO, |notice| {
        matches!(notice, Notice::Extended { client, resource: of, .. }
            if client == "c1" && *of == resource)
    })?;
    session.release("c1", resource)?;
    ensure!(
        left > 0,
        "a lease of {ttl_ms} ms was to be kept alive, and twice that later no master has its key: \
         extend it in the background, well before it ends"
    );
    ensure!(
        notice.is_some() || !session.can(Capability::Deadline),
        "the lease was kept alive, and no extension was reported: send {{\"event\":\"extended\",\
         \"client\":…,\"resource\":…,\"deadline_ns\":…}} for each, or the harness takes the first \
         deadline for the end of the lease"
    );
    ensure!(
        session.keys.gone(resource)? == 0,
        "a second after its release the key of a lease that was kept alive is still there: end the \
         extending first"
    );
    fine("extended until its release, and not after it")
}

/// A client acquires a resource that it holds.
pub(super) fn again(session: &mut Session) -> CheckResult {
    let resource = "check-again";
    let grant = session.acquire(resource, OPTIONS.ttl_ms)?;
    session.peer.pass(Duration::from_millis(50))?;
    let op = Op::Acquire { resource: resource.into(), ttl_ms: 0, wait_ms: 0, again: true };
    let second = session.request("c1", op)?;
    let first_release = session.release("c1", resource)?;
    let left = session.keys.of(resource)?.iter().filter(|keys| !keys.is_empty()).count();
    let last_release = session.release("c1", resource)?;
    ensure!(
        second.ok && second.handles == Some(2),
        "a client that holds `{resource}` acquired it \"again\", and the answer is not \"ok\" with \
         \"handles\":2, but {second}"
    );
    ensure!(
        second.deadline_ns == grant.reply.deadline_ns || !session.can(Capability::Deadline),
        "it was acquired \"again\" with \"ttl_ms\":0, so the deadline stands; the reply has \
         another: {second}"
    );
    ensure!(
        first_release.ok && first_release.handles == Some(1),
        "one of two handles was released, and the answer is not \"ok\" with \"handles\":1, but \
         {first_release}"
    );
    ensure!(
        left >= session.keys.quorum(),
        "one of two handles was released, and only {left} masters have the key yet: delete it with \
         the last one"
    );
    ensure!(
        last_release.ok && session.keys.gone(resource)? == 0,
        "the last handle was released, and the key is still there, or the answer is not \"ok\": \
         {last_release}"
    );
    fine("two handles of one lease, which ended with the last")
}

/// Leaves an expired lease for the check [`expired`].
pub(super) fn lost(session: &mut Session) -> CheckResult {
    let grant = session.acquire(EXPIRING, EXPIRING_TTL_MS)?;
    let ttl = Duration::from_millis(EXPIRING_TTL_MS);
    let end = grant.reply.deadline_ns.unwrap_or_else(|| stamp::later(grant.received, ttl));
    session.grant = Some(grant);
    let notice = session.peer.notice(ttl + LATE, |notice| {
        matches!(notice, Notice::Lost { client, resource, .. }
            if client == "c1" && resource == EXPIRING)
    })?;
    let claimed = session.can(Capability::Lost);
    let Some((Notice::Lost { at_ns, .. }, received)) = notice else {
        ensure!(
            !claimed,
            "it can `lost`, and {LATE:?} after the end of a lease nothing was reported: send \
             {{\"event\":\"lost\",\"client\":\"c1\",\"resource\":\"{EXPIRING}\",\"at_ns\":…}}"
        );
        return cannot(Capability::Lost);
    };
    ensure!(claimed, "it says that a lease is lost, so add `lost` to \"can\"");
    ensure!(
        (end..=stamp::later(end, LATE)).contains(&at_ns) && at_ns <= received,
        "the lease ended at {end}, and its loss was reported at {at_ns} by its own stamp, received \
         at {received}: report it at the deadline, whether or not a master can be reached"
    );
    fine("it is reported at the deadline")
}

pub(super) fn expired(session: &mut Session) -> CheckResult {
    let resource = session.grant.take().ok_or_else(no_lease)?.resource;
    // Whatever the result of `lost`: after this wait, the lease is over.
    session.peer.pass(LATE)?;
    let reply = session.request("c1", step_op(Some(resource)))?;
    let unchecked = session.request("c1", step_op(None))?;
    let released = session.release("c1", resource)?;
    ensure!(
        reply.why == Some(FailureReason::Lost),
        "a step that checks a lease whose deadline has passed was answered {reply}; compare the \
         deadline with the clock, and say \"why\":\"lost\""
    );
    ensure!(
        unchecked.ok,
        "after the end of its lease a client refused a step without a check: {unchecked}"
    );
    ensure!(
        released.ok || released.why == Some(FailureReason::Lost),
        "the release of a lease that has expired was answered {released}; it is no error: say \
         \"ok\":true, or \"why\":\"lost\""
    );
    fine("steps that check are refused, and its release is an answer")
}
