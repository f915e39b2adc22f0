//! Gaps: whether a rival may have had a quorum while the lease was held.
//!
//! A rival needs a quorum of masters that lack our key at one time. It is certain that a master
//! held the key only when it confirms a key that it is known to have held before. So the hold keeps
//! a span for the time before each round. A span has the masters that held the key then, as far as
//! is known, and those of them that have not replied since. A silent master keeps its key (A2)
//! until it shows that it did not. A master that never showed the key has none.

use alloc::vec::Vec;

use crate::quorum::{NodeId, NodeSet, Quorum};
use crate::time::Time;

/// The times between the rounds of one hold in which masters may still turn out to have lacked the
/// key. There is at most one span for each master: see [`Spans::begin_round`].
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Spans(Vec<Span>);

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Span {
    /// Masters that held the key, unless they showed that they did not.
    held: NodeSet,
    /// Those of them that have not replied since it began.
    open: NodeSet,
    /// From this time on, the key of an open master may expire by itself.
    expires: Time,
}

impl Spans {
    /// A round begins: the time before it becomes a span in which `members` held the key. The key
    /// that the round before set lives until `expires`. Returns the members whose key may have
    /// expired by itself.
    pub(super) fn begin_round(&mut self, now: Time, members: NodeSet, expires: Time) -> NodeSet {
        let (mut stale, mut seen) = (NodeSet::EMPTY, NodeSet::EMPTY);
        for span in &self.0 {
            // The first span in which a master is open follows the latest reply of that master.
            if span.expires <= now {
                stale = stale.or(span.open.without(seen));
            }
            seen = seen.or(span.open);
        }
        let held = members.without(stale);
        self.close(stale);
        self.0.push(Span { held, open: held, expires });
        // A master that is open in a span is open in all later ones. If several spans are open for
        // the same masters, the one with the fewest keys decides.
        self.0.retain(|span| !span.open.is_empty());
        self.0.dedup_by(|later, earlier| {
            let same = later.open == earlier.open;
            if same && later.held.len() < earlier.held.len() {
                earlier.held = later.held;
            }
            same
        });
        debug_assert!(self.are_nested(), "a master that is silent for long is silent since");
        stale
    }

    /// Whether each span has the open masters of the one before, and only masters that held a key.
    fn are_nested(&self) -> bool {
        let grow = |pair: &[Span]| pair[0].open.without(pair[1].open).is_empty();
        self.0.windows(2).all(grow) && self.0.iter().all(|it| it.open.without(it.held).is_empty())
    }

    /// A master that held the key confirms it: it has held it all the time.
    pub(super) fn confirm(&mut self, node: NodeId) {
        self.close(NodeSet::from_iter([node]));
    }

    /// A master reports that it has no key of ours. It has had none since its last reply, unless
    /// the key may have expired by itself.
    pub(super) fn deny(&mut self, now: Time, node: NodeId) {
        let node = NodeSet::from_iter([node]);
        let first = self.0.iter().find(|span| !span.open.and(node).is_empty());
        if first.is_some_and(|span| now < span.expires) {
            for span in self.0.iter_mut().filter(|span| !span.open.and(node).is_empty()) {
                span.held = span.held.without(node);
            }
        }
        self.close(node);
    }

    /// Whether a rival can turn out to have had a quorum, if all of `awaited` report that they have
    /// no key of ours.
    pub(super) fn may_have_gap(&self, now: Time, awaited: NodeSet, quorum: Quorum) -> bool {
        let mut worst = self.clone();
        awaited.iter().for_each(|it| worst.deny(now, it));
        worst.has_gap(quorum)
    }

    fn close(&mut self, nodes: NodeSet) {
        self.0.iter_mut().for_each(|span| span.open = span.open.without(nodes));
    }

    /// Whether a rival can have had a quorum in one of the spans.
    pub(super) fn has_gap(&self, quorum: Quorum) -> bool {
        self.0.iter().any(|span| quorum.may_be_a_rivals(quorum.all().without(span.held)))
    }
}
