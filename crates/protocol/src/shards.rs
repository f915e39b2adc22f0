//! Shards: which of several locks a resource belongs to.

use crate::backoff::splitmix64;
use crate::fingerprint::{FNV_1A, fnv_1a};

/// The place of the shard that a key belongs to, its home, among the shards of these names. `None`
/// if there is none.
///
/// This is rendezvous hashing: each shard has a score for each key, and the largest one wins. So
/// the order of the names does not matter; a shard that is added takes its part from each of the
/// others, and no key changes hands between those; and a shard that goes leaves its keys to all
/// others. The score is the FNV-1a hash of the name, a byte `0xff` and the key, mixed by one step
/// of SplitMix64, since FNV-1a alone hardly spreads the last byte. The larger name wins a tie.
///
/// Source: Thaler and Ravishankar, *Using Name-Based Mappings to Increase Hit Rates*, IEEE/ACM
/// Transactions on Networking 6 (1), 1998.
pub fn home<'a>(key: &[u8], shards: impl IntoIterator<Item = &'a str>) -> Option<usize> {
    let score = |name: &str| {
        let mut hash = fnv_1a(fnv_1a(fnv_1a(FNV_1A, name.as_bytes()), &[0xff]), key);
        splitmix64(&mut hash)
    };
    let scored = shards.into_iter().enumerate().map(|(place, name)| (score(name), name, place));
    scored.max().map(|(.., place)| place)
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::string::String;
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    fn home_of<'a>(key: &[u8], names: &[&'a str]) -> &'a str {
        names[home(key, names.iter().copied()).unwrap()]
    }

    /// Clients of different versions must agree on the home, and so must other languages.
    #[test]
    fn it_is_the_same_in_every_version() {
        assert_eq!(home(b"r", []), None);
        let homes: String =
            (0..16).map(|n| home_of(format!("invoice:{n}").as_bytes(), &["a", "b", "c"])).collect();
        assert_eq!(homes, "abcbcbacccbbbccc");
    }

    #[test]
    fn each_shard_has_its_part() {
        for count in [2, 3, 8] {
            let names: Vec<String> = (1..=count).map(|n| format!("shard-{n}")).collect();
            let mut keys = alloc::vec![0; count];
            for n in 0..10_000 {
                let key = format!("user:{n}");
                keys[home(key.as_bytes(), names.iter().map(|it| &**it)).unwrap()] += 1;
            }
            let fair = 10_000 / count;
            // Five standard deviations of 10 000 throws are less than a fifth of 1 250.
            assert!(keys.iter().all(|it: &usize| it.abs_diff(fair) < fair / 5), "{keys:?}");
        }
    }

    proptest! {
        #[test]
        fn order_does_not_matter_and_only_what_comes_or_goes_changes_hands(
            key in prop::collection::vec(any::<u8>(), 0..40),
            names in prop::collection::btree_set("[a-z0-9]{1,3}", 2..8),
            by in any::<prop::sample::Index>(),
        ) {
            let names: Vec<&str> = names.iter().map(|it| &**it).collect();
            let all = home_of(&key, &names);
            let reversed: Vec<&str> = names.iter().rev().copied().collect();
            prop_assert_eq!(home_of(&key, &reversed), all);
            let gone = names[by.index(names.len())];
            let rest: Vec<&str> = names.iter().filter(|it| **it != gone).copied().collect();
            prop_assert!(gone == all || home_of(&key, &rest) == all);
        }
    }
}
