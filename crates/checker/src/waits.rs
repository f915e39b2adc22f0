//! Waits: how long a resource was free while a client waited for it, and how often a waiter was
//! overtaken.
//!
//! A process serves its own clients in the order in which they ask. A request therefore begins to
//! compete when the earlier requests of its own process are over. Three node timeouts later its
//! position in the fair queue is visible to all, if it ever is: in the first, masters refuse its
//! first attempt; in the second, they give it numbers; in the third, they receive the largest of
//! these.

use std::collections::{BTreeMap, BTreeSet};

use super::case::Request;
use super::leases::Lease;
use super::maps::Map;
use super::progress::{LOOKS, RESOLVES, SOON, rounds};
use super::{Case, time};
use redquorum_protocol::wire::TURN_MS;
use redquorum_scenario::history::{Ns, Phase, Window};

/// How long a resource may be free while a client waits for it, if masters reply at once: the time
/// for the looks, a turn of a silent waiter where the lock is fair, and some rounds
/// (`docs/waiting.md`).
pub fn longest_wait(fair: bool, node_timeout: Ns) -> Ns {
    let turn = if fair { time::of_ms(TURN_MS) + 2 * LOOKS + SOON } else { LOOKS };
    turn.saturating_add(rounds(node_timeout)).saturating_add(RESOLVES)
}

/// The requests for one resource, and its holds. Events come in the order of their times.
#[derive(Clone, Debug)]
pub struct FreeWaits<Id> {
    waiting: BTreeMap<Id, Ns>,
    holds: BTreeSet<Id>,
    /// Since when nothing is in the way but the holds.
    free: Ns,
}

impl<Id> Default for FreeWaits<Id> {
    fn default() -> Self {
        Self { waiting: BTreeMap::new(), holds: BTreeSet::new(), free: Ns::MIN }
    }
}

impl<Id: Ord + Copy> FreeWaits<Id> {
    /// A request begins to wait.
    pub fn asks(&mut self, id: Id, at: Ns) {
        self.waiting.insert(id, at);
    }

    /// A request no longer waits. Returns how long it had waited for the free resource.
    pub fn leaves(&mut self, id: Id, at: Ns) -> Ns {
        let asked = self.waiting.remove(&id).unwrap_or(at);
        if self.holds.is_empty() { at.saturating_sub(asked.max(self.free)).max(0) } else { 0 }
    }

    /// A request is granted. Returns how long any request had waited for the free resource.
    pub fn granted(&mut self, id: Id, at: Ns) -> Ns {
        let first = self.waiting.values().min().copied().unwrap_or(at);
        let waited = at.saturating_sub(first.max(self.free)).max(0);
        self.waiting.remove(&id);
        let is_free = self.holds.is_empty();
        self.holds.insert(id);
        if is_free { waited } else { 0 }
    }

    /// The hold of a request ends.
    pub fn ends(&mut self, id: Id, at: Ns) {
        if self.holds.remove(&id) {
            self.blocked_until(at);
        }
    }

    /// Something may be in the way until an instant, such as the keys of a dead client.
    pub fn blocked_until(&mut self, at: Ns) {
        self.free = self.free.max(at);
    }
}

/// A request that waited, and the process that came later and overtook it most often.
pub(crate) struct Overtaken<'c> {
    pub request: &'c Request<'c>,
    /// When the request's position in the fair queue became visible.
    pub since: Ns,
    pub by: Option<&'c str>,
    pub times: usize,
}

/// The most overtaken of some requests; none: no request waited long enough for a position in the
/// fair queue.
pub(crate) fn most_overtaken<'c>(
    case: &'c Case<'c>,
    requests: &[&'c Request<'c>],
) -> Option<Overtaken<'c>> {
    let turns = turns(case);
    let waited = requests.iter().filter(|request| request.op.wait_ms() > 0);
    let waited = waited.filter_map(|request| overtaken(case, &turns, request));
    // Of equals, take the first.
    waited.reduce(|most, other| if other.times > most.times { other } else { most })
}

/// When each request for a resource had no earlier request of its own process ahead of it: at the
/// earliest, and at the latest. The key is the request's index among the records, and its place
/// there.
type Turns = Map<(usize, usize), Window>;

fn turns(case: &Case<'_>) -> Turns {
    let leases: Map<usize, &Lease<'_>> =
        case.leases.iter().map(|lease| (lease.request, lease)).collect();
    let acquires = case.requests.iter().enumerate().filter(|(_, it)| it.is_acquire());
    let turn = |request: &Request<'_>| {
        let mut turn = Window::at(request.asked);
        // A request that waits does so in a queue of its process. A request that does not wait
        // bypasses that queue.
        let ahead = acquires.clone().filter(|(_, other)| is_ahead(case, other, request));
        for (index, other) in ahead {
            // A request that was refused may not have been ahead at all.
            let replied = Window::new(request.asked, other.replied());
            let end = leases.get(&index).and_then(|lease| lease.holds.last());
            let over = end.map_or(replied, |hold| Window::new(hold.inner.to, hold.outer.to));
            turn = Window::new(turn.from.max(over.from), turn.to.max(over.to));
        }
        turn
    };
    acquires.clone().map(|(_, request)| (key(request), turn(request))).collect()
}

const fn key(request: &Request<'_>) -> (usize, usize) {
    (request.record, request.place)
}

fn overtaken<'c>(
    case: &'c Case<'c>,
    turns: &Turns,
    request: &'c Request<'c>,
) -> Option<Overtaken<'c>> {
    let over = case.world.until(Phase::Heal).min(case.died(request.process));
    let until = request.replied().min(over);
    let stands = case.world.node_timeout.saturating_mul(3);
    let since = turns.get(&key(request))?.to.saturating_add(stands);
    if since >= until {
        return None;
    }
    let mut times: Map<&str, usize> = Map::default();
    let later = |lease: &&Lease<'_>| {
        let turn = turns.get(&key(&case.requests[lease.request]));
        turn.is_some_and(|turn| turn.from >= since)
    };
    // Requests for shared leases do not overtake each other: they are granted together.
    let others = case.leases.iter().filter(|lease| {
        Some(lease.resource) == request.resource
            && lease.process != request.process
            && lease.start.to <= until
            && !(lease.shared && request.op.is_shared())
    });
    for lease in others.filter(later) {
        *times.entry(lease.process).or_default() += 1;
    }
    let most = times.into_iter().max_by_key(|(process, times)| (*times, *process));
    let (by, times) = most.map_or((None, 0), |(process, times)| (Some(process), times));
    Some(Overtaken { request, since, by, times })
}

/// Whether `other`, of the same process, was answered before `request`, and was not asked much
/// later. Requests that are asked at the same time may be served in any order, and those for shared
/// leases together.
fn is_ahead(case: &Case<'_>, other: &Request<'_>, request: &Request<'_>) -> bool {
    other.op.wait_ms() > 0
        && request.op.wait_ms() > 0
        && !(other.op.is_shared() && request.op.is_shared())
        && (other.process, other.resource) == (request.process, request.resource)
        && other.record != request.record
        && other.asked <= request.asked.saturating_add(case.world.node_timeout)
        && other.reply.is_some()
        && other.replied() <= request.replied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_time_counts_in_which_the_resource_is_free_and_a_request_waits() {
        let mut all = FreeWaits::default();
        all.asks(1, 10);
        assert_eq!(all.granted(1, 15), 5);
        all.asks(2, 20);
        assert_eq!(all.leaves(2, 40), 0, "it is held");
        all.asks(3, 50);
        all.ends(1, 60);
        all.asks(4, 65);
        assert_eq!(all.leaves(4, 70), 5);
        all.asks(5, 75);
        assert_eq!(all.granted(5, 80), 20, "the first request has waited since the end");
        all.ends(5, 90);
        all.blocked_until(120);
        assert_eq!(all.leaves(3, 130), 10);
        assert_eq!(all.leaves(3, 140), 0, "it does not wait");
    }

    #[test]
    fn a_fair_lock_may_take_one_turn_longer() {
        let bounds = [false, true].map(|fair| longest_wait(fair, 200_000_000) / 1_000_000);
        assert_eq!(bounds, [3_100, 7_350]);
    }
}
