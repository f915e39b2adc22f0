//! The masters without a key of a lease, and why they have none. A rival does not need a fault on
//! these masters, so a report that names only the last fault is incomplete.

use crate::history::{Act, Event, Ns, Outcome, Record, Window};
use crate::scenario::{Class, FaultKind, LinkSelector, NetworkFault};

use super::Case;
use super::exclusion::named;
use super::leases::Lease;
use super::time::MS;

/// A master's reply is on record within this time after the lease was granted.
const RECORDED: Ns = 1_000 * MS;

/// The report text: which of its masters have no key of a lease at an instant, and how many of the
/// others a rival needs. Empty where the keys cannot be interpreted.
pub(crate) fn lines(case: &Case<'_>, owner: &Lease<'_>, rival: &Lease<'_>, by: Ns) -> Vec<String> {
    if owner.token.is_none() || owner.token == rival.token {
        return Vec::new();
    }
    let lock = case.world.lock_of(owner.process);
    let keys = || owner.keys(&case.keys).filter(|key| key.made.from <= by);
    let has = |node: &usize| keys().any(|key| key.node == *node);
    let (there, absent): (Vec<usize>, Vec<usize>) = lock.masters.iter().partition(|node| has(node));
    let mut groups: Vec<(String, Vec<usize>)> = Vec::new();
    for node in &absent {
        let reason = reason(case, owner, *node);
        match groups.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, nodes)) => nodes.push(*node),
            None => groups.push((reason, vec![*node])),
        }
    }
    let mut lines: Vec<String> = groups
        .into_iter()
        .map(|(reason, nodes)| {
            let have = if nodes.len() == 1 { "has" } else { "have" };
            format!("{} {have} no key of {}: {reason}", named(&nodes), owner.client)
        })
        .collect();
    let all_certain = keys().all(|key| key.sure);
    lines.extend(all_certain.then(|| enough(case, owner, rival, &there)).flatten());
    lines
}

/// How many of the masters with a key of the owner must lose it before the rival can get a quorum.
/// None if the clients know different masters, or if the owner has no quorum.
fn enough(
    case: &Case<'_>,
    owner: &Lease<'_>,
    rival: &Lease<'_>,
    there: &[usize],
) -> Option<String> {
    let (own, other) = (case.world.lock_of(owner.process), case.world.lock_of(rival.process));
    if own.masters != other.masters || own.q != other.q {
        return None;
    }
    let margin = usize::try_from(case.margin(owner.process, there.len())).ok()?;
    if margin == 0 || there.len() < own.q {
        return None;
    }
    let (owner, rival) = (owner.client, rival.client);
    let free = match own.n.saturating_sub(there.len()) {
        0 => format!("all have a key of {owner}"),
        1 => format!("1 has no key of {owner}"),
        free => format!("{free} have no key of {owner}"),
    };
    let lose = if margin == 1 { "loses its key" } else { "lose their keys" };
    Some(format!(
        "{rival} needs {} of {} masters, and {free}: if {margin} of {} {lose}, {rival} can get a \
         quorum",
        own.q,
        own.n,
        named(there)
    ))
}

/// Why a master has no key of a lease.
fn reason(case: &Case<'_>, lease: &Lease<'_>, node: usize) -> String {
    let owner = lease.client;
    // The attempt that won sent nothing before its first key was set.
    let first = lease.votes(&case.keys).map(|key| key.made.from).min();
    let during = Window::new(first.unwrap_or(lease.asked), lease.reply.ns);
    match reply(case, lease, node) {
        Some(Outcome::Refused) => return "another key was there".to_owned(),
        Some(Outcome::Error) => return "the reply was an error".to_owned(),
        _ => {}
    }
    let Some(fault) = case.faults.that_keep_from(lease.process, node, during).next() else {
        return format!("no request of {owner} arrived before the grant");
    };
    // A fault may hit other messages than acquires.
    let all = |which: &LinkSelector| {
        let acquires = matches!(which.command, Class::Any | Class::Acquire);
        acquires && which.index.is_none() && which.count.is_none()
    };
    let what = match fault.fault_kind {
        FaultKind::Net(NetworkFault::Drop(which)) if all(which) => {
            format!("the network dropped {owner}'s requests")
        }
        FaultKind::Net(NetworkFault::Hold(which)) if all(which) => {
            format!("the network held {owner}'s requests back")
        }
        FaultKind::Net(NetworkFault::Cut(_)) => format!("{owner} was cut off"),
        _ => format!("no request of {owner} arrived"),
    };
    format!("{what} ({})", fault.name())
}

/// The reply of a master to the command that would have set the key of a lease.
fn reply(case: &Case<'_>, lease: &Lease<'_>, node: usize) -> Option<Outcome> {
    let records = case.world.records;
    let begin = records.partition_point(|record| record.ns < lease.asked);
    let by = lease.reply.ns.saturating_add(RECORDED);
    let soon = records[begin..].iter().take_while(|record| record.ns <= by);
    let result = |record: &Record| match &record.event {
        Event::Command {
            node: at,
            act: act @ (Act::Set { .. } | Act::Keep { .. }),
            result,
            ..
        } => (*at == node && act.token() == lease.token).then_some(*result),
        _ => None,
    };
    soon.filter_map(result).next()
}
