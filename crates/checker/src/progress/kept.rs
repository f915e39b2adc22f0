//! Leases that could have been kept: an extension that failed although a quorum prolonged the keys;
//! a lease that its watchdog let go although a majority was reachable all the time; and a re-entry
//! that was refused although the client held the lease.

use crate::Case;
use crate::Violation;
use crate::keys::Presence;
use crate::leases::{Ending, Lease};
use crate::maps::count;
use crate::requests::Request;
use crate::time::{self, MS, Ms};
use redquorum_scenario::client_protocol::{FailureReason, Op};
use redquorum_scenario::history::{Ns, Phase, Window};
use redquorum_scenario::{Property, Step};

pub(super) fn check(case: &Case<'_>) -> impl Iterator<Item = Violation> {
    let refused = case.requests.iter().filter_map(|request| refused(case, request));
    let let_go = case.leases.iter().filter_map(|lease| let_go(case, lease));
    let shut_out = case.requests.iter().filter_map(|request| shut_out(case, request));
    refused.chain(let_go).chain(shut_out)
}

/// An extension that failed although a quorum had agreed in good time.
fn refused(case: &Case<'_>, request: &Request<'_>) -> Option<Violation> {
    let reply = request.reply.filter(|reply| !reply.ok)?;
    let unable = request.is_given_up() || reply.why == Some(FailureReason::Error);
    if !request.is_extend() || unable || request.phase != Phase::Run {
        return None;
    }
    let lease = case.lease_at(request)?;
    let alive = lease.deadline.from >= reply.ns && lease.lost.is_none_or(|at| at >= reply.ns);
    if !alive || case.faults.is_hindered(request.process, request.span(), 0) {
        return None;
    }
    let of_lease = case.requests.iter().filter(|other| {
        other.client == lease.client
            && other.resource == Some(lease.resource)
            && other.asked >= lease.start.from
    });
    let (extends, others): (Vec<_>, Vec<_>) = of_lease.partition(|other| other.is_extend());
    let asked = extends.iter().map(|other| other.asked);
    // A reply to another round, of a request shortly before or of the watchdog, is no reply to this
    // one. No record distinguishes the two.
    let before = asked.clone().filter(|asked| *asked < request.asked).max();
    let policy = case.world.node_timeout.saturating_mul(2);
    let shortly = before.is_some_and(|asked| asked.saturating_add(policy) >= request.asked);
    if shortly || others.iter().any(|other| matches!(other.op, Op::KeepAlive { .. })) {
        return None;
    }
    // A client that receives a reply this late may have given up before, on a busy machine.
    let late = request.asked.saturating_add(case.world.node_timeout / 2);
    let by = late.min(reply.returned());
    let through = Window::new(before.unwrap_or(request.asked), by);
    let kept = case.keys.kept(request.process, lease.token?, request.asked);
    // A master counts only if the client knew, when it first extended, that the master had granted.
    // For a grant that was still in flight then, the client may wait for the next round, or for
    // ever.
    let all = case.keys.kept(request.process, lease.token?, lease.asked);
    let first = all.iter().map(|kept| kept.sent).chain(asked).min().unwrap_or(request.asked);
    let knew = |node: usize| {
        let learnt = |at: Option<Ns>| at.is_some_and(|at| at <= first);
        lease.keys(&case.keys).any(|key| key.node == node && learnt(key.delivered))
    };
    let yes = kept.iter().filter(|kept| kept.was_there && kept.delivered <= by);
    // A reply that the network held back since the previous round may belong to that one.
    let clear = |node: usize| case.faults.reachable(request.process, node, through);
    let yes = yes.filter(|kept| knew(kept.node) && clear(kept.node));
    let nodes = count(yes.map(|kept| kept.node));
    let lock = case.world.lock_of(lease.process);
    (nodes >= lock.q).then(|| {
        let lines = vec![format!(
            "{} asked at {} to extend its lease of {}, {nodes} of {} masters did so, and at {} the \
             request failed",
            request.client,
            Ms(request.asked),
            lease.resource,
            lock.n,
            Ms(reply.ns)
        )];
        Violation::bug(Property::Progress, lines, request.asked, reply.ns)
    })
}

/// A client that acquired its own lease again, for no longer, and was refused. Such a re-entry
/// needs no master.
fn shut_out(case: &Case<'_>, request: &Request<'_>) -> Option<Violation> {
    let reply = request.reply.filter(|reply| !reply.ok)?;
    let unable = request.is_given_up();
    if !request.op.is_again()
        || request.op.ttl_ms().is_some()
        || unable
        || request.phase != Phase::Run
    {
        return None;
    }
    let lease = case.lease_at(request)?;
    let lost = lease.lost.unwrap_or(Ns::MAX);
    let end = lease.deadline.from.min(lost).min(case.released(lease));
    (reply.ns < end).then(|| {
        let lines = vec![format!(
            "{} acquired {} again at {}, and was refused at {}, though it held it until {}",
            request.client,
            lease.resource,
            Ms(request.asked),
            Ms(reply.ns),
            Ms(end)
        )];
        Violation::bug(Property::Progress, lines, request.asked, reply.ns)
    })
}

/// A lease that was to be kept and ended, though its keys were there and the masters were
/// reachable.
fn let_go(case: &Case<'_>, lease: &Lease<'_>) -> Option<Violation> {
    let lost = matches!(lease.ending, Ending::Deadline | Ending::Lost);
    if !lost || lease.phase != Phase::Run {
        return None;
    }
    let keep = case.requests.iter().find(|request| {
        matches!(request.op, Op::KeepAlive { .. })
            && request.client == lease.client
            && request.resource == Some(lease.resource)
            && request.asked >= lease.start.from
            && request.reply.is_some_and(|reply| reply.ok)
    })?;
    let end = lease.span().to;
    // Where the deadline is not known exactly, the lease may have lived until its release.
    if case.released(lease) <= end {
        return None;
    }
    let asked = case.requests[lease.request].op.ttl_ms();
    let ttl = asked.map_or(time::of(case.world.scenario.lock.ttl.0), time::of_ms);
    // A watchdog does not extend for less time than a round may take and drift deducts. It asks for
    // whole milliseconds.
    let longest = time::of(case.world.scenario.longest_ttl());
    let least = case.world.node_timeout.saturating_add(case.world.deducted_from(longest));
    let least = least.saturating_add(MS);
    let most = keep.asked.saturating_add(shortest_keep(case, lease)?).saturating_sub(least);
    // It measures by its own clock, which may have run fast.
    let most = most.saturating_add(case.paces.lost(lease.process, keep.asked, end).min(0));
    let next = case.replaced(lease).min(case.world.until(Phase::Heal));
    // At the last moment before the end there is no time for a round.
    if keep.asked.saturating_add(case.world.node_timeout) >= end {
        return None;
    }
    // For one TTL before its end, nothing kept the lease from being extended.
    let through = Window::new(end.saturating_sub(ttl), end);
    if end >= most.min(next)
        || case.faults.is_hindered(lease.process, through, 0)
        || case.is_dead_by(lease.process, end)
    {
        return None;
    }
    // The keys were there when it was time to extend. A key that a master forgot cannot be
    // extended.
    let middle = end.saturating_sub(ttl / 2);
    let could = |key: &&Presence<'_>| {
        // A key that a clock has removed meanwhile, or that was lost with the master's others,
        // cannot be extended either.
        let gain = || case.clocks.gain(key.node, through.from.max(key.made.from), end);
        key.certain.contains(middle)
            && case.faults.reachable(lease.process, key.node, through)
            && gain().is_none_or(|gain| gain.all <= case.world.deducted_from(ttl))
            && key.life.lost.is_none_or(|loss| loss.at.from > end)
    };
    let nodes = count(lease.keys(&case.keys).filter(could).map(|key| key.node));
    let lock = case.world.lock_of(lease.process);
    (nodes >= lock.q).then(|| {
        let lines = vec![format!(
            "the lease of {} that {} kept alive ended at {}, though {nodes} of {} masters had its \
             key and could be reached for a TTL before",
            lease.resource,
            lease.client,
            Ms(end),
            lock.n
        )];
        Violation::bug(Property::Progress, lines, through.from, end)
    })
}

/// The shortest time for which a client's script keeps a resource: a lower bound.
fn shortest_keep(case: &Case<'_>, lease: &Lease<'_>) -> Option<Ns> {
    let client = case.world.scenario.clients.iter().find(|client| client.id == lease.client)?;
    let keeps = client.script.iter().filter_map(|step| match step {
        Step::Keep { resource, most } if resource == lease.resource => Some(time::of(most.0)),
        _ => None,
    });
    keeps.min()
}
