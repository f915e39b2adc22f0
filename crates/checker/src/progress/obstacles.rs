//! The obstacles to an acquire: keys that are rightly in the way; clients that asked for the
//! resource, held it or released it; and positions in fair queues.

use redquorum_protocol::wire::{LAPSE_MS, TURN_MS};

use super::{CLEANS_UP, LOOKS, SOON, set_aside};
use crate::Case;
use crate::faults::Strike;
use crate::keys::Presence;
use crate::leases::{Ending, Lease};
use crate::maps::Map;
use crate::requests::Request;
use crate::time::{self, MS};
use redquorum_scenario::history::{Ns, Window};

/// How long a stopped client may need to clean up after it resumed.
const WAKES_UP: Ns = 500 * MS;

/// The keys that may be in the way, by master.
pub(super) struct Blocks {
    /// Indices among all keys, sorted by when each key may first have been there.
    of_node: Map<usize, Vec<usize>>,
    longest: Ns,
}

impl Blocks {
    pub(super) fn of(case: &Case<'_>) -> Self {
        let mut blocks = Self { of_node: Map::default(), longest: 0 };
        for (index, key) in case.keys.all.iter().enumerate() {
            blocks.of_node.entry(key.node).or_default().push(index);
            blocks.longest = blocks.longest.max(key.possible.length());
        }
        for of_one in blocks.of_node.values_mut() {
            of_one.sort_by_key(|index| case.keys.all[*index].possible.from);
        }
        blocks
    }

    /// From when on a quorum of masters could have granted a request; none: not before it ended.
    /// With `counting`, a master whose counter was at its end does not count if the lease needs a
    /// number.
    pub(super) fn until(
        &self,
        case: &Case<'_>,
        request: &Request<'_>,
        resource: &str,
        within: Window,
        counting: bool,
    ) -> Option<Ns> {
        if case.faults.refuses(&case.world, request.process) {
            return None;
        }
        let lock = case.world.lock_of(request.process);
        let counting = counting && case.world.scenario.options_of(request.process).fencing;
        let asked = |since: Ns| {
            let own = case.requests.iter().filter(|own| own.process == request.process);
            own.filter(|own| own.is_acquire() && own.asked >= since).map(|own| own.asked).min()
        };
        let grants = |node: &usize| {
            case.faults.reachable(request.process, *node, within)
                && !(counting && case.faults.is_spent(*node, resource, within.to))
                && !case.faults.distrusted(request.process, *node, within, asked)
                && (request.op.wait_ms() > 0 || !self.is_late(case, *node, request, within))
        };
        let granting = lock.masters.iter().copied().filter(grants);
        let of_master = |node| self.of_master(case, node, request, resource, within);
        let mut free: Vec<Ns> = granting.map(of_master).collect();
        free.sort_unstable();
        free.get(lock.q - 1).copied()
    }

    /// Whether a master granted a request so late, without any fault, that the client may have
    /// given up before: the machine is busy. A client that makes only one attempt cannot help that.
    fn is_late(&self, case: &Case<'_>, node: usize, request: &Request<'_>, within: Window) -> bool {
        let policy = case.world.node_timeout / 5 * 4;
        self.of_node.get(&node).into_iter().flatten().any(|index| {
            let key = &case.keys.all[*index];
            let learnt = key.delivered.unwrap_or(Ns::MAX).min(request.replied());
            key.process == request.process
                && key.resource.is_none_or(|name| Some(name) == request.resource)
                && within.contains(key.made.from)
                && learnt.saturating_sub(key.made.from) >= policy
        })
    }

    /// From when on a master has no key that is rightly in the way.
    fn of_master(
        &self,
        case: &Case<'_>,
        node: usize,
        request: &Request<'_>,
        resource: &str,
        within: Window,
    ) -> Ns {
        let all = self.of_node.get(&node).map_or(&[][..], Vec::as_slice);
        let of = |index: &usize| &case.keys.all[*index];
        let end = all.partition_point(|index| of(index).possible.from <= within.to);
        let oldest = within.from.saturating_sub(self.longest);
        let begin = all.partition_point(|index| of(index).possible.from < oldest);
        let there = all.get(begin..end).unwrap_or_default().iter().map(of).filter(|key| {
            let own = key.process == request.process && key.made.from >= request.asked;
            !own && key.possible.to >= within.from && key.is_of(resource)
        });
        let rightly = there.filter_map(|key| excused(case, key, request, within));
        rightly.max().unwrap_or(within.from).max(within.from)
    }
}

/// Until when a key is rightly there, for one of these reasons:
///
/// - Its owner is dead, stopped, or was cut off until a moment ago.
/// - Its owner cannot know that the key was set again.
/// - Its owner has lost the lease and not released it.
/// - Its owner is this client, which is about to delete the key.
fn excused(
    case: &Case<'_>,
    key: &Presence<'_>,
    request: &Request<'_>,
    within: Window,
) -> Option<Ns> {
    if case.is_helpless(key, within, WAKES_UP) {
        return Some(key.possible.to);
    }
    let soon = case.world.node_timeout.saturating_mul(2).saturating_add(CLEANS_UP);
    let unreleased = released(case, key).map(|at| at.saturating_add(soon));
    // A request that failed or was cancelled deletes the keys that it has just set.
    let recent =
        key.process == request.process && key.made.from >= within.from.saturating_sub(soon);
    let recent = recent.then(|| within.from.saturating_add(soon));
    let until = unreleased.max(recent)?.min(key.possible.to);
    (until >= within.from).then_some(until)
}

/// When the holder of a lost lease began to release it; none: the key belongs to no lost lease. The
/// keys of a lost lease stay until then, or until they expire: the holder may still be about to
/// stop.
fn released(case: &Case<'_>, key: &Presence<'_>) -> Option<Ns> {
    let lost = |lease: &&Lease<'_>| {
        lease.lost.is_some() && lease.process == key.process && lease.token == Some(key.token)
    };
    let lease = case.leases.iter().find(lost)?;
    let released = lease.release.map(|release| case.requests[release].asked);
    // A client that is granted the same resource again has dropped the lost lease.
    let replaced = case.next_of_client(lease).map(|next| next.reply.ns);
    Some(released.into_iter().chain(replaced).min().unwrap_or(Ns::MAX))
}

/// A request for a resource, a lease of it, or its release.
struct Occupant<'a> {
    client: &'a str,
    request: usize,
    span: Window,
    /// When the client is in its own way.
    own: Window,
    /// Whether the client held the resource, released it, or could not get it and went on asking.
    held: bool,
}

/// The obstacles to each request, by resource.
pub(super) struct Occupants<'a>(Map<&'a str, Vec<Occupant<'a>>>);

impl<'a> Occupants<'a> {
    pub(super) fn of(case: &Case<'a>, slack: Ns) -> Self {
        let mut all: Map<&str, Vec<Occupant<'_>>> = Map::default();
        for (index, request) in case.requests.iter().enumerate() {
            let Some(resource) = request.resource else { continue };
            if !request.is_acquire() && !request.op.is_release() {
                continue;
            }
            let died = case.death(request.process).map_or(Ns::MAX, |at| at.to);
            let to = request.replied().min(died.max(request.asked));
            let span = Window::new(request.asked, to.saturating_add(slack));
            // A client that asks again after a refusal is not in its own way.
            let again = Window::new(request.asked, to.saturating_sub(1));
            let own = if request.is_acquire() { again } else { span };
            // A client that asks and cannot reach a majority holds keys on the other masters while
            // it waits for a reply, again and again. No bound is known after which another client
            // must get in between.
            let lock = case.world.lock_of(request.process);
            let reaches = |node: &&usize| case.faults.reachable(request.process, **node, span);
            let held =
                !request.is_acquire() || lock.masters.iter().filter(reaches).count() < lock.q;
            let client = request.client;
            let occupant = Occupant { client, request: index, span, own, held };
            all.entry(resource).or_default().push(occupant);
        }
        // A lease that is not released keeps others out for this much longer.
        let kept_for = lock_delay(case);
        for lease in &case.leases {
            for hold in lease.holds.iter().filter(|hold| !hold.outer.is_empty()) {
                let kept = if lease.ending == Ending::Release { 0 } else { kept_for };
                let to = hold.outer.to.saturating_add(kept).saturating_add(slack);
                let span = Window::new(hold.outer.from, to);
                let (client, request) = (lease.client, lease.request);
                let occupant = Occupant { client, request, span, own: span, held: true };
                all.entry(lease.resource).or_default().push(occupant);
            }
        }
        Self(all)
    }

    /// Until when, within a span, other clients or the client's own actions are in the way of a
    /// request; none: there is no such obstacle. With `held`, other clients that only ask are not
    /// in the way.
    pub(super) fn until(
        &self,
        client: &str,
        resource: &str,
        request: usize,
        within: Window,
        held: bool,
    ) -> Option<Ns> {
        let ends = self.0.get(resource)?.iter().filter_map(|one| {
            let span = match one.client == client {
                true if one.request == request => return None,
                true => one.own,
                false if held && !one.held => return None,
                false => one.span,
            };
            // A span that begins only when the request ends was not in the way of the request.
            (span.from < within.to && span.to >= within.from).then_some(span.to)
        });
        ends.max()
    }
}

/// How long the keys of a lease may stay after its end if it was not released, with the lock's
/// allowance for clocks. 0 without a lock delay.
fn lock_delay(case: &Case<'_>) -> Ns {
    let lock = &case.world.scenario.lock;
    if lock.lock_delay.is_zero() {
        return 0;
    }
    let longest = case.world.scenario.longest_ttl().saturating_add(lock.lock_delay.0);
    time::of(lock.lock_delay.0.saturating_add(lock.deducted_from(longest)))
}

/// Until when a request was in the way of a request for this resource, because its caller did not
/// poll it; none: no request was. A request that is not polled itself waits for its own caller.
pub(super) fn unpolled_until(
    case: &Case<'_>,
    request: usize,
    resource: &str,
    within: Window,
) -> Option<Ns> {
    let longest = time::of(case.world.scenario.longest_ttl());
    let set_aside = set_aside(case.world.node_timeout, longest);
    let of_others = case.requests.iter().enumerate().filter_map(|(index, other)| {
        let span = other.unpolled.filter(|_| other.is_acquire())?;
        if index == request {
            return Some(span.to);
        }
        let to = span.to.min(span.from.saturating_add(set_aside));
        let is_there =
            other.resource == Some(resource) && Window::new(span.from, to).touches(within);
        is_there.then_some(to)
    });
    of_others.max()
}

/// Until when the position of a process that could not leave the queue may have been in the way of
/// a request; none: no position was.
///
/// A dead process has no connection, so the next wake-up passes it over; a master that has not
/// noticed keeps its turn for a while. A process that is paused, or cannot reach a master, keeps
/// its position there until it lapses. So does a command that arrives late and enters the queue
/// again.
///
/// But once the resource is `free`, and no further process becomes silent, masters pass over all of
/// them together.
pub(super) fn queued_until(
    case: &Case<'_>,
    request: &Request<'_>,
    resource: &str,
    within: Window,
    free: Ns,
) -> Option<Ns> {
    let is_fair = |process: &str| case.world.scenario.options_of(process).fair;
    if !is_fair(request.process) {
        return None;
    }
    let stood = case.requests.iter().filter(|other| {
        other.is_acquire() && other.resource == Some(resource) && is_fair(other.process)
    });
    let gone = stood
        .flat_map(|other| helpless(case, other.process).filter(|kept| other.asked <= kept.from));
    let kept: Vec<Window> = gone.filter(|kept| kept.touches(within)).collect();
    let last = kept.iter().map(|kept| kept.from).fold(free, Ns::max);
    let passed = last.saturating_add(time::of_ms(TURN_MS) + 2 * LOOKS + SOON);
    kept.iter().map(|kept| kept.to.min(within.to).min(passed)).max()
}

/// How long positions of a process stay in the queues. A span begins at each instant from which on
/// the process could no longer leave the queues, or could do so again.
fn helpless<'c>(case: &'c Case<'_>, process: &'c str) -> impl Iterator<Item = Window> + use<'c> {
    let lock = case.world.lock_of(process);
    let ends = |strike: &Strike<'_>| [strike.at.to, strike.span().to];
    let paused = case.faults.hinders(process).flat_map(ends);
    let cut = lock.masters.iter().flat_map(|node| case.faults.cut_off(process, *node));
    let died = case.death(process).map(|at| at.to);
    let kept = |ms| move |at: Ns| Window::new(at, at.saturating_add(time::of_ms(ms) + LOOKS));
    paused.chain(cut).map(kept(LAPSE_MS)).chain(died.map(kept(TURN_MS)))
}
