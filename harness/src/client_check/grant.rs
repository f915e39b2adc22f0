//! Grant: the checks of acquire, and of the data in the reply.

use std::time::Duration;

use super::peer::Fault;
use super::{CheckResult, Grant, OPTIONS, Session, acquire_op, fine, no_lease, step_op};
use redquorum_scenario::client_protocol::shown;
use redquorum_scenario::client_protocol::{Capability, FailureReason};
use redquorum_scenario::history::text_of;

pub(super) fn acquire(session: &mut Session) -> CheckResult {
    let grant = session.acquire("check", OPTIONS.ttl_ms)?;
    let took = Duration::from_nanos(u64::try_from(grant.received - grant.asked).unwrap_or(0));
    session.grant = Some(grant);
    fine(format!("a free resource is granted, in {took:.1?}"))
}

pub(super) fn stamps(session: &mut Session) -> CheckResult {
    let grant = session.lease()?;
    let Some(at) = grant.reply.at_ns else {
        return wrong!(
            "the answer to an acquire has no \"at_ns\": read CLOCK_MONOTONIC right after the \
             library returned (Python: time.monotonic_ns(), C: clock_gettime)"
        );
    };
    for (name, stamp) in [("at_ns", at), ("from_ns", grant.reply.from_ns.unwrap_or(at))] {
        ensure!(
            (grant.asked..=grant.received).contains(&stamp),
            "\"{name}\" is {stamp}, but the call was between {} and {}{}; stamps are nanoseconds \
             of CLOCK_MONOTONIC",
            grant.asked,
            grant.received,
            guess(stamp, grant)
        );
    }
    let Some(from) = grant.reply.from_ns else { return fine("at_ns lies within the call") };
    ensure!(
        from <= at,
        "\"from_ns\" ({from}) is later than \"at_ns\" ({at}): it is read just before the library \
         is called"
    );
    fine("both lie within the call")
}

/// Checks the fencing tokens of successive leases of the same resource.
pub(super) fn fence(session: &mut Session) -> CheckResult {
    let mut tokens = Vec::new();
    for _ in 0..3 {
        let grant = session.acquire("fenced", OPTIONS.ttl_ms)?;
        session.release("c1", "fenced")?;
        let Some(token) = grant.reply.fence else {
            return wrong!(
                "`fence` is in \"can\", options say `\"fencing\":true`, and the answer to an \
                 acquire has no \"fence\": say the lease's fencing token there"
            );
        };
        tokens.push(token);
    }
    ensure!(
        tokens.is_sorted_by(|one, next| one < next),
        "the fencing tokens of three leases of one resource, one after the other, are {tokens:?}: \
         each must be larger than the last"
    );
    fine(format!("they grow: {tokens:?}"))
}

/// The unit or clock that a wrong stamp may have instead.
fn guess(stamp: i64, grant: &Grant) -> &'static str {
    let wall = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    let wall = wall.tv_sec.saturating_mul(1_000_000_000).saturating_add(wall.tv_nsec);
    let guesses = [
        (stamp, wall, " (that is the wall clock)"),
        (stamp.saturating_mul(1000), grant.received, " (those are microseconds)"),
        (stamp.saturating_mul(1_000_000), grant.received, " (those are milliseconds)"),
        (stamp.saturating_mul(1_000_000_000), grant.received, " (those are seconds)"),
    ];
    let near = |(stamp, clock, _): &&(i64, i64, _)| (stamp - clock).abs() < 10_000_000_000;
    guesses.iter().find(near).map_or("", |(.., guess)| guess)
}

pub(super) fn deadline(session: &mut Session) -> CheckResult {
    let grant = session.lease()?;
    let ttl = Duration::from_millis(grant.ttl_ms);
    let at = grant.reply.at_ns.unwrap_or(grant.received);
    if let Some(deadline) = grant.reply.deadline_ns {
        ensure!(
            deadline > at,
            "\"deadline_ns\" is {deadline}, no later than the return of the library at {at}{}: a \
             lease that is over must be refused with \"why\":\"late\"",
            guess(deadline, grant)
        );
        let valid = Duration::from_nanos(u64::try_from(deadline - at).unwrap_or(0));
        ensure!(
            valid <= ttl,
            "\"deadline_ns\" is {deadline}, {:?} beyond the return of the library plus the TTL{}: \
             it is the start of the attempt, plus the TTL, minus the drift",
            valid - ttl,
            guess(deadline, grant)
        );
        return fine(format!("{valid:.2?} ahead, of a TTL of {ttl:?}"));
    }
    ensure!(
        !session.can(Capability::Deadline),
        "it can `deadline`, and the answer to an acquire has no \"deadline_ns\""
    );
    let Some(valid) = grant.reply.valid_ms else {
        return wrong!(
            "the answer to an acquire has neither \"deadline_ns\" nor \"valid_ms\": the harness \
             has to know for how long the client believes in its lease"
        );
    };
    ensure!(
        (1..=grant.ttl_ms).contains(&valid),
        "\"valid_ms\" is {valid}, of a TTL of {}: say what is left of the lease, in milliseconds, \
         as the library returns",
        grant.ttl_ms
    );
    fine(format!("valid for {valid} ms, of a TTL of {ttl:?}"))
}

pub(super) fn keys(session: &mut Session) -> CheckResult {
    let grant = session.grant.as_mut().ok_or_else(no_lease)?;
    let on = session.keys.of(grant.resource)?;
    let (all, quorum) = (session.keys.len(), session.keys.quorum());
    let count = on.iter().filter(|keys| !keys.is_empty()).count();
    ensure!(
        count >= quorum,
        "it was granted, and a key whose name has `{}` in it is on {count} of {all} masters; a \
         majority is {quorum}. Take the masters from REDQUORUM_NODES",
        grant.resource
    );
    let key = on.iter().flatten().next().ok_or_else(no_lease)?;
    let name = shown(&text_of(&key.name));
    let Some(left) = key.ttl_ms else { return wrong!("the key `{name}` never expires") };
    ensure!(
        left <= grant.ttl_ms,
        "the key `{name}` lives for another {left} ms, and the request says {} ms",
        grant.ttl_ms
    );
    grant.value.clone_from(&key.value);
    fine(format!("`{name}` on {count} of {all} masters, with a TTL"))
}

pub(super) fn token(session: &mut Session) -> CheckResult {
    let grant = session.lease()?;
    let skipped = |why: &str| Fault::Skipped(why.to_owned());
    let token = grant.reply.token.as_ref();
    let token =
        token.ok_or_else(|| skipped("it gives none; with one, reports identify the clients"))?;
    let value = grant.value.as_deref().map(text_of);
    let value = value.ok_or_else(|| skipped("there is no value to compare it with"))?;
    ensure!(
        value == *token,
        "\"token\" is `{}`, and the value on the masters is `{}`: give that, as `hex:…` if it is \
         not plain text",
        shown(token),
        shown(&value)
    );
    fine("it is the value on the masters")
}

pub(super) fn taken(session: &mut Session) -> CheckResult {
    let op = acquire_op(session.lease()?.resource, 0);
    let reply = session.request("c2", op)?;
    ensure!(
        !reply.ok,
        "a second client of the process was granted what the first one holds: {reply}; \"client\" \
         names the client that asks, and each is a holder of its own, although the process is the \
         same"
    );
    ensure!(
        reply.why == Some(FailureReason::Taken),
        "a resource of another holder was refused as {reply}; that is no error: say \
         \"why\":\"taken\""
    );
    fine("a second client of the process is refused")
}

pub(super) fn wait(session: &mut Session) -> CheckResult {
    let resource = "check-wait";
    session.acquire(resource, OPTIONS.ttl_ms * 2)?;
    let waiting = session.peer.ask("c2", acquire_op(resource, 3000))?;
    if session.peer.is_answered(waiting, Duration::from_millis(300))? {
        let (reply, _) = session.peer.reply(waiting)?;
        session.release("c1", resource)?;
        return wrong!(
            "an acquire with a \"wait_ms\" of 3000 was answered at once: {reply}; wait while it is \
             taken, or do not say that you can `wait`"
        );
    }
    let step = session.peer.ask("c3", step_op(None))?;
    let stepped = session.peer.is_answered(step, Duration::from_secs(1))?;
    session.release("c1", resource)?;
    let (reply, _) = session.peer.reply(waiting)?;
    session.release("c2", resource)?;
    ensure!(
        stepped,
        "while one client waited for a lease, the step of another was not answered: requests run \
         concurrently, each in a thread or task of its own"
    );
    ensure!(reply.ok, "an acquire that waited was not granted after the holder's release: {reply}");
    fine("a waiter is granted after the release, other requests go on")
}
