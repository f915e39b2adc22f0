//! Masters, sets of masters, and the size of a quorum.

use core::fmt;

/// The most masters that one lock can have.
pub const MAX_NODES: usize = 64;

/// The quorum of `nodes` masters: ⌊N/2⌋ + 1, so that any two quorums share a master.
pub const fn quorum(nodes: usize) -> usize {
    nodes / 2 + 1
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
        f.debug_set().entries(NodeId::all(MAX_NODES).filter(|node| self.contains(*node))).finish()
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
}
