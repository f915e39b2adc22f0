//! Frames of RESP2, and those of RESP3 that masters send. The parser copies nothing, bounds
//! everything and never guesses.

use alloc::vec::Vec;

/// The longest reply that the client accepts. No reply to its commands comes near it.
pub const MAX_REPLY: usize = 64 * 1024;

/// How deep arrays may nest.
const MAX_DEPTH: usize = 4;

/// The most elements of one array.
const MAX_ELEMENTS: i64 = 1024;

/// One value.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Frame<'a> {
    /// `+text`
    Simple(&'a [u8]),
    /// `-text`
    Error(&'a [u8]),
    /// `:number`
    Integer(i64),
    /// `$length`, then the bytes.
    Bulk(&'a [u8]),
    /// `$-1`, `*-1` or `_`
    Null,
    /// `*count`, then the elements. A command is an array of bulks.
    Array(Vec<Self>),
    /// `%count`, then twice as many elements: names and values.
    Map(Vec<Self>),
    /// `>count`, then the elements: a message without a request, or the reply to `SUBSCRIBE` and
    /// `UNSUBSCRIBE`.
    Push(Vec<Self>),
}

/// Bytes that are not a RESP value, or a value above the limit.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Malformed;

impl core::fmt::Display for Malformed {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("bytes that are not the Redis protocol, or an answer that is too long")
    }
}

impl core::error::Error for Malformed {}

/// Reads one value from the start of `bytes`, and returns it with its length in bytes.
///
/// `Ok(None)` means that the value is not complete yet.
///
/// # Errors
/// [`Malformed`] as soon as the value cannot become one of at most `limit` bytes.
pub fn parse(bytes: &[u8], limit: usize) -> Result<Option<(Frame<'_>, usize)>, Malformed> {
    let mut reader = Reader { bytes, at: 0, limit };
    match reader.value(MAX_DEPTH) {
        Ok(frame) => Ok(Some((frame, reader.at))),
        Err(Stop::Incomplete) if bytes.len() < limit => Ok(None),
        Err(_) => Err(Malformed),
    }
}

/// Whether `bytes` begin with a push that cannot become a value of at most `limit` bytes.
/// Confirmations of `SUBSCRIBE` and `UNSUBSCRIBE` do not count.
pub(super) fn long_push(bytes: &[u8], limit: usize) -> bool {
    if bytes.first() != Some(&b'>') {
        return false;
    }
    let is_long = match (Reader { bytes, at: 0, limit }).value(MAX_DEPTH) {
        Err(Stop::TooLong) => true,
        Err(Stop::Incomplete) => bytes.len() >= limit,
        _ => false,
    };
    let mut reader = Reader { bytes, at: 0, limit };
    let kind = reader.line().and_then(|_| reader.value(0));
    is_long && !matches!(kind, Ok(Frame::Bulk(b"subscribe" | b"unsubscribe")))
}

enum Stop {
    Incomplete,
    Malformed,
    /// It may be a value, but it is too long, has too many elements or is nested too deep.
    TooLong,
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    limit: usize,
}

impl<'a> Reader<'a> {
    fn value(&mut self, depth: usize) -> Result<Frame<'a>, Stop> {
        let line = self.line()?;
        let (kind, text) = line.split_first().ok_or(Stop::Malformed)?;
        match kind {
            b'+' => Ok(Frame::Simple(text)),
            b'-' => Ok(Frame::Error(text)),
            b':' => Ok(Frame::Integer(number(text)?)),
            b'$' => match number(text)? {
                -1 => Ok(Frame::Null),
                length => self.bulk(usize::try_from(length).map_err(|_| Stop::Malformed)?),
            },
            b'_' if text.is_empty() => Ok(Frame::Null),
            b'*' => match number(text)? {
                -1 => Ok(Frame::Null),
                count => self.elements(count, depth).map(Frame::Array),
            },
            b'%' => {
                let count = number(text)?.checked_mul(2).ok_or(Stop::Malformed)?;
                self.elements(count, depth).map(Frame::Map)
            }
            b'>' => self.elements(number(text)?, depth).map(Frame::Push),
            _ => Err(Stop::Malformed),
        }
    }

    fn elements(&mut self, count: i64, depth: usize) -> Result<Vec<Frame<'a>>, Stop> {
        if (0..=MAX_ELEMENTS).contains(&count) && depth > 0 {
            (0..count).map(|_| self.value(depth - 1)).collect()
        } else if count < 0 {
            Err(Stop::Malformed)
        } else {
            Err(Stop::TooLong)
        }
    }

    fn line(&mut self) -> Result<&'a [u8], Stop> {
        let rest = &self.bytes[self.at..];
        let Some(end) = rest.iter().position(|byte| *byte == b'\n') else {
            // Refuse a first byte that begins no value, before the line is complete.
            return match rest.first() {
                None | Some(b'+' | b'-' | b':' | b'$' | b'*' | b'_' | b'%' | b'>') => {
                    Err(Stop::Incomplete)
                }
                Some(_) => Err(Stop::Malformed),
            };
        };
        self.at += end + 1;
        rest[..end].strip_suffix(b"\r").ok_or(Stop::Malformed)
    }

    fn bulk(&mut self, length: usize) -> Result<Frame<'a>, Stop> {
        if length > self.limit {
            return Err(Stop::TooLong);
        }
        let rest = &self.bytes[self.at..];
        if rest.len() < length + 2 {
            return Err(Stop::Incomplete);
        }
        self.at += length + 2;
        if &rest[length..length + 2] == b"\r\n" {
            Ok(Frame::Bulk(&rest[..length]))
        } else {
            Err(Stop::Malformed)
        }
    }
}

fn number(text: &[u8]) -> Result<i64, Stop> {
    core::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).ok_or(Stop::Malformed)
}

impl Frame<'_> {
    /// Appends the bytes of the value to `out`: the inverse of [`parse`].
    ///
    /// The text of [`Frame::Simple`] and [`Frame::Error`] must not contain a line feed.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut all = |kind, count, parts: &[Self]| {
            write_length(out, kind, count);
            parts.iter().for_each(|part| part.encode(out));
        };
        match self {
            Self::Array(parts) => all(b'*', parts.len(), parts),
            Self::Map(parts) => all(b'%', parts.len() / 2, parts),
            Self::Push(parts) => all(b'>', parts.len(), parts),
            Self::Simple(text) => write_line(out, b"+", text),
            Self::Error(text) => write_line(out, b"-", text),
            Self::Integer(number) => {
                let sign: &[u8] = if *number < 0 { b":-" } else { b":" };
                write_line(out, sign, super::decimal(number.unsigned_abs(), &mut [0; 20]));
            }
            Self::Bulk(bytes) => write_bulk(out, bytes),
            Self::Null => out.extend_from_slice(b"$-1\r\n"),
        }
    }
}

/// Appends a command to `out`, as an array of bulks.
pub fn write_command(out: &mut Vec<u8>, args: &[&[u8]]) {
    write_parts(out, &[args]);
}

/// Appends a command, as an array of bulks. Its arguments come in several slices.
pub(super) fn write_parts(out: &mut Vec<u8>, parts: &[&[&[u8]]]) {
    write_length(out, b'*', parts.iter().map(|args| args.len()).sum());
    for args in parts {
        args.iter().for_each(|arg| write_bulk(out, arg));
    }
}

fn write_bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    write_length(out, b'$', bytes.len());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

fn write_length(out: &mut Vec<u8>, kind: u8, length: usize) {
    // Each argument of each command has a length, and most lengths have one or two digits.
    match u8::try_from(length) {
        Ok(ones @ 0..10) => out.extend_from_slice(&[kind, b'0' + ones, b'\r', b'\n']),
        Ok(both @ 10..100) => {
            let (tens, ones) = (b'0' + both / 10, b'0' + both % 10);
            out.extend_from_slice(&[kind, tens, ones, b'\r', b'\n']);
        }
        _ => write_line(out, &[kind], super::decimal(length as u64, &mut [0; 20])),
    }
}

fn write_line(out: &mut Vec<u8>, kind: &[u8], text: &[u8]) {
    for part in [kind, text, b"\r\n"] {
        out.extend_from_slice(part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_become_a_value_is_refused_at_once() {
        for bad in [
            &b"HTTP/1.1 400"[..],
            b"\r\n",
            b"+no carriage return\n",
            b":twelve\r\n",
            b"$-2\r\n",
            b"$99999999999\r\n",
            b"$2\r\nabcd",
            b"*2000\r\n",
            b"*-2\r\n",
            b"_1\r\n",
            b"%-1\r\n",
            b"%9223372036854775807\r\n",
            b">-1\r\n",
            b"*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n",
        ] {
            assert_eq!(parse(bad, MAX_REPLY), Err(Malformed), "{}", bad.escape_ascii());
        }
    }

    #[test]
    fn an_endless_line_is_refused_at_the_limit() {
        let endless = [b"+".to_vec(), alloc::vec![b'x'; 99]].concat();
        assert_eq!(parse(&endless, 101), Ok(None));
        assert_eq!(parse(&endless, 100), Err(Malformed));
    }

    #[test]
    fn a_reply_has_at_most_64_kibibytes() {
        assert_eq!(MAX_REPLY, 65_536);
    }

    #[test]
    fn null_has_two_forms_and_zero_one() {
        for null in [&b"$-1\r\n"[..], b"*-1\r\n", b"_\r\n"] {
            assert_eq!(parse(null, MAX_REPLY), Ok(Some((Frame::Null, null.len()))));
        }
        let mut bytes = Vec::new();
        Frame::Integer(0).encode(&mut bytes);
        assert_eq!(bytes, b":0\r\n");
    }
}
