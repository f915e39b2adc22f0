//! Progress: during the run, an acquire succeeds soon if a majority of the masters is reachable and
//! nothing is in the way.
//!
//! An obstacle is anything that a lock must respect or cannot help: another client's lease; another
//! client's request (two requests at the same time may split the votes); keys whose owner is dead,
//! stopped or cut off; keys of a lost lease that its holder has not released; and, for a while,
//! requests whose callers do not poll them. Any other key that a healthy client left behind is a
//! leak.

use redquorum_scenario::client_protocol::FailureReason;
use redquorum_scenario::history::{Ns, Phase, Window};
use redquorum_scenario::{Cause, Property};

use super::case::CLEANS_UP;
use super::keys::Presence;
use super::requests::Request;
use super::time::{self, MS, Ms};
use super::{Case, Violation};
use obstacles::{Blocks, Occupants};

mod kept;
mod obstacles;

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
            let unpolled = |of| obstacles::unpolled_until(case, index, of, within);
            let free = all().filter_map(unpolled).max().unwrap_or(free).max(free);
            // Positions of processes that are gone are in the way, too, until they are passed over.
            let queued = |of| obstacles::queued_until(case, request, of, within, free);
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
    findings.extend(kept::check(case));
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
