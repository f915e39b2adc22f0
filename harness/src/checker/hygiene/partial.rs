//! All or nothing: did a client that asked for several resources keep one of them while it waited
//! for the others, or after a refusal?

use crate::checker::case::CLEANS_UP;
use crate::checker::requests::Request;
use crate::checker::time::Ms;
use crate::checker::{Case, Violation};
use crate::history::{Ns, Window};

pub(crate) fn check<'c>(case: &'c Case<'_>) -> impl Iterator<Item = Violation> + use<'c> {
    let several = case.requests.iter().filter(|request| !request.with.is_empty());
    several.filter(|request| request.is_acquire()).filter_map(|request| kept(case, request))
}

/// The first key that was kept for longer than it takes to learn that another resource is taken.
fn kept(case: &Case<'_>, request: &Request<'_>) -> Option<Violation> {
    let resource = request.resource?;
    let asks = |other: &&Request<'_>| {
        other.process == request.process && other.client != request.client && other.is_acquire()
    };
    let others = case.requests.iter().filter(asks);
    // If several clients of one process want a resource, the record does not show whose attempt set
    // a key.
    if others.into_iter().any(|other| other.resource == Some(resource)) {
        return None;
    }
    let during = Window::new(request.asked, request.replied().min(case.world.end));
    let own = case.keys.all.iter().filter(|key| {
        key.process == request.process
            && key.resource == Some(resource)
            && key.sure
            && (during.from..=during.to).contains(&key.made.from)
    });
    // These are the votes on the other resources, the replies that name the clients that hold them,
    // and the rounds that certify numbers.
    let rounds = if case.world.scenario.options_of(request.process).fencing { 5 } else { 3 };
    let timeouts = case.world.node_timeout.saturating_mul(rounds);
    let bound = timeouts.saturating_add(CLEANS_UP);
    own.filter(|key| !case.is_helpless(key, key.possible, 0)).find_map(|key| {
        let delays = case.faults.delays(request.process, key.possible).saturating_mul(4);
        let bound = bound.saturating_add(delays);
        // Once the key is granted with the others, the client keeps it by right.
        let lease = case.leases.iter().find(|lease| lease.token == Some(key.token));
        let right = lease.map_or(Ns::MAX, |lease| lease.start.from);
        let kept = Window::new(key.certain.from, key.certain.to.min(right));
        (kept.length() > bound).then(|| {
            let line = format!(
                "{} asked for {resource} and {} at {}, and kept {resource} on master {} from {} to \
                 {} without the others: at most {} would do",
                request.client,
                request.with.join(" and "),
                Ms(request.asked),
                key.node,
                Ms(kept.from),
                Ms(kept.to),
                Ms(bound)
            );
            super::bug(line, kept.from, kept.to)
        })
    })
}
