//! The effect of a command on a key, the reply of its master, and the keys left at the end.

use serde::{Deserialize, Serialize};

use crate::name::Name;

/// The effect of a command on a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "act", rename_all = "kebab-case")]
pub enum Act {
    /// Sets the key if it does not exist.
    Set {
        /// The key.
        key: Name,
        /// The value.
        token: Name,
        /// The TTL; none: the key never expires.
        ttl_ms: Option<u64>,
    },
    /// Prolongs the key if it has this value; may create it.
    Keep {
        /// The key.
        key: Name,
        /// The value that the key must have; none: any.
        token: Option<Name>,
        /// The new TTL, from now on.
        ttl_ms: Option<u64>,
    },
    /// Deletes the key if it has this value.
    Delete {
        /// The key.
        key: Name,
        /// The value that the key must have; none: any.
        token: Option<Name>,
    },
    /// Raises the key's fencing counter if the key has this value, and leaves the key as it is.
    Certify {
        /// The key.
        key: Name,
        /// The value that the key must have; none: any.
        token: Option<Name>,
    },
    /// Any other command: its effect is unknown.
    Other {
        /// The first key that the command names, if any.
        key: Option<Name>,
        /// The name of the command.
        command: Name,
    },
}

impl Act {
    /// The key that the command touches.
    pub fn key(&self) -> Option<&str> {
        match self {
            Self::Set { key, .. }
            | Self::Keep { key, .. }
            | Self::Delete { key, .. }
            | Self::Certify { key, .. } => Some(key),
            Self::Other { key, .. } => key.as_deref(),
        }
    }

    /// The value that the command sets or compares with.
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

/// The reply of a master to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The command took effect: the key is set, prolonged, deleted or certified.
    Done,
    /// `Keep` only: the key was missing and was created.
    Created,
    /// The command had no effect: the key exists, has another value, or is missing.
    Refused,
    /// The master replied with an error.
    Error,
    /// The master sent no reply.
    Silent,
}

/// A key that is left at the end of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftKey {
    /// The name of the key.
    pub key: Name,
    /// The value of the key, as in [`Event::Command`](super::Event::Command).
    pub value: Name,
    /// The rest of its TTL; none: it has no TTL.
    pub ttl_ms: Option<u64>,
}

/// The text of a token or a key: the bytes themselves if they are plain text, else `hex:…`.
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
