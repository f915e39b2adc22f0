//! The token: the random value that proves ownership of one attempt.

use core::fmt;

/// How many bytes a token has on the wire.
pub const TOKEN_LEN: usize = 20;

/// The value of the lock key on every master: 20 random bytes, fresh for every attempt.
///
/// It identifies and does not order: it is not a fencing token. Whoever knows it can delete
/// the key, so `Debug` shows only its first four bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token([u8; TOKEN_LEN]);

impl Token {
    /// The token with these bytes.
    pub const fn new(bytes: [u8; TOKEN_LEN]) -> Self {
        Self(bytes)
    }

    /// Its bytes, as they stand on the wire.
    pub const fn as_bytes(&self) -> &[u8; TOKEN_LEN] {
        &self.0
    }

    /// The token with exactly these bytes, if there are as many as a token has.
    pub fn from_slice(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in &self.0[..4] {
            write!(f, "{byte:02x}")?;
        }
        f.write_str("…")
    }
}
