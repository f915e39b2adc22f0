//! The requests to clients, paired with their replies. A request for several resources is one
//! [`Request`] for each of them here: it has the same effect.

use std::ops::Deref;

use redquorum_scenario::client_protocol::{ClientReply, FailureReason, Op};
use redquorum_scenario::history::{Event, Ns, Phase, Record, Window};
use redquorum_scenario::name::Name;

use super::maps::Map;
use super::world::World;

pub struct Request<'a> {
    pub client: &'a str,
    pub process: &'a str,
    pub op: &'a Op,
    /// The position of the resource among those of the operation.
    pub place: usize,
    pub resource: Option<&'a str>,
    pub asked: Ns,
    /// The phase in which the harness sent the request.
    pub phase: Phase,
    /// The index of the request among the records.
    pub record: usize,
    /// When its caller last did not poll its future.
    pub unpolled: Option<Window>,
    pub reply: Option<Reply<'a>>,
}

/// A client's reply about one resource. If the request named several, the fields that can differ
/// between them are those of this one; the rest is in the message.
#[derive(Clone, Copy)]
pub struct Reply<'a> {
    pub ns: Ns,
    pub record: usize,
    pub token: Option<&'a str>,
    pub deadline_ns: Option<Ns>,
    pub fence: Option<u64>,
    message: &'a ClientReply,
}

impl Deref for Reply<'_> {
    type Target = ClientReply;

    fn deref(&self) -> &ClientReply {
        self.message
    }
}

impl<'a> Reply<'a> {
    fn new(ns: Ns, record: usize, place: usize, message: &'a ClientReply) -> Self {
        let each = message.each.get(place);
        let token = each.and_then(|each| each.token.as_ref()).or(message.token.as_ref());
        Self {
            ns,
            record,
            token: token.map(Name::as_str),
            deadline_ns: each.and_then(|each| each.deadline_ns).or(message.deadline_ns),
            fence: each.and_then(|each| each.fence).or(message.fence),
            message,
        }
    }

    /// When the client's library returned, as far as it is known.
    pub fn returned(&self) -> Ns {
        self.at_ns.unwrap_or(self.ns)
    }

    /// Why the request failed, as readable text.
    pub fn explanation(&self) -> Option<&'a str> {
        self.message.text.as_deref()
    }
}

impl<'a> Request<'a> {
    /// When the request was answered; without a reply, the end of time.
    pub fn replied(&self) -> Ns {
        self.reply.map_or(Ns::MAX, |reply| reply.ns)
    }

    pub fn span(&self) -> Window {
        Window::new(self.asked, self.replied())
    }

    /// Whether it failed for a reason.
    pub fn failed_as(&self, reason: FailureReason) -> bool {
        self.reply.is_some_and(|reply| !reply.ok && reply.why == Some(reason))
    }

    /// Whether the client does not support the request, or was asked to give it up.
    pub fn is_given_up(&self) -> bool {
        self.failed_as(FailureReason::Unsupported) || self.failed_as(FailureReason::Cancelled)
    }

    /// Whether it succeeded; none: no reply came.
    pub fn ok(&self) -> Option<bool> {
        self.reply.map(|reply| reply.ok)
    }

    /// The other resources of the same request.
    pub fn with(&self) -> impl Iterator<Item = &'a str> {
        let all = self.op.resources().iter().enumerate();
        let place = self.place;
        all.filter(move |(other, _)| *other != place).map(|(_, name)| name.as_str())
    }

    /// Whether the operation is about more resources than this one.
    pub fn is_of_several(&self) -> bool {
        self.op.resources().len() > 1
    }

    /// What the client is asked to do with the resource.
    pub const fn verb(&self) -> &'static str {
        match self.op {
            Op::AcquireAll { .. } => "acquire",
            Op::ReleaseAll { .. } => "release",
            op => op.name(),
        }
    }

    pub const fn is_acquire(&self) -> bool {
        self.op.is_acquire()
    }

    pub const fn is_extend(&self) -> bool {
        matches!(self.op, Op::Extend { .. })
    }

    /// Whether it is an acquire of a client's script, not a final acquire.
    pub fn is_acquire_of_run(&self) -> bool {
        self.is_acquire() && self.phase == Phase::Run
    }

    pub fn granted(&self) -> bool {
        self.is_acquire() && self.reply.is_some_and(|reply| reply.ok)
    }
}

/// All requests, in the order in which they were sent. Those of one record are consecutive, in the
/// order of their resources.
pub(crate) fn of<'a>(world: &World<'a>) -> Vec<Request<'a>> {
    let mut all: Vec<Request<'a>> = Vec::new();
    // Where the requests of each record without a reply are.
    let mut open: Map<u64, std::ops::Range<usize>> = Map::default();
    let mut now = Phase::Run;
    for (record, Record { ns, event }) in world.records.iter().enumerate() {
        match event {
            Event::Phase { phase } => now = *phase,
            Event::Requested(request) => {
                let resources = request.op.resources();
                let first = all.len();
                all.extend((0..resources.len().max(1)).map(|place| Request {
                    client: &request.client,
                    process: world.process(&request.client),
                    op: &request.op,
                    place,
                    resource: resources.get(place).map(Name::as_str),
                    asked: *ns,
                    phase: now,
                    record,
                    unpolled: None,
                    reply: None,
                }));
                open.insert(request.id, first..all.len());
            }
            Event::Unpolled { id, from, to, .. } => {
                for request in
                    open.get(id).cloned().and_then(|asked| all.get_mut(asked)).into_iter().flatten()
                {
                    request.unpolled = Some(Window::new(*from, *to));
                }
            }
            Event::Replied { reply, .. } => {
                let Some(asked) = open.remove(&reply.id) else { continue };
                for (place, request) in all[asked].iter_mut().enumerate() {
                    request.reply = Some(Reply::new(*ns, record, place, reply));
                }
            }
            _ => {}
        }
    }
    all
}
