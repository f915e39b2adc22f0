//! What a command is to a key, what its master said, and what is left of keys at the end.

use serde::{Deserialize, Serialize};

use crate::name::Name;

/// What a command does to a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "act", rename_all = "kebab-case")]
pub enum Act {
    /// Sets it if it does not exist.
    Set {
        /// Which.
        key: Name,
        /// Its value.
        token: Name,
        /// For how long; none: for ever.
        ttl_ms: Option<u64>,
    },
    /// Prolongs it if it has this value; may create it.
    Keep {
        /// Which.
        key: Name,
        /// The value that it must have; none: any.
        token: Option<Name>,
        /// For how long from now.
        ttl_ms: Option<u64>,
    },
    /// Deletes it if it has this value.
    Delete {
        /// Which.
        key: Name,
        /// The value that it must have; none: any.
        token: Option<Name>,
    },
    /// Raises its fencing counter if it has this value, and leaves the key as it is.
    Certify {
        /// Which.
        key: Name,
        /// The value that it must have; none: any.
        token: Option<Name>,
    },
    /// Something else: who knows.
    Other {
        /// The first key that it names, if any.
        key: Option<Name>,
        /// Its name.
        command: Name,
    },
}

impl Act {
    /// The key that it touches.
    pub fn key(&self) -> Option<&str> {
        match self {
            Self::Set { key, .. }
            | Self::Keep { key, .. }
            | Self::Delete { key, .. }
            | Self::Certify { key, .. } => Some(key),
            Self::Other { key, .. } => key.as_deref(),
        }
    }

    /// The value that it sets or compares with.
    pub fn token(&self) -> Option<&str> {
        match self {
            Self::Set { token, .. } => Some(token),
            Self::Keep { token, .. } | Self::Delete { token, .. } | Self::Certify { token, .. } => {
                token.as_deref()
            }
            Self::Other { .. } => None,
        }
    }
}

/// What a master said to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It did it: the key is set, prolonged, deleted, certified.
    Done,
    /// `Keep` only: the key was missing and was created.
    Created,
    /// It did not: the key exists, is another's, is missing.
    Refused,
    /// It said that it made an error.
    Error,
    /// It said nothing.
    Silent,
}

/// A key that is left at the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Left {
    /// Its name.
    pub key: Name,
    /// Its value, as in [`Event::Command`](super::Event::Command).
    pub value: Name,
    /// What is left of its TTL; none: it has none.
    pub ttl_ms: Option<u64>,
}

/// The text of a token or a key: itself if it is plain text, else `hex:…`.
pub fn text_of(bytes: &[u8]) -> Name {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.starts_with("hex:") && !text.chars().any(char::is_control) => text.into(),
        _ => {
            let mut hex = vec![0; 4 + 2 * bytes.len()];
            hex[..4].copy_from_slice(b"hex:");
            let (pairs, _) = hex[4..].as_chunks_mut();
            for (pair, byte) in pairs.iter_mut().zip(bytes) {
                *pair = [byte >> 4, byte & 15].map(|half| DIGITS[usize::from(half)]);
            }
            match std::str::from_utf8(&hex) {
                Ok(hex) => hex.into(),
                Err(_) => unreachable!("digits are text"),
            }
        }
    }
}

const DIGITS: &[u8; 16] = b"0123456789abcdef";
