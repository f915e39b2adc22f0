//! Numbers: what a mutant makes of the numbers in grants, where a correct client certifies one. The
//! adapter holds grants back until there are enough, and then makes the machine believe that they
//! agree.

use redquorum_protocol::{NodeId, Reply};

use redquorum_scenario::Mutant;

/// The grants of one attempt, and the numbers of an earlier one.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Numbers {
    attempt: u32,
    /// Grants that the machine has not received, and how many masters have replied in all.
    held_back: Vec<(NodeId, u64)>,
    replied: usize,
    /// The numbers of the masters in the first hold in which they granted.
    first: Vec<(NodeId, u64)>,
}

impl Numbers {
    /// Whether a mutation affects the numbers of grants.
    pub(super) const fn are_for(mutant: Mutant) -> bool {
        matches!(
            mutant,
            Mutant::LargestGrant
                | Mutant::MedianGrant
                | Mutant::FollowsLargest
                | Mutant::EarlierNumber
        )
    }

    /// Takes a reply to an attempt and returns the replies that the machine gets. There are
    /// `nodes` masters, of which a quorum is needed.
    pub(super) fn pass(
        &mut self,
        mutant: Mutant,
        attempt: u32,
        (node, reply): (NodeId, Reply),
        (nodes, quorum): (usize, usize),
    ) -> Vec<(NodeId, Reply)> {
        if self.attempt != attempt {
            let first = std::mem::take(&mut self.first);
            *self = Self { attempt, first, ..Self::default() };
        }
        self.replied += 1;
        let Reply::Granted { number } = reply else {
            let mut replies = vec![(node, reply)];
            if mutant == Mutant::FollowsLargest && self.replied == nodes {
                replies.extend(self.let_go(mutant, quorum));
            }
            return replies;
        };
        if mutant == Mutant::EarlierNumber {
            let number = match self.first.iter().find(|(known, _)| *known == node) {
                Some((_, number)) => *number,
                None => {
                    self.first.push((node, number));
                    number
                }
            };
            return vec![(node, Reply::Granted { number })];
        }
        self.held_back.push((node, number));
        // To find the largest number of all, the mutant waits for all replies.
        let enough = if mutant == Mutant::FollowsLargest {
            self.replied == nodes
        } else {
            self.held_back.len() >= quorum
        };
        if enough { self.let_go(mutant, quorum) } else { Vec::new() }
    }

    /// Ends a round that is over or has enough grants: returns the grants as the mutant wants them.
    pub(super) fn let_go(&mut self, mutant: Mutant, quorum: usize) -> Vec<(NodeId, Reply)> {
        let grants = std::mem::take(&mut self.held_back);
        let mut sorted: Vec<u64> = grants.iter().map(|(_, number)| *number).collect();
        sorted.sort_unstable();
        let agree = sorted.windows(quorum).any(|some| some.first() == some.last());
        let Some(largest) = sorted.last().copied().filter(|_| grants.len() >= quorum) else {
            return grants.into_iter().map(granted).collect();
        };
        match mutant {
            Mutant::LargestGrant => {
                grants.into_iter().map(|(node, _)| granted((node, largest))).collect()
            }
            Mutant::MedianGrant => {
                let median = sorted[(sorted.len() - 1) / 2];
                grants.into_iter().map(|(node, _)| granted((node, median))).collect()
            }
            // Of exactly a quorum of numbers, the machine certifies the largest. The adapter hides
            // the smaller numbers of the other masters.
            _ if !agree => {
                let mut spare = grants.len() - quorum;
                let mut numbers: Vec<(NodeId, u64)> = grants;
                numbers.sort_unstable_by_key(|(_, number)| *number);
                let hide = |grant: (NodeId, u64)| {
                    if spare > 0 {
                        spare -= 1;
                        return (grant.0, Reply::Created);
                    }
                    granted(grant)
                };
                numbers.into_iter().map(hide).collect()
            }
            _ => grants.into_iter().map(granted).collect(),
        }
    }
}

const fn granted((node, number): (NodeId, u64)) -> (NodeId, Reply) {
    (node, Reply::Granted { number })
}
