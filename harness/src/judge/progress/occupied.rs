//! Who else asked for a resource, held it or was releasing it, and when.

use crate::judge::maps::Map;

use crate::history::Ns;
use crate::judge::Case;
use crate::judge::leases::Ending;
use crate::judge::time::{self, Span};

/// When a resource was asked for, held or being released, and by whom.
#[derive(Default)]
struct Occupied {
    /// Sorted by their starts.
    spans: Vec<(Span, usize)>,
    /// Of all spans up to one, the two that last longest, of different owners.
    longest: Vec<[(Ns, usize); 2]>,
}

/// What is in the way of whom.
pub(super) struct Occupants<'a> {
    /// By resource; the owner is a client.
    all: Map<&'a str, Occupied>,
    /// By client and resource: what is in its own way; the owner is a request.
    own: Map<(&'a str, &'a str), Occupied>,
    /// By resource: who held it, or gave it back, or could not get it and went on asking.
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
            // A client that asks again when it was refused is not in its own way.
            let again = Span::new(request.asked, to.saturating_sub(1));
            let own = if request.is_acquire() { again } else { span };
            let number = occupants.add(request.client, resource, index, span, own);
            // Who asks and cannot reach a majority has the others for as long as it waits for an
            // answer, again and again: no bound is known after which another must get in between.
            let lock = case.world.lock_of(request.process);
            let reaches = |node: &&usize| case.faults.reachable(request.process, **node, span);
            let reached = lock.masters.iter().filter(reaches);
            if !request.is_acquire() || reached.count() < lock.q {
                occupants.held.entry(resource).or_default().spans.push((span, number));
            }
        }
        // What is not given back keeps others out for so much longer.
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

    /// Until when another client held a resource, or gave it back, or could not get it, within a span, or
    /// what the client itself did is in the way of a request; none: nobody did, and nothing is.
    pub(super) fn held_until(
        &self,
        client: &str,
        resource: &str,
        request: usize,
        within: Span,
    ) -> Option<Ns> {
        self.among(&self.held, client, resource, request, within)
    }

    /// Until when something is in the way of a request within a span; none: nothing is.
    pub(super) fn until(
        &self,
        client: &str,
        resource: &str,
        request: usize,
        within: Span,
    ) -> Option<Ns> {
        self.among(&self.all, client, resource, request, within)
    }

    /// Until when others are in the way, or what the client itself did is.
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

/// How long the keys of a lease may stay after its end that was not released: with what the lock allows
/// for clocks. Nothing, where there is no grace.
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

    /// Until when others than one owner are there within a span; none: nobody is.
    fn until(&self, within: Span, owner: usize) -> Option<Ns> {
        // Who asks at the very moment at which it ended was not in its way.
        let begun = self.spans.partition_point(|(span, _)| span.from < within.to);
        let two = self.longest[begun.checked_sub(1)?];
        let other = if two[0].1 == owner { two[1] } else { two[0] };
        (other.0 >= within.from).then_some(other.0)
    }
}
