//! Subscription: the channel on which a master wakes the waiters of this process.
//!
//! A process subscribes to one channel of its own on each connection, when it waits for the first
//! time, and stays subscribed. The message names the waiter, and means that the resource is free.
//! It is a hint, never a vote: a message may be late or lost, and a timer stands behind every wait.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::{Context, Link, LinkEffect};
use crate::effect::{Key, QueueEvent};
use crate::token::Token;
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

    pub(super) const fn is_open(&self) -> bool {
        matches!(self.state, State::Open)
    }

    pub(super) fn len(&self) -> usize {
        self.waiters.len()
    }

    fn notify_all<T>(&self, event: QueueEvent, out: &mut Vec<LinkEffect<T>>) {
        out.extend(self.waiters.values().map(|key| LinkEffect::QueueEvent(key.clone(), event)));
    }

    /// The connection is gone: notifies the waiters that the master no longer wakes them.
    pub(super) fn close<T>(&mut self, out: &mut Vec<LinkEffect<T>>) {
        if self.is_open() {
            self.notify_all(QueueEvent::NotSubscribed, out);
        }
        self.state = State::Closed;
    }

    pub(super) fn asked<T>(&mut self, able: bool, out: &mut Vec<LinkEffect<T>>) {
        self.state = if able { State::Able } else { State::Refused };
        if !able {
            self.notify_all(QueueEvent::Refused, out);
        }
    }

    pub(super) fn subscribed<T>(&mut self, open: bool, out: &mut Vec<LinkEffect<T>>) {
        self.state = if open { State::Open } else { State::Refused };
        self.notify_all(if open { QueueEvent::Subscribed } else { QueueEvent::Refused }, out);
    }

    /// The waiter's name in the master's queue. Where the master cannot wake waiters, the inbox is
    /// 0, so that it does not drop them.
    pub(super) fn waiter(&self, waiter_id: WaiterId) -> Waiter {
        let wakes = !matches!(self.state, State::Closed | State::Refused);
        Waiter { inbox: if wakes { self.number } else { 0 }, waiter_id }
    }
}

impl<T> Link<T> {
    pub(super) fn add_waiter(
        &mut self,
        (key, waiter_id): (Key, WaiterId),
        cx: &mut Context<'_, T>,
    ) {
        if self.inbox.len() < self.bounds.subscriptions {
            self.inbox.waiters.insert(waiter_id, key.clone());
        }
        // Reports "not subscribed" at once instead of waiting for a confirmation.
        let open = self.inbox.is_open() && self.inbox.waiters.contains_key(&waiter_id);
        let event = match self.inbox.state {
            State::Refused => QueueEvent::Refused,
            _ if open => QueueEvent::Subscribed,
            _ => QueueEvent::NotSubscribed,
        };
        cx.out.push(LinkEffect::QueueEvent(key, event));
        self.subscribe(cx);
    }

    pub(super) fn remove_waiter(&mut self, waiter_id: WaiterId) {
        self.inbox.waiters.remove(&waiter_id);
    }

    /// Takes the next step of the subscription, if the link may send requests.
    pub(super) fn subscribe(&mut self, cx: &mut Context<'_, T>) {
        if self.inbox.len() == 0 || self.refusal(None).is_some() {
            return;
        }
        let (command, next) = match self.inbox.state {
            State::Closed => (Command::Hello, State::Asking),
            State::Able => (Command::Subscribe { inbox: self.inbox.number }, State::Subscribing),
            State::Asking | State::Subscribing | State::Open | State::Refused => return,
        };
        self.inbox.state = next;
        self.write(command, None, cx);
    }

    pub(super) fn woken(&mut self, epoch: u64, waiter_id: WaiterId, cx: &mut Context<'_, T>) {
        if let Some(open) = self.open.as_mut().filter(|open| open.epoch == epoch) {
            open.last_reply = cx.now;
            if let Some(key) = self.inbox.waiters.get(&waiter_id).filter(|_| self.inbox.is_open()) {
                cx.out.push(LinkEffect::QueueEvent(key.clone(), QueueEvent::Free(waiter_id)));
            }
        }
    }

    /// Reports how many waiters were in the queue when the master deleted the key of this token.
    pub(super) fn count(&self, token: Token, waiters: u32, out: &mut Vec<LinkEffect<T>>) {
        if let Some(key) = self.ledger.notifying(token) {
            out.push(LinkEffect::QueueEvent(key.clone(), QueueEvent::Waiters(waiters)));
        }
    }
}
