//! The requests to clients, paired with their answers.

use crate::checker::maps::Map;

use crate::client_protocol::FailureReason;
use crate::history::{Event, Ns, Phase, Record};
use crate::name::Name;

use super::world::World;

/// A request to a client.
pub(super) struct Request<'a> {
    pub(super) client: &'a str,
    pub(super) process: &'a str,
    pub(super) op: &'a str,
    pub(super) resource: Option<&'a str>,
    /// The other resources of the same request.
    pub(super) with: &'a [Name],
    /// Whether the client asks as the owner of the lease that it has.
    pub(super) again: bool,
    pub(super) ttl_ms: Option<u64>,
    pub(super) wait_ms: u64,
    pub(super) asked: Ns,
    /// The phase in which the harness sent the request.
    pub(super) phase: Phase,
    /// The index of the request among the records.
    pub(super) record: usize,
    pub(super) answer: Option<Answer<'a>>,
}

/// The answer of a client.
#[derive(Clone, Copy)]
pub(super) struct Answer<'a> {
    /// When the answer was recorded.
    pub(super) ns: Ns,
    pub(super) record: usize,
    pub(super) ok: bool,
    pub(super) token: Option<&'a str>,
    pub(super) from: Option<Ns>,
    pub(super) at: Option<Ns>,
    pub(super) deadline: Option<Ns>,
    pub(super) valid_ms: Option<u64>,
    pub(super) fence: Option<u64>,
    /// How many handles of the lease are out after the request.
    pub(super) handles: Option<u64>,
    pub(super) why: Option<FailureReason>,
    pub(super) text: Option<&'a str>,
}

impl Request<'_> {
    /// When the request was answered; without an answer, the end of time.
    pub(super) fn answered(&self) -> Ns {
        self.answer.map_or(Ns::MAX, |answer| answer.ns)
    }

    pub(super) fn is_acquire(&self) -> bool {
        self.op == "acquire"
    }

    pub(super) fn granted(&self) -> bool {
        self.is_acquire() && self.answer.is_some_and(|answer| answer.ok)
    }
}

/// All requests, in the order in which they were sent.
pub(super) fn of<'a>(world: &World<'a>) -> Vec<Request<'a>> {
    let mut all: Vec<Request<'a>> = Vec::new();
    let mut open: Map<u64, usize> = Map::default();
    let mut now = Phase::Run;
    for (record, Record { ns, event }) in world.records.iter().enumerate() {
        match event {
            Event::Phase { phase } => now = *phase,
            Event::Asked { client, id, op, resource, with, again, ttl_ms, wait_ms } => {
                open.insert(*id, all.len());
                all.push(Request {
                    client,
                    process: world.process(client),
                    op,
                    resource: resource.as_deref(),
                    with,
                    again: *again,
                    ttl_ms: *ttl_ms,
                    wait_ms: wait_ms.unwrap_or(0),
                    asked: *ns,
                    phase: now,
                    record,
                    answer: None,
                });
            }
            Event::Answered {
                id,
                ok,
                token,
                from,
                at,
                deadline,
                valid_ms,
                fence,
                handles,
                why,
                text,
                ..
            } => {
                let Some(index) = open.remove(id) else { continue };
                all[index].answer = Some(Answer {
                    ns: *ns,
                    record,
                    ok: *ok,
                    token: token.as_deref(),
                    from: *from,
                    at: *at,
                    deadline: *deadline,
                    valid_ms: *valid_ms,
                    fence: *fence,
                    handles: *handles,
                    why: *why,
                    text: text.as_deref(),
                });
            }
            _ => {}
        }
    }
    all
}
