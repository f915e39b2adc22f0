//! Fence: makes one number that grows with every grant from the counters of N masters.
//!
//! Each master has a counter beside the key. The script that creates the key also raises the
//! counter and returns the number. Only the hint, a reading of a wall clock, keeps the counters of
//! different masters in step, and **safety does not rest on it**. A number becomes the fencing
//! token of a lease only when it is certified: a quorum of masters *that still hold the lease's
//! key* have exactly this number.
//!
//! Two tokens can never be equal or in the wrong order, because their quorums share a master. On
//! that master the two holds do not overlap. Each hold began by raising the counter, and during a
//! hold no other client touches it. So the later hold has the larger number there, and its token is
//! that number. `docs/safety.md` has the conditions, and what remains of this if a master forgets.

use crate::quorum::{NodeId, Quorum};
use crate::vote::{Reply, Votes};

/// The counter that a master showed during the hold that these votes belong to.
fn number(votes: &Votes, node: NodeId) -> Option<u64> {
    match votes.votes()[node.index()].reply {
        Some(Reply::Granted { number } | Reply::Certified { number }) => Some(number),
        _ => None,
    }
}

/// The number that a quorum of masters have. It is a fencing token if the masters were asked while
/// the key was ours.
pub(crate) fn agreed(votes: &Votes, quorum: Quorum) -> Option<u64> {
    let all = || NodeId::all(quorum.nodes());
    let with = |wanted: u64| all().filter(|it| number(votes, *it) == Some(wanted)).collect();
    let mut numbers = all().filter_map(|node| number(votes, node));
    numbers.find(|number| quorum.is_in(with(*number)))
}

/// The number to certify next: the least that a quorum can reach, which for a lock that does not
/// move is the q-th smallest. A counter that is far ahead of the others, for whatever reason, does
/// not lead the others.
pub(crate) fn candidate(votes: &Votes, quorum: Quorum) -> Option<u64> {
    quorum.least(|node| number(votes, node))
}
