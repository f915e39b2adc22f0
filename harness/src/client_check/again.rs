//! Again: the check of re-entry, in which a client acquires a resource that it holds.

use std::time::Duration;

use super::peer::Fault;
use super::{Session, Verdict, cannot, said};
use crate::client_protocol::{Answer, Capability, Op};

const TTL_MS: u64 = 2000;

pub(super) fn again(session: &mut Session) -> Result<Verdict, Fault> {
    if !session.can(Capability::Reenter) {
        return Ok(cannot("reenter"));
    }
    let resource = "check-again".to_owned();
    let grant = session.grant("c1", &resource, TTL_MS)?;
    session.talker.pass(Duration::from_millis(50))?;
    let op = Op::Acquire { resource: resource.as_str().into(), ttl_ms: 0, wait_ms: 0, again: true };
    let second = ask(session, op)?;
    let moved = second.deadline_ns != grant.answer.deadline_ns;
    let first_release = ask(session, Op::Release { resource: resource.as_str().into() })?;
    let left = session.keys.of(&resource)?.iter().filter(|keys| !keys.is_empty()).count();
    let last_release = ask(session, Op::Release { resource: resource.as_str().into() })?;
    let wrong = |what: String| Err(Fault::FailedSchedule(what));
    if !second.ok || second.handles != Some(2) {
        return wrong(format!(
            "a client that holds `{resource}` acquired it \"again\", and the answer is not \"ok\" with \
             \"handles\":2, but {}",
            said(&second)
        ));
    }
    if moved && session.can(Capability::Deadline) {
        return wrong(format!(
            "it was acquired \"again\" with \"ttl_ms\":0, so the deadline stands; told was another: {}",
            said(&second)
        ));
    }
    if !first_release.ok || first_release.handles != Some(1) {
        return wrong(format!(
            "one of two handles was released, and the answer is not \"ok\" with \"handles\":1, but {}",
            said(&first_release)
        ));
    }
    if left < session.keys.quorum() {
        return wrong(format!(
            "one of two handles was released, and only {left} masters have the key yet: delete it with \
             the last one"
        ));
    }
    if !last_release.ok || session.keys.gone(&resource, Duration::from_secs(1))? > 0 {
        return wrong(format!(
            "the last handle was released, and the key is still there, or the answer is not \"ok\": {}",
            said(&last_release)
        ));
    }
    Ok(Verdict::Ok("two handles of one lease, which ended with the last".to_owned()))
}

fn ask(session: &mut Session, op: Op) -> Result<Answer, Fault> {
    let asked = session.talker.ask("c1", op)?;
    session.talker.answer(asked).map(|(answer, _)| answer)
}
