//! Conformance: the checks of the client protocol, independent of locks, and those with masters
//! that do not run.

use std::time::{Duration, Instant};

use super::peer::{ANSWER, Fault};
use super::{CheckResult, OPTIONS, Session, acquire_op, fine, step_op};
use redquorum_scenario::client_protocol::shown;
use redquorum_scenario::client_protocol::{Capability, FailureReason, Op, PROTOCOL};

/// The time limit for a reply that needs no master. A scenario needs it sooner; the rest is for
/// busy machines.
const AT_ONCE: Duration = Duration::from_secs(1);
/// How long a driver may take to end.
const END: Duration = Duration::from_secs(2);
/// How long an attempt may take while masters are dead, with the node timeout of its options.
const BOUND: Duration = Duration::from_secs(5);
/// How long a driver may take to find masters that run again.
const BACK: Duration = Duration::from_secs(10);

pub(super) fn ready(session: &mut Session) -> CheckResult {
    let Some(line) = session.peer.first_line()? else {
        return Err(Fault::Over(format!(
            "no line was printed within {ANSWER:?}; print \
             {{\"event\":\"ready\",\"protocol\":{PROTOCOL},\"can\":[]}} once the lock \
             is built, and flush standard output"
        )));
    };
    let over = |why: String| Fault::Over(format!("`{}`: {why}", shown(&line)));
    let value: serde_json::Value =
        serde_json::from_str(&line).map_err(|why| over(format!("it is not JSON: {why}")))?;
    if value["event"] != "ready" {
        return Err(over("the first line must be {\"event\":\"ready\",…}".to_owned()));
    }
    if value["protocol"] != PROTOCOL {
        return Err(over(format!(
            "say \"protocol\":{PROTOCOL}, which is what this harness speaks"
        )));
    }
    let claims = match value.get("can") {
        None => Vec::new(),
        Some(serde_json::Value::Array(claims)) => claims.clone(),
        Some(_) => return Err(over("\"can\" must be a list of words".to_owned())),
    };
    let mut unknown = Vec::new();
    for claim in claims {
        match serde_json::from_value(claim.clone()) {
            Ok(can) => session.can.push(can),
            Err(_) => unknown.push(claim.to_string()),
        }
    }
    let words =
        |all: &[Capability]| all.iter().map(|can| can.name()).collect::<Vec<_>>().join(", ");
    ensure!(
        unknown.is_empty(),
        "it can {}, which the protocol does not have; it has {}",
        shown(&unknown.join(", ")),
        words(&Capability::ALL)
    );
    let name = value["name"].as_str().unwrap_or("it gives no name");
    fine(format!("{}; can {}", shown(name), words(&session.can)))
}

pub(super) fn step(session: &mut Session) -> CheckResult {
    let asked = session.peer.ask("c1", step_op(None))?;
    let (reply, _) = session.peer.answer_within(asked, AT_ONCE)?;
    ensure!(
        reply.ok,
        "a step without a check was refused: {reply}; answer {{\"id\":{},\"ok\":true}} at once, \
         whatever is held: the harness wants to see what a holder does that does not look",
        asked.id
    );
    fine("without a check it is answered at once")
}

pub(super) fn cancel(session: &mut Session) -> CheckResult {
    let resource = "check-cancel";
    let held = session.request("c1", acquire_op(resource, 0))?;
    ensure!(held.ok, "a free resource was refused: {held}");
    let waiting = session.peer.ask("c2", acquire_op(resource, OPTIONS.ttl_ms * 4))?;
    session.peer.pass(Duration::from_millis(100))?;
    let cancel = session.peer.ask("c2", Op::Cancel { request: waiting.id })?;
    let (cancelled, _) = session.peer.answer_within(cancel, AT_ONCE)?;
    let waited = session.peer.answer_within(waiting, AT_ONCE);
    session.release("c1", resource)?;
    let (waited, _) = waited?;
    ensure!(
        cancelled.ok,
        "the cancel was answered {cancelled}; the cancel itself is answered with \"ok\":true, and \
         the request that it names with \"why\":\"cancelled\""
    );
    ensure!(
        waited.why == Some(FailureReason::Cancelled),
        "an acquire that waited was cancelled and then answered {waited}; answer it with \
         \"ok\":false and \"why\":\"cancelled\", and give up what it may have set"
    );
    let left = session.keys.gone(resource)?;
    ensure!(
        left == 0,
        "after the cancel and the release of the holder a key is left on {left} masters: an \
         attempt that is given up must clean up, too"
    );
    fine("both requests are answered, and no key is left")
}

pub(super) fn unknown(session: &mut Session) -> CheckResult {
    let id = session.peer.next_id();
    let line = format!("{{\"id\":{id},\"client\":\"c1\",\"op\":\"somersault\"}}");
    let asked = session.peer.ask_raw("somersault", &line)?;
    let (reply, _) = session.peer.reply(asked)?;
    ensure!(
        !reply.ok && reply.why == Some(FailureReason::Unsupported),
        "an op that does not exist was answered {reply}; say {{\"id\":{id},\"ok\":false,\
         \"why\":\"unsupported\"}} to whatever is not known: the protocol may grow"
    );
    fine("an op that it does not know is answered")
}

pub(super) fn end(session: &mut Session) -> CheckResult {
    match session.peer.hang_up(END) {
        Some(exit) => fine(exit),
        None => wrong!(
            "its standard input ended, and {END:?} later it still runs; end then, at once and \
             without cleaning up"
        ),
    }
}

pub(super) fn no_quorum(session: &mut Session) -> CheckResult {
    let dead = session.keys.kill_a_majority()?;
    let all = session.keys.len();
    let asked = session.peer.ask("c1", acquire_op("check-no-quorum", 0))?;
    let (reply, received) = session.peer.answer_within(asked, BOUND)?;
    let took = Duration::from_nanos(u64::try_from(received - asked.at).unwrap_or(0));
    ensure!(!reply.ok, "with {dead} of {all} masters dead a lease was granted: {reply}");
    if reply.why == Some(FailureReason::NoQuorum) {
        return fine(format!("with {dead} of {all} masters dead, in {took:.1?}"));
    }
    // Some libraries do not tell the two apart, which is no mistake of the driver.
    Err(Fault::Skipped(format!(
        "with {dead} of {all} masters dead an acquire was answered {reply}; if the library reports \
         that too few masters replied, answer \"why\":\"no-quorum\""
    )))
}

pub(super) fn recovery(session: &mut Session) -> CheckResult {
    session.keys.restart()?;
    let start = Instant::now();
    loop {
        match session.acquire("check-recovery", OPTIONS.ttl_ms) {
            Ok(grant) => {
                session.release("c1", grant.resource)?;
                let took = start.elapsed();
                return fine(format!("{took:.1?} after they came back it is granted"));
            }
            Err(Fault::Wrong(why)) if start.elapsed() > BACK => {
                return wrong!("{BACK:?} after its masters came back: {why}; connect again");
            }
            Err(Fault::Wrong(_)) => session.peer.pass(Duration::from_millis(100))?,
            Err(other) => return Err(other),
        }
    }
}
