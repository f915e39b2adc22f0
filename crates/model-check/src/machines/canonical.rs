//! Canonicalizes states: states are equal if they differ only in the time of clocks, or in the
//! order of the masters or of the clients.
//!
//! The machines cannot be rewritten from outside, but they can be hashed. [`Canonical`] receives
//! the words that a claim writes to a hasher. It recognizes by their form the few words that depend
//! on clock and order:
//!
//! * an instant is a large number of 64 bits;
//! * a set of masters is a small number of 64 bits;
//! * the votes of a round are a list of as many as there are masters, directly after the instant at
//!   which the round opened.
//!
//! (In a model whose durations are below a second, no other number of 64 bits is more than 0,
//! except the remaining time of a key in replies.) It writes these words again for each order of
//! the masters, with instants counted from the claim's own clock.
//!
//! A claim that is woken asks the first master first, and then looks at one master after the other,
//! so masters are not alike to it. Its words also contain the remaining time of keys, and
//! positions. In such runs masters keep their order, in which every word is written unchanged.
//! Clocks and clients are still canonicalized.
//!
//! Two simplifications are safe because they decide nothing. Instants so far back that no timer or
//! deadline can follow from them are all alike, and the time that a vote took is left out. Tests
//! check the rest: the hasher must find as many vote lists as each claim has, and an exploration
//! without canonical forms must find the same states, once for each order.

use std::hash::Hasher;

use redquorum_protocol::Time;

use super::caller::Local;
use super::master::{Held, STRANGER};
use super::{MASTERS, Machines, Scope, Spent, State};
use crate::explore::Wide;

/// The number of orders of three masters.
pub(super) const ORDERS: usize = 6;

/// The master at the first, second and third position.
const ORDER: [[usize; MASTERS]; ORDERS] =
    [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];

/// A number from here on is an instant.
const INSTANTS: u64 = 1 << 32;
/// Instants older than this, in nanoseconds, are alike. It is longer than any duration that is
/// added to an instant.
const OLD: u64 = 1_000_000_000;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Canonical {
    now: Time,
    words: Vec<u64>,
    /// The indices of words that are sets of masters.
    sets: Vec<usize>,
    /// The indices of the words of each master's vote, for each vote list.
    vote_lists: Vec<Votes>,
    /// Whether the previous word was an instant.
    after_instant: bool,
    /// The number of votes of the last vote list that are still to come.
    awaited: usize,
}

/// The start of each vote, and the end of the last.
#[derive(Debug, Default)]
struct Votes {
    starts: Vec<usize>,
    end: usize,
}

impl Canonical {
    pub(super) fn at(now: Time) -> Self {
        Self {
            now,
            words: Vec::with_capacity(128),
            sets: Vec::new(),
            vote_lists: Vec::new(),
            after_instant: false,
            awaited: 0,
        }
    }

    fn say(&mut self, word: u64) {
        self.after_instant = false;
        self.words.push(word);
    }

    /// The number of vote lists that the hasher found.
    #[cfg(test)]
    pub(super) const fn vote_lists(&self) -> usize {
        self.vote_lists.len()
    }

    /// The hashes of the words, for each order of the masters. All are equal unless orders are
    /// canonicalized.
    pub(super) fn hashes(&self, canonical: bool) -> [u128; ORDERS] {
        if canonical { ORDER.map(|order| self.hash(order)) } else { [self.hash(ORDER[0]); ORDERS] }
    }

    fn hash(&self, order: [usize; MASTERS]) -> u128 {
        let mut wide = Wide::new();
        let say = |from: usize, to: usize, wide: &mut Wide| {
            for index in from..to {
                wide.word(if self.sets.binary_search(&index).is_ok() {
                    reordered(self.words[index], order)
                } else {
                    self.words[index]
                });
            }
        };
        let mut at = 0;
        for votes in &self.vote_lists {
            say(at, votes.starts[0], &mut wide);
            let masters = votes.starts.len();
            for master in order.into_iter().filter(|master| *master < masters) {
                let end = votes.starts.get(master + 1).copied().unwrap_or(votes.end);
                say(votes.starts[master], end, &mut wide);
            }
            at = votes.end;
        }
        say(at, self.words.len(), &mut wide);
        wide.end()
    }
}

/// A set of masters, in another order. In their own order any number stays unchanged.
fn reordered(set: u64, order: [usize; MASTERS]) -> u64 {
    let masters: u64 = (0..MASTERS).map(|place| (set >> order[place] & 1) << place).sum();
    set >> MASTERS << MASTERS | masters
}

impl Hasher for Canonical {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.say(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, word: u8) {
        self.say(word.into());
    }

    fn write_u32(&mut self, word: u32) {
        if self.awaited == 0 {
            return self.say(word.into());
        }
        // The nanoseconds that a vote took end the vote.
        self.say(0);
        self.awaited -= 1;
        let next = self.words.len();
        let votes = self.vote_lists.last_mut().expect("its votes are received");
        if self.awaited == 0 {
            votes.end = next;
        } else {
            votes.starts.push(next);
        }
    }

    fn write_u64(&mut self, word: u64) {
        if word < INSTANTS {
            self.sets.push(self.words.len());
            return self.say(word);
        }
        let origin = self.now.as_nanos() - OLD;
        self.say(if word == Time::NEVER.as_nanos() { word } else { word.saturating_sub(origin) });
        self.after_instant = true;
    }

    fn write_isize(&mut self, word: isize) {
        // The variant of an enum. It is never the length of a list.
        self.say(word.cast_unsigned() as u64);
    }

    fn write_usize(&mut self, word: usize) {
        let votes = self.after_instant;
        self.say(word as u64);
        if votes {
            self.awaited = word;
            self.vote_lists.push(Votes { starts: vec![self.words.len()], end: 0 });
        }
    }

    fn finish(&self) -> u64 {
        unreachable!("it is asked for its hashes")
    }
}

impl Machines {
    /// Identifies a state: the least hash of all orders, if these are canonicalized.
    pub(super) fn canonical_key(&self, state: &State) -> u128 {
        if !self.scope.canonicalize {
            return self.hash(state, 0, 0);
        }
        let Scope { masters, clients, wakes, .. } = self.scope;
        // Reorders only the masters that exist, and none where claims distinguish them.
        let movable = if wakes { 0 } else { masters };
        let stays = |order: &[usize]| (movable..MASTERS).all(|master| order[master] == master);
        let orders = (0..ORDERS).filter(|number| stays(&ORDER[*number]));
        // A client that shares is another one than one that does not.
        let alike = if self.scope.is_mixed() { 1 } else { clients };
        orders
            .flat_map(|order| (0..alike).map(move |first| (first, order)))
            .map(|(first, order)| self.hash(state, first, order))
            .min()
            .expect("there is an order")
    }

    /// The hashes of a whole client, for each order of the masters.
    pub(super) fn hashes_of(&self, local: Local) -> [u128; ORDERS] {
        let caller = self.callers.hashes(local.caller);
        let sides = local.sides.map(|side| self.sides.hashes(side)[0]);
        std::array::from_fn(|number| {
            let mut wide = Wide::new();
            wide.words(caller[number]);
            ORDER[number].into_iter().for_each(|master| wide.words(sides[master]));
            wide.end()
        })
    }

    /// The hash of a state with this client first and the masters in this order.
    fn hash(&self, state: &State, first: usize, number: usize) -> u128 {
        let mut wide = Wide::new();
        for place in 0..self.scope.clients {
            wide.words(self.locals.hashes(state.locals[place ^ first])[number]);
        }
        let (mut keys, mut queues) = (0, 0);
        for master in ORDER[number] {
            let held = match state.held[master] {
                Held::No => 0,
                STRANGER => u64::from(u16::MAX),
                Held::By(key) => {
                    let client = u64::from(key.client) ^ first as u64;
                    1 | client << 1 | u64::from(key.token) << 2 | u64::from(key.round) << 8
                }
                // Tokens are numbered from 1.
                Held::Shared(tokens) => {
                    u64::from(tokens[first]) | u64::from(tokens[1 ^ first]) << 8 | 1 << 16
                }
            };
            keys = keys << 17 | held;
            let waiters = state.queues[master].iter().fold(0, |waiters, waiter| {
                let client = u64::from(waiter.client) ^ first as u64;
                waiters << 3 | 1 | client << 1 | u64::from(waiter.inbox) << 2
            });
            queues = queues << 12 | waiters;
        }
        wide.word(keys);
        wide.word(queues);
        let Spent([cuts, stalls, errors, deaths, wake_ups, lapses]) = state.spent;
        wide.word(u64::from_le_bytes([cuts, stalls, errors, deaths, wake_ups, lapses, 0, 0]));
        let quorate = |place: usize| state.quorate[place ^ first];
        let looked = |place: usize| state.looked[place ^ first];
        let lossy = |place: usize| state.lossy >> (place ^ first) & 1;
        let (back, lossy) = (state.given_back, lossy(0) | lossy(1) << 1);
        wide.word(u64::from_le_bytes([
            back,
            quorate(0),
            quorate(1),
            looked(0),
            looked(1),
            lossy,
            0,
            0,
        ]));
        wide.end()
    }
}
