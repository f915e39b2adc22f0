//! Again: the check of re-entry, in which a client acquires a resource that it holds.

use std::time::Duration;

use super::peer::Fault;
use super::{Session, Verdict, cannot, fine, text_of_reply};
use crate::client_protocol::{Capability, Op};

const TTL_MS: u64 = 2000;

pub(super) fn again(session: &mut Session) -> Result<Verdict, Fault> {
    if !session.can(Capability::Reenter) {
        return Ok(cannot("reenter"));
    }
    let resource = "check-again".to_owned();
    let grant = session.grant("c1", &resource, TTL_MS)?;
    session.peer.pass(Duration::from_millis(50))?;
    let op = Op::Acquire { resource: resource.as_str().into(), ttl_ms: 0, wait_ms: 0, again: true };
    let second = session.request("c1", op)?;
    let moved = second.deadline_ns != grant.reply.deadline_ns;
    let first_release = session.release("c1", &resource)?;
    let left = session.keys.of(&resource)?.iter().filter(|keys| !keys.is_empty()).count();
    let last_release = session.release("c1", &resource)?;
    if !second.ok || second.handles != Some(2) {
        return wrong!(
            "a client that holds `{resource}` acquired it \"again\", and the answer is not \"ok\" with \
             \"handles\":2, but {}",
            text_of_reply(&second)
        );
    }
    if moved && session.can(Capability::Deadline) {
        return wrong!(
            "it was acquired \"again\" with \"ttl_ms\":0, so the deadline stands; the \
             reply has another: {}",
            text_of_reply(&second)
        );
    }
    if !first_release.ok || first_release.handles != Some(1) {
        return wrong!(
            "one of two handles was released, and the answer is not \"ok\" with \"handles\":1, but {}",
            text_of_reply(&first_release)
        );
    }
    if left < session.keys.quorum() {
        return wrong!(
            "one of two handles was released, and only {left} masters have the key yet: delete it with \
             the last one"
        );
    }
    if !last_release.ok || session.keys.gone(&resource, Duration::from_secs(1))? > 0 {
        return wrong!(
            "the last handle was released, and the key is still there, or the answer is not \"ok\": {}",
            text_of_reply(&last_release)
        );
    }
    fine("two handles of one lease, which ended with the last")
}
