//! A random source from a number. The stream of its generator never changes.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

/// See the [module](self).
pub(super) struct Rng(ChaCha8Rng);

impl Rng {
    /// The simulation has its own streams from the same number.
    pub(super) fn new(number: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(number))
    }

    /// A source for one purpose. Its choices do not change those of other purposes: the rest of a
    /// scenario is the same with them and without.
    pub(super) fn of(number: u64, purpose: &str) -> Self {
        let salt = purpose.bytes().fold(0, |salt, byte| salt << 8 | u64::from(byte));
        Self::new(number ^ salt)
    }

    /// A number less than a bound.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0.next_u64() % bound.max(1)
    }

    /// A number between two others, both included.
    pub(super) fn within(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most.saturating_sub(least) + 1)
    }

    /// Returns true with probability `often` / `of`.
    pub(super) fn chance(&mut self, often: u64, of: u64) -> bool {
        self.below(of) < often
    }

    pub(super) fn pick<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.index(all.len())].clone()
    }

    pub(super) fn index(&mut self, of: usize) -> usize {
        let of = u64::try_from(of).unwrap_or(u64::MAX);
        usize::try_from(self.below(of)).unwrap_or_default()
    }

    /// Returns a value with probability `often` / `of`.
    pub(super) fn maybe<T>(
        &mut self,
        often: u64,
        of: u64,
        draw: impl FnOnce(&mut Self) -> T,
    ) -> Option<T> {
        self.chance(often, of).then(|| draw(self))
    }
}
