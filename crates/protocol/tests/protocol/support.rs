//! Random sources and other small parts that all tests share.

use std::time::Duration;

use redquorum_protocol::{Rng, TOKEN_LEN, Token, splitmix64};

pub(crate) const MS: Duration = Duration::from_millis(1);

/// A token whose last byte, or bytes, are this number.
pub(crate) fn token(number: u64) -> Token {
    let mut bytes = [0; TOKEN_LEN];
    bytes[TOKEN_LEN - 8..].copy_from_slice(&number.to_be_bytes());
    Token::new(bytes)
}

/// The generator never changes, so a seed always means the same run.
#[derive(Clone)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        splitmix64(&mut self.0) % bound
    }

    /// Up to this number of milliseconds.
    pub(crate) fn millis(&mut self, bound: u64) -> Duration {
        Duration::from_millis(self.below(bound))
    }
}

impl Rng for Random {
    fn token(&mut self) -> Token {
        token(splitmix64(&mut self.0))
    }

    /// A wall clock that jumps: tokens must not depend on it.
    fn hint(&mut self) -> u64 {
        self.below(400)
    }

    fn pause(&mut self, _attempt: u32) -> Duration {
        Duration::from_micros(2_000 + self.below(20_000))
    }

    fn random(&mut self) -> u64 {
        splitmix64(&mut self.0)
    }
}

/// Tokens count up, and all pauses are the same.
#[derive(Clone)]
pub(crate) struct Count {
    pub(crate) tokens: u64,
    pub(crate) pause: Duration,
    /// The attempts after which there was a pause.
    pub(crate) paused: Vec<u32>,
    /// Every random number.
    pub(crate) random: u64,
}

impl Count {
    pub(crate) const fn new(pause: Duration) -> Self {
        Self { tokens: 0, pause, paused: Vec::new(), random: 0 }
    }
}

impl Rng for Count {
    fn token(&mut self) -> Token {
        self.tokens += 1;
        token(self.tokens)
    }

    fn hint(&mut self) -> u64 {
        1_000
    }

    fn pause(&mut self, attempt: u32) -> Duration {
        self.paused.push(attempt);
        self.pause
    }

    fn random(&mut self) -> u64 {
        self.random
    }
}
