//! Token: the random value that proves ownership of one attempt.

use core::cmp::Ordering;
use core::fmt;

/// The length of a token in bytes.
pub const TOKEN_LEN: usize = 20;

/// The value of the lock key on every master: 20 random bytes, fresh for every attempt.
///
/// It identifies an attempt and has no order: it is not a fencing token. A client that has the
/// token can delete the key, so `Debug` shows only its first four bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token([u8; TOKEN_LEN]);

impl Token {
    /// The token with these bytes.
    pub const fn new(bytes: [u8; TOKEN_LEN]) -> Self {
        Self(bytes)
    }

    /// The token's bytes, as they are on the wire.
    pub const fn as_bytes(&self) -> &[u8; TOKEN_LEN] {
        &self.0
    }

    /// The token with exactly these bytes, if their number is right.
    pub fn from_slice(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }
}

/// The order of the bytes, for maps. Almost always the first eight bytes decide, which are compared
/// as a number: a link looks for a token several times for each key.
impl Ord for Token {
    fn cmp(&self, other: &Self) -> Ordering {
        let first = |Self(bytes): &Self| {
            let [a, b, c, d, e, f, g, h, ..] = *bytes;
            u64::from_be_bytes([a, b, c, d, e, f, g, h])
        };
        first(self).cmp(&first(other)).then_with(|| self.0.cmp(&other.0))
    }
}

impl PartialOrd for Token {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_ordered_as_their_bytes_are() {
        let token = |at: usize, byte: u8| {
            let mut bytes = [7; TOKEN_LEN];
            bytes[at] = byte;
            Token::new(bytes)
        };
        for at in 0..TOKEN_LEN {
            let [less, same, more] = [6, 7, 8].map(|byte| token(at, byte));
            assert!(less < same && same < more && same <= token(0, 7), "{at}");
        }
    }
}
