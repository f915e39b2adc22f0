//! The goals of clients that want several resources at once.

use super::{Attempt, Goal, Request, RunView, token};

pub(super) fn reached(seen: &RunView<'_, '_>, attempts: &[Attempt<'_>]) -> Vec<Goal> {
    let several = |request: &&Request<'_>| request.is_acquire() && request.is_of_several();
    let several: Vec<&Request<'_>> = seen.case.requests.iter().filter(several).collect();
    let mut goals = Vec::new();
    goals.extend(are_opposite(&several).then_some(Goal::OppositeOrders));
    goals.extend(
        several.iter().any(|one| is_undone(seen, one, attempts)).then_some(Goal::CollectUndone),
    );
    goals
}

/// Whether two clients named the same two resources in opposite orders, and wanted them at the same
/// time.
fn are_opposite(several: &[&Request<'_>]) -> bool {
    let named = several.iter().flat_map(|first| {
        let beside =
            |second: &&&Request<'_>| second.record == first.record && second.place > first.place;
        several.iter().filter(beside).map(|second| (*first, second.resource))
    });
    let named: Vec<(&Request<'_>, Option<&str>)> = named.collect();
    named.iter().any(|(one, last)| {
        named.iter().any(|(other, others_last)| {
            one.client != other.client
                && (one.resource, *last) == (*others_last, other.resource)
                && one.asked <= other.replied()
                && other.asked <= one.replied()
        })
    })
}

/// Whether a quorum granted a resource, and the client gave it up since another was taken.
fn is_undone(seen: &RunView<'_, '_>, request: &Request<'_>, attempts: &[Attempt<'_>]) -> bool {
    let during = request.asked..=request.replied();
    let of = |name: &str| {
        let name = name.to_owned();
        let own = attempts.iter().filter(|one| one.process == request.process);
        own.filter(move |one| one.key.ends_with(&name)).filter(|one| during.contains(&one.from))
    };
    let is_lease = |one: &Attempt<'_>| {
        seen.case.requests.iter().any(|other| token(other) == Some(one.token.as_str()))
    };
    let won = of(request.resource.unwrap_or_default());
    let mut won = won.filter(|one| one.granted >= one.quorum && !is_lease(one));
    won.any(|won| {
        let lost = |one: &Attempt<'_>| {
            let together = one.from <= won.to && won.from <= one.to;
            together && one.granted < one.quorum && one.refused > 0
        };
        request.with().any(|name| of(name).any(lost))
    })
}
