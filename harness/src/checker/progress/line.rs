//! The fair queues: the positions of processes that are gone or unresponsive.

use redquorum_protocol::wire::{LAPSE_MS, TURN_MS};

use crate::checker::Case;
use crate::checker::faults::Strike;
use crate::checker::requests::Request;
use crate::checker::time;
use crate::history::{Ns, Window};

use super::LOOKS;

/// Until when the position of a process that could not leave the queue may have been in the way of
/// a request; none: no position was.
///
/// A dead process has no connection, so the next wake-up passes it over; a master that has not
/// noticed keeps its turn for a while. A process that is paused, or cannot reach a master, keeps
/// its position there until it lapses. So does a command that arrives late and enters the queue
/// again.
pub(crate) fn kept_until(
    case: &Case<'_>,
    request: &Request<'_>,
    resource: &str,
    within: Window,
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
    let kept = gone.filter(|kept| kept.touches(within));
    kept.map(|kept| kept.to.min(within.to)).max()
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
