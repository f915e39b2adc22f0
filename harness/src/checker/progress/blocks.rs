//! The keys that are rightly in the way.

use crate::checker::maps::Map;

use crate::checker::Case;
use crate::checker::keys::Presence;
use crate::checker::leases::Lease;
use crate::checker::requests::Request;
use crate::checker::time::MS;
use crate::history::{Ns, Window};

use super::CLEANS_UP;

/// How long a stopped client may need to clean up after it resumed.
const WAKES_UP: Ns = 500 * MS;

/// The keys that may be in the way, by master.
pub(crate) struct Blocks {
    /// Indices among all keys, sorted by when each key may first have been there.
    of_node: Map<usize, Vec<usize>>,
    longest: Ns,
}

impl Blocks {
    pub(crate) fn of(case: &Case<'_>) -> Self {
        let mut of_node: Map<usize, Vec<usize>> = Map::default();
        for (index, key) in case.keys.all.iter().enumerate() {
            of_node.entry(key.node).or_default().push(index);
        }
        for of_one in of_node.values_mut() {
            of_one.sort_by_key(|index| case.keys.all[*index].possible.from);
        }
        let longest = case.keys.all.iter().map(|key| key.possible.length()).max().unwrap_or(0);
        Self { of_node, longest }
    }

    /// From when on a quorum of masters could have granted a request; none: not before it ended.
    /// With `counting`, a master whose counter was at its end does not count if the lease needs a
    /// number.
    pub(crate) fn until(
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
        let mut free: Vec<Ns> = lock
            .masters
            .iter()
            .copied()
            .filter(|node| case.faults.reachable(request.process, *node, within))
            .filter(|node| !counting || !case.faults.is_spent(*node, resource, within.to))
            .filter(|node| !case.faults.distrusted(request.process, *node, within, asked))
            .filter(|node| request.wait_ms > 0 || !self.is_late(case, *node, request, within))
            .map(|node| self.of_master(case, node, request, resource, within))
            .collect();
        free.sort_unstable();
        free.get(lock.q - 1).copied()
    }

    /// Whether a master granted a request so late, without any fault, that the client may have
    /// given up before: the machine is busy. A client that makes only one attempt cannot help that.
    fn is_late(&self, case: &Case<'_>, node: usize, request: &Request<'_>, within: Window) -> bool {
        let policy = case.world.node_timeout / 5 * 4;
        let all = self.of_node.get(&node).map_or(&[][..], Vec::as_slice);
        let set = all.iter().map(|index| &case.keys.all[*index]).filter(|key| {
            key.process == request.process
                && key.resource.is_none_or(|name| Some(name) == request.resource)
                && (within.from..=within.to).contains(&key.made.from)
        });
        set.into_iter().any(|key| {
            let learnt = key.delivered.unwrap_or(Ns::MAX).min(request.replied());
            learnt.saturating_sub(key.made.from) >= policy
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
            !own && key.possible.to >= within.from
                && key.resource.is_none_or(|name| name == resource)
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
