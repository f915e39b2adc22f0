//! Ears: the resources that a link listens for, and how far its connection is with it.
//!
//! What is heard is a hint, never a vote: a message may be late or lost, and whoever waits has a timer
//! behind it. So nothing here keeps a promise; it must only not grow, and not cost the lock anything.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use super::{Link, LinkEffect, Purpose};
use crate::effect::{Key, Word};
use crate::ticket::Ticket;
use crate::time::Time;
use crate::token::Token;
use crate::wire::Command;

/// Most questions under way: listening anew for many resources must not look like an overload.
const MOST_ASKED: usize = 64;

/// See the [module](self).
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Ears {
    wanted: BTreeMap<Key, Ear>,
    /// Those that are yet to be asked for on this connection.
    waiting: VecDeque<Key>,
    /// How many questions are under way.
    asked: usize,
    tongue: Tongue,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
struct Ear {
    /// How many questions about it are under way.
    asked: u32,
    listens: bool,
}

/// Whether the master of a connection can say something unasked.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
enum Tongue {
    #[default]
    Unasked,
    Asked,
    Can,
    Cannot,
}

/// What is to be written next.
pub(super) enum Next {
    Hello,
    Subscribe(Key),
}

impl Ears {
    /// It is wanted, once or again. Whether it is listened for already; too many never are.
    pub(super) fn want(&mut self, key: &Key, most: usize) -> bool {
        if let Some(ear) = self.wanted.get(key) {
            return ear.listens;
        }
        if self.wanted.len() < most {
            self.wanted.insert(key.clone(), Ear::default());
            self.waiting.push_back(key.clone());
        }
        false
    }

    /// It is wanted no more. Whether the master is to be told.
    pub(super) fn unwant(&mut self, key: &Key) -> bool {
        let asked = self.wanted.remove(key).is_some_and(|ear| ear.listens || ear.asked > 0);
        if !asked {
            self.waiting.retain(|waiting| waiting != key);
        }
        asked
    }

    /// What to ask next, on an open connection.
    pub(super) fn next(&mut self) -> Option<Next> {
        match self.tongue {
            Tongue::Unasked if !self.waiting.is_empty() => {
                self.tongue = Tongue::Asked;
                Some(Next::Hello)
            }
            Tongue::Can if self.asked < MOST_ASKED => {
                while let Some(key) = self.waiting.pop_front() {
                    if let Some(ear) = self.wanted.get_mut(&key).filter(|ear| !ear.listens) {
                        ear.asked += 1;
                        self.asked += 1;
                        return Some(Next::Subscribe(key));
                    }
                }
                None
            }
            _ => None,
        }
    }

    /// Whether the master can say something unasked. Returns who will hear nothing if it cannot.
    pub(super) fn can(&mut self, can: bool) -> Vec<Key> {
        self.tongue = if can { Tongue::Can } else { Tongue::Cannot };
        if can { Vec::new() } else { self.wanted.keys().cloned().collect() }
    }

    /// The answer to a question. Whether the resource is wanted, and heard from now on.
    pub(super) fn answered(&mut self, key: &Key, listens: bool) -> Option<bool> {
        self.asked -= 1;
        let ear = self.wanted.get_mut(key)?;
        ear.asked = ear.asked.saturating_sub(1);
        ear.listens = listens && ear.asked == 0;
        Some(ear.listens)
    }

    pub(super) fn listens(&self, key: &Key) -> bool {
        self.wanted.get(key).is_some_and(|ear| ear.listens)
    }

    /// The connection is gone: all is asked again on the next one. Returns who hears nothing until then.
    pub(super) fn close(&mut self) -> Vec<Key> {
        let mut deaf = Vec::new();
        self.waiting.clear();
        for (key, ear) in &mut self.wanted {
            if core::mem::take(&mut ear.listens) {
                deaf.push(key.clone());
            }
            ear.asked = 0;
            self.waiting.push_back(key.clone());
        }
        self.asked = 0;
        self.tongue = Tongue::Unasked;
        deaf
    }

    pub(super) fn len(&self) -> usize {
        self.wanted.len()
    }
}

impl<T> Link<T> {
    pub(super) fn listen(&mut self, now: Time, key: Key, out: &mut Vec<LinkEffect<T>>) {
        let listens = self.ears.want(&key, self.bounds.listens);
        // Who hears nothing yet is told so, and need not wait to be told otherwise.
        let word = if listens { Word::Listening } else { Word::Deaf };
        out.push(LinkEffect::Hear(key, word));
        self.prick_up(now, out);
    }

    pub(super) fn unlisten(&mut self, now: Time, key: Key, out: &mut Vec<LinkEffect<T>>) {
        if self.ears.unwant(&key) && self.open.is_some() {
            self.write(now, Command::Unsubscribe { key }, Purpose::Unlisten, None, out);
        }
    }

    /// Asks for what is yet to be listened for, as far as a healthy master can be asked.
    pub(super) fn prick_up(&mut self, now: Time, out: &mut Vec<LinkEffect<T>>) {
        while self.refusal(None).is_none()
            && let Some(next) = self.ears.next()
        {
            let (command, purpose) = match next {
                Next::Hello => (Command::Hello, Purpose::Hello),
                Next::Subscribe(key) => {
                    (Command::Subscribe { key: key.clone() }, Purpose::Listen(key))
                }
            };
            self.write(now, command, purpose, None, out);
        }
    }

    pub(super) fn freed(
        &mut self,
        now: Time,
        epoch: u64,
        (key, next): (Key, Option<Ticket>),
        out: &mut Vec<LinkEffect<T>>,
    ) {
        if let Some(open) = self.open.as_mut().filter(|open| open.epoch == epoch) {
            open.heard = now;
            if self.ears.listens(&key) {
                out.push(LinkEffect::Hear(key, next.map_or(Word::Free, Word::Next)));
            }
        }
    }

    /// So many listened as a key of ours was deleted: says how many of them are others.
    pub(super) fn count(&self, token: Token, listeners: u32, out: &mut Vec<LinkEffect<T>>) {
        if let Some(key) = self.ledger.called(token) {
            let others = listeners.saturating_sub(u32::from(self.ears.listens(key)));
            out.push(LinkEffect::Hear(key.clone(), Word::Others(others)));
        }
    }
}
