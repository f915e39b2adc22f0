//! The clients that asked for a resource, held it or released it, and when.

use crate::checker::maps::Map;

use crate::checker::Case;
use crate::checker::leases::Ending;
use crate::checker::time::{self, Span};
use crate::history::Ns;

/// When a resource was asked for, held or being released, and by which owners.
#[derive(Default)]
struct Occupied {
    /// The spans with their owners, sorted by their starts.
    spans: Vec<(Span, usize)>,
    /// For each span: of all spans up to it, the two that last longest, of different owners.
    longest: Vec<[(Ns, usize); 2]>,
}

/// The obstacles to each request.
pub(super) struct Occupants<'a> {
    /// All occupants, by resource. The owner is a client.
    all: Map<&'a str, Occupied>,
    /// A client's own obstacles, by client and resource. The owner is a request.
    own: Map<(&'a str, &'a str), Occupied>,
    /// By resource: the clients that held it, released it, or could not get it and went on asking.
    held: Map<&'a str, Occupied>,
    clients: Map<&'a str, usize>,
}

impl<'a> Occupants<'a> {
    pub(super) fn of(case: &Case<'a>, slack: Ns) -> Self {
        let (all, own, held) = (Map::default(), Map::default(), Map::default());
        let mut occupants = Self { all, own, held, clients: Map::default() };
        for (index, request) in case.requests.iter().enumerate() {
            let Some(resource) = request.resource else { continue };
            if !matches!(request.op, "acquire" | "release") {
                continue;
            }
            let died = case.death(request.process).map_or(Ns::MAX, |at| at.to);
            let to = request.answered().min(died.max(request.asked));
            let span = Span::new(request.asked, to.saturating_add(slack));
            // A client that asks again after a refusal is not in its own way.
            let again = Span::new(request.asked, to.saturating_sub(1));
            let own = if request.is_acquire() { again } else { span };
            let number = occupants.add(request.client, resource, index, span, own);
            // A client that asks and cannot reach a majority holds keys on the other masters while
            // it waits for an answer, again and again. No bound is known after which another client
            // must get in between.
            let lock = case.world.lock_of(request.process);
            let reaches = |node: &&usize| case.faults.reachable(request.process, **node, span);
            let reached = lock.masters.iter().filter(reaches);
            if !request.is_acquire() || reached.count() < lock.q {
                occupants.held.entry(resource).or_default().spans.push((span, number));
            }
        }
        // A lease that is not released keeps others out for this much longer.
        let grace = grace(case);
        for lease in &case.leases {
            for hold in lease.holds.iter().filter(|hold| !hold.outer.is_empty()) {
                let kept = if lease.ending == Ending::Release { 0 } else { grace };
                let to = hold.outer.to.saturating_add(kept).saturating_add(slack);
                let span = Span::new(hold.outer.from, to);
                let (client, resource) = (lease.client, lease.resource);
                let number = occupants.add(client, resource, lease.request, span, span);
                occupants.held.entry(resource).or_default().spans.push((span, number));
            }
        }
        let each = occupants.all.values_mut().chain(occupants.own.values_mut());
        each.chain(occupants.held.values_mut()).for_each(Occupied::sort);
        occupants
    }

    fn add(
        &mut self,
        client: &'a str,
        resource: &'a str,
        request: usize,
        all: Span,
        own: Span,
    ) -> usize {
        let new = self.clients.len();
        let number = *self.clients.entry(client).or_insert(new);
        self.all.entry(resource).or_default().spans.push((all, number));
        self.own.entry((client, resource)).or_default().spans.push((own, request));
        number
    }

    /// Until when, within a span, another client held a resource, released it or could not get it,
    /// or the client's own actions are in the way of the request; none: there is no such obstacle.
    pub(super) fn held_until(
        &self,
        client: &str,
        resource: &str,
        request: usize,
        within: Span,
    ) -> Option<Ns> {
        self.among(&self.held, client, resource, request, within)
    }

    /// Until when a request has an obstacle within a span; none: it has none.
    pub(super) fn until(
        &self,
        client: &str,
        resource: &str,
        request: usize,
        within: Span,
    ) -> Option<Ns> {
        self.among(&self.all, client, resource, request, within)
    }

    /// Until when other clients, or the client's own actions, are in the way.
    fn among(
        &self,
        all: &Map<&'a str, Occupied>,
        client: &str,
        resource: &str,
        request: usize,
        within: Span,
    ) -> Option<Ns> {
        let number = self.clients.get(client).copied().unwrap_or(usize::MAX);
        let others = all.get(resource).and_then(|of| of.until(within, number));
        let own = self.own.get(&(client, resource)).and_then(|own| own.until(within, request));
        others.max(own)
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

impl Occupied {
    fn sort(&mut self) {
        self.spans.sort_by_key(|(span, _)| span.from);
        let mut two = [(Ns::MIN, usize::MAX), (Ns::MIN, usize::MAX)];
        let longest = self.spans.iter().map(|(span, owner)| {
            let one = (span.to, *owner);
            if one.1 == two[0].1 {
                two[0].0 = two[0].0.max(one.0);
            } else if one.0 > two[0].0 {
                two = [one, two[0]];
            } else if one.0 > two[1].0 {
                two[1] = one;
            }
            two
        });
        self.longest = longest.collect();
    }

    /// Until when owners other than this one are present within a span; none: there are none.
    fn until(&self, within: Span, owner: usize) -> Option<Ns> {
        // A span that begins only when the request ends was not in the way of the request.
        let begun = self.spans.partition_point(|(span, _)| span.from < within.to);
        let two = self.longest[begun.checked_sub(1)?];
        let other = if two[0].1 == owner { two[1] } else { two[0] };
        (other.0 >= within.from).then_some(other.0)
    }
}
