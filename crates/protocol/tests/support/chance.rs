//! Random numbers for small worlds. The generator never changes, so a seed always means the same
//! run.

use std::time::Duration;

use redquorum_protocol::{Backoff, Rng, TOKEN_LEN, Token};

/// splitmix64.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

impl Rng for Random {
    fn token(&mut self) -> Token {
        let mut bytes = [0; TOKEN_LEN];
        bytes[..8].copy_from_slice(&self.below(u64::MAX).to_le_bytes());
        Token::new(bytes)
    }

    fn hint(&mut self) -> u64 {
        1
    }

    fn random(&mut self) -> u64 {
        self.below(u64::MAX)
    }

    fn pause(&mut self, attempt: u32) -> Duration {
        let random = self.below(u64::MAX);
        Backoff::default().pause(attempt, random)
    }
}
