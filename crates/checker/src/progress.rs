//! Progress: while nothing disturbs the masters, the network and the clients, an acquire succeeds
//! soon if nobody holds the resource, an extension succeeds, and a lease that is kept alive goes
//! on.
//!
//! It is demanded in *calm* stretches of the run: no fault is in force, and none was for the time
//! in which a lock must have recovered from everything ([`recovery`]). What is owed under a fault
//! depends on the fault, so the scenario says it (`within`, `kept`). What is owed after all faults
//! is liveness.

use std::time::Duration;

use super::case::{CLEANS_UP, Request};
use super::faults::RECONNECT;
use super::leases::{Ending, Lease};
use super::time::{self, MS, Ms};
use super::waits::longest_wait;
use super::{Case, Violation};
use redquorum_protocol::wire::{LAPSE_MS, TURN_MS};
use redquorum_scenario::client_protocol::FailureReason;
use redquorum_scenario::history::{Ns, Phase, Window};
use redquorum_scenario::name::Name;
use redquorum_scenario::{Acquires, LeaseEffect, Property, Step};

/// How much longer an acquire may take where several clients wait for the same resource.
pub(super) const RESOLVES: Ns = 800 * MS;
/// How long a waiter may need until it looks again, when keys or earlier waiters are gone and no
/// master wakes it: "Every 0.5 to 1 s the waiter looks at one master" (`docs/waiting.md`).
pub(super) const LOOKS: Ns = 1_000 * MS;
/// How soon a fair waiter that finds the resource free, behind others, looks again
/// (`docs/waiting.md`).
pub(super) const SOON: Ns = 250 * MS;
/// How long it may take until a client looks at a distrusted master again.
const LOOKS_AT_DISTRUSTED: Ns = 1_200 * MS;

pub(crate) fn check(case: &Case<'_>) -> Vec<Violation> {
    let calm = Calm::of(case);
    let requests = || case.requests.iter();
    let mut findings: Vec<Violation> = requests().filter_map(|it| slow(case, &calm, it)).collect();
    findings.extend(requests().filter_map(|request| refused(case, &calm, request)));
    findings.extend(case.leases.iter().filter_map(|lease| let_go(case, &calm, lease)));
    findings.extend(requests().filter_map(|request| shut_out(case, request)));
    let expect = &case.world.scenario.expect;
    let within = expect.within.iter().filter_map(|(name, most)| too_late(case, name, most.0));
    findings.extend(within);
    let kept = expect.kept.iter().filter_map(|(name, least)| ended_early(case, name, least.0));
    findings.extend(kept);
    findings
}

/// The stretches of the run in which nothing disturbs the lock, in their order.
struct Calm(Vec<Window>);

impl Calm {
    fn of(case: &Case<'_>) -> Self {
        let recovery = recovery(case);
        let world = &case.world;
        let after = |span: Window| Window::new(span.from, span.to.saturating_add(recovery));
        let faults = case.faults.disturbances().map(|(span, passes)| match passes {
            true => after(span),
            false => Window::new(span.from, Ns::MAX),
        });
        let mut disturbed: Vec<Window> = faults.collect();
        let broken = world.broken.iter().filter_map(|(process, ..)| world.breakdown(process));
        disturbed.extend(broken.map(after));
        // Masters that a guard does not know yet are distrusted.
        if !world.scenario.lock.initialized {
            disturbed.push(Window::new(Ns::MIN, recovery));
        }
        // A caller that does not poll its request is in the way of others until its client acts.
        let longest = time::of(world.scenario.longest_ttl());
        let set_aside = set_aside(world.node_timeout, longest);
        disturbed.extend(case.requests.iter().filter_map(|request| {
            let span = request.unpolled?;
            Some(Window::new(span.from, span.to.min(span.from.saturating_add(set_aside))))
        }));
        // On a busy machine, masters and clients stand still without any fault.
        let stalls = case.keys.all.iter().filter_map(|key| {
            let delivered = key.delivered?;
            let is_late = delivered.saturating_sub(key.made.from) >= world.node_timeout / 2;
            is_late.then(|| after(Window::new(key.made.from, delivered)))
        });
        disturbed.extend(stalls);
        disturbed.sort_unstable_by_key(|span| span.from);
        let (mut from, end) = (Ns::MIN, world.until(Phase::Heal));
        let mut calm = Vec::new();
        for span in disturbed {
            if span.from > from {
                calm.push(Window::new(from, span.from.min(end)));
            }
            from = from.max(span.to);
        }
        if from < end {
            calm.push(Window::new(from, end));
        }
        Self(calm)
    }

    /// The stretch in which an instant lies; none: something may have disturbed it.
    fn around(&self, at: Ns) -> Option<Window> {
        self.0.iter().copied().find(|stretch| stretch.from <= at && at <= stretch.to)
    }

    /// Whether nothing disturbed the lock throughout a span.
    fn is_throughout(&self, span: Window) -> bool {
        self.around(span.to).is_some_and(|stretch| stretch.from <= span.from)
    }
}

/// How long after a fault a lock may feel it: keys whose owner is gone expire, with the lock delay;
/// connections are made again; waiters look; positions in a queue lapse; and a guard trusts a
/// master again, if need be after a second probation.
fn recovery(case: &Case<'_>) -> Ns {
    let scenario = case.world.scenario;
    let lock = &scenario.lock;
    let longest = time::of(scenario.longest_ttl());
    let keys = longest.saturating_add(time::of(lock.lock_delay.0));
    let keys = keys.saturating_add(case.world.deducted_from(keys));
    let links = RECONNECT.saturating_add(case.world.node_timeout.saturating_mul(2));
    let lapses = time::of_ms(LAPSE_MS.max(TURN_MS)) + LOOKS + SOON;
    let queues = if scenario.has_queues() { lapses } else { 0 };
    let processes = scenario.processes().into_iter();
    let options = processes.map(|process| scenario.options_of(process));
    let quarantine = options.map(|lock| time::of(lock.quarantine())).max().unwrap_or(0);
    let guards = match quarantine {
        0 => 0,
        _ => quarantine.saturating_mul(2).saturating_add(2 * LOOKS_AT_DISTRUSTED),
    };
    let all = [links, LOOKS, CLEANS_UP, queues, guards];
    all.into_iter().fold(keys, Ns::saturating_add)
}

/// An acquire that took too long, or was refused, while nobody held the resource.
fn slow(case: &Case<'_>, calm: &Calm, request: &Request<'_>) -> Option<Violation> {
    let world = &case.world;
    let Request { process, asked, .. } = *request;
    let ended = request.reply.map_or(world.until(Phase::Heal), |reply| reply.ns);
    let waits = request.op.wait_ms() > 0;
    let quick = match waits {
        false => world.node_timeout.saturating_mul(2).saturating_add(150 * MS),
        true => rounds(world.node_timeout),
    };
    // Most requests are granted at once.
    let in_time = ended.saturating_sub(asked) <= quick;
    if !request.is_acquire_of_run()
        || request.is_given_up()
        || in_time && (request.granted() || request.reply.is_none())
    {
        return None;
    }
    let stretch = calm.around(ended)?;
    let lock = world.lock_of(process);
    let cannot = !lock.has_quorum()
        || case.faults.refuses(world, process)
        || case.faults.is_at_odds(process)
        || case.is_dead_by(process, ended);
    if cannot || !waits && asked < stretch.from {
        return None;
    }
    let way = Way::of(case, request, ended);
    let polled = request.unpolled.map(|span| span.to);
    let free = way.held.into_iter().chain(polled).fold(asked.max(stretch.from), Ns::max);
    let others = way.asked.is_some_and(|to| to >= free);
    // What ends without a release wakes no waiter, nor does an attempt that fails.
    let bound = match waits && (others || !way.is_released) {
        true => longest_wait(false, world.node_timeout),
        false => quick,
    };
    let soon = ended.saturating_sub(free) <= bound;
    let is_in_the_way = others || free > asked;
    let excused = match waits {
        true => soon && (is_in_the_way || request.granted()),
        false => is_in_the_way || soon && request.granted(),
    };
    (!excused).then(|| {
        let alone = if request.op.is_shared() { " alone" } else { "" };
        let why = format!("no fault was in force, and nobody held it{alone} since {}", Ms(free));
        violation(request, ended, bound, why)
    })
}

/// What is in the way of a request: leases, and other requests for its resources. An obstacle to
/// one of several resources is an obstacle to all, unless any one of them will do: then that one
/// counts that was free first. Shared leases and requests for them are not in each other's way.
struct Way {
    /// Until when a client held one of the resources, or was releasing it; none: no client did.
    held: Option<Ns>,
    /// Whether the last of these ended with a release, which wakes a waiter.
    is_released: bool,
    /// Until when others asked for one of the resources; none: no client did.
    asked: Option<Ns>,
}

impl Way {
    fn of(case: &Case<'_>, request: &Request<'_>, ended: Ns) -> Self {
        if !request.op.is_any() {
            return Self::to(request.op.resources(), case, request, ended);
        }
        let each = request.op.resources().iter();
        let each = each.map(|one| Self::to(std::slice::from_ref(one), case, request, ended));
        each.min_by_key(|way| way.held.max(way.asked))
            .unwrap_or_else(|| unreachable!("a request is for at least one resource"))
    }

    /// What is in the way to all of these resources.
    fn to(resources: &[Name], case: &Case<'_>, request: &Request<'_>, ended: Ns) -> Self {
        let within = Window::new(request.asked, ended);
        let wants = |resource: &str| resources.iter().any(|own| own.as_str() == resource);
        // The deletions may be on their way.
        let slack = CLEANS_UP.saturating_add(case.world.node_timeout);
        let longest = time::of(case.world.scenario.longest_ttl());
        let delay = time::of(case.world.scenario.lock.lock_delay.0);
        let expires = delay.saturating_add(case.world.deducted_from(longest.saturating_add(delay)));
        let touches = |span: Window| span.from < within.to && span.to >= within.from;
        let of_others = |index: usize| case.requests[index].record != request.record;
        let excludes = |shared: bool| !(shared && request.op.is_shared());
        let leases = case
            .leases
            .iter()
            .filter(|it| wants(it.resource) && of_others(it.request) && excludes(it.shared));
        let holds = leases.flat_map(|lease| {
            let released = lease.ending == Ending::Release;
            let more = if released { slack } else { slack.saturating_add(expires) };
            lease.holds.iter().filter(|hold| !hold.outer.is_empty()).map(move |hold| {
                (Window::new(hold.outer.from, hold.outer.to.saturating_add(more)), released)
            })
        });
        let requests =
            case.requests.iter().filter(|other| other.record != request.record).filter(|other| {
                match other.op.is_any() {
                    // It may have asked for any of them.
                    true => other.op.resources().iter().any(|name| wants(name)),
                    false => other.resource.is_some_and(wants),
                }
            });
        let until = |other: &Request<'_>| {
            let died = case.died(other.process).max(other.asked);
            // A client that asks again after a refusal is not in its own way.
            let own = other.client == request.client && other.is_acquire();
            let to = other.replied().min(died);
            let to = if own { to.saturating_sub(1) } else { to.saturating_add(slack) };
            Window::new(other.asked, to)
        };
        let (asks, others): (Vec<_>, Vec<_>) = requests.partition(|other| other.is_acquire());
        let asks = asks.into_iter().filter(|other| excludes(other.op.is_shared()));
        let releases = others.into_iter().filter(|other| {
            let of_shared = || case.lease_at(other).is_some_and(|lease| lease.shared);
            other.op.is_release() && (excludes(true) || !of_shared())
        });
        let releases = releases.map(|other| (until(other), true));
        let held = holds.chain(releases).filter(|(span, _)| touches(*span));
        let held = held.map(|(span, released)| (span.to, released)).max();
        let asked = asks.map(until).filter(|span| touches(*span));
        Self {
            held: held.map(|(to, _)| to),
            is_released: held.is_none_or(|(_, released)| released),
            asked: asked.map(|span| span.to).max(),
        }
    }
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
        redquorum_scenario::numbered(&spent)
    )
}

fn violation(request: &Request<'_>, ended: Ns, bound: Ns, why: String) -> Violation {
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
    let shared = if request.op.is_shared() { " shared" } else { "" };
    let asks = format!("{client} asked for {resource}{shared} at {}, and {what}", Ms(asked));
    let lines = vec![asks, why];
    Violation::bug(Property::Progress, lines, asked, ended)
}

/// An extension that failed, though its lease was alive and there was time for a round.
fn refused(case: &Case<'_>, calm: &Calm, request: &Request<'_>) -> Option<Violation> {
    let reply = request.reply.filter(|reply| !reply.ok)?;
    let unable = request.is_given_up() || reply.why == Some(FailureReason::Error);
    if !request.is_extend() || unable || request.phase != Phase::Run {
        return None;
    }
    let lease = case.lease_at(request)?;
    let round = request.asked.saturating_add(case.world.node_timeout).max(reply.ns);
    let alive = lease.deadline.from >= round
        && lease.lost.is_none_or(|at| at >= reply.ns)
        && case.released(lease) >= reply.ns;
    if !alive || !calm.is_throughout(request.span()) {
        return None;
    }
    let lines = vec![format!(
        "{} asked at {} to extend its lease of {}, which it had until {}; no fault was in force, \
         and at {} the request failed",
        request.client,
        Ms(request.asked),
        lease.resource,
        Ms(lease.deadline.from),
        Ms(reply.ns)
    )];
    Some(Violation::bug(Property::Progress, lines, request.asked, reply.ns))
}

/// A lease that was to be kept and ended, though no fault was in force for a TTL before.
fn let_go(case: &Case<'_>, calm: &Calm, lease: &Lease<'_>) -> Option<Violation> {
    let lost = matches!(lease.ending, Ending::Deadline | Ending::Lost);
    if !lost || lease.phase != Phase::Run {
        return None;
    }
    let keep = case.requests.iter().find(|request| {
        request.op.effect() == LeaseEffect::Keeps
            && request.client == lease.client
            && request.resource == Some(lease.resource)
            && request.asked >= lease.start.from
            && request.reply.is_some_and(|reply| reply.ok)
    })?;
    let end = lease.span().to;
    // Where the deadline is not known exactly, the lease may have lived until its release.
    if case.released(lease) <= end || case.is_dead_by(lease.process, end) {
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
    let next = case.replaced(lease).min(case.world.until(Phase::Heal));
    // At the last moment before the end there is no time for a round.
    let has_time = keep.asked.saturating_add(case.world.node_timeout) < end;
    let before = Window::new(end.saturating_sub(ttl), end);
    (has_time && end < most.min(next) && calm.is_throughout(before)).then(|| {
        let lines = vec![format!(
            "the lease of {} that {} kept alive ended at {}, and no fault was in force for a TTL \
             before",
            lease.resource,
            lease.client,
            Ms(end)
        )];
        Violation::bug(Property::Progress, lines, before.from, end)
    })
}

/// The shortest time for which a client's script keeps a resource: a lower bound.
fn shortest_keep(case: &Case<'_>, lease: &Lease<'_>) -> Option<Ns> {
    let client = case.world.scenario.clients.iter().find(|client| client.id == lease.client)?;
    let leased = Name::from(lease.resource);
    let name = client.name_of(&leased);
    let keeps = client.script.iter().filter_map(|step| match step {
        Step::Keep { resource, most } if resource == name => Some(time::of(most.0)),
        _ => None,
    });
    keeps.min()
}

/// An acquire that took longer than its scenario allows, or was refused where all or one must be
/// granted. What a client gave up itself does not count.
fn too_late(case: &Case<'_>, name: &str, most: Duration) -> Option<Violation> {
    let bound = time::of(most);
    let heal = case.world.until(Phase::Heal);
    let ended = |request: &Request<'_>| request.replied().min(heal);
    let took = |request: &Request<'_>| ended(request).saturating_sub(request.asked);
    let mut all = case.acquires_of(name);
    all.retain(|it| !it.is_given_up() && !case.is_dead_by(it.process, ended(it)));
    let slowest = all.iter().max_by_key(|request| took(request)).filter(|it| took(it) > bound);
    let wanted = case.world.scenario.expect.acquires.get(name);
    let is_granted = all.iter().any(|request| request.granted());
    let owes_it = wanted == Some(&Acquires::AllGranted) || !is_granted;
    let refused = || all.iter().find(|it| it.reply.is_some_and(|reply| !reply.ok) && owes_it);
    let request = slowest.or_else(refused)?;
    let why = format!("the scenario demands a grant to {name} within {}", Ms(bound));
    Some(violation(request, ended(request), bound, why))
}

/// A lease that ended earlier than its scenario allows, though it was not released.
fn ended_early(case: &Case<'_>, name: &str, least: Duration) -> Option<Violation> {
    let own: Vec<usize> = case.acquires_of(name).into_iter().map(|it| it.record).collect();
    let mut leases = case.leases.iter().filter(|lease| {
        own.contains(&case.requests[lease.request].record)
            && matches!(lease.ending, Ending::Deadline | Ending::Lost)
    });
    let lease = leases.find(|lease| lease.span().length() < time::of(least))?;
    let Window { from, to } = lease.span();
    let lines = vec![format!(
        "the lease of {} that {} got at {} ended at {}: the scenario demands that it lasts {} if it \
         is not released",
        lease.resource,
        lease.client,
        Ms(from),
        Ms(to),
        Ms(time::of(least))
    )];
    Some(Violation::bug(Property::Progress, lines, from, to))
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
    // The holder of a shared lease that asks for an exclusive one would wait for itself.
    let lease = case.lease_at(request).filter(|it| !it.shared || request.op.is_shared())?;
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
