//! Fence: from the counters of N masters to one number that grows with every grant.
//!
//! Each master has a counter beside the key. Whoever creates the key there raises the counter in the
//! same script, and is told the number. Nothing keeps the counters of different masters in step but
//! the hint, a wall clock's reading: **safety does not rest on it**. A number becomes the fencing
//! token of a lease only when a quorum of masters *that still hold its key* stand at exactly this
//! number: it is certified.
//!
//! Why two tokens can then never be equal, or in the wrong order: their quorums share a master. On
//! it the two holds are disjoint in time, each began by raising the counter, and during a hold nobody
//! else touches it. So the later hold's number is larger there, and its token is that number.
//! `docs/safety.md` has what this needs, and what becomes of it where a master forgets.

use alloc::vec::Vec;

use crate::vote::{Answer, Ballot};

/// The largest number that a counter may show. Beyond it, numbers in Lua are not whole: 2⁵³ + 1
/// would be 2⁵³.
pub const MAX_NUMBER: u64 = (1 << 53) - 2;

/// What a master is told of its counter.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Fence {
    /// The counter shall reach at least this number.
    pub number: u64,
    /// How long the master remembers it from now, in milliseconds.
    pub memory_ms: u64,
}

/// The numbers that masters showed in the hold of whose ballot this is.
fn numbers(ballot: &Ballot) -> impl Iterator<Item = u64> + Clone {
    ballot.votes().iter().filter_map(|vote| match vote.answer {
        Some(Answer::Granted { number } | Answer::Certified { number }) => Some(number),
        _ => None,
    })
}

/// The number at which a quorum of them stand: a fencing token, once the masters were asked while
/// the key was ours.
pub(crate) fn agreed(ballot: &Ballot, quorum: usize) -> Option<u64> {
    let all = numbers(ballot);
    all.clone().find(|number| all.clone().filter(|other| other == number).count() >= quorum)
}

/// The number to certify next: the q-th smallest. A quorum can reach it; a counter that is far
/// ahead of the others, for whatever reason, is not followed there.
pub(crate) fn candidate(ballot: &Ballot, quorum: usize) -> Option<u64> {
    let mut all: Vec<u64> = numbers(ballot).collect();
    all.sort_unstable();
    all.get(quorum - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quorum::NodeId;
    use crate::time::Time;
    use crate::vote::Cause;

    fn ballot(said: &[Option<u64>]) -> Ballot {
        let mut ballot = Ballot::open(said.len(), Time::ZERO);
        for (node, number) in NodeId::all(said.len()).zip(said) {
            let answer = match number {
                Some(number) => Answer::Granted { number: *number },
                None => Answer::Unknown(Cause::Silent),
            };
            ballot.record(Time::ZERO, node, answer);
        }
        ballot
    }

    #[test]
    fn a_number_is_agreed_only_by_a_quorum() {
        assert_eq!(agreed(&ballot(&[Some(7), Some(7), None, Some(9), None]), 3), None);
        assert_eq!(agreed(&ballot(&[Some(9), Some(7), Some(7), None, Some(7)]), 3), Some(7));
        assert_eq!(agreed(&ballot(&[]), 1), None);
    }

    #[test]
    fn one_poisoned_counter_is_not_followed() {
        let said = [Some(MAX_NUMBER), Some(4), Some(5), Some(6), None];
        assert_eq!(candidate(&ballot(&said), 3), Some(6));
        assert_eq!(candidate(&ballot(&said[..2]), 3), None, "fewer than a quorum");
    }
}
