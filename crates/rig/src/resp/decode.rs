//! Decodes a frame, once `scan.rs` has found its end. Called by `resp.rs` and by the network.
//!
//! For a frame that is cut short, it decodes the part that is there: the network uses this for
//! frames that are too large to be kept.

use std::str;

use super::{
    RespValue,
    scan::{Header, header},
};

/// A reply. RESP3 types become RESP2 types: maps, sets and pushes become an array, booleans a
/// number, a null nothing, all other numbers a status.
pub(crate) fn reply(frame: &[u8]) -> RespValue {
    Frame { rest: frame }.reply().unwrap_or(RespValue::Nil)
}

/// The words of a request; none for an empty line, which servers ignore.
pub(crate) fn words(frame: &[u8]) -> Vec<Vec<u8>> {
    let mut frame = Frame { rest: frame };
    if frame.rest.first() != Some(&b'*') {
        let words = frame.rest.split(u8::is_ascii_whitespace);
        return words.filter(|word| !word.is_empty()).map(<[u8]>::to_vec).collect();
    }
    let mut words = Vec::new();
    let Some(Header::Values(count)) = frame.line().and_then(header) else { return words };
    for _ in 0..count {
        let Some(Header::Body(length)) = frame.line().and_then(header) else { break };
        words.push(frame.body(length).to_vec());
    }
    words
}

struct Frame<'a> {
    rest: &'a [u8],
}

impl<'a> Frame<'a> {
    fn line(&mut self) -> Option<&'a [u8]> {
        let end = self.rest.iter().position(|&byte| byte == b'\n')?;
        let line = &self.rest[..end];
        self.rest = &self.rest[end + 1..];
        Some(line.strip_suffix(b"\r").unwrap_or(line))
    }

    fn body(&mut self, length: u64) -> &'a [u8] {
        let length = usize::try_from(length).unwrap_or(usize::MAX).min(self.rest.len());
        let (body, rest) = self.rest.split_at(length);
        self.rest = rest.get(2..).unwrap_or_default();
        body
    }

    fn reply(&mut self) -> Option<RespValue> {
        let line = self.line()?;
        let text = || String::from_utf8_lossy(&line[1..]).into_owned();
        Some(match (header(line)?, line[0]) {
            (Header::Leaf, b'+' | b',' | b'(') => RespValue::Status(text()),
            (Header::Leaf, b'-') => RespValue::Error(text()),
            (Header::Leaf, b':') => {
                RespValue::Integer(str::from_utf8(&line[1..]).ok()?.parse().ok()?)
            }
            (Header::Leaf, b'#') => RespValue::Integer(i64::from(line == b"#t")),
            (Header::Leaf, _) => RespValue::Nil,
            (Header::Body(length), b'!') => {
                RespValue::Error(String::from_utf8_lossy(self.body(length)).into_owned())
            }
            (Header::Body(length), b'=') => {
                // Three letters of a format and a colon precede the text.
                let body = self.body(length);
                RespValue::Bulk(body.get(4..).unwrap_or(body).to_vec())
            }
            (Header::Body(length), _) => RespValue::Bulk(self.body(length).to_vec()),
            (Header::Values(count), b'|') => {
                for _ in 1..count {
                    self.reply()?;
                }
                self.reply()?
            }
            // Not with `with_capacity`: the other side controls the count.
            (Header::Values(count), _) => {
                RespValue::Array((0..count).map_while(|_| self.reply()).collect())
            }
        })
    }
}
