//! The clients that asked for a resource, held it or released it, and when.

use crate::checker::Case;
use crate::checker::leases::Ending;
use crate::checker::maps::Map;
use crate::checker::time;
use crate::history::{Ns, Window};

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
pub(crate) struct Occupants<'a>(Map<&'a str, Vec<Occupant<'a>>>);

impl<'a> Occupants<'a> {
    pub(crate) fn of(case: &Case<'a>, slack: Ns) -> Self {
        let mut all: Map<&str, Vec<Occupant<'_>>> = Map::default();
        for (index, request) in case.requests.iter().enumerate() {
            let Some(resource) = request.resource else { continue };
            if !matches!(request.op, "acquire" | "release") {
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
        let grace = grace(case);
        for lease in &case.leases {
            for hold in lease.holds.iter().filter(|hold| !hold.outer.is_empty()) {
                let kept = if lease.ending == Ending::Release { 0 } else { grace };
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
    pub(crate) fn until(
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
fn grace(case: &Case<'_>) -> Ns {
    let lock = &case.world.scenario.lock;
    if lock.grace.is_zero() {
        return 0;
    }
    let longest = case.world.scenario.longest_ttl().saturating_add(lock.grace.0);
    time::of(lock.grace.0.saturating_add(lock.deducted_from(longest)))
}
