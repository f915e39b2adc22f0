//! Masters, sets of masters, and which of these sets are a quorum.

use alloc::vec::Vec;
use core::fmt;

/// The most masters that one lock can have.
pub const MAX_NODES: usize = 64;

/// The quorum of `nodes` masters: ⌊N/2⌋ + 1, so that any two quorums share a master.
pub const fn quorum(nodes: usize) -> usize {
    nodes / 2 + 1
}

/// Which sets of masters decide: a majority. While a lock moves from one set of masters to another,
/// a majority of each of the two, as in the joint consensus of Raft. Then any two clients of which
/// at least one moves share a master.
///
/// A lock that does not move has twice the same set.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Quorum {
    sets: [NodeSet; 2],
}

impl Quorum {
    /// No masters, and no quorum.
    pub const NONE: Self = Self { sets: [NodeSet::EMPTY; 2] };

    /// The majorities of `nodes` masters.
    pub fn of(nodes: usize) -> Self {
        let all = NodeId::all(nodes).collect();
        Self { sets: [all, all] }
    }

    /// The majorities of this set, of the masters of several locks.
    pub const fn among(set: NodeSet) -> Self {
        Self { sets: [set, set] }
    }

    /// The majorities of both sets: a lock that moves from the one to the other. They may share
    /// masters. The masters of both, together, are numbered without a gap.
    pub fn joint(from: NodeSet, to: NodeSet) -> Self {
        let all = from.or(to);
        debug_assert!(all == NodeId::all(all.len()).collect(), "a master of neither set: {all:?}");
        Self { sets: [from, to] }
    }

    /// The two sets, if the lock moves.
    pub fn moves(self) -> Option<[NodeSet; 2]> {
        (self.sets[0] != self.sets[1]).then_some(self.sets)
    }

    /// The majorities of each of the two sets, alone.
    pub fn each(self) -> [Self; 2] {
        self.sets.map(Self::among)
    }

    /// All masters.
    pub const fn all(self) -> NodeSet {
        self.sets[0].or(self.sets[1])
    }

    /// The number of masters.
    pub const fn nodes(self) -> usize {
        self.all().len()
    }

    /// Whether these masters contain a quorum.
    pub fn is_in(self, set: NodeSet) -> bool {
        self.sets.iter().all(|of| set.and(*of).len() >= quorum(of.len()))
    }

    /// Whether no quorum is left without these masters.
    pub fn is_blocked_by(self, set: NodeSet) -> bool {
        !self.is_in(self.all().without(set))
    }

    /// Whether a client that shares masters with this lock may have a quorum among these. Beside a
    /// lock that moves, such a client may use the masters of one set only.
    pub fn may_be_a_rivals(self, set: NodeSet) -> bool {
        self.sets.iter().any(|of| set.and(*of).len() >= quorum(of.len()))
    }

    /// The decision of the masters, from those that are for it and those that are awaited and may
    /// still be for it.
    ///
    /// This is R3 in both directions, and holds for even N, too. A master that refused, whose vote
    /// is unknown, or that may not vote is in neither set.
    pub fn verdict(self, for_it: NodeSet, awaited: NodeSet) -> Option<bool> {
        debug_assert!(for_it.and(awaited).is_empty(), "R3: a master votes once");
        if self.is_in(for_it) {
            Some(true)
        } else if self.is_in(for_it.or(awaited)) {
            None
        } else {
            Some(false)
        }
    }

    /// The least value that a quorum reaches or stays below, of the values that masters have.
    pub fn least<T: Copy + Ord>(self, value: impl Fn(NodeId) -> Option<T>) -> Option<T> {
        let known = self.all().iter().filter_map(|node| Some((value(node)?, node)));
        let mut known: Vec<(T, NodeId)> = known.collect();
        known.sort_unstable();
        let mut reached = NodeSet::EMPTY;
        known.into_iter().find_map(|(value, node)| {
            reached.insert(node);
            self.is_in(reached).then_some(value)
        })
    }

    /// How many masters must forget a key before a rival can win, if these masters have it: with m
    /// of them, a quorum of q and N masters, m + q − N, for the set where that is less.
    pub fn margin(self, members: NodeSet) -> usize {
        let of =
            |set: &NodeSet| (members.and(*set).len() + quorum(set.len())).saturating_sub(set.len());
        self.sets.iter().map(of).min().unwrap_or(0)
    }

    /// Whether these masters are no more than a quorum, in one of the sets at least.
    pub fn is_bare(self, members: NodeSet) -> bool {
        self.sets.iter().any(|set| members.and(*set).len() <= quorum(set.len()))
    }

    /// The number of masters in the smallest quorum.
    pub fn size(self) -> usize {
        let [from, to] = self.sets.map(|set| quorum(set.len()));
        let shared = self.sets[0].and(self.sets[1]).len();
        let both = from.min(to).min(shared);
        from + to - both
    }
}

/// One master of a lock, counted from 0 in code and from 1 in every text for people.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(u8);

impl NodeId {
    /// The master with this index, counted from 0.
    ///
    /// # Panics
    /// If the index is not below [`MAX_NODES`].
    pub fn new(index: usize) -> Self {
        assert!(index < MAX_NODES, "a lock has at most {MAX_NODES} masters");
        #[expect(clippy::cast_possible_truncation, reason = "bounded by the line above")]
        Self(index as u8)
    }

    /// The index, counted from 0.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// All masters of a lock with `nodes` masters, in order.
    pub fn all(nodes: usize) -> impl Iterator<Item = Self> + Clone {
        (0..nodes).map(Self::new)
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "master {}", u16::from(self.0) + 1)
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A set of masters. A master is in it at most once, so no reply counts twice.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct NodeSet(u64);

impl NodeSet {
    /// No master.
    pub const EMPTY: Self = Self(0);

    /// The masters of whose item this is true. The items are in the order of the masters.
    pub fn which<T>(items: impl IntoIterator<Item = T>, is: impl Fn(T) -> bool) -> Self {
        let numbered =
            items.into_iter().enumerate().filter_map(|(at, item)| is(item).then_some(at));
        numbered.map(NodeId::new).collect()
    }

    /// Each master in the set, in order.
    pub fn iter(self) -> impl Iterator<Item = NodeId> + Clone {
        let end = (u64::BITS - self.0.leading_zeros()) as usize;
        NodeId::all(end).filter(move |node| self.contains(*node))
    }

    /// Adds `node`.
    pub fn insert(&mut self, node: NodeId) {
        self.0 |= 1 << node.0;
    }

    /// Removes `node`.
    pub fn remove(&mut self, node: NodeId) {
        self.0 &= !(1 << node.0);
    }

    /// Whether `node` is in the set.
    pub const fn contains(self, node: NodeId) -> bool {
        self.0 & (1 << node.0) != 0
    }

    /// How many masters are in the set.
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether the set has no master.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The masters in either set.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The masters in this set that are not in the other.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The masters in both sets.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl FromIterator<NodeId> for NodeSet {
    fn from_iter<I: IntoIterator<Item = NodeId>>(nodes: I) -> Self {
        let mut set = Self::EMPTY;
        nodes.into_iter().for_each(|node| set.insert(node));
        set
    }
}

impl fmt::Debug for NodeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_two_quorums_share_a_master() {
        for nodes in 1..=MAX_NODES {
            assert!(2 * quorum(nodes) > nodes, "{nodes} masters");
            // A smaller number would not do.
            assert!(2 * (quorum(nodes) - 1) <= nodes, "{nodes} masters");
        }
    }

    fn sets(nodes: usize) -> impl Iterator<Item = NodeSet> {
        (0..1_u64 << nodes).map(NodeSet)
    }

    #[test]
    fn a_quorum_of_a_move_shares_a_master_with_each_of_both_sets_and_one_set_would_not_do() {
        let mut missed = 0;
        for (from, to) in sets(5).flat_map(|from| sets(5).map(move |to| (from, to))) {
            if from.or(to) != Quorum::of(5).all() || from.is_empty() || to.is_empty() {
                continue;
            }
            let joint = Quorum::joint(from, to);
            let majority = |of: NodeSet| move |set: &NodeSet| set.and(of).len() >= quorum(of.len());
            for set in sets(5).filter(|set| joint.is_in(*set)) {
                for other in sets(5).filter(|other| joint.may_be_a_rivals(*other)) {
                    assert!(!set.and(other).is_empty(), "{set:?} of {joint:?} beside {other:?}");
                }
                assert!(set.len() >= joint.size() && joint.margin(set) > 0);
            }
            // A majority of one set alone may miss one of the other.
            let misses = |set: NodeSet| {
                let others = |other: &NodeSet| majority(to)(other) && other.and(set).is_empty();
                sets(5).any(|other| others(&other))
            };
            missed += sets(5).filter(majority(from)).filter(|set| misses(*set)).count();
            assert!(sets(5).any(|set| joint.is_in(set) && set.len() == joint.size()));
        }
        assert!(missed > 0);
    }

    #[test]
    fn a_lock_that_does_not_move_counts_to_the_majority() {
        for nodes in 1..=6 {
            let own = Quorum::of(nodes);
            assert_eq!((own.nodes(), own.size(), own.moves()), (nodes, quorum(nodes), None));
            for set in sets(nodes) {
                let many = set.len() >= quorum(nodes);
                assert_eq!((own.is_in(set), own.may_be_a_rivals(set)), (many, many));
                assert_eq!(own.is_blocked_by(set), nodes - set.len() < quorum(nodes));
                assert_eq!(own.is_bare(set), set.len() <= quorum(nodes));
            }
        }
    }

    #[test]
    fn the_least_value_is_that_of_a_whole_quorum() {
        let node =
            |numbers: &[usize]| numbers.iter().copied().map(NodeId::new).collect::<NodeSet>();
        let joint = Quorum::joint(node(&[0, 1, 2]), node(&[2, 3, 4]));
        let value = |values: [Option<u64>; 5]| joint.least(|node| values[node.index()]);
        assert_eq!(value([Some(9), Some(1), Some(2), Some(7), Some(8)]), Some(7));
        assert_eq!(value([Some(1), Some(1), Some(9), Some(9), None]), Some(9));
        assert_eq!(value([Some(1), Some(2), None, Some(4), Some(5)]), Some(5));
        assert_eq!(value([Some(1), Some(2), Some(3), None, None]), None);
        assert_eq!(joint.size(), 3);
    }
}
