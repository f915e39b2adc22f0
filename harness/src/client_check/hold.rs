//! Hold: the checks of a lease's life: its release, its extensions and its end.

use std::time::Duration;

use super::peer::Fault;
use super::{OPTIONS, Session, Verdict, cannot, fine, no_lease, text_of_reply};
use crate::client_protocol::{Capability, ClientReply, FailureReason, Notice, Op};
use crate::stamp;

/// How late a driver may report a loss on a busy machine.
const LATE: Duration = Duration::from_millis(500);

const EXPIRING: &str = "check-expired";
const EXPIRING_TTL_MS: u64 = 600;

fn checked(resource: &str) -> Op {
    Op::Step { name: "write R".into(), check: Some(resource.into()) }
}

pub(super) fn checked_step(session: &mut Session) -> Result<Verdict, Fault> {
    let Some(grant) = &session.grant else { return Ok(no_lease()) };
    let resource = grant.resource.clone();
    let reply = session.request("c1", checked(&resource))?;
    if !reply.ok {
        return wrong!(
            "a step that checks `{resource}` was refused although the client holds it: {}",
            text_of_reply(&reply)
        );
    }
    let reply = session.request("c3", checked(&resource))?;
    if reply.why == Some(FailureReason::Lost) {
        return fine("done by the holder, refused to other clients");
    }
    wrong!(
        "a step that checks `{resource}` was asked of a client that does not hold it, and answered \
         {}; say \"why\":\"lost\"",
        text_of_reply(&reply)
    )
}

pub(super) fn release(session: &mut Session) -> Result<Verdict, Fault> {
    let Some(grant) = session.grant.take() else { return Ok(no_lease()) };
    let resource = grant.resource;
    let reply = session.release("c1", &resource)?;
    if !reply.ok {
        return wrong!("a lease that was held was not released: {}", text_of_reply(&reply));
    }
    match session.keys.gone(&resource, Duration::from_secs(1))? {
        0 => fine("no master has the key any more"),
        left => wrong!(
            "a second after the release {left} of {} masters have the key: delete it on all",
            session.keys.len()
        ),
    }
}

pub(super) fn extend(session: &mut Session) -> Result<Verdict, Fault> {
    if !session.can(Capability::Extend) {
        return Ok(cannot("extend"));
    }
    let resource = "check-extend".to_owned();
    let ttl_ms = OPTIONS.ttl_ms;
    let grant = session.grant("c1", &resource, ttl_ms)?;
    session.peer.pass(Duration::from_millis(400))?;
    let reply = session.request("c1", Op::Extend { resource: resource.as_str().into(), ttl_ms })?;
    let left = longest(session, &resource)?;
    session.release("c1", &resource)?;
    if !reply.ok {
        return wrong!(
            "a lease that is held was not extended, with all masters up: {}",
            text_of_reply(&reply)
        );
    }
    if left + 200 < ttl_ms {
        return wrong!(
            "it was extended by {ttl_ms} ms, and at once the masters keep the key for no more than \
             {left} ms: \"ttl_ms\" counts from the extension"
        );
    }
    later(session, grant.reply.deadline_ns, &reply)
}

/// The remaining TTL of the key on the master where it lives longest.
fn longest(session: &Session, resource: &str) -> Result<u64, Fault> {
    let keys = session.keys.of(resource)?;
    Ok(keys.iter().flatten().filter_map(|key| key.ttl_ms).max().unwrap_or(0))
}

fn later(session: &Session, old: Option<i64>, reply: &ClientReply) -> Result<Verdict, Fault> {
    if !session.can(Capability::Deadline) {
        return match reply.valid_ms {
            Some(valid) if (1..=OPTIONS.ttl_ms).contains(&valid) => {
                fine(format!("valid for another {valid} ms"))
            }
            _ => wrong!(
                "the answer to an extend has no \"valid_ms\" of at most the TTL: {}",
                text_of_reply(reply)
            ),
        };
    }
    match reply.deadline_ns {
        Some(new) if old.is_none_or(|old| new > old) => fine("the deadline and the keys live on"),
        Some(new) => wrong!(
            "it was extended, and \"deadline_ns\" is {new}, no later than it was ({})",
            old.unwrap_or_default()
        ),
        None => wrong!("it can `deadline`, and the answer to an extend has no \"deadline_ns\""),
    }
}

pub(super) fn keep_alive(session: &mut Session) -> Result<Verdict, Fault> {
    if !session.can(Capability::KeepAlive) {
        return Ok(cannot("keep_alive"));
    }
    let (resource, ttl_ms) = ("check-alive".to_owned(), 800);
    session.grant("c1", &resource, ttl_ms)?;
    let op = Op::KeepAlive { resource: resource.as_str().into(), max_ms: 10_000 };
    let reply = session.request("c1", op)?;
    if !reply.ok {
        session.release("c1", &resource)?;
        return wrong!("it was not kept alive: {}", text_of_reply(&reply));
    }
    session.peer.pass(Duration::from_millis(ttl_ms * 2))?;
    let left = longest(session, &resource)?;
    let notice = session.peer.notice(Duration::ZERO, |notice| {
        matches!(notice, Notice::Extended { client, resource: of, .. }
            if client == "c1" && *of == resource.as_str())
    })?;
    session.release("c1", &resource)?;
    if left == 0 {
        return wrong!(
            "a lease of {ttl_ms} ms was to be kept alive, and twice that later no master has its \
             key: extend it in the background, well before it ends"
        );
    }
    if session.can(Capability::Deadline) && notice.is_none() {
        return wrong!(
            "the lease was kept alive, and no extension was reported: send {{\"event\":\"extended\",\
             \"client\":…,\"resource\":…,\"deadline_ns\":…}} for each, or the harness takes the \
             first deadline for the end of the lease"
        );
    }
    match session.keys.gone(&resource, Duration::from_secs(1))? {
        0 => fine("extended until its release, and not after it"),
        _ => wrong!(
            "a second after its release the key of a lease that was kept alive is still there: end \
             the extending first"
        ),
    }
}

/// Leaves an expired lease for the check [`expired`].
pub(super) fn lost(session: &mut Session) -> Result<Verdict, Fault> {
    let grant = session.grant("c1", EXPIRING, EXPIRING_TTL_MS)?;
    let ttl = Duration::from_millis(EXPIRING_TTL_MS);
    let end = grant.reply.deadline_ns.unwrap_or_else(|| stamp::later(grant.received, ttl));
    session.grant = Some(grant);
    let notice = session.peer.notice(ttl + LATE, |notice| {
        matches!(notice, Notice::Lost { client, resource, .. }
            if client == "c1" && resource == EXPIRING)
    })?;
    match notice {
        Some((Notice::Lost { at_ns, .. }, received)) if session.can(Capability::Lost) => {
            let until = stamp::later(end, LATE);
            if (end..=until).contains(&at_ns) && at_ns <= received {
                return fine("it is reported at the deadline");
            }
            wrong!(
                "the lease ended at {end}, and its loss was reported at {at_ns} by its own stamp, \
                 received at {received}: report it at the deadline, whether or not a master can be \
                 reached"
            )
        }
        Some(_) => wrong!("it says that a lease is lost, so add `lost` to \"can\""),
        None if session.can(Capability::Lost) => wrong!(
            "it can `lost`, and {LATE:?} after the end of a lease nothing was reported: send \
             {{\"event\":\"lost\",\"client\":\"c1\",\"resource\":\"{EXPIRING}\",\"at_ns\":…}}"
        ),
        None => Ok(cannot("lost")),
    }
}

pub(super) fn expired(session: &mut Session) -> Result<Verdict, Fault> {
    let Some(grant) = session.grant.take() else { return Ok(no_lease()) };
    // Whatever the result of `lost`: after this wait, the lease is over.
    session.peer.pass(LATE)?;
    let resource = grant.resource;
    let reply = session.request("c1", checked(&resource))?;
    let unchecked = Op::Step { name: "write R".into(), check: None };
    let unchecked = session.request("c1", unchecked)?;
    let released = session.release("c1", &resource)?;
    if reply.why != Some(FailureReason::Lost) {
        return wrong!(
            "a step that checks a lease whose deadline has passed was answered {}; compare the \
             deadline with the clock, and say \"why\":\"lost\"",
            text_of_reply(&reply)
        );
    }
    if !unchecked.ok {
        return wrong!(
            "after the end of its lease a client refused a step without a check: {}",
            text_of_reply(&unchecked)
        );
    }
    if released.ok || released.why == Some(FailureReason::Lost) {
        return fine("steps that check are refused, and its release is an answer");
    }
    wrong!(
        "the release of a lease that has expired was answered {}; it is no error: say \"ok\":true, \
         or \"why\":\"lost\"",
        text_of_reply(&released)
    )
}
