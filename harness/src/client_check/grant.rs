//! Grant: the checks of acquire, and of the data in the reply.

use std::time::Duration;

use super::peer::Fault;
use super::{Grant, OPTIONS, Session, Verdict, acquire_op, cannot, fine, no_lease, text_of_reply};
use crate::client_protocol::{Capability, FailureReason, Op};
use crate::history::text_of;
use crate::process::shown;

impl Session {
    /// Acquires a free resource.
    pub(super) fn grant(
        &mut self,
        client: &str,
        resource: &str,
        ttl_ms: u64,
    ) -> Result<Grant, Fault> {
        let op = Op::Acquire { resource: resource.into(), ttl_ms, wait_ms: 0, again: false };
        let asked = self.peer.ask(client, op)?;
        let (reply, received) = self.peer.reply(asked)?;
        if reply.ok {
            let (resource, asked) = (resource.to_owned(), asked.at);
            return Ok(Grant { resource, ttl_ms, asked, received, reply, value: None });
        }
        wrong!("a free resource was not granted, with all masters up: {}", text_of_reply(&reply))
    }
}

pub(super) fn acquire(session: &mut Session) -> Result<Verdict, Fault> {
    let grant = session.grant("c1", "check", OPTIONS.ttl_ms)?;
    let took = Duration::from_nanos(u64::try_from(grant.received - grant.asked).unwrap_or(0));
    session.grant = Some(grant);
    fine(format!("a free resource is granted, in {took:.1?}"))
}

pub(super) fn stamps(session: &mut Session) -> Result<Verdict, Fault> {
    let Some(grant) = &session.grant else { return Ok(no_lease()) };
    let Some(at) = grant.reply.at_ns else {
        return wrong!(
            "the answer to an acquire has no \"at_ns\": read CLOCK_MONOTONIC right after the \
             library returned (Python: time.monotonic_ns(), C: clock_gettime)"
        );
    };
    for (name, stamp) in [("at_ns", Some(at)), ("from_ns", grant.reply.from_ns)] {
        if let Some(stamp) = stamp.filter(|stamp| !(grant.asked..=grant.received).contains(stamp)) {
            return wrong!(
                "\"{name}\" is {stamp}, but the call was between {} and {}{}; stamps are \
                 nanoseconds of CLOCK_MONOTONIC",
                grant.asked,
                grant.received,
                guess(stamp, grant)
            );
        }
    }
    match grant.reply.from_ns {
        Some(from) if from > at => wrong!(
            "\"from_ns\" ({from}) is later than \"at_ns\" ({at}): it is read just before the \
             library is called"
        ),
        Some(_) => fine("both lie within the call"),
        None => fine("at_ns lies within the call"),
    }
}

/// Checks the fencing tokens of successive leases of the same resource.
pub(super) fn fence(session: &mut Session) -> Result<Verdict, Fault> {
    if !session.can(Capability::Fence) {
        return Ok(cannot("fence"));
    }
    let mut tokens = Vec::new();
    for _ in 0..3 {
        let grant = session.grant("c1", "fenced", OPTIONS.ttl_ms)?;
        session.release("c1", "fenced")?;
        let Some(token) = grant.reply.fence else {
            return wrong!(
                "`fence` is in \"can\", options say `\"fencing\":true`, and the answer to an acquire \
                 has no \"fence\": say the lease's fencing token there"
            );
        };
        tokens.push(token);
    }
    if tokens.is_sorted_by(|one, next| one < next) {
        fine(format!("they grow: {tokens:?}"))
    } else {
        wrong!(
            "the fencing tokens of three leases of one resource, one after the other, are {tokens:?}: \
             each must be larger than the last"
        )
    }
}

/// The unit or clock that a wrong stamp may have instead.
fn guess(stamp: i64, grant: &Grant) -> &'static str {
    let near = |stamp: i64| (stamp - grant.received).abs() < 10_000_000_000;
    let wall = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    let wall = wall.tv_sec.saturating_mul(1_000_000_000).saturating_add(wall.tv_nsec);
    if (wall - stamp).abs() < 10_000_000_000 {
        " (that is the wall clock)"
    } else if near(stamp.saturating_mul(1000)) {
        " (those are microseconds)"
    } else if near(stamp.saturating_mul(1_000_000)) {
        " (those are milliseconds)"
    } else if near(stamp.saturating_mul(1_000_000_000)) {
        " (those are seconds)"
    } else {
        ""
    }
}

pub(super) fn deadline(session: &mut Session) -> Result<Verdict, Fault> {
    let claimed = session.can(Capability::Deadline);
    let Some(grant) = &session.grant else { return Ok(no_lease()) };
    let ttl = Duration::from_millis(grant.ttl_ms);
    let at = grant.reply.at_ns.unwrap_or(grant.received);
    match (grant.reply.deadline_ns, grant.reply.valid_ms) {
        (Some(deadline), _) if deadline <= at => wrong!(
            "\"deadline_ns\" is {deadline}, no later than the return of the library at {at}{}: a \
             lease that is over must be refused with \"why\":\"late\"",
            guess(deadline, grant)
        ),
        (Some(deadline), _) if deadline > crate::stamp::later(at, ttl) => {
            let late = Duration::from_nanos(u64::try_from(deadline - at).unwrap_or(0)) - ttl;
            wrong!(
                "\"deadline_ns\" is {deadline}, {late:?} beyond the return of the library plus the \
                 TTL{}: it is the start of the attempt, plus the TTL, minus the drift",
                guess(deadline, grant)
            )
        }
        (Some(deadline), _) => {
            let valid = Duration::from_nanos(u64::try_from(deadline - at).unwrap_or(0));
            fine(format!("{valid:.2?} ahead, of a TTL of {ttl:?}"))
        }
        (None, _) if claimed => {
            wrong!("it can `deadline`, and the answer to an acquire has no \"deadline_ns\"")
        }
        (None, Some(valid)) if valid == 0 || valid > grant.ttl_ms => wrong!(
            "\"valid_ms\" is {valid}, of a TTL of {}: say what is left of the lease, in \
             milliseconds, as the library returns",
            grant.ttl_ms
        ),
        (None, Some(valid)) => fine(format!("valid for {valid} ms, of a TTL of {ttl:?}")),
        (None, None) => wrong!(
            "the answer to an acquire has neither \"deadline_ns\" nor \"valid_ms\": the harness has \
             to know for how long the client believes in its lease"
        ),
    }
}

pub(super) fn keys(session: &mut Session) -> Result<Verdict, Fault> {
    let Some(grant) = &mut session.grant else { return Ok(no_lease()) };
    let on = session.keys.of(&grant.resource)?;
    let (all, quorum) = (session.keys.len(), session.keys.quorum());
    let count = on.iter().filter(|keys| !keys.is_empty()).count();
    if count < quorum {
        return wrong!(
            "it was granted, and a key whose name has `{}` in it is on {count} of {all} masters; \
             a majority is {quorum}. Take the masters from REDQUORUM_NODES",
            grant.resource
        );
    }
    let Some(key) = on.iter().flatten().next() else { return Ok(no_lease()) };
    let name = shown(&text_of(&key.name));
    match key.ttl_ms {
        None => wrong!("the key `{name}` never expires"),
        Some(left) if left > grant.ttl_ms => wrong!(
            "the key `{name}` lives for another {left} ms, and the request says {} ms",
            grant.ttl_ms
        ),
        Some(_) => {
            grant.value.clone_from(&key.value);
            fine(format!("`{name}` on {count} of {all} masters, with a TTL"))
        }
    }
}

pub(super) fn token(session: &mut Session) -> Result<Verdict, Fault> {
    let Some(grant) = &session.grant else { return Ok(no_lease()) };
    let Some(token) = &grant.reply.token else {
        return Ok(Verdict::Skipped(
            "it gives none; with one, reports identify the clients".to_owned(),
        ));
    };
    match &grant.value {
        None => Ok(Verdict::Skipped("there is no value to compare it with".to_owned())),
        Some(value) if text_of(value) == *token => fine("it is the value on the masters"),
        Some(value) => wrong!(
            "\"token\" is `{}`, and the value on the masters is `{}`: give that, as `hex:…` if it \
             is not plain text",
            shown(token),
            shown(&text_of(value))
        ),
    }
}

pub(super) fn taken(session: &mut Session) -> Result<Verdict, Fault> {
    let Some(resource) = session.grant.as_ref().map(|grant| grant.resource.clone()) else {
        return Ok(no_lease());
    };
    let op = acquire_op(&resource, 0);
    let reply = session.request("c2", op)?;
    match (reply.ok, reply.why) {
        (false, Some(FailureReason::Taken)) => fine("a second client of the process is refused"),
        (true, _) => wrong!(
            "a second client of the process was granted what the first one holds: {}; \"client\" \
             names the client that asks, and each is a holder of its own, although the process is the same",
            text_of_reply(&reply)
        ),
        (false, _) => wrong!(
            "a resource of another holder was refused as {}; that is no error: say \"why\":\"taken\"",
            text_of_reply(&reply)
        ),
    }
}

pub(super) fn wait(session: &mut Session) -> Result<Verdict, Fault> {
    if !session.can(Capability::Wait) {
        return Ok(cannot("wait"));
    }
    let resource = "check-wait".to_owned();
    session.grant("c1", &resource, OPTIONS.ttl_ms * 2)?;
    let op = acquire_op(&resource, 3000);
    let waiting = session.peer.ask("c2", op)?;
    if session.peer.is_answered(waiting, Duration::from_millis(300))? {
        let (reply, _) = session.peer.reply(waiting)?;
        session.release("c1", &resource)?;
        return wrong!(
            "an acquire with a \"wait_ms\" of 3000 was answered at once: {}; wait while it is \
             taken, or do not say that you can `wait`",
            text_of_reply(&reply)
        );
    }
    let step = Op::Step { name: "write R".into(), check: None };
    let step = session.peer.ask("c3", step)?;
    let stepped = session.peer.is_answered(step, Duration::from_secs(1))?;
    session.release("c1", &resource)?;
    let (reply, _) = session.peer.reply(waiting)?;
    session.release("c2", &resource)?;
    if !stepped {
        return wrong!(
            "while one client waited for a lease, the step of another was not answered: requests \
             run concurrently, each in a thread or task of its own"
        );
    }
    if reply.ok {
        return fine("a waiter is granted after the release, other requests go on");
    }
    wrong!(
        "an acquire that waited was not granted after the holder's release: {}",
        text_of_reply(&reply)
    )
}
