//! Votes: ballot stuffing. The machine is told what it wants to hear as soon as fewer masters than
//! a quorum have said so.

use redquorum_protocol::{Answer, NodeId, NodeSet, Step};

/// What it takes to steal a round.
#[derive(Clone, Copy)]
pub(super) struct Theft {
    /// How many masters there are.
    pub(super) nodes: usize,
    /// So many real votes are taken for enough.
    pub(super) enough: usize,
    /// So many the machine wants.
    pub(super) quorum: usize,
    /// The masters whose votes it counts.
    pub(super) voters: NodeSet,
}

/// The votes of one round.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Votes {
    step: Option<Step>,
    /// Masters that are in favour, for real.
    favour: NodeSet,
    /// Those of them that said just what the latest said: with fencing tokens, the same number.
    alike: Vec<(NodeId, Answer)>,
    /// Masters in whose name a vote was made up: what they say is not passed on.
    made_up: NodeSet,
    /// What others said. Held back, or the round would be lost before it is stolen.
    held_back: Vec<(NodeId, Answer)>,
}

impl Votes {
    /// Takes what a master said in a round, and returns what the machine is told.
    pub(super) fn pass(
        &mut self,
        step: Step,
        (node, answer): (NodeId, Answer),
        theft: Theft,
    ) -> Vec<(NodeId, Answer)> {
        if self.step != Some(step) {
            *self = Self { step: Some(step), ..Self::default() };
        }
        if self.made_up.contains(node) {
            return Vec::new();
        }
        let grants = matches!(step, Step::Attempt(_));
        if if grants { answer.creates() } else { answer == Answer::Kept } {
            self.favour.insert(node);
            self.alike.retain(|(_, known)| *known == answer);
            self.alike.push((node, answer.clone()));
            let mut told = vec![(node, answer.clone())];
            if self.favour.len() == theft.enough {
                told.extend(self.make_up(theft).map(|node| (node, answer.clone())));
            }
            return told;
        }
        if answer == Answer::Created {
            // A repair: neither for nor against.
            return vec![(node, answer)];
        }
        self.held_back.push((node, answer));
        let stolen = self.favour.len() >= theft.enough;
        if !stolen && self.favour.len() + self.held_back.len() >= theft.nodes {
            self.let_go()
        } else {
            Vec::new()
        }
    }

    /// Makes up what is missing to a quorum, in the name of masters that are not in favour.
    fn make_up(&mut self, theft: Theft) -> impl Iterator<Item = NodeId> {
        let alike: NodeSet = self.alike.iter().map(|(node, _)| *node).collect();
        let real = alike.and(theft.voters).len();
        let missing = theft.quorum.saturating_sub(real);
        let others = |node: &NodeId| theft.voters.contains(*node) && !self.favour.contains(*node);
        let chosen: Vec<_> = NodeId::all(theft.nodes).filter(others).take(missing).collect();
        chosen.iter().for_each(|node| self.made_up.insert(*node));
        chosen.into_iter()
    }

    /// Whether the machine has everything that was said in this round.
    pub(super) fn holds_back(&self, step: Step, enough: usize) -> bool {
        self.step == Some(step) && !self.held_back.is_empty() && self.favour.len() < enough
    }

    /// The round that these are of.
    pub(super) const fn step(&self) -> Option<Step> {
        self.step
    }

    /// The round is over, and was not stolen: what was held back is passed on.
    pub(super) fn let_go(&mut self) -> Vec<(NodeId, Answer)> {
        std::mem::take(&mut self.held_back)
    }
}
