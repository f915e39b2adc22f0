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

use alloc::vec::Vec;

use crate::vote::{Reply, Votes};

/// The counters that masters showed during the hold that these votes belong to.
fn numbers(votes: &Votes) -> impl Iterator<Item = u64> + Clone {
    votes.votes().iter().filter_map(|vote| match vote.reply {
        Some(Reply::Granted { number } | Reply::Certified { number }) => Some(number),
        _ => None,
    })
}

/// The number that a quorum of masters have. It is a fencing token if the masters were asked while
/// the key was ours.
pub(crate) fn agreed(votes: &Votes, quorum: usize) -> Option<u64> {
    let all = numbers(votes);
    debug_assert!(2 * quorum > votes.votes().len(), "two numbers could both have a quorum");
    all.clone().find(|number| all.clone().filter(|other| other == number).count() >= quorum)
}

/// The number to certify next: the q-th smallest. A quorum can reach it. A counter that is far
/// ahead of the others, for whatever reason, does not lead the others.
pub(crate) fn candidate(votes: &Votes, quorum: usize) -> Option<u64> {
    let mut all: Vec<u64> = numbers(votes).collect();
    all.sort_unstable();
    let candidate = all.get(quorum - 1).copied();
    debug_assert!(
        candidate.is_none_or(|it| all.iter().filter(|number| **number <= it).count() >= quorum),
        "no quorum can reach the number"
    );
    candidate
}
