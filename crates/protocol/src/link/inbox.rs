//! The inbox of a link: by which its master wakes the waiters of this process.
//!
//! A process subscribes to one channel of its own on each connection, when something waits for the first time, and
//! stays subscribed. Which waiter is meant, and that the resource is free, is in the message. It is a hint, never a
//! vote: a message may be late or lost, and a timer stands behind every wait.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::{Link, LinkEffect, Purpose};
use crate::effect::{Key, Word};
use crate::ticket::{Ticket, Waiter};
use crate::time::Time;
use crate::token::Token;
use crate::wire::Command;

/// See the [module](self).
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Inbox {
    /// The number of its channel.
    number: u64,
    state: State,
    /// The waiters of this process, and what each waits for.
    waiters: BTreeMap<Ticket, Key>,
}

/// How far a connection is with it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
enum State {
    #[default]
    Closed,
    /// Can the connection take push messages?
    Asking,
    /// It can; the subscription is yet to be written.
    Able,
    /// It is written.
    Subscribing,
    Open,
    /// The master forbids it, or does not know it.
    Refused,
}

impl Inbox {
    pub(super) const fn new(number: u64) -> Self {
        Self { number, state: State::Closed, waiters: BTreeMap::new() }
    }

    pub(super) const fn is_open(&self) -> bool {
        matches!(self.state, State::Open)
    }

    pub(super) fn len(&self) -> usize {
        self.waiters.len()
    }

    fn tell_all<T>(&self, word: Word, out: &mut Vec<LinkEffect<T>>) {
        out.extend(self.waiters.values().map(|key| LinkEffect::Hear(key.clone(), word)));
    }

    /// The connection is gone. The waiters learn that they are not woken from now on.
    pub(super) fn close<T>(&mut self, out: &mut Vec<LinkEffect<T>>) {
        if self.is_open() {
            self.tell_all(Word::Deaf, out);
        }
        self.state = State::Closed;
    }

    /// The answer to `HELLO 3`.
    pub(super) fn asked<T>(&mut self, able: bool, out: &mut Vec<LinkEffect<T>>) {
        self.state = if able { State::Able } else { State::Refused };
        if !able {
            self.tell_all(Word::Refused, out);
        }
    }

    /// The answer to `SUBSCRIBE`.
    pub(super) fn subscribed<T>(&mut self, open: bool, out: &mut Vec<LinkEffect<T>>) {
        self.state = if open { State::Open } else { State::Refused };
        self.tell_all(if open { Word::Listening } else { Word::Refused }, out);
    }

    /// What the master is to know a waiter by: where it cannot wake any, by no inbox, so that they are not dropped.
    pub(super) fn waiter(&self, ticket: Ticket) -> Waiter {
        let wakes = !matches!(self.state, State::Closed | State::Refused);
        Waiter { inbox: if wakes { self.number } else { 0 }, ticket }
    }
}

impl<T> Link<T> {
    pub(super) fn listen(
        &mut self,
        now: Time,
        (key, ticket): (Key, Ticket),
        out: &mut Vec<LinkEffect<T>>,
    ) {
        if self.inbox.len() < self.bounds.listens {
            self.inbox.waiters.insert(ticket, key.clone());
        }
        // "Not subscribed" is told at once, without waiting for a confirmation.
        let open = self.inbox.is_open() && self.inbox.waiters.contains_key(&ticket);
        let word = match self.inbox.state {
            State::Refused => Word::Refused,
            _ if open => Word::Listening,
            _ => Word::Deaf,
        };
        out.push(LinkEffect::Hear(key, word));
        self.subscribe(now, out);
    }

    pub(super) fn unlisten(&mut self, ticket: Ticket) {
        self.inbox.waiters.remove(&ticket);
    }

    /// Goes on with the subscription, as far as a healthy master can be asked.
    pub(super) fn subscribe(&mut self, now: Time, out: &mut Vec<LinkEffect<T>>) {
        if self.inbox.len() == 0 || self.refusal(None).is_some() {
            return;
        }
        let (command, purpose, next) = match self.inbox.state {
            State::Closed => (Command::Hello, Purpose::Hello, State::Asking),
            State::Able => {
                let inbox = self.inbox.number;
                (Command::Subscribe { inbox }, Purpose::Subscribe, State::Subscribing)
            }
            State::Asking | State::Subscribing | State::Open | State::Refused => return,
        };
        self.inbox.state = next;
        self.write(now, command, purpose, None, out);
    }

    pub(super) fn woken(
        &mut self,
        now: Time,
        epoch: u64,
        ticket: Ticket,
        out: &mut Vec<LinkEffect<T>>,
    ) {
        if let Some(open) = self.open.as_mut().filter(|open| open.epoch == epoch) {
            open.heard = now;
            if let Some(key) = self.inbox.waiters.get(&ticket).filter(|_| self.inbox.is_open()) {
                out.push(LinkEffect::Hear(key.clone(), Word::Free(ticket)));
            }
        }
    }

    /// So many waiters were in the queue as a key of ours was deleted.
    pub(super) fn count(&self, token: Token, waiters: u32, out: &mut Vec<LinkEffect<T>>) {
        if let Some(key) = self.ledger.called(token) {
            out.push(LinkEffect::Hear(key.clone(), Word::Others(waiters)));
        }
    }
}
