//! Token: the random value that proves ownership of one attempt.

use core::cmp::Ordering;
use core::fmt;
use core::hash::{Hash, Hasher};

use crate::bad_option::{BadOption, MAX_HOLDER_NAME};

/// The number of random bytes at the start of a token.
pub const TOKEN_LEN: usize = 20;

/// The length of the longest token in bytes: shared, and with the longest name.
const LONGEST: usize = TOKEN_LEN + 2 + MAX_HOLDER_NAME;

/// The byte behind the random ones of a shared token.
const SHARED: u8 = b's';

/// The byte in front of the name.
const NAMED: u8 = b'@';

/// What proves ownership on every master: 20 random bytes, fresh for every attempt. Behind them
/// come the letter `s`, if the lease is shared, and `@` with the [`HolderName`], if there is one.
///
/// That of an exclusive lease is the value of the lock key. That of a shared lease is one of the
/// members of the lock key, a sorted set. Masters compare all bytes of it.
///
/// It identifies an attempt and has no order: it is not a fencing token. A client that has the
/// token can delete the key, so `Debug` shows only its first four bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token(Inline<LONGEST>);

impl Token {
    /// The exclusive token with these bytes.
    pub const fn new(random: [u8; TOKEN_LEN]) -> Self {
        let mut bytes = [0; LONGEST];
        let mut at = 0;
        while at < TOKEN_LEN {
            bytes[at] = random[at];
            at += 1;
        }
        Self(Inline { bytes, len: TOKEN_LEN })
    }

    /// The token of a shared lease with the same random bytes and the same name.
    #[must_use]
    pub fn shared(self) -> Self {
        self.with_parts(true, self.name())
    }

    /// This token, with this name in place of the one that it has.
    #[must_use]
    pub fn named(self, name: HolderName) -> Self {
        self.with_parts(self.is_shared(), Some(name.as_str()))
    }

    fn with_parts(&self, shared: bool, name: Option<&str>) -> Self {
        let mut bytes = Inline::EMPTY;
        bytes.push(&self.0.bytes[..TOKEN_LEN]);
        if shared {
            bytes.push(&[SHARED]);
        }
        if let Some(name) = name {
            bytes.push(&[NAMED]);
            bytes.push(name.as_bytes());
        }
        Self(bytes)
    }

    /// Whether it is the token of a shared lease.
    pub const fn is_shared(&self) -> bool {
        self.0.len > TOKEN_LEN && self.0.bytes[TOKEN_LEN] == SHARED
    }

    /// The name of the holder.
    pub fn name(&self) -> Option<&str> {
        let start = TOKEN_LEN + usize::from(self.is_shared()) + 1;
        str::from_utf8(self.as_bytes().get(start..)?).ok()
    }

    /// This token with other random bytes.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut [u8])) -> Self {
        change(&mut self.0.bytes[..TOKEN_LEN]);
        self
    }

    /// The token's bytes, as they are on the wire.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// The token with exactly these bytes, if they can be one.
    pub fn from_slice(bytes: &[u8]) -> Option<Self> {
        let (random, rest) = bytes.split_first_chunk()?;
        let (shared, rest) = match rest {
            [SHARED, rest @ ..] => (true, rest),
            rest => (false, rest),
        };
        let name = match rest {
            [] => None,
            [NAMED, name @ ..] => Some(name_of(name)?),
            _ => return None,
        };
        Some(Self::new(*random).with_parts(shared, name))
    }
}

/// The order of the bytes, for maps. Almost always the first eight bytes decide, which are compared
/// as a number: a link looks for a token several times for each key.
impl Ord for Token {
    fn cmp(&self, other: &Self) -> Ordering {
        let first = |it: &Self| {
            let [a, b, c, d, e, f, g, h, ..] = it.0.bytes;
            u64::from_be_bytes([a, b, c, d, e, f, g, h])
        };
        first(self).cmp(&first(other)).then_with(|| self.as_bytes().cmp(other.as_bytes()))
    }
}

impl PartialOrd for Token {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in &self.0.bytes[..4] {
            write!(f, "{byte:02x}")?;
        }
        f.write_str("…")
    }
}

/// The name that a lease shows to whoever looks at the key, or is refused because of it: 1 to
/// [`MAX_HOLDER_NAME`] bytes of text without control characters.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct HolderName(Inline<MAX_HOLDER_NAME>);

impl HolderName {
    /// Checks the name.
    ///
    /// # Errors
    /// [`BadOption::HolderName`]: the name is empty, too long, or has control characters.
    pub fn new(name: &str) -> Result<Self, BadOption> {
        let mut bytes = Inline::EMPTY;
        bytes.push(name_of(name.as_bytes()).ok_or(BadOption::HolderName)?.as_bytes());
        Ok(Self(bytes))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        str::from_utf8(self.0.as_bytes()).expect("it was text before")
    }
}

fn name_of(bytes: &[u8]) -> Option<&str> {
    let text = str::from_utf8(bytes).ok()?;
    let fits = (1..=MAX_HOLDER_NAME).contains(&text.len());
    (fits && !text.contains(char::is_control)).then_some(text)
}

impl fmt::Debug for HolderName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

/// At most this many bytes. Those behind the end are 0.
#[derive(Clone, Copy)]
struct Inline<const MOST: usize> {
    bytes: [u8; MOST],
    len: usize,
}

impl<const MOST: usize> Inline<MOST> {
    const EMPTY: Self = Self { bytes: [0; MOST], len: 0 };

    fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn push(&mut self, bytes: &[u8]) {
        let end = self.len + bytes.len();
        self.bytes[self.len..end].copy_from_slice(bytes);
        self.len = end;
    }
}

impl<const MOST: usize> PartialEq for Inline<MOST> {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl<const MOST: usize> Eq for Inline<MOST> {}

impl<const MOST: usize> Hash for Inline<MOST> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;

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
    fn a_token_shows_the_name_of_its_holder() {
        for text in ["a", "s", "@", "billing-7", "kasse 3 – süd", &"n".repeat(MAX_HOLDER_NAME)] {
            let name = HolderName::new(text).unwrap();
            assert_eq!((name.as_str(), format!("{name:?}")), (text, format!("{text:?}")));
            let token = Token::new([NAMED; TOKEN_LEN]);
            let shared = token.shared().named(name);
            assert_eq!((token.named(name).shared(), token.name()), (shared, None), "{text}");
            assert_eq!(
                shared.as_bytes(),
                [&[NAMED; TOKEN_LEN], &b"s@"[..], text.as_bytes()].concat()
            );
            for token in [token.named(name), shared] {
                assert_eq!(token.name(), Some(text));
                assert_eq!(Token::from_slice(token.as_bytes()), Some(token));
                assert_eq!(
                    token.named(HolderName::new("b").unwrap()).as_bytes().last(),
                    Some(&b'b')
                );
            }
            assert!(shared.is_shared() && !token.named(name).is_shared());
        }
    }

    #[test]
    fn no_other_text_is_a_name() {
        for text in ["", "a\nb", "a\u{85}", &"n".repeat(MAX_HOLDER_NAME + 1)] {
            assert_eq!(HolderName::new(text), Err(BadOption::HolderName), "{text:?}");
            let value = [&[0; TOKEN_LEN], &b"@"[..], text.as_bytes()].concat();
            assert_eq!(Token::from_slice(&value), None, "{text:?}");
        }
        assert_eq!(Token::from_slice(&[&[0; TOKEN_LEN], &b"@\xff"[..]].concat()), None);
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
