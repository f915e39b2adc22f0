//! Chance, from one seed. Each purpose has streams of its own, and of these each process, each master
//! and each link: switching a fault off, or adding a client, does not shift what the others draw. The
//! generator is named, and its streams never change with a version.

use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use redquorum_protocol::{Backoff, Dice, TOKEN_LEN, Token};

/// What chance is for. The numbers are part of what a seed means.
#[derive(Clone, Copy, Debug)]
enum Purpose {
    /// The identity of a master's process.
    Master = 1,
    /// In which order a master that goes on gets to its connections.
    Order = 2,
    /// What a process that wakes up sees first.
    Waking = 3,
    Tokens = 4,
    /// Between the attempts of a claim.
    Pauses = 5,
    /// Latency, from a process to a master and back.
    Up = 6,
    Down = 7,
    /// The way of the second of a request that the network duplicated.
    Copies = 8,
    /// The jitter of a link that tries again.
    Retries = 9,
}

/// The streams of one seed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seed {
    number: u64,
    latency: Latency,
}

/// How long messages are under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Latency {
    /// By chance, as on loopback.
    #[default]
    Chance,
    /// All equally long, so that masters are as alike as they can be: for a search that makes its
    /// own differences.
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

    pub(super) fn of_master(self, node: usize) -> MasterDice {
        let id = self.stream(Purpose::Master, node).any();
        MasterDice { id, order: self.stream(Purpose::Order, node) }
    }

    pub(super) fn of_process(self, number: usize) -> ProcessDice {
        ProcessDice {
            waking: self.stream(Purpose::Waking, number),
            claims: ClientDice {
                tokens: self.stream(Purpose::Tokens, number),
                pauses: self.stream(Purpose::Pauses, number),
            },
        }
    }

    /// Of the link between a process and a master.
    pub(super) fn of_link(self, process: usize, node: usize) -> LinkDice {
        let stream = |purpose| self.stream(purpose, process << 8 | node);
        LinkDice {
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

/// How long a message is under way if all are equally long, in nanoseconds.
const EVEN: u64 = 150_000;

impl Stream {
    /// How long a message is under way on loopback: some hundred microseconds, one in a hundred
    /// ten times as long.
    pub(super) fn latency(&mut self) -> u64 {
        if self.latency == Latency::Even {
            return EVEN;
        }
        let word = self.random.next_u32();
        let micros = 60 + u64::from(word & 0xff);
        let factor = if (word >> 8).is_multiple_of(100) { 10 } else { 1 };
        micros * 1_000 * factor
    }

    /// Something less than a bound.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.random.next_u64() % bound.max(1)
    }

    pub(super) fn any(&mut self) -> u64 {
        self.random.next_u64()
    }
}

/// The chance of a master.
#[derive(Clone, Debug)]
pub(super) struct MasterDice {
    /// Makes its run ids others than another master's.
    pub(super) id: u64,
    pub(super) order: Stream,
}

/// The chance of a client process.
#[derive(Clone, Debug)]
pub(super) struct ProcessDice {
    pub(super) waking: Stream,
    pub(super) claims: ClientDice,
}

/// The chance that claims have.
#[derive(Clone, Debug)]
pub(super) struct ClientDice {
    tokens: Stream,
    pauses: Stream,
}

/// The chance of a link.
#[derive(Clone, Debug)]
pub(super) struct LinkDice {
    pub(super) up: Stream,
    pub(super) down: Stream,
    pub(super) copies: Stream,
    pub(super) retries: Stream,
}

impl Dice for ClientDice {
    fn token(&mut self) -> Token {
        let mut bytes = [0; TOKEN_LEN];
        self.tokens.random.fill_bytes(&mut bytes);
        Token::new(bytes)
    }

    fn hint(&mut self) -> u64 {
        unreachable!("the wall clock of its process is the hint")
    }

    fn pause(&mut self, attempt: u32) -> Duration {
        Backoff::default().pause(attempt, self.pauses.any())
    }

    fn random(&mut self) -> u64 {
        self.pauses.any()
    }
}
