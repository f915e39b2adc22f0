//! The line of those who wait, where the lock keeps one: the places of those who are gone.

use redquorum_protocol::wire::LAPSE_MS;

use crate::history::Ns;
use crate::judge::Case;
use crate::judge::faults::Strike;
use crate::judge::requests::Request;
use crate::judge::time::{self, MS, Span};

/// How long it takes those behind to look whether somebody has come first, at most.
const LOOKS: Ns = 1_000 * MS;

/// Until when somebody who could not leave the line may have been in the way of a request there; none: nobody was.
///
/// Who dies, stands still, or cannot reach a master keeps its place there until it lapses. So does whoever is
/// heard late: what it had asked for before brings it back.
pub(super) fn kept_until(
    case: &Case<'_>,
    request: &Request<'_>,
    resource: &str,
    within: Span,
) -> Option<Ns> {
    let is_fair = |process: &str| case.world.scenario.options_of(process).fair;
    if !is_fair(request.process) {
        return None;
    }
    let lapse = time::of_ms(LAPSE_MS).saturating_add(LOOKS);
    let stood = case.requests.iter().filter(|other| {
        other.is_acquire() && other.resource == Some(resource) && is_fair(other.process)
    });
    let gone = stood.flat_map(|other| {
        let since = move |at: &Ns| other.asked <= *at;
        helpless(case, other.process).filter(since)
    });
    let until = |at: Ns| Span::new(at, at.saturating_add(lapse));
    let kept = gone.map(until).filter(|kept| kept.touches(within));
    kept.map(|kept| kept.to.min(within.to)).max()
}

/// The instants at which a process could not tell masters any more that it is gone, or could again.
fn helpless<'c>(case: &'c Case<'_>, process: &'c str) -> impl Iterator<Item = Ns> + use<'c> {
    let lock = case.world.lock_of(process);
    let ends = |strike: &Strike<'_>| [strike.at.to, strike.span().to];
    let paused = case.faults.pauses(process).flat_map(ends);
    let cut = lock.masters.iter().flat_map(|node| case.faults.unheard(process, *node));
    let died = case.death(process).map(|at| at.to);
    paused.chain(cut).chain(died)
}
