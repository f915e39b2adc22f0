//! A master: one key that is there or not, the queue of its waiters, and the commands on both.
//!
//! `crates/redis-model` cannot stand here: its keys expire by a wall clock, and a state of this
//! model has none (a key may expire at any time from an instant of its owner's clock on), and must
//! be a few bytes. A test compares the two models, reply by reply.

use std::time::Duration;

use redquorum_protocol::{Cause, Holder, Reply, WakeUp};

use super::caller::TICK;
use super::connection::token;
use super::{CLIENTS, Scope};

/// The key of the one resource, as a master has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    /// Its client. Tokens are numbered for each client, so both together are the key's value.
    pub(super) client: u8,
    /// The token.
    pub(super) token: u8,
    /// The latest round that extended it; 0: the attempt itself.
    pub(super) round: u8,
}

/// The key of a holder that is neither of the clients; see [`Start::Others`](super::Start::Others).
pub(super) const STRANGER: Key = Key { client: 2, token: 64, round: 0 };

/// A waiter in a master's queue. Each client has one waiter id, so its number identifies the
/// waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Waiter {
    pub(super) client: u8,
    /// Whether it names an inbox. A waiter that the master cannot wake names none.
    pub(super) inbox: bool,
}

/// The queue of a master: its waiters, by position.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Queue([Option<Waiter>; 2 * CLIENTS]);

impl Queue {
    pub(super) fn iter(&self) -> impl Iterator<Item = Waiter> {
        self.0.iter().flatten().copied()
    }

    fn ahead(&self, waiter: Waiter) -> u8 {
        let ahead = self.iter().take_while(|other| *other != waiter).count();
        u8::try_from(ahead).expect("there are few")
    }

    /// Gives a waiter the last position, or keeps its current one.
    fn stand(&mut self, waiter: Waiter) {
        if self.iter().all(|other| other != waiter) {
            let last = self.0.iter_mut().find(|place| place.is_none());
            *last.expect("there is one for each") = Some(waiter);
        }
    }

    pub(super) fn leave(&mut self, waiter: Waiter) {
        let others = self.iter().filter(|other| *other != waiter).collect::<Vec<_>>();
        self.0 = std::array::from_fn(|place| others.get(place).copied());
    }

    /// Moves the first waiter to the end.
    pub(super) fn rotate(&mut self) {
        if let Some(first) = self.0[0] {
            self.leave(first);
            self.stand(first);
        }
    }

    /// The client whose waiter is woken: the first that a message reaches. The waiters before it
    /// are dropped, if the master `passes` over them.
    fn wake(&mut self, reaches: &impl Fn(u8) -> bool, passes: bool) -> Option<u8> {
        while let Some(first) = self.0[0] {
            if !first.inbox || !passes || reaches(first.client) {
                return first.inbox.then_some(first.client);
            }
            self.leave(first);
        }
        None
    }
}

/// A command under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Request {
    Set(u8),
    Keep {
        token: u8,
        round: u8,
        repair: bool,
    },
    /// Compare-and-delete, with the waiter to wake, and whether its client leaves the queue, and by
    /// an inbox. If another key is there, the reply names its holder.
    Delete(u8, WakeUp, Option<bool>),
    /// Enqueue, with an inbox or not; `again` after some time, to look at the key.
    Enqueue {
        inbox: bool,
        again: bool,
    },
    /// Leave the queue, and whether to wake the first waiter if the resource is free.
    Dequeue {
        inbox: bool,
        wake: bool,
    },
    /// The number of the connection is also its client id.
    Kill(u64),
    Load(redquorum_protocol::wire::Script),
    Ping,
    Hello,
    Subscribe,
    /// A `SET` that a mutant sends once more, around the link. No request matches its reply.
    Again(u8),
}

impl Request {
    /// Whether it removes its client from the queue.
    pub(super) const fn leaves(self) -> bool {
        matches!(self, Self::Delete(_, _, Some(_)) | Self::Dequeue { .. })
    }

    /// The token of the key that it may create.
    pub(super) const fn creates(self) -> Option<u8> {
        match self {
            Self::Set(token) | Self::Again(token) | Self::Keep { token, repair: true, .. } => {
                Some(token)
            }
            _ => None,
        }
    }
}

/// A reply under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum MasterReply {
    Created,
    Kept,
    Deleted,
    Absent,
    Taken,
    /// The reply to a compare-and-delete of a waiting claim: another key is there, of another
    /// client or not.
    Held {
        foreign: bool,
        token: u8,
    },
    /// The number of waiters ahead of this one, and the key that is there, of another client or
    /// not.
    Place {
        ahead: u8,
        held: Option<(bool, u8)>,
    },
    Alive,
    Error,
    /// An error in reply to the kill of an old connection.
    NotKilled,
    NoScript,
    /// No reply: the push message that wakes the client's waiter.
    Freed,
}

impl MasterReply {
    /// The reply for the link, if it is a reply; `left` is the remaining time of other clients'
    /// keys.
    pub(super) fn reply(self, left: Duration) -> Option<Reply> {
        Some(match self {
            Self::Created => Reply::Created,
            Self::Kept => Reply::Kept,
            Self::Deleted => Reply::Deleted,
            Self::Absent => Reply::Absent,
            // The holder comes with the clean-up, if at all.
            Self::Taken => Reply::Taken(Holder::NotAsked),
            Self::Held { foreign, token } => Reply::Taken(holder(foreign, token, left)),
            // A waiter that is not fair ignores the number.
            Self::Place { ahead, held } => Reply::Place {
                number: 1,
                ahead: ahead.into(),
                holder: held.map(|(foreign, token)| holder(foreign, token, left)),
            },
            Self::Alive => Reply::Alive,
            Self::Error | Self::NotKilled => Reply::Unknown(Cause::Error("an error".into())),
            Self::NoScript => Reply::Unknown(Cause::NoScript),
            Self::Freed => return None,
        })
    }
}

fn holder(foreign: bool, number: u8, left: Duration) -> Holder {
    // Clients number their own tokens. No client must see another's token as its own.
    let token = token(number | u8::from(foreign) << 7);
    Holder::Lease { token, left_ms: u64::try_from(left.as_millis()).expect("it is short") }
}

/// The remaining time of a key as masters report it. Where wake-ups are lost, it is so long that a
/// waiter looks at a master before it is over; otherwise it is the TTL.
pub(super) fn left(scope: &Scope) -> Duration {
    if scope.loses_wake_ups() { TICK * 600 } else { TICK * 6 }
}

/// A master that executes a command.
pub(super) struct Master<'s, R> {
    pub(super) key: &'s mut Option<Key>,
    pub(super) queue: &'s mut Queue,
    /// Whether claims wait. Then the reply to a clean-up that frees nothing names the holder.
    pub(super) waits: bool,
    /// Whether a message to this client's inbox reaches a connection.
    pub(super) reaches: R,
    /// Whether it skips waiters that no message reaches.
    pub(super) passes: bool,
}

impl<R: Fn(u8) -> bool> Master<'_, R> {
    /// Executes a command of a client. Returns the reply, and the client that it wakes.
    pub(super) fn execute(&mut self, client: u8, request: Request) -> (MasterReply, Option<u8>) {
        let mut woken = None;
        let reply = match request {
            Request::Delete(_, wake_up, leave) => {
                let reply = self.on_key(client, request);
                if let Some(inbox) = leave {
                    self.queue.leave(Waiter { client, inbox });
                }
                if wake_up == WakeUp::First && self.key.is_none() {
                    woken = self.wake();
                }
                reply
            }
            Request::Enqueue { inbox, .. } => {
                let waiter = Waiter { client, inbox };
                self.queue.stand(waiter);
                let held = self.key.map(|key| (key.client != client, key.token));
                MasterReply::Place { ahead: self.queue.ahead(waiter), held }
            }
            Request::Dequeue { inbox, wake } => {
                self.queue.leave(Waiter { client, inbox });
                if wake && self.key.is_none() {
                    woken = self.wake();
                }
                MasterReply::Alive
            }
            request => self.on_key(client, request),
        };
        (reply, woken)
    }

    /// Wakes the first waiter.
    pub(super) fn wake(&mut self) -> Option<u8> {
        self.queue.wake(&self.reaches, self.passes)
    }

    fn on_key(&mut self, client: u8, request: Request) -> MasterReply {
        let is_ours = |key: Key, token: u8| key.client == client && key.token == token;
        match (request, *self.key) {
            (Request::Set(token) | Request::Again(token), None) => {
                *self.key = Some(Key { client, token, round: 0 });
                MasterReply::Created
            }
            (Request::Set(_) | Request::Again(_), Some(_)) => MasterReply::Taken,
            (Request::Keep { token, round, .. }, Some(there)) if is_ours(there, token) => {
                *self.key = Some(Key { round: there.round.max(round), ..there });
                MasterReply::Kept
            }
            (Request::Keep { token, round, repair: true }, None) => {
                *self.key = Some(Key { client, token, round });
                MasterReply::Created
            }
            (Request::Delete(token, ..), Some(there)) if is_ours(there, token) => {
                *self.key = None;
                MasterReply::Deleted
            }
            (Request::Delete(..), Some(there)) if self.waits => {
                MasterReply::Held { foreign: there.client != client, token: there.token }
            }
            // Another client's key in its place decides nothing for either.
            (Request::Keep { .. } | Request::Delete(..), _) => MasterReply::Absent,
            _ => MasterReply::Alive,
        }
    }
}
