//! Subscription: the channel on which a master wakes the waiters of this process.
//!
//! A process subscribes to one channel of its own on each connection, when it waits for the first
//! time, and stays subscribed. The message names the waiter, and means that the resource is free.
//! It is a hint, never a vote: a message may be late or lost, and a timer stands behind every wait.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::types::LinkEffect;
use crate::effect::{Key, QueueEvent};
use crate::waiter::{Waiter, WaiterId};
use crate::wire::Command;

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Subscription {
    number: u64,
    state: State,
    /// The waiters of this process, each with the resource that it waits for.
    waiters: BTreeMap<WaiterId, Key>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
enum State {
    #[default]
    Closed,
    /// `HELLO 3` is under way: it asks for push messages.
    Asking,
    /// The connection takes push messages; `SUBSCRIBE` is yet to be written.
    Able,
    Subscribing,
    Open,
    /// The master forbids the commands, or does not have them.
    Refused,
}

impl Subscription {
    pub(super) const fn new(number: u64) -> Self {
        Self { number, state: State::Closed, waiters: BTreeMap::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.waiters.len()
    }

    fn notify_all<T>(&self, event: QueueEvent, out: &mut Vec<LinkEffect<T>>) {
        out.extend(self.waiters.values().map(|key| LinkEffect::QueueEvent(key.clone(), event)));
    }

    /// The connection is gone: notifies the waiters that the master no longer wakes them.
    pub(super) fn close<T>(&mut self, out: &mut Vec<LinkEffect<T>>) {
        if self.state == State::Open {
            self.notify_all(QueueEvent::NotSubscribed, out);
        }
        self.state = State::Closed;
    }

    /// The master answered the command of the last step: it `agreed`, or refused.
    pub(super) fn answered<T>(&mut self, agreed: bool, out: &mut Vec<LinkEffect<T>>) {
        self.state = match self.state {
            _ if !agreed => State::Refused,
            State::Asking => State::Able,
            _ => State::Open,
        };
        match self.state {
            State::Open => self.notify_all(QueueEvent::Subscribed, out),
            State::Refused => self.notify_all(QueueEvent::Refused, out),
            _ => {}
        }
    }

    /// The waiter's name in the master's queue. Where the master cannot wake waiters, the inbox is
    /// 0, so that it does not drop them.
    pub(super) fn waiter(&self, waiter_id: WaiterId) -> Waiter {
        let wakes = !matches!(self.state, State::Closed | State::Refused);
        Waiter { inbox: if wakes { self.number } else { 0 }, waiter_id }
    }

    /// Adds a waiter, unless there are `most`. Returns whether the master wakes it: "not
    /// subscribed" until the master has confirmed the subscription.
    pub(super) fn add(&mut self, key: Key, waiter_id: WaiterId, most: usize) -> QueueEvent {
        if self.waiters.len() < most {
            self.waiters.insert(waiter_id, key);
        }
        match self.state {
            State::Refused => QueueEvent::Refused,
            State::Open if self.waiters.contains_key(&waiter_id) => QueueEvent::Subscribed,
            _ => QueueEvent::NotSubscribed,
        }
    }

    pub(super) fn remove(&mut self, waiter_id: WaiterId) {
        self.waiters.remove(&waiter_id);
    }

    /// Takes the next step of the subscription. Returns its command, for the caller to write.
    pub(super) fn next_command(&mut self) -> Option<Command> {
        let (command, next) = match self.state {
            _ if self.waiters.is_empty() => return None,
            State::Closed => (Command::Hello, State::Asking),
            State::Able => (Command::Subscribe { inbox: self.number }, State::Subscribing),
            State::Asking | State::Subscribing | State::Open | State::Refused => return None,
        };
        self.state = next;
        Some(command)
    }

    /// The resource of the waiter that the master woke.
    pub(super) fn woken(&self, waiter_id: WaiterId) -> Option<&Key> {
        self.waiters.get(&waiter_id).filter(|_| self.state == State::Open)
    }
}
