//! A master: the key of the one resource, the queue of its waiters, and the commands on both.
//!
//! `crates/redis-model` cannot stand here: its keys expire by a wall clock, and a state of this
//! model has none (a key may expire at any time from an instant of its owner's clock on), and must
//! be a few bytes. A test compares the two models, reply by reply.

use std::time::Duration;

use redquorum_protocol::{Cause, Holder, Reply, WakeUp};

use super::caller::TICK;
use super::connection::token;
use super::{CLIENTS, Mutant, Scope};

/// The key of the one resource, as a master has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Held {
    /// There is none.
    #[default]
    No,
    /// The key of one client.
    By(Key),
    /// The key of those that share it: the tokens of each client, one bit each. No round extends
    /// them: runs with shared leases have none.
    Shared([u8; CLIENTS]),
}

/// A holder of the resource on a master.
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
pub(super) const STRANGER: Held = Held::By(Key { client: 2, token: 64, round: 0 });

impl Held {
    /// The holders that are clients, and none other.
    pub(super) fn keys(self) -> impl Iterator<Item = Key> {
        let (alone, shared) = match self {
            Self::By(key) if self != STRANGER => (Some(key), [0; CLIENTS]),
            Self::No | Self::By(_) => (None, [0; CLIENTS]),
            Self::Shared(tokens) => (None, tokens),
        };
        let of = |(client, tokens): (u8, u8)| {
            let there = (0..8).filter(move |token| tokens >> token & 1 == 1);
            there.map(move |token| Key { client, token, round: 0 })
        };
        alone.into_iter().chain((0..).zip(shared).flat_map(of))
    }

    /// Whether a client's token is there.
    pub(super) fn has(self, client: u8, token: u8) -> bool {
        self.keys().any(|key| (key.client, key.token) == (client, token))
    }

    /// Removes a client's token. Returns whether it was there.
    pub(super) fn remove(&mut self, client: u8, token: u8) -> bool {
        let was = self.has(client, token);
        match self {
            Self::By(_) if was => *self = Self::No,
            Self::Shared(tokens) if was => {
                tokens[usize::from(client)] &= !(1 << token);
                if *tokens == [0; CLIENTS] {
                    *self = Self::No;
                }
            }
            _ => {}
        }
        was
    }

    /// The holder that the master names to this client. It names any one of those that share the
    /// resource, and the client treats all of them alike: here it is another client's, if one is
    /// there.
    fn shown_to(self, client: u8) -> Option<Shown> {
        let shared = matches!(self, Self::Shared(_));
        let alone = if let Self::By(key) = self { Some(key) } else { None };
        let key = alone.or_else(|| self.keys().max_by_key(|key| (key.client != client, key.token)));
        key.map(|key| Shown { foreign: key.client != client, shared, token: key.token })
    }
}

/// The holder that a reply names: another client or not, and its token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Shown {
    pub(super) foreign: bool,
    pub(super) shared: bool,
    pub(super) token: u8,
}

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

    /// How many waiters are before this one. Those for a shared lease are only behind others.
    fn ahead(&self, waiter: Waiter, readers: u8) -> u8 {
        let reads = |waiter: Waiter| readers >> waiter.client & 1 == 1;
        let before = self.iter().take_while(|other| *other != waiter);
        let ahead = before.filter(|other| !(reads(waiter) && reads(*other))).count();
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

    /// The clients whose waiters are woken, one bit each: the first that a message reaches, and, if
    /// that one waits for a shared lease, those behind it that do so, too. While the resource
    /// `is_shared`, no other ones are woken. Waiters that no message reaches are dropped, unless
    /// they are `kept`.
    fn wake(
        &mut self,
        readers: u8,
        (is_shared, kept): (bool, bool),
        reaches: &impl Fn(u8) -> bool,
    ) -> u8 {
        let (mut at, mut any, mut woken) = (0, is_shared, 0);
        while let Some(first) = self.0.get(at).copied().flatten() {
            let reads = readers >> first.client & 1 == 1;
            if any && !reads {
                break;
            }
            let hears = !first.inbox || reaches(first.client);
            if hears || kept {
                if hears && first.inbox {
                    woken |= 1 << first.client;
                }
                if hears && !reads {
                    break;
                }
                any |= hears;
                at += 1;
            } else {
                self.leave(first);
            }
        }
        woken
    }

    /// Whether a waiter for an exclusive lease is in it.
    fn has_writer(&self, readers: u8) -> bool {
        self.iter().any(|waiter| readers >> waiter.client & 1 == 0)
    }
}

/// A command under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Request {
    /// With `behind`, it is refused while a waiter for an exclusive lease is in the queue.
    Set {
        token: u8,
        behind: bool,
    },
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
            Self::Set { token, .. }
            | Self::Again(token)
            | Self::Keep { token, repair: true, .. } => Some(token),
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
    /// The reply to a compare-and-delete of a waiting claim: another key is there.
    Held(Shown),
    /// The number of waiters ahead of this one, and the key that is there.
    Place {
        ahead: u8,
        held: Option<Shown>,
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
            Self::Held(shown) => Reply::Taken(holder(shown, left)),
            // A waiter that is not fair ignores the number.
            Self::Place { ahead, held } => Reply::Place {
                number: 1,
                ahead: ahead.into(),
                holder: held.map(|shown| holder(shown, left)),
            },
            Self::Alive => Reply::Alive,
            Self::Error | Self::NotKilled => Reply::Unknown(Cause::Error("an error".into())),
            Self::NoScript => Reply::Unknown(Cause::NoScript),
            Self::Freed => return None,
        })
    }
}

fn holder(shown: Shown, left: Duration) -> Holder {
    // Clients number their own tokens. No client must see another's token as its own.
    let token = token(shown.token | u8::from(shown.foreign) << 7, shown.shared);
    Holder::Lease { token, left_ms: u64::try_from(left.as_millis()).expect("it is short") }
}

/// The remaining time of a key as masters report it. Where wake-ups are lost, it is so long that a
/// waiter looks at a master before it is over; otherwise it is the TTL.
pub(super) fn left(scope: &Scope) -> Duration {
    if scope.loses_wake_ups() { TICK * 600 } else { TICK * 6 }
}

/// A master that executes a command.
pub(super) struct Master<'s, R> {
    pub(super) held: &'s mut Held,
    pub(super) queue: &'s mut Queue,
    /// The clients that ask for shared leases, one bit each.
    pub(super) readers: u8,
    /// Whether claims wait. Then the reply to a clean-up that frees nothing names the holder.
    pub(super) waits: bool,
    /// Whether a message to this client's inbox reaches a connection.
    pub(super) reaches: R,
    /// Whether it keeps waiters that no message reaches.
    pub(super) keeps: bool,
    /// The mutation of its scripts.
    pub(super) mutant: Mutant,
}

impl<R: Fn(u8) -> bool> Master<'_, R> {
    /// Executes a command of a client. Returns the reply, and the clients that it wakes.
    pub(super) fn execute(&mut self, client: u8, request: Request) -> (MasterReply, u8) {
        let mut woken = 0;
        let reply = match request {
            Request::Delete(_, wake_up, leave) => {
                let reply = self.on_key(client, request);
                if let Some(inbox) = leave {
                    self.queue.leave(Waiter { client, inbox });
                }
                if wake_up == WakeUp::First {
                    woken = self.wake();
                }
                reply
            }
            Request::Enqueue { inbox, .. } => {
                let waiter = Waiter { client, inbox };
                self.queue.stand(waiter);
                let ahead = self.queue.ahead(waiter, self.readers);
                let shares = matches!(self.held, Held::Shared(_)) && self.reads(client);
                let held = self.held.shown_to(client).filter(|_| !(shares && ahead == 0));
                MasterReply::Place { ahead, held }
            }
            Request::Dequeue { inbox, wake } => {
                self.queue.leave(Waiter { client, inbox });
                if wake {
                    woken = self.wake();
                }
                MasterReply::Alive
            }
            request => self.on_key(client, request),
        };
        (reply, woken)
    }

    const fn reads(&self, client: u8) -> bool {
        self.readers >> client & 1 == 1
    }

    /// Wakes the first waiters, if the resource is free for them.
    pub(super) fn wake(&mut self) -> u8 {
        let is_shared = match self.held {
            Held::By(_) => return 0,
            Held::Shared(_) => true,
            Held::No => false,
        };
        self.queue.wake(self.readers, (is_shared, self.keeps), &self.reaches)
    }

    fn on_key(&mut self, client: u8, request: Request) -> MasterReply {
        match request {
            Request::Set { token, behind } => self.set(client, token, behind),
            Request::Again(token) => self.set(client, token, false),
            Request::Keep { token, round, repair } => {
                debug_assert!(!self.reads(client), "no round extends a shared lease");
                match *self.held {
                    Held::By(there) if self.held.has(client, token) => {
                        *self.held = Held::By(Key { round: there.round.max(round), ..there });
                        MasterReply::Kept
                    }
                    Held::No if repair => {
                        *self.held = Held::By(Key { client, token, round });
                        MasterReply::Created
                    }
                    // Another client's key in its place decides nothing for either.
                    _ => MasterReply::Absent,
                }
            }
            Request::Delete(token, ..) => match self.held.remove(client, token) {
                true => MasterReply::Deleted,
                false => match self.held.shown_to(client).filter(|_| self.waits) {
                    Some(shown) => MasterReply::Held(shown),
                    None => MasterReply::Absent,
                },
            },
            _ => MasterReply::Alive,
        }
    }

    fn set(&mut self, client: u8, token: u8, behind: bool) -> MasterReply {
        let mut shared = match *self.held {
            Held::No => [0; CLIENTS],
            Held::Shared(tokens) if self.reads(client) => tokens,
            Held::By(_) if self.reads(client) && self.mutant == Mutant::Evicts => [0; CLIENTS],
            Held::By(_) | Held::Shared(_) => return MasterReply::Taken,
        };
        if behind && self.queue.has_writer(self.readers) {
            return MasterReply::Taken;
        }
        *self.held = if self.reads(client) {
            shared[usize::from(client)] |= 1 << token;
            Held::Shared(shared)
        } else {
            Held::By(Key { client, token, round: 0 })
        };
        MasterReply::Created
    }
}
