//! Which states are the same: those that differ only in where clocks stand, or in the order of the
//! masters or of the clients.
//!
//! The machines cannot be rewritten from outside, but they can be hashed. [`Fold`] listens to what a
//! claim says to a hasher, and knows by their form the few things that depend on clock and order: an
//! instant is a large number of 64 bits, a set of masters a small one, and the votes of a ballot are a
//! list of as many as there are masters right behind the instant at which it was opened. (In a model
//! whose durations are below a second, no other number of 64 bits is more than 0, but what masters say is
//! left of a key.) It says them again for each order of the masters, with instants counted from the
//! claim's own clock.
//!
//! A claim that is woken asks the first master first and looks at one after the other, so that masters are
//! not alike to it; and what is left of keys is said, and positions. In such runs masters stay in their order, in which
//! every word is said as it is; clocks and clients are folded as ever.
//!
//! That instants so far back that no timer or deadline can follow from them are all alike, and that how
//! long a vote took is left out, is safe: neither decides anything. That the rest is right is tested:
//! each claim must have as many ballots as it has, and exploring without folding must find the same
//! states, once for each order.

use std::hash::Hasher;

use redquorum_protocol::Time;

use super::super::wide::Wide;
use super::local::Local;
use super::master::STRANGER;
use super::{MASTERS, Machines, Scope, Spent, State};

/// Orders of three masters.
pub(super) const ORDERS: usize = 6;

/// Which master stands first, second and third.
const ORDER: [[usize; MASTERS]; ORDERS] =
    [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];

/// From here on a number is an instant.
const INSTANTS: u64 = 1 << 32;
/// Older than that, in nanoseconds, instants are alike: longer than anything that is added to one.
const OLD: u64 = 1_000_000_000;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Fold {
    now: Time,
    words: Vec<u64>,
    /// Which words are sets of masters.
    sets: Vec<usize>,
    /// Which words are the votes of which master, for each ballot.
    ballots: Vec<Ballot>,
    /// The word before this one was an instant.
    after_instant: bool,
    /// Votes of the last ballot that are still to come.
    awaited: usize,
}

/// Where each vote begins, and where the last ends.
#[derive(Debug, Default)]
struct Ballot {
    starts: Vec<usize>,
    end: usize,
}

impl Fold {
    pub(super) fn at(now: Time) -> Self {
        Self {
            now,
            words: Vec::with_capacity(128),
            sets: Vec::new(),
            ballots: Vec::new(),
            after_instant: false,
            awaited: 0,
        }
    }

    fn say(&mut self, word: u64) {
        self.after_instant = false;
        self.words.push(word);
    }

    /// How many ballots were heard.
    #[cfg(test)]
    pub(super) const fn ballots(&self) -> usize {
        self.ballots.len()
    }

    /// The hashes of what was said, for each order of the masters; the same for all where none is folded.
    pub(super) fn hashes(&self, folded: bool) -> [u128; ORDERS] {
        if folded { ORDER.map(|order| self.hash(order)) } else { [self.hash(ORDER[0]); ORDERS] }
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
        for ballot in &self.ballots {
            say(at, ballot.starts[0], &mut wide);
            let masters = ballot.starts.len();
            for master in order.into_iter().filter(|master| *master < masters) {
                let end = ballot.starts.get(master + 1).copied().unwrap_or(ballot.end);
                say(ballot.starts[master], end, &mut wide);
            }
            at = ballot.end;
        }
        say(at, self.words.len(), &mut wide);
        wide.end()
    }
}

/// A set of masters, in another order. In their own order any number stays what it is.
fn reordered(set: u64, order: [usize; MASTERS]) -> u64 {
    let masters: u64 = (0..MASTERS).map(|place| (set >> order[place] & 1) << place).sum();
    set >> MASTERS << MASTERS | masters
}

impl Hasher for Fold {
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
        // The nanoseconds that a vote took end it.
        self.say(0);
        self.awaited -= 1;
        let next = self.words.len();
        let ballot = self.ballots.last_mut().expect("its votes are heard");
        if self.awaited == 0 {
            ballot.end = next;
        } else {
            ballot.starts.push(next);
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
        // Which variant of an enum: never the length of a list.
        self.say(word.cast_unsigned() as u64);
    }

    fn write_usize(&mut self, word: usize) {
        let votes = self.after_instant;
        self.say(word as u64);
        if votes {
            self.awaited = word;
            self.ballots.push(Ballot { starts: vec![self.words.len()], end: 0 });
        }
    }

    fn finish(&self) -> u64 {
        unreachable!("it is asked for its hashes")
    }
}

impl Machines {
    /// What tells a state from others: the least hash of all orders, if these are folded.
    pub(super) fn folded(&self, state: &State) -> u128 {
        if !self.scope.fold {
            return self.hash(state, 0, 0);
        }
        let Scope { masters, clients, wakes, .. } = self.scope;
        // Only those are reordered that are there, and none where claims tell them apart.
        let movable = if wakes { 0 } else { masters };
        let stays = |order: &[usize]| (movable..MASTERS).all(|master| order[master] == master);
        let orders = (0..ORDERS).filter(|number| stays(&ORDER[*number]));
        orders
            .flat_map(|order| (0..clients).map(move |first| (first, order)))
            .map(|(first, order)| self.hash(state, first, order))
            .min()
            .expect("there is an order")
    }

    /// The hashes of all of a client, for each order of the masters.
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

    /// The hash of a state, where this client is the first and masters stand in this order.
    fn hash(&self, state: &State, first: usize, number: usize) -> u128 {
        let mut wide = Wide::new();
        for place in 0..self.scope.clients {
            wide.words(self.locals.hashes(state.locals[place ^ first])[number]);
        }
        let (mut keys, mut queues) = (0, 0);
        for master in ORDER[number] {
            let key = state.keys[master].map_or(0, |key| {
                let client = u64::from(key.client) ^ first as u64;
                1 | client << 1 | u64::from(key.token) << 2 | u64::from(key.round) << 8
            });
            let stranger = state.keys[master] == Some(STRANGER);
            keys = keys << 16 | if stranger { u64::from(u16::MAX) } else { key };
            let waiters = state.queues[master].iter().fold(0, |waiters, waiter| {
                let client = u64::from(waiter.client) ^ first as u64;
                waiters << 3 | 1 | client << 1 | u64::from(waiter.inbox) << 2
            });
            queues = queues << 12 | waiters;
        }
        wide.word(keys);
        wide.word(queues);
        let Spent { cuts, stalls, errors, deaths, words, lapses } = state.spent;
        wide.word(u64::from_le_bytes([cuts, stalls, errors, deaths, words, lapses, 0, 0]));
        let held = |place: usize| state.held[place ^ first];
        let looked = |place: usize| state.looked[place ^ first];
        let lossy = |place: usize| state.lossy >> (place ^ first) & 1;
        let (back, lossy) = (state.given_back, lossy(0) | lossy(1) << 1);
        wide.word(u64::from_le_bytes([back, held(0), held(1), looked(0), looked(1), lossy, 0, 0]));
        wide.end()
    }
}
