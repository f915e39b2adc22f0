//! A master: one key that is there or not, and the commands on it.

use redquorum_protocol::{Answer, Cause, Holder};

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
    Delete(u8),
    /// The number of the connection is its client id, too.
    Kill(u64),
    Load(redquorum_protocol::wire::Script),
    Ping,
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

    /// What a master may answer, by what it has.
    pub(super) const fn replies(self) -> &'static [Reply] {
        match self {
            Self::Set(_) | Self::Again(_) => &[Reply::Created, Reply::Taken],
            Self::Keep { repair: true, .. } => &[Reply::Kept, Reply::Created, Reply::Absent],
            Self::Keep { .. } => &[Reply::Kept, Reply::Absent],
            Self::Delete(_) => &[Reply::Deleted, Reply::Absent],
            Self::Kill(_) | Self::Load(_) | Self::Ping => &[Reply::Alive],
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
    Alive,
    Error,
    /// An error, to the kill of an old connection.
    NotKilled,
    NoScript,
}

impl Reply {
    pub(super) fn answer(self) -> Answer {
        match self {
            Self::Created => Answer::Created,
            Self::Kept => Answer::Kept,
            Self::Deleted => Answer::Deleted,
            Self::Absent => Answer::Absent,
            // Whose it is decides nothing.
            Self::Taken => Answer::Taken(Holder::NotAsked),
            Self::Alive => Answer::Alive,
            Self::Error | Self::NotKilled => Answer::Unknown(Cause::Error("an error".into())),
            Self::NoScript => Answer::Unknown(Cause::NoScript),
        }
    }
}

/// Executes a command of a client on a key.
pub(super) fn execute(client: u8, request: Request, key: &mut Option<Key>) -> Reply {
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
        (Request::Delete(token), Some(there)) if is_ours(there, token) => {
            *key = None;
            Reply::Deleted
        }
        // Whether another's key is there instead decides nothing for either.
        (Request::Keep { .. } | Request::Delete(_), _) => Reply::Absent,
        (Request::Kill(_) | Request::Load(_) | Request::Ping, _) => Reply::Alive,
    }
}
