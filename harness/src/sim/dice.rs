//! Chance, from one seed. Each purpose has a stream of its own, so that switching one fault off does
//! not shift the rest. The generator is named, and its stream never changes with a version.

use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use redquorum_protocol::{Backoff, Dice, TOKEN_LEN, Token};

/// All chance of a run.
#[derive(Clone, Debug)]
pub(super) struct Streams {
    latency: ChaCha8Rng,
    /// In which order a master that goes on gets to its connections; what a client that wakes up
    /// sees first.
    order: ChaCha8Rng,
    /// Tokens and pauses of clients.
    client: ClientDice,
    /// The jitter of links that try again.
    retry: ChaCha8Rng,
}

/// The chance that a claim has.
#[derive(Clone, Debug)]
pub(super) struct ClientDice(ChaCha8Rng);

impl Streams {
    pub(super) fn of(seed: u64) -> Self {
        let stream = |number| {
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            random.set_stream(number);
            random
        };
        Self {
            latency: stream(1),
            order: stream(2),
            client: ClientDice(stream(3)),
            retry: stream(4),
        }
    }

    /// How long a message is under way on loopback: some hundred microseconds, one in a hundred
    /// ten times as long.
    pub(super) fn latency(&mut self) -> u64 {
        let word = self.latency.next_u32();
        let micros = 60 + u64::from(word & 0xff);
        let factor = if (word >> 8).is_multiple_of(100) { 10 } else { 1 };
        micros * 1_000 * factor
    }

    /// Something less than a bound.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.order.next_u64() % bound.max(1)
    }

    pub(super) fn retry(&mut self) -> u64 {
        self.retry.next_u64()
    }

    pub(super) fn client(&mut self) -> &mut ClientDice {
        &mut self.client
    }
}

impl Dice for ClientDice {
    fn token(&mut self) -> Token {
        let mut bytes = [0; TOKEN_LEN];
        self.0.fill_bytes(&mut bytes);
        Token::new(bytes)
    }

    fn pause(&mut self, attempt: u32) -> Duration {
        Backoff::default().pause(attempt, self.0.next_u64())
    }
}
