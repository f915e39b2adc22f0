//! What the commands of the lock mean for the history and for the rules of the network.

use redquorum_protocol::wire::KeyEffect;
use redquorum_protocol::{Key, Token};

use super::Act;
use crate::Class;
use crate::name::Name;

impl Act {
    /// The effect of a command of the lock on a key, if it has one. `key` and `token` give the
    /// texts for the history.
    pub fn of(
        effect: KeyEffect<'_>,
        key: impl FnOnce(&Key) -> Name,
        token: impl FnOnce(Token) -> Name,
    ) -> Option<Self> {
        Some(match effect {
            KeyEffect::None | KeyEffect::Queue => return None,
            KeyEffect::Set { key: of, token: to, ttl_ms } => {
                Self::Set { key: key(of), token: token(to), ttl_ms: Some(ttl_ms) }
            }
            KeyEffect::Keep { key: of, token: compared, ttl_ms } => {
                Self::Keep { key: key(of), token: Some(token(compared)), ttl_ms: Some(ttl_ms) }
            }
            KeyEffect::Delete { key: of, token: compared } => {
                Self::Delete { key: key(of), token: Some(token(compared)) }
            }
            KeyEffect::Certify { key: of, token: compared } => {
                Self::Certify { key: key(of), token: Some(token(compared)) }
            }
        })
    }

    /// The same effect of a command that compares no value.
    pub fn uncompared(mut self) -> Self {
        if let Self::Keep { token, .. } | Self::Delete { token, .. } | Self::Certify { token, .. } =
            &mut self
        {
            *token = None;
        }
        self
    }
}

impl Class {
    /// The class of a command of the lock with this effect.
    pub const fn of(effect: KeyEffect<'_>) -> Self {
        match effect {
            KeyEffect::Set { .. } | KeyEffect::Certify { .. } => Self::Acquire,
            KeyEffect::Keep { .. } => Self::Extend,
            KeyEffect::Delete { .. } => Self::Release,
            KeyEffect::Queue => Self::Queue,
            KeyEffect::None => Self::Any,
        }
    }
}
