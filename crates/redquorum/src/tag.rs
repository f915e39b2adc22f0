//! Tag: whom a link tells what its master answered.

use std::fmt;
use std::sync::Weak;

use redquorum_protocol::{Answer, NodeId, NodeSet, Step};
use tokio::sync::oneshot;

/// A claim, as those see it who have something to tell it: the links, and the alarm.
pub(crate) trait Claimant: Send + Sync {
    /// What a master answered.
    fn answered(&self, node: NodeId, step: Step, answer: Answer);

    /// The time has come for which the alarm was set. Links that it left to be
    /// [flushed](crate::link::LinkCell::flush) are returned.
    fn ring(&self, what: Ring) -> NodeSet;
}

/// For what the alarm was set.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ring {
    /// The deadline, or the end of a round.
    End,
    /// The watchdog may renew the lease.
    Renewal,
}

pub(crate) enum Tag {
    /// A claim, and what of it was asked. Weak: an answer to a caller who is gone is nobody's,
    /// and a master that sleeps keeps nothing alive.
    Claim(Weak<dyn Claimant>, Step),
    /// Whoever asked the master itself: whether it is alive, or to be marked.
    Probe(oneshot::Sender<Answer>),
}

impl Tag {
    /// Whether the answer is a vote, not the outcome of a clean-up.
    pub(crate) const fn is_vote(&self) -> bool {
        matches!(self, Self::Claim(_, Step::Attempt(_) | Step::Certify { .. } | Step::Extend(_)))
    }

    /// Must not be called under a link's lock.
    pub(crate) fn tell(self, node: NodeId, answer: Answer) {
        match self {
            Self::Claim(claim, step) => {
                if let Some(claim) = claim.upgrade() {
                    claim.answered(node, step, answer);
                }
            }
            // Whoever asked may have given up.
            Self::Probe(asker) => drop(asker.send(answer)),
        }
    }
}

impl fmt::Debug for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Claim(_, step) => write!(f, "Claim({step:?})"),
            Self::Probe(_) => f.write_str("Probe"),
        }
    }
}
