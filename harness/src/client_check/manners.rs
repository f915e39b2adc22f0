//! Conformance: the checks of the client protocol, independent of locks.

use std::time::Duration;

use super::peer::{ANSWER, Fault};
use super::{OPTIONS, Session, Verdict, cannot, said, shown};
use crate::client_protocol::{Capability, FailureReason, Op, PROTOCOL};

/// The time limit for an answer that needs no master. A scenario needs it sooner; the rest is for
/// busy machines.
const AT_ONCE: Duration = Duration::from_secs(1);

/// How long a driver may take to end.
const END: Duration = Duration::from_secs(2);

pub(super) fn ready(session: &mut Session) -> Result<Verdict, Fault> {
    let Some(line) = session.talker.first_line()? else {
        return Err(Fault::Over(format!(
            "nothing was said within {ANSWER:?}; print {{\"event\":\"ready\",\"protocol\":{PROTOCOL},\
             \"can\":[]}} once the lock is built, and flush standard output"
        )));
    };
    let wrong = |why: String| Err(Fault::Over(format!("`{}`: {why}", shown(&line))));
    let value: serde_json::Value = match serde_json::from_str(&line) {
        Ok(value) => value,
        Err(why) => return wrong(format!("it is not JSON: {why}")),
    };
    if value.get("event").and_then(|event| event.as_str()) != Some("ready") {
        return wrong("the first line must be {\"event\":\"ready\",…}".to_owned());
    }
    if value.get("protocol").and_then(serde_json::Value::as_u64) != Some(PROTOCOL.into()) {
        return wrong(format!("say \"protocol\":{PROTOCOL}, which is what this harness speaks"));
    }
    let claims = match value.get("can") {
        None => Vec::new(),
        Some(serde_json::Value::Array(claims)) => claims.clone(),
        Some(_) => return wrong("\"can\" must be a list of words".to_owned()),
    };
    let mut unknown = Vec::new();
    for claim in claims {
        match serde_json::from_value::<Capability>(claim.clone()) {
            Ok(can) => session.can.push(can),
            Err(_) => unknown.push(claim.to_string()),
        }
    }
    if unknown.is_empty() {
        let name = value.get("name").and_then(|name| name.as_str()).unwrap_or("it gives no name");
        let can: Vec<String> = session.can.iter().filter_map(|can| word(*can)).collect();
        return Ok(Verdict::Ok(format!("{}; can {}", shown(name), can.join(", "))));
    }
    let known: Vec<String> = Capability::ALL.into_iter().filter_map(word).collect();
    Err(Fault::FailedSchedule(format!(
        "it can {}, which the protocol does not have; it has {}",
        shown(&unknown.join(", ")),
        known.join(", ")
    )))
}

fn word(can: Capability) -> Option<String> {
    Some(serde_json::to_value(can).ok()?.as_str()?.to_owned())
}

pub(super) fn step(session: &mut Session) -> Result<Verdict, Fault> {
    let op = Op::Step { name: "write R".into(), check: None };
    let asked = session.talker.ask("c1", op)?;
    let (answer, _) = session.talker.answer_within(asked, AT_ONCE)?;
    if answer.ok {
        return Ok(Verdict::Ok("without a check it is answered at once".to_owned()));
    }
    Err(Fault::FailedSchedule(format!(
        "a step without a check was refused: {}; answer {{\"id\":{},\"ok\":true}} at once, whatever \
         is held: the harness wants to see what a holder does that does not look",
        said(&answer),
        asked.id
    )))
}

pub(super) fn cancel(session: &mut Session) -> Result<Verdict, Fault> {
    for (can, name) in [(Capability::Wait, "wait"), (Capability::Cancel, "cancel")] {
        if !session.can(can) {
            return Ok(cannot(name));
        }
    }
    let resource = "check-cancel".to_owned();
    let ttl_ms = OPTIONS.ttl_ms;
    let acquire =
        |wait_ms| Op::Acquire { resource: resource.as_str().into(), ttl_ms, wait_ms, again: false };
    let held = session.talker.ask("c1", acquire(0))?;
    let (held, _) = session.talker.answer(held)?;
    if !held.ok {
        return Err(Fault::FailedSchedule(format!("a free resource was refused: {}", said(&held))));
    }
    let waiting = session.talker.ask("c2", acquire(ttl_ms * 4))?;
    session.talker.pass(Duration::from_millis(100))?;
    let cancel = session.talker.ask("c2", Op::Cancel { request: waiting.id })?;
    let (cancelled, _) = session.talker.answer_within(cancel, AT_ONCE)?;
    let waited = session.talker.answer_within(waiting, AT_ONCE);
    let release = session.talker.ask("c1", Op::Release { resource: resource.as_str().into() })?;
    session.talker.answer(release)?;
    let (waited, _) = waited?;
    if !cancelled.ok {
        return Err(Fault::FailedSchedule(format!(
            "the cancel was answered {}; the cancel itself is answered with \"ok\":true, and the \
             request that it names with \"why\":\"cancelled\"",
            said(&cancelled)
        )));
    }
    if waited.why != Some(FailureReason::Cancelled) {
        return Err(Fault::FailedSchedule(format!(
            "an acquire that waited was cancelled and then answered {}; answer it with \"ok\":false \
             and \"why\":\"cancelled\", and give up what it may have set",
            said(&waited)
        )));
    }
    match session.keys.gone(&resource, Duration::from_secs(1))? {
        0 => Ok(Verdict::Ok("both requests are answered, and no key is left".to_owned())),
        left => Err(Fault::FailedSchedule(format!(
            "after the cancel and the release of the holder a key is left on {left} masters: an \
             attempt that is given up must clean up, too"
        ))),
    }
}

pub(super) fn unknown(session: &mut Session) -> Result<Verdict, Fault> {
    let id = session.talker.next_id();
    let line = format!("{{\"id\":{id},\"client\":\"c1\",\"op\":\"somersault\"}}");
    let asked = session.talker.ask_raw("somersault", &line)?;
    let (answer, _) = session.talker.answer(asked)?;
    if !answer.ok && answer.why == Some(FailureReason::Unsupported) {
        return Ok(Verdict::Ok("an op that it does not know is answered".to_owned()));
    }
    Err(Fault::FailedSchedule(format!(
        "an op that does not exist was answered {}; say {{\"id\":{id},\"ok\":false,\
         \"why\":\"unsupported\"}} to whatever is not known: the protocol may grow",
        said(&answer)
    )))
}

pub(super) fn end(session: &mut Session) -> Result<Verdict, Fault> {
    match session.talker.hang_up(END) {
        Some(exit) => Ok(Verdict::Ok(exit)),
        None => Err(Fault::FailedSchedule(format!(
            "its standard input ended, and {END:?} later it still runs; end then, at once and \
             without cleaning up"
        ))),
    }
}
