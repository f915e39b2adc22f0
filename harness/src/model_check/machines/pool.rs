//! A pool of the parts of states. Each part is kept once and has a number, so that a state is a few
//! numbers.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use super::canonical::ORDERS;

/// See the [module](self). Each part has its hashes beside it: one for each order of the masters.
#[derive(Debug)]
pub(super) struct Pool<T> {
    parts: Vec<(T, [u128; ORDERS])>,
    numbers: HashMap<u128, u32, BuildHasherDefault<IdentityHasher>>,
}

impl<T> Pool<T> {
    pub(super) fn new() -> Self {
        Self { parts: Vec::new(), numbers: HashMap::default() }
    }

    #[cfg(test)]
    pub(super) fn all(&self) -> impl Iterator<Item = &T> {
        self.parts.iter().map(|(part, _)| part)
    }

    pub(super) fn get(&self, number: u32) -> &T {
        &self.parts[number as usize].0
    }

    pub(super) fn hashes(&self, number: u32) -> &[u128; ORDERS] {
        &self.parts[number as usize].1
    }

    /// The number of this part. Parts with the same first hash are equal.
    pub(super) fn enter(&mut self, part: T, hashes: impl Fn(&T) -> [u128; ORDERS]) -> u32 {
        let of = hashes(&part);
        self.enter_with(of, || part)
    }

    /// The number of a part whose hashes are known before the part is built.
    pub(super) fn enter_with(&mut self, of: [u128; ORDERS], part: impl FnOnce() -> T) -> u32 {
        *self.numbers.entry(of[0]).or_insert_with(|| {
            self.parts.push((part(), of));
            u32::try_from(self.parts.len() - 1).expect("fewer parts than states")
        })
    }
}

/// A hasher for values that are hashes already.
#[derive(Clone, Debug, Default)]
struct IdentityHasher(u64);

impl Hasher for IdentityHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "any half of a hash will do")]
    fn write_u128(&mut self, hash: u128) {
        self.0 = hash as u64;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
