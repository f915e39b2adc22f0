//! Random numbers from one seed. Each purpose has streams of its own, one for each process, master
//! or link. Switching a fault off or adding a client does not shift the other streams. The
//! generator is named, and its streams never change with a version.

use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use redquorum_protocol::{Backoff, Rng, TOKEN_LEN, Time, Token};

use redquorum_scenario::Side;

/// The purposes of random numbers. The discriminants are part of the meaning of a seed.
#[derive(Clone, Copy, Debug)]
enum Purpose {
    /// The identity of a master's process.
    Master = 1,
    /// The order in which a resumed master serves its connections.
    Order = 2,
    /// The first input of a process that wakes up: messages or timers.
    Waking = 3,
    Tokens = 4,
    /// The delays between the attempts of a claim.
    Pauses = 5,
    /// Latency from a process to a master (`Up`) and back.
    Up = 6,
    Down = 7,
    /// Latency of the second copy of a request that the network duplicated.
    Copies = 8,
    /// The jitter of a link that reconnects.
    Retries = 9,
}

/// The streams of one seed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seed {
    number: u64,
    latency: Latency,
}

/// The latency of messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Latency {
    /// Random, as on loopback.
    #[default]
    Chance,
    /// The same for all messages, so that masters are as alike as possible. A search uses it, since
    /// it makes its own differences.
    Even,
}

impl Seed {
    pub(super) const fn new(number: u64, latency: Latency) -> Self {
        Self { number, latency }
    }

    fn stream(self, purpose: Purpose, of: usize) -> Stream {
        let mut random = ChaCha8Rng::seed_from_u64(self.number);
        random.set_stream((purpose as u64) << 32 | of as u64);
        Stream { random, latency: self.latency }
    }

    pub(super) fn of_master(self, node: usize) -> MasterRng {
        let id = self.stream(Purpose::Master, node).any();
        MasterRng { id, order: self.stream(Purpose::Order, node) }
    }

    pub(super) fn of_process(self, number: usize) -> ProcessRng {
        ProcessRng {
            waking: self.stream(Purpose::Waking, number),
            claims: ClientRng {
                tokens: self.stream(Purpose::Tokens, number),
                pauses: self.stream(Purpose::Pauses, number),
                wall: Time::ZERO,
            },
        }
    }

    /// The streams of the link between a process and a master.
    pub(super) fn of_link(self, process: usize, node: usize) -> LinkRng {
        let stream = |purpose| self.stream(purpose, process << 8 | node);
        LinkRng {
            up: stream(Purpose::Up),
            down: stream(Purpose::Down),
            copies: stream(Purpose::Copies),
            retries: stream(Purpose::Retries),
        }
    }
}

/// One stream.
#[derive(Clone, Debug)]
pub(super) struct Stream {
    random: ChaCha8Rng,
    latency: Latency,
}

/// The latency of every message under [`Latency::Even`], in nanoseconds.
const EVEN: u64 = 150_000;

impl Stream {
    /// The latency of a message on loopback: some hundred microseconds, and ten times as long for
    /// one in a hundred.
    pub(super) fn latency(&mut self) -> u64 {
        if self.latency == Latency::Even {
            return EVEN;
        }
        let word = self.random.next_u32();
        let micros = 60 + u64::from(word & 0xff);
        let factor = if (word >> 8).is_multiple_of(100) { 10 } else { 1 };
        micros * 1_000 * factor
    }

    /// A random number below a bound.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.random.next_u64() % bound.max(1)
    }

    pub(super) fn any(&mut self) -> u64 {
        self.random.next_u64()
    }
}

/// The random streams of a master.
#[derive(Clone, Debug)]
pub(super) struct MasterRng {
    /// Makes its run ids differ from those of other masters.
    pub(super) id: u64,
    pub(super) order: Stream,
}

/// The random streams of a client process.
#[derive(Clone, Debug)]
pub(super) struct ProcessRng {
    pub(super) waking: Stream,
    pub(super) claims: ClientRng,
}

/// The random streams of claims, and their hints.
#[derive(Clone, Debug)]
pub(super) struct ClientRng {
    tokens: Stream,
    pauses: Stream,
    /// What the wall clock of the process shows.
    pub(super) wall: Time,
}

/// The random streams of a link.
#[derive(Clone, Debug)]
pub(super) struct LinkRng {
    up: Stream,
    down: Stream,
    pub(super) copies: Stream,
    pub(super) retries: Stream,
}

impl LinkRng {
    /// The latency of a message of this side.
    pub(super) fn latency(&mut self, side: Side) -> u64 {
        if side == Side::Reply { self.down.latency() } else { self.up.latency() }
    }
}

impl Rng for ClientRng {
    fn token(&mut self) -> Token {
        let mut bytes = [0; TOKEN_LEN];
        self.tokens.random.fill_bytes(&mut bytes);
        Token::new(bytes)
    }

    fn hint(&mut self) -> u64 {
        self.wall.as_nanos() / 1000
    }

    fn pause(&mut self, attempt: u32) -> Duration {
        Backoff::default().pause(attempt, self.pauses.any())
    }

    fn random(&mut self) -> u64 {
        self.pauses.any()
    }
}
