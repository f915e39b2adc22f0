//! Why a run without a violation holds although faults struck, in one sentence. The sentence states
//! facts of the history only: if these do not show a reason, there is none.

use std::collections::BTreeMap;

use redquorum_scenario::history::{Event, Ns, Phase, Window};

use super::Case;
use super::exclusion::named;
use super::keys::Presence;
use super::leases::Lease;
use super::maps::{Set, sorted};
use super::outcome::DISTRUSTED;
use super::requests::Request;
use super::time::Ms;

/// The reason, for a run without violations. None if no fault struck, or if the history does not
/// show a reason.
pub fn reason(case: &Case<'_>) -> Option<String> {
    if case.faults.strikes().iter().all(|strike| strike.failed) {
        return None;
    }
    let leases: Vec<&Lease<'_>> =
        case.leases.iter().filter(|lease| lease.phase == Phase::Run).collect();
    let contests = Contest::all(case, &leases);
    let reason = never_granted(case, &leases)
        .or_else(|| kept(case, &contests))
        .or_else(|| contests.iter().find_map(Contest::distrusted))
        .or_else(|| refused_access(case))
        .or_else(|| untouched(case, &leases))
        .or_else(|| contests.is_empty().then_some(NOT_ASKED.to_owned()))?;
    // The first word is never a name.
    let (first, rest) = reason.split_at_checked(1)?;
    Some(format!("{}{rest}.", first.to_uppercase()))
}

const NOT_ASKED: &str = "no client asked for a resource while another client held it, so no fault \
                         could let a second client in";

/// A lease, and the acquires of other clients that were open while its client believed in it.
struct Contest<'c, 'a> {
    lease: &'c Lease<'a>,
    rivals: Vec<&'c Request<'a>>,
    /// From the first of these acquires to the last, while the client believed in the lease.
    span: Window,
}

impl<'c, 'a> Contest<'c, 'a> {
    /// The contests of all leases, in the order of the leases.
    fn all(case: &'c Case<'a>, leases: &[&'c Lease<'a>]) -> Vec<Self> {
        // The acquires of each client, in the order in which it sent them.
        let mut acquires: BTreeMap<(&str, &str), Vec<&Request<'_>>> = BTreeMap::new();
        for request in case.requests.iter().filter(|request| request.is_acquire_of_run()) {
            if let Some(resource) = request.resource {
                acquires.entry((resource, request.client)).or_default().push(request);
            }
        }
        let contest = |lease: &&'c Lease<'a>| {
            let held = lease.span();
            let rivals: Vec<&Request<'_>> = acquires
                .range((lease.resource, "")..)
                .take_while(|((resource, _), _)| *resource == lease.resource)
                .filter(|((_, client), _)| *client != lease.client)
                .flat_map(|(_, of_client)| {
                    // A client has one acquire of a resource at a time.
                    let before = of_client.partition_point(|request| request.asked < held.to);
                    let latest = of_client[..before].iter().rev();
                    latest.take_while(|request| request.replied() > held.from).copied()
                })
                .collect();
            let spans = rivals.iter().filter_map(|rival| rival.span().meet(held));
            let span = spans.reduce(Window::and_what_is_between)?;
            Some(Contest { lease, rivals, span })
        };
        leases.iter().filter_map(contest).collect()
    }

    /// The report of a rival that does not count the grant of a master.
    fn distrusted(&self) -> Option<String> {
        let (rival, text) = self.rivals.iter().find_map(|rival| {
            let text = rival.reply.filter(|reply| !reply.ok)?.explanation()?;
            text.contains(DISTRUSTED).then_some((rival.client, text))
        })?;
        // `master 1: distrusted for another 1.8s: and so on`.
        let parts: Vec<&str> = text.split(": ").take(2).collect();
        let (client, resource) = (self.lease.client, self.lease.resource);
        let parts = parts.join(": ");
        Some(format!(
            "while {client} held {resource}, {rival} was refused it and reported “{parts}”"
        ))
    }

    /// Whether no rival has a quorum without the masters that kept the key of the lease.
    fn is_kept_out(&self, case: &Case<'_>, kept: &[usize]) -> bool {
        self.rivals.iter().all(|rival| {
            let lock = case.world.lock_of(rival.process);
            lock.masters.iter().filter(|node| !kept.contains(node)).count() < lock.q
        })
    }

    /// The masters that certainly had the key while other clients asked for the resource.
    fn kept(&self, case: &Case<'_>) -> Vec<usize> {
        let through = |key: &&Presence<'_>| {
            let there = key.surely();
            there.from <= self.span.from && self.span.to <= there.to
        };
        sorted(self.lease.keys(&case.keys).filter(through).map(|key| key.node))
    }

    /// The masters on which the key was certainly gone before the end of its TTL, and before the
    /// other clients stopped asking. A key that a client deleted does not count.
    fn lost(&self, case: &Case<'_>) -> Vec<usize> {
        let is_early = |key: &Presence<'_>| {
            let end = key.life.ttl.map_or(Ns::MAX, |ttl| key.life.set.to.saturating_add(ttl));
            key.deleted.is_none() && key.possible.to < self.span.to.min(end)
        };
        let is_lost = |node: &usize| {
            let mut of_node = self.lease.keys(&case.keys).filter(|key| key.node == *node);
            of_node.all(is_early)
        };
        self.lease.masters(&case.keys).into_iter().filter(is_lost).collect()
    }

    /// The masters that kept the key, for clients with the same `n` masters and quorum `q`.
    fn sentence(&self, case: &Case<'_>, kept: &[usize], n: usize, q: usize) -> String {
        let (client, resource) = (self.lease.client, self.lease.resource);
        let kept_it = match &self.lost(case)[..] {
            [] => format!("{} kept {client}'s key", named(kept)),
            lost => {
                format!("{} lost {client}'s key early, but {} kept it", named(lost), named(kept))
            }
        };
        let mut rivals = self.rivals.iter().map(|rival| rival.client);
        let first = rivals.next().unwrap_or_default();
        let rival = if rivals.all(|other| other == first) { first } else { "another client" };
        let could = match n.saturating_sub(kept.len()) {
            0 => "it could not get any master".to_owned(),
            free => format!("it could get at most {free} of {n} masters, and a quorum takes {q}"),
        };
        format!("{kept_it} while {rival} asked for {resource}: {could}")
    }
}

/// Whether so many masters kept the key of each of these leases that the others were no quorum.
fn kept(case: &Case<'_>, all: &[Contest<'_, '_>]) -> Option<String> {
    let kept: Vec<Vec<usize>> = all.iter().map(|one| one.kept(case)).collect();
    if all.is_empty() || !all.iter().zip(&kept).all(|(one, kept)| one.is_kept_out(case, kept)) {
        return None;
    }
    let mut locks = all.iter().flat_map(|one| {
        let rivals = one.rivals.iter().map(|rival| rival.process);
        rivals.chain([one.lease.process]).map(|process| case.world.lock_of(process))
    });
    let first = locks.next()?;
    if !locks.all(|lock| lock.masters == first.masters && lock.q == first.q) {
        return Some(
            "whenever a client asked for the resource of another one's lease, so many masters \
             kept the key of the lease that the others were no quorum"
                .to_owned(),
        );
    }
    let (n, q) = (first.n, first.q);
    if let ([one], [kept]) = (all, &kept[..]) {
        return Some(one.sentence(case, kept, n, q));
    }
    let least = kept.iter().map(Vec::len).min()?;
    Some(format!(
        "another client asked for the resource during {} leases, and meanwhile at least {least} of \
         {n} masters kept the key of each: at most {} could grant, and a quorum takes {q}",
        all.len(),
        n.saturating_sub(least)
    ))
}

/// Whether no acquire was granted at all.
fn never_granted(case: &Case<'_>, leases: &[&Lease<'_>]) -> Option<String> {
    let asked = leases.is_empty() && case.requests.iter().any(Request::is_acquire_of_run);
    asked.then(|| {
        "no acquire was granted before the faults were healed, so there was no lease to break"
            .to_owned()
    })
}

/// The first access that a register refused because it had seen a larger fencing token.
fn refused_access(case: &Case<'_>) -> Option<String> {
    let mut largest: BTreeMap<&str, u64> = BTreeMap::new();
    for record in case.world.records {
        let Event::Touched { client, register, way, fence: Some(fence), refused, .. } =
            &record.event
        else {
            continue;
        };
        let seen = largest.entry(register).or_default();
        if *refused && *fence < *seen {
            return Some(format!(
                "the register {register} refused {client}'s {} under fencing token {fence} at {}: \
                 it had seen token {seen}",
                way.name(),
                Ms(record.ns)
            ));
        }
        if !*refused {
            *seen = (*seen).max(*fence);
        }
    }
    None
}

/// Whether every lease had a quorum among the masters that no fault hit.
fn untouched(case: &Case<'_>, leases: &[&Lease<'_>]) -> Option<String> {
    let strikes = case.faults.strikes();
    // A fault that failed may have hit some of its masters.
    if strikes.iter().any(|strike| strike.failed) {
        return None;
    }
    let hit: Vec<usize> = sorted(strikes.iter().flat_map(|strike| strike.masters(case)));
    let rest: Vec<usize> = (1..=case.world.n).filter(|node| !hit.contains(node)).collect();
    let enough = |lease: &&Lease<'_>| {
        let granted: Set<usize> = lease.masters(&case.keys).into_iter().collect();
        let count = rest.iter().filter(|node| granted.contains(node)).count();
        count >= case.world.lock_of(lease.process).q
    };
    (!hit.is_empty() && leases.iter().all(enough)).then(|| {
        format!(
            "faults hit only {}, and a quorum of {} granted every lease",
            named(&hit),
            named(&rest)
        )
    })
}
