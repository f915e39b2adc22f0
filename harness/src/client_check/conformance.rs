//! Conformance: the checks of the client protocol, independent of locks.

use std::time::Duration;

use super::peer::{ANSWER, Fault};
use super::{OPTIONS, Session, Verdict, acquire_op, cannot, fine, shown, text_of_reply};
use crate::client_protocol::{Capability, FailureReason, Op, PROTOCOL};

/// The time limit for a reply that needs no master. A scenario needs it sooner; the rest is for
/// busy machines.
const AT_ONCE: Duration = Duration::from_secs(1);

/// How long a driver may take to end.
const END: Duration = Duration::from_secs(2);

pub(super) fn ready(session: &mut Session) -> Result<Verdict, Fault> {
    let Some(line) = session.peer.first_line()? else {
        return Err(Fault::Over(format!(
            "no line was printed within {ANSWER:?}; print \
             {{\"event\":\"ready\",\"protocol\":{PROTOCOL},\"can\":[]}} once the lock \
             is built, and flush standard output"
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
        return fine(format!("{}; can {}", shown(name), can.join(", ")));
    }
    let known: Vec<String> = Capability::ALL.into_iter().filter_map(word).collect();
    wrong!(
        "it can {}, which the protocol does not have; it has {}",
        shown(&unknown.join(", ")),
        known.join(", ")
    )
}

fn word(can: Capability) -> Option<String> {
    Some(serde_json::to_value(can).ok()?.as_str()?.to_owned())
}

pub(super) fn step(session: &mut Session) -> Result<Verdict, Fault> {
    let op = Op::Step { name: "write R".into(), check: None };
    let asked = session.peer.ask("c1", op)?;
    let (reply, _) = session.peer.answer_within(asked, AT_ONCE)?;
    if reply.ok {
        return fine("without a check it is answered at once");
    }
    wrong!(
        "a step without a check was refused: {}; answer {{\"id\":{},\"ok\":true}} at once, whatever \
         is held: the harness wants to see what a holder does that does not look",
        text_of_reply(&reply),
        asked.id
    )
}

pub(super) fn cancel(session: &mut Session) -> Result<Verdict, Fault> {
    for (can, name) in [(Capability::Wait, "wait"), (Capability::Cancel, "cancel")] {
        if !session.can(can) {
            return Ok(cannot(name));
        }
    }
    let resource = "check-cancel".to_owned();
    let held = session.request("c1", acquire_op(&resource, 0))?;
    if !held.ok {
        return wrong!("a free resource was refused: {}", text_of_reply(&held));
    }
    let waiting = session.peer.ask("c2", acquire_op(&resource, OPTIONS.ttl_ms * 4))?;
    session.peer.pass(Duration::from_millis(100))?;
    let cancel = session.peer.ask("c2", Op::Cancel { request: waiting.id })?;
    let (cancelled, _) = session.peer.answer_within(cancel, AT_ONCE)?;
    let waited = session.peer.answer_within(waiting, AT_ONCE);
    session.release("c1", &resource)?;
    let (waited, _) = waited?;
    if !cancelled.ok {
        return wrong!(
            "the cancel was answered {}; the cancel itself is answered with \"ok\":true, and the \
             request that it names with \"why\":\"cancelled\"",
            text_of_reply(&cancelled)
        );
    }
    if waited.why != Some(FailureReason::Cancelled) {
        return wrong!(
            "an acquire that waited was cancelled and then answered {}; answer it with \"ok\":false \
             and \"why\":\"cancelled\", and give up what it may have set",
            text_of_reply(&waited)
        );
    }
    match session.keys.gone(&resource, Duration::from_secs(1))? {
        0 => fine("both requests are answered, and no key is left"),
        left => wrong!(
            "after the cancel and the release of the holder a key is left on {left} masters: an \
             attempt that is given up must clean up, too"
        ),
    }
}

pub(super) fn unknown(session: &mut Session) -> Result<Verdict, Fault> {
    let id = session.peer.next_id();
    let line = format!("{{\"id\":{id},\"client\":\"c1\",\"op\":\"somersault\"}}");
    let asked = session.peer.ask_raw("somersault", &line)?;
    let (reply, _) = session.peer.reply(asked)?;
    if !reply.ok && reply.why == Some(FailureReason::Unsupported) {
        return fine("an op that it does not know is answered");
    }
    wrong!(
        "an op that does not exist was answered {}; say {{\"id\":{id},\"ok\":false,\
         \"why\":\"unsupported\"}} to whatever is not known: the protocol may grow",
        text_of_reply(&reply)
    )
}

pub(super) fn end(session: &mut Session) -> Result<Verdict, Fault> {
    match session.peer.hang_up(END) {
        Some(exit) => fine(exit),
        None => wrong!(
            "its standard input ended, and {END:?} later it still runs; end then, at once and \
             without cleaning up"
        ),
    }
}
