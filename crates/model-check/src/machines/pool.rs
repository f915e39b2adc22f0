//! A pool of the parts of states. Each part is kept once and has a number, so that a state is a few
//! numbers.

use super::super::state_set::StateSet;
use super::canonical::ORDERS;

/// See the [module](self). Each part has its hashes beside it: one for each order of the masters.
#[derive(Debug)]
pub(super) struct Pool<T> {
    parts: Vec<(T, [u128; ORDERS])>,
    numbers: StateSet,
}

impl<T> Pool<T> {
    pub(super) fn new() -> Self {
        Self { parts: Vec::new(), numbers: StateSet::new() }
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
        let (number, is_new) = self.numbers.enter(of[0]);
        if is_new {
            self.parts.push((part(), of));
        }
        number
    }
}
