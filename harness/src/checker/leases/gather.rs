//! The leases as they were handed out, extended, released and lost: from the records, in their
//! order. `leases.rs` computes where their holds end.

use crate::checker::maps::Map;

use super::{Ending, Lease};
use crate::checker::keys::Keys;
use crate::checker::requests::{Answer, Request};
use crate::checker::time::{self, Span};
use crate::checker::world::World;
use crate::history::{Event, Ns, Record, Window};

/// A record about a lease, with the index of its request.
enum Turn {
    Answered(usize),
    Released(usize),
    /// A client asked for an extension, and the result is unknown.
    Tried(usize),
}

pub(super) fn gather<'a>(
    world: &World<'a>,
    requests: &[Request<'a>],
    keys: &Keys<'a>,
) -> Vec<Lease<'a>> {
    let mut turns: Vec<Option<Turn>> = Vec::new();
    turns.resize_with(world.records.len(), || None);
    for (index, request) in requests.iter().enumerate() {
        match (request.op, request.answer) {
            ("release", _) => {
                turns[request.record] = Some(Turn::Released(index));
            }
            ("acquire" | "extend", Some(answer)) if answer.ok => {
                turns[answer.record] = Some(Turn::Answered(index));
            }
            ("extend", _) => turns[request.record] = Some(Turn::Tried(index)),
            _ => {}
        }
    }
    let mut leases: Vec<Lease<'a>> = Vec::new();
    let mut of_client: Map<(&str, &str), Vec<usize>> = Map::default();
    for (record, Record { event, .. }) in world.records.iter().enumerate() {
        match event {
            Event::Asked { .. } | Event::Answered { .. } => {
                let Some(turn) = &turns[record] else { continue };
                let (Turn::Answered(index) | Turn::Released(index) | Turn::Tried(index)) = turn;
                let request = &requests[*index];
                let Some(resource) = request.resource else { continue };
                let known = of_client.entry((request.client, resource)).or_default();
                let latest = known.last().copied();
                match (turn, request.answer) {
                    (Turn::Released(_), _) => {
                        if let Some(lease) = latest {
                            leases[lease].give_back(*index);
                        }
                    }
                    (Turn::Answered(_), Some(answer))
                        if request.is_acquire() && answer.handles > Some(1) && latest.is_some() =>
                    {
                        if let Some(lease) = latest {
                            leases[lease].reenter(*index, request, answer);
                        }
                    }
                    (Turn::Answered(_), Some(answer)) if request.is_acquire() => {
                        known.push(leases.len());
                        leases.push(granted(*index, request, resource, answer, world, keys));
                    }
                    (Turn::Answered(_), Some(answer)) => {
                        if let Some(lease) = latest
                            && let Some(deadline) = promised(request, answer)
                        {
                            leases[lease].extend(answer.at, deadline, Some(*index));
                        }
                    }
                    (Turn::Tried(_), _) => {
                        if let Some(lease) = latest {
                            leases[lease].may_shorten(request);
                        }
                    }
                    (Turn::Answered(_), None) => {}
                }
            }
            Event::Extended { client, resource, deadline } => {
                let known = of_client.get(&(client.as_str(), resource.as_str()));
                if let Some(lease) = known.and_then(|known| known.last()) {
                    let deadline = Window { from: *deadline, to: *deadline };
                    leases[*lease].extend(None, deadline, None);
                }
            }
            Event::Lost { client, resource, at } => {
                // The notice may be about the lease before the last one.
                let known = of_client.get(&(client.as_str(), resource.as_str()));
                let known = known.map_or(&[][..], Vec::as_slice);
                let begun = known.iter().rev().find(|lease| leases[**lease].start.from <= *at);
                if let Some(lease) = begun {
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
    fn reenter(&mut self, index: usize, request: &Request<'_>, answer: Answer<'a>) {
        self.others += 1;
        self.again.push(answer);
        let now = self.extensions.last().map_or(self.deadline, |last| last.deadline);
        if let Some(deadline) = promised(request, answer).filter(|deadline| deadline.to > now.to) {
            self.extend(answer.at, deadline, Some(index));
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
        let now = self.extensions.last().map_or(self.deadline, |last| last.deadline);
        let shorter = request.asked.saturating_add(time::of_ms(ttl));
        if shorter < now.from {
            self.extend(None, Window { from: shorter, to: now.to }, None);
        }
    }
}

/// The deadline that an answer promises, if it promises one.
fn promised(request: &Request<'_>, answer: Answer<'_>) -> Option<Window> {
    if let Some(deadline) = answer.deadline {
        return Some(Window { from: deadline, to: deadline });
    }
    let valid = time::of_ms(answer.valid_ms?);
    // The remaining validity counts from the return of the library, if that time is known.
    let from = answer.at.unwrap_or(request.asked).saturating_add(valid);
    let to = answer.at.unwrap_or(answer.ns).saturating_add(valid);
    Some(Window { from, to })
}

fn granted<'a>(
    index: usize,
    request: &Request<'a>,
    resource: &'a str,
    answer: Answer<'a>,
    world: &World<'a>,
    keys: &Keys<'a>,
) -> Lease<'a> {
    let during = Span::new(request.asked, answer.ns);
    let said = answer.token.filter(|token| keys.knows(token));
    let enough = world.lock_of(request.process).q;
    let token = said.or_else(|| keys.last_set(request.process, resource, during, enough));
    // No interpretable command set a key: then nothing can be concluded about its keys.
    let opaque = token.is_none() && keys.is_opaque(request.process, resource, during);
    let token = if opaque { None } else { token.or(answer.token) };
    let start = if let Some(at) = answer.at {
        Window { from: at, to: at }
    } else {
        Window { from: quorum(request, resource, token, answer.ns, world, keys), to: answer.ns }
    };
    let deadline = promised(request, answer).unwrap_or_else(|| {
        // A lock without deadlines: its lease is good for one TTL at most.
        let ttl = request.ttl_ms.map_or(time::of(world.scenario.lock.ttl.0), time::of_ms);
        Window { from: request.asked.saturating_add(ttl), to: answer.ns.saturating_add(ttl) }
    });
    Lease {
        request: index,
        client: request.client,
        process: request.process,
        resource,
        token,
        phase: request.phase,
        asked: request.asked,
        answer,
        start: time::tidy(start),
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

/// When a client without a stamp may first have counted on its lease: when it received the grants
/// of a quorum.
fn quorum(
    request: &Request<'_>,
    resource: &str,
    token: Option<&str>,
    until: Ns,
    world: &World<'_>,
    keys: &Keys<'_>,
) -> Ns {
    let Some(token) = token else { return request.asked };
    let during = Span::new(request.asked, until);
    let mut learnt: Vec<Ns> = keys
        .of_token(token, resource, during)
        .filter(|key| key.granted && key.made.from >= request.asked)
        .filter_map(|key| key.delivered)
        .collect();
    learnt.sort_unstable();
    learnt.get(world.lock_of(request.process).q - 1).copied().unwrap_or(request.asked).min(until)
}
