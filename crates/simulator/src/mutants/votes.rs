//! Votes: made-up votes. The machine gets the replies of a quorum as soon as fewer masters than a
//! quorum have given them.

use redquorum_protocol::{NodeId, NodeSet, Reply, RoundId};

/// The parameters for stealing a round.
#[derive(Clone, Copy)]
pub(super) struct Theft {
    /// The number of masters.
    pub(super) nodes: usize,
    /// How many real votes are enough for the mutant.
    pub(super) enough: usize,
    /// How many votes the machine requires.
    pub(super) quorum: usize,
    /// The masters whose votes the machine counts.
    pub(super) voters: NodeSet,
}

/// The votes of one round.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct VoteTheft {
    step: Option<RoundId>,
    /// Masters that are really in favour.
    favour: NodeSet,
    /// Those of them whose reply equals the latest one: with fencing tokens, the same number.
    alike: Vec<(NodeId, Reply)>,
    /// Masters with a made-up vote. Their real replies are not passed on.
    made_up: NodeSet,
    /// The other replies. They are held back, or the round would be lost before it is stolen.
    held_back: Vec<(NodeId, Reply)>,
}

impl VoteTheft {
    /// Takes a reply in a round and returns the replies that the machine gets.
    pub(super) fn pass(
        &mut self,
        step: RoundId,
        (node, reply): (NodeId, Reply),
        theft: Theft,
    ) -> Vec<(NodeId, Reply)> {
        if self.step != Some(step) {
            *self = Self { step: Some(step), ..Self::default() };
        }
        if self.made_up.contains(node) {
            return Vec::new();
        }
        let grants = matches!(step, RoundId::Attempt(_));
        if if grants { reply.creates() } else { reply == Reply::Kept } {
            self.favour.insert(node);
            self.alike.retain(|(_, known)| *known == reply);
            self.alike.push((node, reply.clone()));
            let mut replies = vec![(node, reply.clone())];
            if self.favour.len() == theft.enough {
                replies.extend(self.make_up(theft).map(|node| (node, reply.clone())));
            }
            return replies;
        }
        if reply == Reply::Created {
            // A repair: neither for nor against.
            return vec![(node, reply)];
        }
        self.held_back.push((node, reply));
        let stolen = self.favour.len() >= theft.enough;
        if !stolen && self.favour.len() + self.held_back.len() >= theft.nodes {
            self.let_go()
        } else {
            Vec::new()
        }
    }

    /// Makes up the votes that are missing to a quorum, for masters that are not in favour.
    fn make_up(&mut self, theft: Theft) -> impl Iterator<Item = NodeId> {
        let alike: NodeSet = self.alike.iter().map(|(node, _)| *node).collect();
        let real = alike.and(theft.voters).len();
        let missing = theft.quorum.saturating_sub(real);
        let others = |node: &NodeId| theft.voters.contains(*node) && !self.favour.contains(*node);
        let chosen: Vec<_> = NodeId::all(theft.nodes).filter(others).take(missing).collect();
        chosen.iter().for_each(|node| self.made_up.insert(*node));
        chosen.into_iter()
    }

    /// Whether replies of this round are held back and the round is not stolen yet.
    pub(super) fn holds_back(&self, step: RoundId, enough: usize) -> bool {
        self.step == Some(step) && !self.held_back.is_empty() && self.favour.len() < enough
    }

    /// The round of these votes.
    pub(super) const fn step(&self) -> Option<RoundId> {
        self.step
    }

    /// Ends a round that was not stolen: returns the replies that were held back.
    pub(super) fn let_go(&mut self) -> Vec<(NodeId, Reply)> {
        std::mem::take(&mut self.held_back)
    }
}
