//! RESP2 frames: parsed in place, bounded, and never guessed at.

use alloc::vec::Vec;

/// Longest answer that is taken for one: none of ours comes near it.
pub const MAX_REPLY: usize = 64 * 1024;

/// How deep arrays may nest.
const MAX_DEPTH: usize = 4;

/// Most elements of one array.
const MAX_ELEMENTS: i64 = 1024;

/// One RESP2 value.
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
    /// `$-1` or `*-1`
    Null,
    /// `*count`, then the elements. A command is an array of bulks.
    Array(Vec<Self>),
}

/// Bytes that are no RESP2, or a value longer than was allowed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Malformed;

impl core::fmt::Display for Malformed {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("bytes that are not the Redis protocol, or an answer that is too long")
    }
}

impl core::error::Error for Malformed {}

/// Reads one value from the start of `bytes` and says how many of them it took.
///
/// `Ok(None)` means that it is not complete yet.
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

enum Stop {
    Incomplete,
    Malformed,
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
            b'*' => match number(text)? {
                -1 => Ok(Frame::Null),
                count if (0..=MAX_ELEMENTS).contains(&count) && depth > 0 => (0..count)
                    .map(|_| self.value(depth - 1))
                    .collect::<Result<_, _>>()
                    .map(Frame::Array),
                _ => Err(Stop::Malformed),
            },
            _ => Err(Stop::Malformed),
        }
    }

    fn line(&mut self) -> Result<&'a [u8], Stop> {
        let rest = &self.bytes[self.at..];
        let Some(end) = rest.iter().position(|byte| *byte == b'\n') else {
            // A first byte that starts nothing is refused before the line is complete.
            return match rest.first() {
                None | Some(b'+' | b'-' | b':' | b'$' | b'*') => Err(Stop::Incomplete),
                Some(_) => Err(Stop::Malformed),
            };
        };
        self.at += end + 1;
        rest[..end].strip_suffix(b"\r").ok_or(Stop::Malformed)
    }

    fn bulk(&mut self, length: usize) -> Result<Frame<'a>, Stop> {
        if length > self.limit {
            return Err(Stop::Malformed);
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

/// Appends a command, an array of bulks, to `out`.
pub fn write_command(out: &mut Vec<u8>, args: &[&[u8]]) {
    out.reserve(args.iter().map(|arg| arg.len() + 16).sum::<usize>() + 16);
    write_length(out, b'*', args.len());
    for arg in args {
        write_length(out, b'$', arg.len());
        out.extend_from_slice(arg);
        out.extend_from_slice(b"\r\n");
    }
}

fn write_length(out: &mut Vec<u8>, kind: u8, length: usize) {
    out.push(kind);
    out.extend_from_slice(super::decimal(length as u64, &mut [0; 20]));
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_prefix_of_a_value_is_incomplete_and_the_whole_is_read() {
        let whole = b"*4\r\n:-3\r\n$2\r\n\r\n\r\n*1\r\n+ok\r\n$-1\r\n";
        for end in 0..whole.len() {
            assert_eq!(parse(&whole[..end], MAX_REPLY), Ok(None), "{end}");
        }
        let nested = Frame::Array(Vec::from([Frame::Simple(b"ok")]));
        let parts = Vec::from([Frame::Integer(-3), Frame::Bulk(b"\r\n"), nested, Frame::Null]);
        assert_eq!(parse(whole, MAX_REPLY), Ok(Some((Frame::Array(parts), whole.len()))));
    }

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
}
