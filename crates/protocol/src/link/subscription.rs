//! Subscription: the channel on which a master wakes the waiters of this process.
//!
//! A process subscribes to one channel of its own on each connection, when it waits for the first
//! time, and stays subscribed. The message names the waiter, and means that the resource is free.
//! It is a hint, never a vote: a message may be late or lost, and a timer stands behind every wait.
//!
//! So a subscription must never cost a vote. Only a denial is final for a connection; after another
//! error, as of a busy master, the link asks again later. Where a proxy hangs up at these commands,
//! or garbles their replies, waiters do without them.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

use super::types::{Bounds, LinkEffect};
use crate::effect::{Key, QueueEvent};
use crate::time::{Time, doubled};
use crate::vote::{Cause, Reply};
use crate::waiter::{Waiter, WaiterId};
use crate::wire::{Command, ErrorKind};

/// After an error that is no denial, the pause before the next step doubles at most this many
/// times.
const MAX_DOUBLINGS: u32 = 4;

/// After this many connections in a row that broke at a step, the next ones do without.
const MAX_BROKEN: u32 = 3;

/// For how long connections do without after that. Then the steps are taken again, and may break
/// the connection.
const WITHOUT: Duration = Duration::from_secs(60 * 60);

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Subscription {
    number: u64,
    state: State,
    /// Steps in a row that got an error which is no denial.
    errors: u32,
    /// Connections in a row that broke at a step, and the time until which new ones do without.
    broken: u32,
    without: Time,
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
    /// The master could not take the last step: ask again at this time.
    Later(Time),
    /// Connections break at the steps: this one does without them until this time.
    Without(Time),
    /// The master forbids the commands, or does not have them.
    Refused,
}

impl Subscription {
    pub(super) const fn new(number: u64) -> Self {
        Self {
            number,
            state: State::Closed,
            errors: 0,
            broken: 0,
            without: Time::ZERO,
            waiters: BTreeMap::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.waiters.len()
    }

    fn notify_all<T>(&self, event: QueueEvent, out: &mut Vec<LinkEffect<T>>) {
        out.extend(self.waiters.values().map(|key| LinkEffect::QueueEvent(key.clone(), event)));
    }

    /// There is a new connection. Where the last ones broke at a step, it does without.
    pub(super) fn connected<T>(&mut self, now: Time, out: &mut Vec<LinkEffect<T>>) {
        debug_assert_eq!(self.state, State::Closed, "one connection at a time");
        if self.broken >= MAX_BROKEN && now < self.without {
            self.state = State::Without(self.without);
            self.notify_all(QueueEvent::Refused, out);
        }
    }

    /// The connection broke where the reply to a step was due: the peer hung up, was silent, or
    /// sent garbage. That may be chance, and may be a proxy that does not know the command.
    pub(super) fn broke(&mut self, now: Time) {
        debug_assert!(matches!(self.state, State::Asking | State::Subscribing));
        self.broken = self.broken.saturating_add(1);
        self.without = now.plus(WITHOUT);
    }

    /// The connection is gone: notifies the waiters that the master no longer wakes them.
    pub(super) fn close<T>(&mut self, out: &mut Vec<LinkEffect<T>>) {
        if self.state == State::Open {
            self.notify_all(QueueEvent::NotSubscribed, out);
        }
        self.state = State::Closed;
    }

    /// The master replied to the command of the last step.
    pub(super) fn answered<T>(
        &mut self,
        now: Time,
        reply: &Reply,
        bounds: &Bounds,
        out: &mut Vec<LinkEffect<T>>,
    ) {
        debug_assert!(
            matches!(self.state, State::Asking | State::Subscribing),
            "a reply to no step: {:?}",
            self.state
        );
        self.state = match (self.state, reply) {
            (State::Asking, Reply::Alive) => State::Able,
            (_, Reply::Alive) => State::Open,
            (_, Reply::Unknown(Cause::Error(text))) if !is_denial(text) => {
                State::Later(now.plus(self.pause(bounds)))
            }
            _ => State::Refused,
        };
        if matches!(self.state, State::Open | State::Refused) {
            self.broken = 0;
        }
        match self.state {
            State::Open => {
                self.errors = 0;
                self.notify_all(QueueEvent::Subscribed, out);
            }
            State::Refused => self.notify_all(QueueEvent::Refused, out),
            _ => {}
        }
    }

    /// The pause after an error that is no denial.
    fn pause(&mut self, bounds: &Bounds) -> Duration {
        let pause = doubled(bounds.retry_max, self.errors.min(MAX_DOUBLINGS));
        self.errors = self.errors.saturating_add(1);
        pause
    }

    /// When to take the next step, if that is later.
    pub(super) fn next(&self) -> Option<Time> {
        match self.state {
            State::Later(time) | State::Without(time) if !self.waiters.is_empty() => Some(time),
            _ => None,
        }
    }

    /// The waiter's name in the master's queue. Where the master cannot wake waiters, the inbox is
    /// 0, so that it does not drop them.
    pub(super) fn waiter(&self, waiter_id: WaiterId) -> Waiter {
        let wakes = !matches!(self.state, State::Closed | State::Without(_) | State::Refused);
        Waiter { inbox: if wakes { self.number } else { 0 }, waiter_id }
    }

    /// Adds a waiter, unless there are `most`. Returns whether the master wakes it: "not
    /// subscribed" until the master has confirmed the subscription.
    pub(super) fn add(&mut self, key: Key, waiter_id: WaiterId, most: usize) -> QueueEvent {
        if self.waiters.len() < most {
            self.waiters.insert(waiter_id, key);
        }
        match self.state {
            State::Without(_) | State::Refused => QueueEvent::Refused,
            State::Open if self.waiters.contains_key(&waiter_id) => QueueEvent::Subscribed,
            _ => QueueEvent::NotSubscribed,
        }
    }

    pub(super) fn remove(&mut self, waiter_id: WaiterId) {
        self.waiters.remove(&waiter_id);
    }

    /// Takes the next step of the subscription. Returns its command, for the caller to write.
    pub(super) fn next_command(&mut self, now: Time) -> Option<Command> {
        let (command, next) = match self.state {
            _ if self.waiters.is_empty() => return None,
            State::Closed => (Command::Hello, State::Asking),
            State::Able => (Command::Subscribe { inbox: self.number }, State::Subscribing),
            State::Later(time) | State::Without(time) if now >= time => {
                (Command::Hello, State::Asking)
            }
            State::Later(_)
            | State::Without(_)
            | State::Asking
            | State::Subscribing
            | State::Open
            | State::Refused => return None,
        };
        self.state = next;
        Some(command)
    }

    /// The resource of the waiter that the master woke.
    pub(super) fn woken(&self, waiter_id: WaiterId) -> Option<&Key> {
        self.waiters.get(&waiter_id).filter(|_| self.state == State::Open)
    }
}

/// Whether the master will not take this command on this connection: the user may not run it, or
/// the server does not have it.
fn is_denial(error: &str) -> bool {
    ErrorKind::of(error.as_bytes()) == ErrorKind::Forbidden || error.starts_with("NOPROTO")
}
