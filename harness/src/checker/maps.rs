//! Hash maps and sets for histories: of tokens, names and numbers. There are many of these and none
//! is hostile, so a fast hash is better than one that withstands an attack. The hash is the same in
//! every run of the program.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

/// A hash map.
pub(super) type Map<K, V> = HashMap<K, V, BuildHasherDefault<Quick>>;
/// A hash set.
pub(super) type Set<T> = HashSet<T, BuildHasherDefault<Quick>>;

/// 2⁶⁴ divided by the golden ratio, made odd.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// A hasher that multiplies and rotates, eight bytes at a time.
#[derive(Clone, Copy, Default)]
pub(super) struct Quick(u64);

impl Quick {
    const fn add(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(FACTOR);
    }
}

impl Hasher for Quick {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.add(u64::from_le_bytes(*word));
        }
        if !rest.is_empty() {
            let mut word = [0; 8];
            word[..rest.len()].copy_from_slice(rest);
            self.add(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, value: u8) {
        self.add(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        self.add(value);
    }

    fn write_usize(&mut self, value: usize) {
        self.add(value as u64);
    }

    fn finish(&self) -> u64 {
        // The map uses the upper bits and the lower bits.
        self.0 ^ (self.0 >> 32)
    }
}

/// Numbers for texts, in the order in which each text first occurs.
#[derive(Default)]
pub(super) struct Numbers<'a> {
    all: Map<&'a str, usize>,
    latest: Option<(&'a str, usize)>,
}

impl<'a> Numbers<'a> {
    /// The number of a text. A new text gets the next number.
    pub(super) fn of(&mut self, text: &'a str) -> usize {
        // The text is usually that of the previous call: the same command goes to every master.
        if let Some((_, number)) = self.latest.filter(|(latest, _)| *latest == text) {
            return number;
        }
        let next = self.all.len();
        let number = *self.all.entry(text).or_insert(next);
        self.latest = Some((text, number));
        number
    }

    /// The number of a text, if it has one.
    pub(super) fn known(&self, text: &str) -> Option<usize> {
        self.all.get(text).copied()
    }

    /// How many texts have a number.
    pub(super) fn count(&self) -> usize {
        self.all.len()
    }
}

/// How many different masters there are among these.
pub(super) fn count(nodes: impl Iterator<Item = usize>) -> usize {
    let mut few: u64 = 0;
    let mut others = Vec::new();
    for node in nodes {
        if node < 64 {
            few |= 1 << node;
        } else {
            others.push(node);
        }
    }
    others.sort_unstable();
    others.dedup();
    few.count_ones() as usize + others.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_master_counts_once() {
        assert_eq!(count([3, 1, 3, 700, 64, 700, 1].into_iter()), 4);
        assert_eq!(count(std::iter::empty()), 0);
    }

    #[test]
    fn names_that_differ_are_told_apart() {
        let names: Vec<String> = (0..10_000).map(|number| format!("hex:{number:040x}")).collect();
        let set: Set<&str> = names.iter().map(String::as_str).collect();
        assert_eq!(set.len(), 10_000);
        let hashes: Set<u64> = names
            .iter()
            .map(|name| {
                let mut hash = Quick::default();
                hash.write(name.as_bytes());
                hash.finish()
            })
            .collect();
        assert_eq!(hashes.len(), 10_000);
    }
}
