//! Dead masters: the checks with masters that do not run.

use std::time::{Duration, Instant};

use super::peer::Fault;
use super::{OPTIONS, Session, Verdict, acquire_op, fine, text_of_reply};
use crate::client_protocol::FailureReason;

/// How long an attempt may take while masters are dead, with the node timeout of its options.
const BOUND: Duration = Duration::from_secs(5);

/// How long a driver may take to find masters that run again.
const BACK: Duration = Duration::from_secs(10);

pub(super) fn no_quorum(session: &mut Session) -> Result<Verdict, Fault> {
    let dead = session.keys.kill_a_majority()?;
    let all = session.keys.len();
    let resource = "check-no-quorum".to_owned();
    let op = acquire_op(&resource, 0);
    let asked = session.peer.ask("c1", op)?;
    let (reply, received) = session.peer.answer_within(asked, BOUND)?;
    let took = Duration::from_nanos(u64::try_from(received - asked.at).unwrap_or(0));
    match (reply.ok, reply.why) {
        (false, Some(FailureReason::NoQuorum)) => {
            fine(format!("with {dead} of {all} masters dead, in {took:.1?}"))
        }
        (true, _) => {
            wrong!(
                "with {dead} of {all} masters dead a lease was granted: {}",
                text_of_reply(&reply)
            )
        }
        // Some libraries do not tell the two apart, which is no mistake of the driver.
        (false, _) => Ok(Verdict::Skipped(format!(
            "with {dead} of {all} masters dead an acquire was answered {}; if the library reports \
             that too few masters replied, answer \"why\":\"no-quorum\"",
            text_of_reply(&reply)
        ))),
    }
}

pub(super) fn recovery(session: &mut Session) -> Result<Verdict, Fault> {
    session.keys.restart()?;
    let start = Instant::now();
    loop {
        match session.grant("c1", "check-recovery", OPTIONS.ttl_ms) {
            Ok(grant) => {
                session.release("c1", &grant.resource)?;
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
