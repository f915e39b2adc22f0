//! Progress: during the run, an acquire succeeds soon if a majority of the masters is reachable and
//! nothing is in the way.
//!
//! An obstacle is anything that a lock must respect or cannot help: another client's lease; another
//! client's request (two requests at the same time may split the votes); keys whose owner is dead,
//! stopped or cut off; keys of a lost lease that its holder has not released; and, for a while,
//! requests whose callers do not poll them. Any other key that a healthy client left behind is a
//! leak.

use super::case::{CLEANS_UP, Request};
use super::faults::Strike;
use super::keys::Presence;
use super::leases::{Ending, Lease};
use super::maps::{Map, count};
use super::time::{self, MS, Ms};
use super::{Case, Violation};
use redquorum_protocol::wire::{LAPSE_MS, TURN_MS};
use redquorum_scenario::client_protocol::{FailureReason, Op};
use redquorum_scenario::history::{Ns, Phase, Window};
use redquorum_scenario::{Cause, Property, Step};

/// How much longer an acquire may take where several clients wait for the same resource.
pub(super) const RESOLVES: Ns = 800 * MS;
/// How long a waiter may need until it looks again, when keys or earlier waiters are gone and no
/// master wakes it: "Every 0.5 to 1 s the waiter looks at one master" (`docs/waiting.md`).
pub(super) const LOOKS: Ns = 1_000 * MS;
/// How soon a fair waiter that finds the resource free, behind others, looks again
/// (`docs/waiting.md`).
pub(super) const SOON: Ns = 250 * MS;

pub(crate) fn check(case: &Case<'_>) -> Vec<Violation> {
    let slack = CLEANS_UP.saturating_add(case.world.node_timeout);
    // Computed only when a request needs them.
    let (mut occupants, mut blocks) = (None, None);
    let asked = case.requests.iter().enumerate();
    let mut findings: Vec<Violation> = asked
        .filter(|(_, request)| request.is_acquire_of_run())
        .filter_map(|(index, request)| {
            let ended = end(case, request)?;
            let within = Window::new(request.asked, ended);
            let resource = request.resource?;
            // An obstacle to one of several resources is an obstacle to all.
            let all = || std::iter::once(resource).chain(request.with());
            // The cheap check comes first: most requests are granted in time.
            let bound = bound(case, request, within);
            if request.granted() && within.length() <= bound {
                return None;
            }
            let occupants = occupants.get_or_insert_with(|| Occupants::of(case, slack));
            let until = |of, held| {
                occupants.until(request.client, of, request_for(case, index, of), within, held)
            };
            let busy = all().filter_map(|of| until(of, false)).max();
            let contended = busy.is_some_and(|until| until >= ended);
            if busy.is_some() && request.op.wait_ms() == 0 {
                return None;
            }
            // Other clients that only wait for the resource are also in the way for a while, but
            // that must resolve.
            let (busy, bound) = if contended {
                (all().filter_map(|of| until(of, true)).max(), bound.saturating_add(RESOLVES))
            } else {
                (busy, bound)
            };
            let silent = request.op.wait_ms() > 0
                && (ended_silently(case, request, resource, ended)
                    || cleaned_up_silently(case, request, resource, ended));
            let looks = if silent { LOOKS } else { 0 };
            let bound = bound.saturating_add(looks);
            let blocks = blocks.get_or_insert_with(|| Blocks::of(case));
            let until = |of, counting| blocks.until(case, request, of, within, counting);
            let each: Option<Vec<Ns>> = all().map(|of| until(of, false)).collect();
            let blocked = each?.into_iter().max()?;
            let free = busy.unwrap_or(request.asked).max(blocked);
            let unpolled = |of| unpolled_until(case, index, of, within);
            let free = all().filter_map(unpolled).max().unwrap_or(free).max(free);
            // Positions of processes that are gone are in the way, too, until they are passed over.
            let queued = |of| queued_until(case, request, of, within, free);
            let free = all().filter_map(queued).max().unwrap_or(free).max(free);
            let soon = ended.saturating_sub(free) <= bound;
            let excused = match request.op.wait_ms() {
                0 => free > request.asked,
                _ => soon && (contended || request.granted() || free > request.asked),
            };
            let found = || {
                let mut found = violation(request, ended, free, bound);
                // Is there no quorum without the masters whose counters are at their end?
                if let Some(of) = all().find(|of| until(of, true).is_none()) {
                    found.causes = vec![Cause::NodeCounter];
                    found.explanation.push(spent(case, request.process, of, ended));
                }
                found
            };
            (!excused).then(found)
        })
        .collect();
    findings.extend(check_kept(case));
    findings
}

/// The request for one of several resources that were requested at once. These requests are
/// recorded one after the other.
fn request_for(case: &Case<'_>, index: usize, resource: &str) -> usize {
    let request = &case.requests[index];
    let first = index - request.place;
    let mut around = first..first + request.op.resources().len();
    let is = |other: &Request<'_>| {
        other.resource == Some(resource)
            && (other.client, other.asked) == (request.client, request.asked)
            && other.is_acquire()
    };
    around.find(|at| case.requests.get(*at).is_some_and(is)).unwrap_or(index)
}

/// Whether a key ended without a notification while the request waited. A client that deletes a key
/// sends one. A key that is lost or expires ends without one.
///
/// A waiter knows when the keys that it has seen expire. It does not know of a key that was set
/// while it waited, by the next client of a process that handed its lease on.
fn ended_silently(case: &Case<'_>, request: &Request<'_>, resource: &str, ended: Ns) -> bool {
    let during = Window::new(request.asked, ended);
    case.keys.all.iter().any(|key| {
        let lost = key.life.lost.map(|loss| loss.at);
        let expired = key.deleted.is_none() && key.made.to > request.asked;
        let silent = lost.or(expired.then_some(key.life.expires));
        key.is_of(resource) && silent.is_some_and(|silent| during.touches(silent))
    })
}

/// Whether the last key in the way of a waiting request was the key of another client's attempt
/// that was refused. "Only some clean-ups wake a waiter" (`docs/waiting.md`), and the clean-up of
/// such an attempt does not. A waiter that saw the key sleeps until its next look.
fn cleaned_up_silently(case: &Case<'_>, request: &Request<'_>, resource: &str, ended: Ns) -> bool {
    let during = Window::new(request.asked, ended);
    let refused = |key: &Presence<'_>| {
        case.requests.iter().any(|other| {
            let is_refused = other.reply.is_some_and(|reply| {
                use FailureReason::{NoQuorum, Refused, Taken};
                matches!(reply.why, Some(Taken | NoQuorum | Refused))
            });
            is_refused
                && other.is_acquire()
                && (other.process, other.resource) == (key.process, Some(resource))
                && other.client != request.client
                && other.span().contains(key.made.from)
        })
    };
    let is_lease = |key: &Presence<'_>| case.lease_of(key.token).is_some();
    let own = |key: &Presence<'_>| key.process == request.process && key.made.from >= during.from;
    let all = case.keys.all.iter();
    let ended = all.filter(|key| key.is_of(resource) && during.contains(key.possible.to));
    let of_others = ended.filter(|key| !own(key) || refused(key));
    let last = of_others.max_by_key(|key| key.possible.to);
    last.is_some_and(|key| refused(key) && !is_lease(key))
}

/// When a request ended; none: the request is not to be checked.
fn end(case: &Case<'_>, request: &Request<'_>) -> Option<Ns> {
    let process = request.process;
    let ended = request.reply.map_or(case.world.until(Phase::Heal), |reply| reply.ns);
    let span = Window::new(request.asked, ended);
    if request.is_given_up()
        || case.is_dead_by(process, ended)
        || case.faults.is_hindered(process, span, CLEANS_UP)
    {
        return None;
    }
    // A request without a reply failed only if it had time enough.
    let enough = bound(case, request, span).saturating_add(time::of_ms(request.op.wait_ms()));
    (request.reply.is_some() || span.length() > enough).then_some(ended)
}

/// How long an acquire may take when nothing is in the way any more: some rounds and the pauses
/// between them. [`check`] adds [`RESOLVES`] or [`LOOKS`] for obstacles that no master reports.
fn bound(case: &Case<'_>, request: &Request<'_>, within: Window) -> Ns {
    let timeout = case.world.node_timeout;
    let bound = match request.op.wait_ms() {
        0 => timeout.saturating_mul(2).saturating_add(150 * MS),
        _ => rounds(timeout),
    };
    // Each delay counts there and back, for the round that grants and for a round that certifies.
    let delays = case.faults.delays(request.process, within);
    bound.saturating_add(delays.saturating_mul(4))
}

/// Some rounds of a waiting request, and the pauses between them.
pub(super) fn rounds(node_timeout: Ns) -> Ns {
    node_timeout.saturating_mul(4).saturating_add(500 * MS)
}

/// The longest time from the last poll of a request until its client has acted instead of it
/// (`docs/waiting.md`): the leeway, and the next look; or a round that wins, and the time for which
/// the client keeps a lease that its caller does not take.
pub fn set_aside(node_timeout: Ns, longest_ttl: Ns) -> Ns {
    // While masters do not reply, a round may last for a quarter of the TTL.
    let round = node_timeout.max(longest_ttl / 4);
    let leeway = node_timeout.saturating_mul(4).max(500 * MS);
    let kept = node_timeout.saturating_mul(8).max(1_000 * MS);
    LOOKS.max(round.saturating_add(kept)).saturating_add(leeway).saturating_add(CLEANS_UP)
}

/// The report line with the masters whose counters are at their end.
pub(crate) fn spent(case: &Case<'_>, process: &str, resource: &str, by: Ns) -> String {
    let mut spent = case.world.lock_of(process).masters.clone();
    spent.retain(|node| case.faults.is_spent(*node, resource, by));
    format!(
        "the fencing counters of {resource} were set to their end on {}: they grant no more",
        super::named(&spent)
    )
}

fn violation(request: &Request<'_>, ended: Ns, free: Ns, bound: Ns) -> Violation {
    let Request { client, asked, .. } = *request;
    let resource = request.resource.unwrap_or("?");
    let at = Ms(ended);
    let what = match request.reply {
        Some(reply) if reply.ok => format!("got it only at {at}: at most {} would do", Ms(bound)),
        Some(reply) => {
            let why = reply.why.map_or("no reason", FailureReason::name);
            format!("was refused at {at} ({why})")
        }
        None => format!("had no reply by {at}"),
    };
    let lines = vec![
        format!("{client} asked for {resource} at {}, and {what}", Ms(asked)),
        format!("a majority was reachable, and nothing was in the way since {}", Ms(free)),
    ];
    Violation::bug(Property::Progress, lines, asked, ended)
}

/// Leases that could have been kept: an extension that failed although a quorum prolonged the keys;
/// a lease that its watchdog let go although a majority was reachable all the time; and a re-entry
/// that was refused although the client held the lease.
fn check_kept(case: &Case<'_>) -> impl Iterator<Item = Violation> {
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

/// How long a stopped client may need to clean up after it resumed.
const WAKES_UP: Ns = 500 * MS;

/// The keys that may be in the way, by master.
struct Blocks {
    /// Indices among all keys, sorted by when each key may first have been there.
    of_node: Map<usize, Vec<usize>>,
    longest: Ns,
}

impl Blocks {
    fn of(case: &Case<'_>) -> Self {
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
    fn until(
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
struct Occupants<'a>(Map<&'a str, Vec<Occupant<'a>>>);

impl<'a> Occupants<'a> {
    fn of(case: &Case<'a>, slack: Ns) -> Self {
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
    fn until(
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
fn unpolled_until(case: &Case<'_>, request: usize, resource: &str, within: Window) -> Option<Ns> {
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
fn queued_until(
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
