//! Token: the random value that proves ownership of one attempt.

use core::cmp::Ordering;
use core::fmt;

/// The length of an exclusive token in bytes. A shared one has one more.
pub const TOKEN_LEN: usize = 20;

/// The last byte of a shared token.
const SHARED: u8 = b's';

/// What proves ownership on every master: 20 random bytes, fresh for every attempt. That of an
/// exclusive lease is the value of the lock key. That of a shared lease has the letter `s` behind
/// these bytes, and is one of the members of the lock key, a sorted set.
///
/// It identifies an attempt and has no order: it is not a fencing token. A client that has the
/// token can delete the key, so `Debug` shows only its first four bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token {
    bytes: [u8; TOKEN_LEN + 1],
    /// Whether the last of them is on the wire.
    shared: bool,
}

impl Token {
    /// The exclusive token with these bytes.
    pub const fn new(random: [u8; TOKEN_LEN]) -> Self {
        let mut bytes = [SHARED; TOKEN_LEN + 1];
        let mut at = 0;
        while at < TOKEN_LEN {
            bytes[at] = random[at];
            at += 1;
        }
        Self { bytes, shared: false }
    }

    /// The shared token with the same random bytes.
    #[must_use]
    pub const fn shared(self) -> Self {
        Self { shared: true, ..self }
    }

    /// Whether it is the token of a shared lease.
    pub const fn is_shared(&self) -> bool {
        self.shared
    }

    /// This token with other random bytes.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut [u8])) -> Self {
        change(&mut self.bytes[..TOKEN_LEN]);
        self
    }

    /// The token's bytes, as they are on the wire.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..TOKEN_LEN + usize::from(self.shared)]
    }

    /// The token with exactly these bytes, if they can be one.
    pub fn from_slice(bytes: &[u8]) -> Option<Self> {
        let (random, shared) = match bytes {
            [random @ .., SHARED] if bytes.len() > TOKEN_LEN => (random, true),
            random => (random, false),
        };
        let token = Self::new(random.try_into().ok()?);
        Some(if shared { token.shared() } else { token })
    }
}

/// The order of the bytes, for maps. Almost always the first eight bytes decide, which are compared
/// as a number: a link looks for a token several times for each key.
impl Ord for Token {
    fn cmp(&self, other: &Self) -> Ordering {
        let first = |it: &Self| {
            let [a, b, c, d, e, f, g, h, ..] = it.bytes;
            u64::from_be_bytes([a, b, c, d, e, f, g, h])
        };
        let rest = || (self.bytes, self.shared).cmp(&(other.bytes, other.shared));
        first(self).cmp(&first(other)).then_with(rest)
    }
}

impl PartialOrd for Token {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in &self.bytes[..4] {
            write!(f, "{byte:02x}")?;
        }
        f.write_str("…")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_token_is_told_from_an_exclusive_one() {
        let token = Token::new([SHARED; TOKEN_LEN]);
        let shared = token.shared();
        assert!(shared.is_shared() && !token.is_shared() && token != shared);
        assert_eq!([token, shared].map(|it| it.as_bytes().len()), [20, 21]);
        for token in [token, shared] {
            assert_eq!(Token::from_slice(token.as_bytes()), Some(token));
        }
        for bytes in [&[SHARED; 19][..], &[0; 21], &[SHARED; 22], b""] {
            assert_eq!(Token::from_slice(bytes), None, "{bytes:?}");
        }
    }

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
