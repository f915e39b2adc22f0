//! A master: one key that is there or not, and the commands on it.

use std::time::Duration;

use redquorum_protocol::{Answer, Call, Cause, Holder};

use super::Scope;
use super::caller::TICK;
use super::side::token;

/// The key of the one resource, as a master has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    /// Whose it is. Tokens are numbered for each client, so both together are its value.
    pub(super) client: u8,
    /// The token.
    pub(super) token: u8,
    /// The latest round that made it live longer; 0: the attempt itself.
    pub(super) round: u8,
}

/// A command on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Request {
    Set(u8),
    Keep {
        token: u8,
        round: u8,
        repair: bool,
    },
    /// Compare-and-delete, and who is told of it. If another key is there, whose it is.
    Delete(u8, Call),
    /// The number of the connection is its client id, too.
    Kill(u64),
    Load(redquorum_protocol::wire::Script),
    Ping,
    Hello,
    Subscribe,
    Unsubscribe,
    /// A `SET` that a blunder sends once more, past the link: its answer is nobody's.
    Again(u8),
}

impl Request {
    /// The token of the key that it may make.
    pub(super) const fn creates(self) -> Option<u8> {
        match self {
            Self::Set(token) | Self::Again(token) | Self::Keep { token, repair: true, .. } => {
                Some(token)
            }
            _ => None,
        }
    }
}

/// An answer on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Reply {
    Created,
    Kept,
    Deleted,
    Absent,
    Taken,
    /// To a compare-and-delete, where somebody waits: another key is there, of another client or not.
    Held {
        foreign: bool,
        token: u8,
    },
    Alive,
    Error,
    /// An error, to the kill of an old connection.
    NotKilled,
    NoScript,
    /// No answer: what a master says unasked to those who listen.
    Freed,
}

impl Reply {
    /// The answer that it is, if it is one; `left` is what masters say is left of others' keys.
    pub(super) fn answer(self, left: Duration) -> Option<Answer> {
        Some(match self {
            Self::Created => Answer::Created,
            Self::Kept => Answer::Kept,
            Self::Deleted => Answer::Deleted,
            Self::Absent => Answer::Absent,
            // Whose it is comes with the clean-up, if at all.
            Self::Taken => Answer::Taken(Holder::NotAsked),
            Self::Held { foreign, token: number } => {
                // Clients number their tokens, and no two see each other's as their own.
                let token = token(number | u8::from(foreign) << 7);
                let left_ms = u64::try_from(left.as_millis()).expect("it is short");
                Answer::Taken(Holder::Lease { token, left_ms })
            }
            Self::Alive => Answer::Alive,
            Self::Error | Self::NotKilled => Answer::Unknown(Cause::Error("an error".into())),
            Self::NoScript => Answer::Unknown(Cause::NoScript),
            Self::Freed => return None,
        })
    }
}

/// What masters say is left of a key: where words are lost, so much that whoever sleeps looks at a master
/// before it is over; else the TTL.
pub(super) fn left(scope: &Scope) -> Duration {
    if scope.words > 0 { TICK * 600 } else { TICK * 6 }
}

/// Executes a command of a client on a key. Who holds what it does not free is said where somebody
/// `waits` for it.
pub(super) fn execute(client: u8, request: Request, key: &mut Option<Key>, waits: bool) -> Reply {
    let is_ours = |key: Key, token: u8| key.client == client && key.token == token;
    match (request, *key) {
        (Request::Set(token) | Request::Again(token), None) => {
            *key = Some(Key { client, token, round: 0 });
            Reply::Created
        }
        (Request::Set(_) | Request::Again(_), Some(_)) => Reply::Taken,
        (Request::Keep { token, round, .. }, Some(there)) if is_ours(there, token) => {
            *key = Some(Key { round: there.round.max(round), ..there });
            Reply::Kept
        }
        (Request::Keep { token, round, repair: true }, None) => {
            *key = Some(Key { client, token, round });
            Reply::Created
        }
        (Request::Delete(token, _), Some(there)) if is_ours(there, token) => {
            *key = None;
            Reply::Deleted
        }
        (Request::Delete(..), Some(there)) if waits => {
            Reply::Held { foreign: there.client != client, token: there.token }
        }
        // Whether another's key is there instead decides nothing for either.
        (Request::Keep { .. } | Request::Delete(..), _) => Reply::Absent,
        (
            Request::Kill(_)
            | Request::Load(_)
            | Request::Ping
            | Request::Hello
            | Request::Subscribe
            | Request::Unsubscribe,
            _,
        ) => Reply::Alive,
    }
}
