//! The list of masters that a client knows, which may differ from other clients' lists. The lock
//! counts the entries of that list. The resource is held on the masters behind the entries, each
//! counted once.

/// The addresses of masters that a client knows, in its order. A master may be in the list twice.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NodeList(Vec<usize>);

impl NodeList {
    /// The first `nodes` masters.
    pub fn all(nodes: usize) -> Self {
        Self((1..=nodes).collect())
    }

    /// These masters, in this order.
    pub fn named(addresses: &[usize]) -> Self {
        Self(addresses.to_vec())
    }

    /// The master behind each address, counted from 1, in the order of the list.
    pub fn addresses(&self) -> &[usize] {
        &self.0
    }

    /// The name of the set, independent of the order: `1,2,3`.
    pub fn name(&self) -> String {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let all: Vec<String> = sorted.iter().map(ToString::to_string).collect();
        all.join(",")
    }

    /// The masters in the list, each once, in the order of their numbers.
    pub fn masters(&self) -> Vec<usize> {
        let mut masters = self.0.clone();
        masters.sort_unstable();
        masters.dedup();
        masters
    }

    /// The number of addresses that must agree. Duplicates count, since the lock cannot know that
    /// two addresses are one master.
    pub fn quorum(&self) -> usize {
        self.0.len() / 2 + 1
    }

    /// Whether a quorum of this list and one of the other can have no master in common. Then both
    /// clients can be granted the same resource although no master forgets anything.
    pub fn can_part_from(&self, other: &Self) -> bool {
        let (own, others) = (self.masters(), other.masters());
        let common = own.iter().filter(|node| others.contains(node)).count();
        // To avoid common masters, a quorum first takes the masters that are not in the other list.
        let of_common = |list: &Self, all: &[usize]| {
            list.quorum().saturating_sub(all.len().saturating_sub(common))
        };
        let enough = |list: &Self, all: &[usize]| list.quorum() <= all.len();
        enough(self, &own)
            && enough(other, &others)
            && of_common(self, &own) + of_common(other, &others) <= common
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quorum_is_of_addresses_and_masters_are_counted_once() {
        let twice = NodeList::named(&[1, 1, 2]);
        assert_eq!((twice.quorum(), twice.masters()), (2, vec![1, 2]));
        assert_eq!(NodeList::all(4).quorum(), 3);
    }

    #[test]
    fn quorums_of_lists_part_only_where_enough_masters_are_not_common() {
        for (one, other, parts) in [
            (&[1, 2, 3][..], &[1, 2, 3][..], false),
            (&[1, 2, 3], &[3, 2, 1], false),
            (&[1, 2, 3], &[3, 4, 5], true),
            (&[1, 2, 3], &[2, 3, 4], true),
            (&[1, 2, 3], &[1, 2, 3, 4, 5], true),
            (&[1, 2, 3, 4], &[1, 2, 3, 4, 5], false),
            (&[1, 2, 3, 4], &[2, 3, 4], false),
            (&[1, 1, 2], &[1, 1, 2], false),
            (&[1, 1, 2], &[2, 3, 4], true),
            (&[1, 1], &[2], false),
            (&[1], &[2], true),
            (&[1], &[1], false),
        ] {
            let (one, other) = (NodeList::named(one), NodeList::named(other));
            assert_eq!(one.can_part_from(&other), parts, "{one:?} and {other:?}");
            assert_eq!(other.can_part_from(&one), parts, "{other:?} and {one:?}");
        }
    }
}
