//! The requests to clients, paired with their replies.

use crate::maps::Map;

use redquorum_scenario::client_protocol::FailureReason;
use redquorum_scenario::history::{Event, Ns, Phase, Record, Window};
use redquorum_scenario::name::Name;

use super::world::World;

pub struct Request<'a> {
    pub client: &'a str,
    pub process: &'a str,
    pub op: &'a str,
    pub resource: Option<&'a str>,
    /// The other resources of the same request.
    pub with: &'a [Name],
    /// Whether the client asks as the owner of the lease that it has.
    pub again: bool,
    pub ttl_ms: Option<u64>,
    pub wait_ms: u64,
    pub asked: Ns,
    /// The phase in which the harness sent the request.
    pub phase: Phase,
    /// The index of the request among the records.
    pub record: usize,
    pub reply: Option<Reply<'a>>,
}

#[derive(Clone, Copy)]
pub struct Reply<'a> {
    pub ns: Ns,
    pub record: usize,
    pub ok: bool,
    pub token: Option<&'a str>,
    pub from: Option<Ns>,
    pub at: Option<Ns>,
    pub deadline: Option<Ns>,
    pub valid_ms: Option<u64>,
    pub fence: Option<u64>,
    /// How many handles of the lease are out after the request.
    pub handles: Option<u64>,
    pub why: Option<FailureReason>,
    pub text: Option<&'a str>,
}

impl Reply<'_> {
    /// When the client's library returned, as far as it is known.
    pub fn returned(&self) -> Ns {
        self.at.unwrap_or(self.ns)
    }
}

impl Request<'_> {
    /// When the request was answered; without a reply, the end of time.
    pub fn replied(&self) -> Ns {
        self.reply.map_or(Ns::MAX, |reply| reply.ns)
    }

    pub fn span(&self) -> Window {
        Window::new(self.asked, self.replied())
    }

    /// Whether the client does not support the request, or was asked to give it up.
    pub fn is_given_up(&self) -> bool {
        let why = self.reply.and_then(|reply| reply.why);
        matches!(why, Some(FailureReason::Unsupported | FailureReason::Cancelled))
    }

    /// Whether it succeeded; none: no reply came.
    pub fn ok(&self) -> Option<bool> {
        self.reply.map(|reply| reply.ok)
    }

    pub fn is_acquire(&self) -> bool {
        self.op == "acquire"
    }

    /// Whether it is an acquire of a client's script, not a final acquire.
    pub fn is_acquire_of_run(&self) -> bool {
        self.is_acquire() && self.phase == Phase::Run
    }

    pub fn granted(&self) -> bool {
        self.is_acquire() && self.reply.is_some_and(|reply| reply.ok)
    }
}

/// All requests, in the order in which they were sent.
pub(crate) fn of<'a>(world: &World<'a>) -> Vec<Request<'a>> {
    let mut all: Vec<Request<'a>> = Vec::new();
    let mut open: Map<u64, usize> = Map::default();
    let mut now = Phase::Run;
    for (record, Record { ns, event }) in world.records.iter().enumerate() {
        match event {
            Event::Phase { phase } => now = *phase,
            Event::Requested { client, id, op, resource, with, again, ttl_ms, wait_ms } => {
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
                    reply: None,
                });
            }
            Event::Replied {
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
                all[index].reply = Some(Reply {
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
