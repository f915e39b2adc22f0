//! Dead masters: the checks with masters that do not run.

use std::time::{Duration, Instant};

use super::peer::Fault;
use super::{OPTIONS, Session, Verdict, said};
use crate::client_protocol::{FailureReason, Op};

/// How long an attempt may take while masters are dead, with the node timeout of its options.
const BOUND: Duration = Duration::from_secs(5);

/// How long a driver may take to find masters that run again.
const BACK: Duration = Duration::from_secs(10);

pub(super) fn no_quorum(session: &mut Session) -> Result<Verdict, Fault> {
    let dead = session.keys.kill_a_majority()?;
    let all = session.keys.len();
    let resource = "check-no-quorum".to_owned();
    let op =
        Op::Acquire { resource: resource.into(), ttl_ms: OPTIONS.ttl_ms, wait_ms: 0, again: false };
    let asked = session.talker.ask("c1", op)?;
    let (answer, heard) = session.talker.answer_within(asked, BOUND)?;
    let took = Duration::from_nanos(u64::try_from(heard - asked.at).unwrap_or(0));
    match (answer.ok, answer.why) {
        (false, Some(FailureReason::NoQuorum)) => {
            Ok(Verdict::Ok(format!("with {dead} of {all} masters dead, in {took:.1?}")))
        }
        (true, _) => Err(Fault::FailedSchedule(format!(
            "with {dead} of {all} masters dead a lease was granted: {}",
            said(&answer)
        ))),
        // Some libraries do not tell the two apart, which is no mistake of the driver.
        (false, _) => Ok(Verdict::Skipped(format!(
            "with {dead} of {all} masters dead an acquire was answered {}; if the library reports \
             that too few masters replied, answer \"why\":\"no-quorum\"",
            said(&answer)
        ))),
    }
}

pub(super) fn recovery(session: &mut Session) -> Result<Verdict, Fault> {
    session.keys.restart()?;
    let start = Instant::now();
    loop {
        match session.grant("c1", "check-recovery", OPTIONS.ttl_ms) {
            Ok(grant) => {
                session.give_back("c1", &grant.resource)?;
                let took = start.elapsed();
                return Ok(Verdict::Ok(format!("{took:.1?} after they came back it is granted")));
            }
            Err(Fault::FailedSchedule(why)) if start.elapsed() > BACK => {
                return Err(Fault::FailedSchedule(format!(
                    "{BACK:?} after its masters came back: {why}; connect again"
                )));
            }
            Err(Fault::FailedSchedule(_)) => session.talker.pass(Duration::from_millis(100))?,
            Err(other) => return Err(other),
        }
    }
}
