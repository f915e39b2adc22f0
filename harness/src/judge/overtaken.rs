//! Overtaken: how often others who came later got what somebody waits for.
//!
//! A process asks for a resource in the order in which its own clients do, so a request begins to compete
//! when those of its own process before it are over. Two node timeouts later it stands in line for all to see,
//! if it ever does: in the first masters give it numbers, in the second they are told the largest.

use crate::history::{Ns, Phase, Window};

use super::Case;
use super::leases::Lease;
use super::maps::Map;
use super::requests::Request;

/// A request that waited, and who got the resource before it most often, of those who came later.
pub(super) struct Overtaken<'c> {
    pub(super) request: &'c Request<'c>,
    /// From when on it stood in line.
    pub(super) since: Ns,
    pub(super) by: Option<&'c str>,
    pub(super) times: usize,
}

/// The one of some requests that was overtaken most; none: none of them waited for long enough to stand in line.
pub(super) fn most<'c>(case: &'c Case<'c>, requests: &[&'c Request<'c>]) -> Option<Overtaken<'c>> {
    let turns = Turns::of(case);
    let waited = requests.iter().filter(|request| request.wait_ms > 0);
    let waited = waited.filter_map(|request| turns.overtaken(case, request));
    // Of equals the first.
    waited.reduce(|most, other| if other.times > most.times { other } else { most })
}

/// When each request for a resource had nobody of its own process ahead of it: at the earliest, and at the latest.
/// By its place among the records.
struct Turns(Map<usize, Window>);

impl Turns {
    fn of(case: &Case<'_>) -> Self {
        let leases: Map<usize, &Lease<'_>> =
            case.leases.iter().map(|lease| (lease.request, lease)).collect();
        let (mut turns, mut over) = (Map::default(), Map::<_, Window>::default());
        for (index, request) in case.requests.iter().enumerate() {
            if !request.is_acquire() {
                continue;
            }
            if request.wait_ms == 0 {
                // Who does not wait asks past the others of its process.
                turns.insert(request.record, Window { from: request.asked, to: request.asked });
                continue;
            }
            let queue = over.entry((request.process, request.resource));
            let before = queue.or_insert(Window { from: Ns::MIN, to: Ns::MIN });
            turns.insert(request.record, later(*before, request.asked, request.asked));
            let end = leases.get(&index).and_then(|lease| lease.holds.last());
            let answered = request.answered();
            *before = match end {
                Some(hold) => later(*before, hold.inner.to, hold.outer.to),
                None => later(*before, answered, answered),
            };
        }
        Self(turns)
    }

    fn overtaken<'c>(&self, case: &'c Case<'c>, request: &'c Request<'c>) -> Option<Overtaken<'c>> {
        let over = case.world.began(Phase::Heal).unwrap_or(case.world.end);
        let died = case.death(request.process).map_or(Ns::MAX, |at| at.from);
        let until = request.answered().min(over).min(died);
        let stands = case.world.node_timeout.saturating_mul(2);
        let since = self.0.get(&request.record)?.to.saturating_add(stands);
        if since >= until {
            return None;
        }
        let mut times: Map<&str, usize> = Map::default();
        let later = |lease: &&Lease<'_>| {
            let turn = self.0.get(&case.requests[lease.request].record);
            turn.is_some_and(|turn| turn.from >= since)
        };
        let others = case.leases.iter().filter(|lease| {
            Some(lease.resource) == request.resource
                && lease.process != request.process
                && lease.start.to <= until
        });
        for lease in others.filter(later) {
            *times.entry(lease.process).or_default() += 1;
        }
        let most = times.into_iter().max_by_key(|(process, times)| (*times, *process));
        let (by, times) = most.map_or((None, 0), |(process, times)| (Some(process), times));
        Some(Overtaken { request, since, by, times })
    }
}

fn later(window: Window, from: Ns, to: Ns) -> Window {
    Window { from: window.from.max(from), to: window.to.max(to) }
}
