//! Grant: the checks of acquire, and of the data in the answer.

use std::time::Duration;

use super::peer::Fault;
use super::{Grant, OPTIONS, Session, Verdict, cannot, no_lease, said};
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
        let asked = self.talker.ask(client, op)?;
        let (answer, heard) = self.talker.answer(asked)?;
        if answer.ok {
            let (resource, asked) = (resource.to_owned(), asked.at);
            return Ok(Grant { resource, ttl_ms, asked, heard, answer, value: None });
        }
        Err(Fault::FailedSchedule(format!(
            "a free resource was not granted, with all masters up: {}",
            said(&answer)
        )))
    }

    /// Releases a resource, and ignores the result of the release: other checks examine that.
    pub(super) fn give_back(&mut self, client: &str, resource: &str) -> Result<(), Fault> {
        let asked = self.talker.ask(client, Op::Release { resource: resource.into() })?;
        self.talker.answer(asked).map(drop)
    }
}

pub(super) fn acquire(session: &mut Session) -> Result<Verdict, Fault> {
    let grant = session.grant("c1", "check", OPTIONS.ttl_ms)?;
    let took = Duration::from_nanos(u64::try_from(grant.heard - grant.asked).unwrap_or(0));
    session.grant = Some(grant);
    Ok(Verdict::Ok(format!("a free resource is granted, in {took:.1?}")))
}

pub(super) fn stamps(session: &mut Session) -> Result<Verdict, Fault> {
    let Some(grant) = &session.grant else { return Ok(no_lease()) };
    let Some(at) = grant.answer.at_ns else {
        return Err(Fault::FailedSchedule(
            "the answer to an acquire has no \"at_ns\": read CLOCK_MONOTONIC right after the \
             library returned (Python: time.monotonic_ns(), C: clock_gettime)"
                .to_owned(),
        ));
    };
    for (name, stamp) in [("at_ns", Some(at)), ("from_ns", grant.answer.from_ns)] {
        if let Some(stamp) = stamp.filter(|stamp| !(grant.asked..=grant.heard).contains(stamp)) {
            return Err(Fault::FailedSchedule(format!(
                "\"{name}\" is {stamp}, but the call was between {} and {}{}; stamps are \
                 nanoseconds of CLOCK_MONOTONIC",
                grant.asked,
                grant.heard,
                guess(stamp, grant)
            )));
        }
    }
    match grant.answer.from_ns {
        Some(from) if from > at => Err(Fault::FailedSchedule(format!(
            "\"from_ns\" ({from}) is later than \"at_ns\" ({at}): it is read just before the \
             library is called"
        ))),
        Some(_) => Ok(Verdict::Ok("both lie within the call".to_owned())),
        None => Ok(Verdict::Ok("at_ns lies within the call".to_owned())),
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
        session.give_back("c1", "fenced")?;
        let Some(token) = grant.answer.fence else {
            return Err(Fault::FailedSchedule(
                "`fence` is in \"can\", options say `\"fencing\":true`, and the answer to an acquire \
                 has no \"fence\": say the lease's fencing token there"
                    .to_owned(),
            ));
        };
        tokens.push(token);
    }
    if tokens.is_sorted_by(|one, next| one < next) {
        Ok(Verdict::Ok(format!("they grow: {tokens:?}")))
    } else {
        Err(Fault::FailedSchedule(format!(
            "the fencing tokens of three leases of one resource, one after the other, are {tokens:?}: \
             each must be larger than the last"
        )))
    }
}

/// The unit or clock that a wrong stamp may have instead.
fn guess(stamp: i64, grant: &Grant) -> &'static str {
    let near = |stamp: i64| (stamp - grant.heard).abs() < 10_000_000_000;
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
    let at = grant.answer.at_ns.unwrap_or(grant.heard);
    match (grant.answer.deadline_ns, grant.answer.valid_ms) {
        (Some(deadline), _) if deadline <= at => Err(Fault::FailedSchedule(format!(
            "\"deadline_ns\" is {deadline}, no later than the return of the library at {at}{}: a \
             lease that is over must be refused with \"why\":\"late\"",
            guess(deadline, grant)
        ))),
        (Some(deadline), _) if deadline > crate::stamp::later(at, ttl) => {
            let late = Duration::from_nanos(u64::try_from(deadline - at).unwrap_or(0)) - ttl;
            Err(Fault::FailedSchedule(format!(
                "\"deadline_ns\" is {deadline}, {late:?} beyond the return of the library plus the \
                 TTL{}: it is the start of the attempt, plus the TTL, minus the drift",
                guess(deadline, grant)
            )))
        }
        (Some(deadline), _) => {
            let valid = Duration::from_nanos(u64::try_from(deadline - at).unwrap_or(0));
            Ok(Verdict::Ok(format!("{valid:.2?} ahead, of a TTL of {ttl:?}")))
        }
        (None, _) if claimed => Err(Fault::FailedSchedule(
            "it can `deadline`, and the answer to an acquire has no \"deadline_ns\"".to_owned(),
        )),
        (None, Some(valid)) if valid == 0 || valid > grant.ttl_ms => Err(Fault::FailedSchedule(format!(
            "\"valid_ms\" is {valid}, of a TTL of {}: say what is left of the lease, in \
             milliseconds, as the library returns",
            grant.ttl_ms
        ))),
        (None, Some(valid)) => Ok(Verdict::Ok(format!("valid for {valid} ms, of a TTL of {ttl:?}"))),
        (None, None) => Err(Fault::FailedSchedule(
            "the answer to an acquire has neither \"deadline_ns\" nor \"valid_ms\": the harness has \
             to know for how long the client believes in its lease"
                .to_owned(),
        )),
    }
}

pub(super) fn keys(session: &mut Session) -> Result<Verdict, Fault> {
    let Some(grant) = &mut session.grant else { return Ok(no_lease()) };
    let on = session.keys.of(&grant.resource)?;
    let (all, quorum) = (session.keys.len(), session.keys.quorum());
    let count = on.iter().filter(|keys| !keys.is_empty()).count();
    if count < quorum {
        return Err(Fault::FailedSchedule(format!(
            "it was granted, and a key whose name has `{}` in it is on {count} of {all} masters; \
             a majority is {quorum}. Take the masters from REDQUORUM_NODES",
            grant.resource
        )));
    }
    let Some(key) = on.iter().flatten().next() else { return Ok(no_lease()) };
    let name = shown(&text_of(&key.name));
    match key.ttl_ms {
        None => Err(Fault::FailedSchedule(format!("the key `{name}` never expires"))),
        Some(left) if left > grant.ttl_ms => Err(Fault::FailedSchedule(format!(
            "the key `{name}` lives for another {left} ms, and the request says {} ms",
            grant.ttl_ms
        ))),
        Some(_) => {
            grant.value.clone_from(&key.value);
            Ok(Verdict::Ok(format!("`{name}` on {count} of {all} masters, with a TTL")))
        }
    }
}

pub(super) fn token(session: &mut Session) -> Result<Verdict, Fault> {
    let Some(grant) = &session.grant else { return Ok(no_lease()) };
    let Some(token) = &grant.answer.token else {
        return Ok(Verdict::Skipped("it gives none; with one, reports say who is who".to_owned()));
    };
    match &grant.value {
        None => Ok(Verdict::Skipped("there is no value to compare it with".to_owned())),
        Some(value) if text_of(value) == *token => {
            Ok(Verdict::Ok("it is the value on the masters".to_owned()))
        }
        Some(value) => Err(Fault::FailedSchedule(format!(
            "\"token\" is `{}`, and the value on the masters is `{}`: give that, as `hex:…` if it \
             is not plain text",
            shown(token),
            shown(&text_of(value))
        ))),
    }
}

pub(super) fn taken(session: &mut Session) -> Result<Verdict, Fault> {
    let Some(resource) = session.grant.as_ref().map(|grant| grant.resource.clone()) else {
        return Ok(no_lease());
    };
    let op =
        Op::Acquire { resource: resource.into(), ttl_ms: OPTIONS.ttl_ms, wait_ms: 0, again: false };
    let asked = session.talker.ask("c2", op)?;
    let (answer, _) = session.talker.answer(asked)?;
    match (answer.ok, answer.why) {
        (false, Some(FailureReason::Taken)) => {
            Ok(Verdict::Ok("a second client of the process is refused".to_owned()))
        }
        (true, _) => Err(Fault::FailedSchedule(format!(
            "a second client of the process was granted what the first one holds: {}; \"client\" \
             says who asks, and each is a holder of its own, although the process is the same",
            said(&answer)
        ))),
        (false, _) => Err(Fault::FailedSchedule(format!(
            "what somebody else holds was refused as {}; that is no error: say \"why\":\"taken\"",
            said(&answer)
        ))),
    }
}

pub(super) fn wait(session: &mut Session) -> Result<Verdict, Fault> {
    if !session.can(Capability::Wait) {
        return Ok(cannot("wait"));
    }
    let resource = "check-wait".to_owned();
    session.grant("c1", &resource, OPTIONS.ttl_ms * 2)?;
    let op = Op::Acquire {
        resource: resource.as_str().into(),
        ttl_ms: OPTIONS.ttl_ms,
        wait_ms: 3000,
        again: false,
    };
    let waiting = session.talker.ask("c2", op)?;
    if session.talker.is_answered(waiting, Duration::from_millis(300))? {
        let (answer, _) = session.talker.answer(waiting)?;
        session.give_back("c1", &resource)?;
        return Err(Fault::FailedSchedule(format!(
            "an acquire with a \"wait_ms\" of 3000 was answered at once: {}; wait while it is \
             taken, or do not say that you can `wait`",
            said(&answer)
        )));
    }
    let step = Op::Step { name: "write R".into(), check: None };
    let step = session.talker.ask("c3", step)?;
    let stepped = session.talker.is_answered(step, Duration::from_secs(1))?;
    session.give_back("c1", &resource)?;
    let (answer, _) = session.talker.answer(waiting)?;
    session.give_back("c2", &resource)?;
    if !stepped {
        return Err(Fault::FailedSchedule(
            "while one client waited for a lease, the step of another was not answered: requests \
             run concurrently, each in a thread or task of its own"
                .to_owned(),
        ));
    }
    if answer.ok {
        return Ok(Verdict::Ok("who waits is granted after the release, others go on".to_owned()));
    }
    Err(Fault::FailedSchedule(format!(
        "an acquire that waited was not granted after the holder's release: {}",
        said(&answer)
    )))
}
