//! The leases as they were handed out, extended, released and lost: from the records, in their
//! order. `leases.rs` computes where their holds end.

use crate::checker::maps::Map;

use super::{Ending, Lease};
use crate::checker::keys::Keys;
use crate::checker::requests::{Reply, Request};
use crate::checker::time;
use crate::checker::world::World;
use crate::history::{Event, Ns, Record, Window};

pub(crate) fn gather<'a>(
    world: &World<'a>,
    requests: &[Request<'a>],
    keys: &Keys<'a>,
) -> Vec<Lease<'a>> {
    // The request that changes a lease at each record.
    let mut changes: Vec<Option<usize>> = vec![None; world.records.len()];
    for (index, request) in requests.iter().enumerate() {
        match (request.op, request.reply.filter(|reply| reply.ok)) {
            ("acquire" | "extend", Some(reply)) => changes[reply.record] = Some(index),
            ("release" | "extend", _) => changes[request.record] = Some(index),
            _ => {}
        }
    }
    let mut leases: Vec<Lease<'a>> = Vec::new();
    let mut of_client: Map<(&str, &str), Vec<usize>> = Map::default();
    for (Record { event, .. }, change) in world.records.iter().zip(changes) {
        match event {
            Event::Requested { .. } | Event::Replied { .. } => {
                let Some(index) = change else { continue };
                let request = &requests[index];
                let Some(resource) = request.resource else { continue };
                let known = of_client.entry((request.client, resource)).or_default();
                let latest = known.last().map(|latest| &mut leases[*latest]);
                match (request.op, request.reply.filter(|reply| reply.ok), latest) {
                    ("release", _, Some(lease)) => lease.give_back(index),
                    ("acquire", Some(reply), Some(lease)) if reply.handles > Some(1) => {
                        lease.reenter(index, request, reply);
                    }
                    ("acquire", Some(reply), _) => {
                        known.push(leases.len());
                        leases.push(granted(index, request, resource, reply, world, keys));
                    }
                    ("extend", Some(reply), Some(lease)) => {
                        if let Some(deadline) = promised(request, reply) {
                            lease.extend(reply.at, deadline, Some(index));
                        }
                    }
                    // The result is unknown.
                    ("extend", None, Some(lease)) => lease.may_shorten(request),
                    _ => {}
                }
            }
            Event::Extended { client, resource, deadline } => {
                let known = of_client.get(&(client.as_str(), resource.as_str()));
                if let Some(lease) = known.and_then(|known| known.last()) {
                    leases[*lease].extend(None, Window::at(*deadline), None);
                }
            }
            Event::Lost { client, resource, at } => {
                // The notice may be about the lease before the last one.
                let known = of_client.get(&(client.as_str(), resource.as_str()));
                let mut known = known.into_iter().flatten();
                if let Some(lease) = known.rfind(|lease| leases[**lease].start.from <= *at) {
                    leases[*lease].lost.get_or_insert(*at);
                }
            }
            _ => {}
        }
    }
    leases
}

impl<'a> Lease<'a> {
    /// The owner gets another handle, and counts on the deadline that came with it.
    fn reenter(&mut self, index: usize, request: &Request<'_>, reply: Reply<'a>) {
        self.others += 1;
        self.again.push(reply);
        let now = self.latest_deadline();
        if let Some(deadline) = promised(request, reply).filter(|deadline| deadline.to > now.to) {
            self.extend(reply.at, deadline, Some(index));
        }
    }

    /// The owner releases a handle. It counts on the lease until it releases the last one.
    fn give_back(&mut self, index: usize) {
        match self.others.checked_sub(1) {
            Some(left) => self.others = left,
            None => {
                self.release.get_or_insert(index);
            }
        }
    }

    /// A client that asks for a shorter TTL counts on less from then on, regardless of the result.
    /// It does not report that it does so.
    fn may_shorten(&mut self, request: &Request<'_>) {
        let Some(ttl) = request.ttl_ms else { return };
        let now = self.latest_deadline();
        let shorter = request.asked.saturating_add(time::of_ms(ttl));
        if shorter < now.from {
            self.extend(None, Window::new(shorter, now.to), None);
        }
    }
}

/// The deadline that a reply promises, if it promises one.
fn promised(request: &Request<'_>, reply: Reply<'_>) -> Option<Window> {
    if let Some(deadline) = reply.deadline {
        return Some(Window::at(deadline));
    }
    let valid = time::of_ms(reply.valid_ms?);
    // The remaining validity counts from the return of the library, if that time is known.
    let from = reply.at.unwrap_or(request.asked).saturating_add(valid);
    let to = reply.returned().saturating_add(valid);
    Some(Window::new(from, to))
}

fn granted<'a>(
    index: usize,
    request: &Request<'a>,
    resource: &'a str,
    reply: Reply<'a>,
    world: &World<'a>,
    keys: &Keys<'a>,
) -> Lease<'a> {
    let during = Window::new(request.asked, reply.ns);
    let reported = reply.token.filter(|token| keys.knows(token));
    let enough = world.lock_of(request.process).q;
    let token = reported.or_else(|| keys.last_set(request.process, resource, during, enough));
    // No interpretable command set a key: then nothing can be concluded about its keys.
    let opaque = token.is_none() && keys.is_opaque(request.process, resource, during);
    let token = if opaque { None } else { token.or(reply.token) };
    // Without a stamp, a client may first have counted on its lease when it received the grants of
    // a quorum.
    let quorum = || {
        let granted = keys.of_token(token?, resource, during);
        let own = granted.filter(|key| key.granted && key.made.from >= request.asked);
        let mut learnt: Vec<Ns> = own.filter_map(|key| key.delivered).collect();
        learnt.sort_unstable();
        learnt.get(enough - 1).copied()
    };
    let start = reply.at.map_or_else(
        || Window::new(quorum().unwrap_or(request.asked).min(reply.ns), reply.ns),
        Window::at,
    );
    let deadline = promised(request, reply).unwrap_or_else(|| {
        // A lock without deadlines: its lease is good for one TTL at most.
        let ttl = request.ttl_ms.map_or(time::of(world.scenario.lock.ttl.0), time::of_ms);
        Window::new(request.asked.saturating_add(ttl), reply.ns.saturating_add(ttl))
    });
    Lease {
        request: index,
        client: request.client,
        process: request.process,
        resource,
        token,
        phase: request.phase,
        asked: request.asked,
        reply,
        start: start.tidy(),
        deadline,
        extensions: Vec::new(),
        others: 0,
        again: Vec::new(),
        release: None,
        lost: None,
        ending: Ending::Deadline,
        holds: Vec::new(),
    }
}
