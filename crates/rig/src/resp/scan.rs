//! Finds the end of a RESP frame while its bytes still arrive. Called by `resp.rs` and by the
//! network, which both decode a frame when it is complete (`decode.rs`).
//!
//! It stores one number of a frame for each level of nesting, so that a frame of any size can pass
//! without being kept. Here and in `decode.rs` [`header`] parses every line, so that the two cannot
//! disagree on the end of a frame.

use std::str;

/// Deeper than any reply of a server. A limit is necessary, because frames are decoded by
/// recursion.
const MAX_DEPTH: usize = 128;

/// The limit of Redis for an inline command.
const MAX_REQUEST_LINE: usize = 64 * 1024;

/// An error message of a script may be longer than any command.
const MAX_REPLY_LINE: usize = 1024 * 1024;

/// The frames to expect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Grammar {
    /// What clients send: arrays of bulk strings, or a line of words.
    Requests,
    /// What servers send: all of RESP2 and RESP3.
    Replies,
}

/// The state of the frame at the start of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scan {
    /// It has this many bytes. The scanner is ready for the next.
    Complete(usize),
    /// It is incomplete.
    More,
    /// It is not RESP.
    Strange,
}

/// What a line announces about the bytes behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Header {
    /// The value is the line itself.
    Leaf,
    /// This many bytes and a line end follow.
    Body(u64),
    /// This many values follow.
    Values(u64),
}

#[derive(Debug, Clone, Copy)]
enum Inside {
    Line,
    Body(u64),
    BodyEnd,
}

/// Finds the end of one frame after the other.
#[derive(Debug)]
pub(crate) struct Scanner {
    grammar: Grammar,
    /// How many values are still to come on each level, the outermost first.
    open: Vec<u64>,
    inside: Inside,
    /// All bytes before this position are processed.
    at: usize,
    /// This many bytes behind `at` contain no line end.
    searched: usize,
    begun: bool,
}

impl Scanner {
    pub(crate) fn new(grammar: Grammar) -> Self {
        let inside = Inside::Line;
        Self { grammar, open: Vec::new(), inside, at: 0, searched: 0, begun: false }
    }

    /// Processes the new bytes in the buffer. The buffer starts with the frame, complete or without
    /// the bytes that were [forgotten](Self::forget).
    pub(crate) fn scan(&mut self, buffer: &[u8]) -> Scan {
        loop {
            let rest = &buffer[self.at..];
            let value_ends = match self.inside {
                Inside::Line => {
                    let new = &rest[self.searched..];
                    let Some(end) = new.iter().position(|&byte| byte == b'\n') else {
                        self.searched = rest.len();
                        let long = rest.len() > self.max_line();
                        return if long { Scan::Strange } else { Scan::More };
                    };
                    let end = self.searched + end;
                    if end > self.max_line() {
                        return Scan::Strange;
                    }
                    self.at += end + 1;
                    self.searched = 0;
                    match self.line(&rest[..end]) {
                        None => return Scan::Strange,
                        Some(Header::Leaf | Header::Values(0)) => true,
                        Some(Header::Body(length)) => {
                            self.inside = Inside::Body(length);
                            false
                        }
                        Some(Header::Values(_)) if self.open.len() == MAX_DEPTH => {
                            return Scan::Strange;
                        }
                        Some(Header::Values(count)) => {
                            self.open.push(count);
                            false
                        }
                    }
                }
                Inside::Body(left) => {
                    let here = usize::try_from(left).unwrap_or(usize::MAX).min(rest.len());
                    self.at += here;
                    let left = left - here as u64;
                    self.inside = if left == 0 { Inside::BodyEnd } else { Inside::Body(left) };
                    if left > 0 {
                        return Scan::More;
                    }
                    false
                }
                Inside::BodyEnd => match rest {
                    [b'\r', b'\n', ..] => {
                        self.at += 2;
                        self.inside = Inside::Line;
                        true
                    }
                    [] | [b'\r'] => return Scan::More,
                    _ => return Scan::Strange,
                },
            };
            if value_ends && self.frame_ends() {
                self.begun = false;
                return Scan::Complete(std::mem::take(&mut self.at));
            }
        }
    }

    /// How many bytes of the buffer will not be read again.
    pub(crate) fn done_with(&self) -> usize {
        self.at
    }

    /// The caller removed this many bytes from the start of the buffer. All of them must be [done
    /// with](Self::done_with).
    pub(crate) fn forget(&mut self, bytes: usize) {
        self.at -= bytes;
    }

    fn max_line(&self) -> usize {
        match self.grammar {
            Grammar::Requests => MAX_REQUEST_LINE,
            Grammar::Replies => MAX_REPLY_LINE,
        }
    }

    /// Parses a line without its `\n`.
    fn line(&mut self, line: &[u8]) -> Option<Header> {
        let first = !std::mem::replace(&mut self.begun, true);
        if self.grammar == Grammar::Requests {
            if first && line.first() != Some(&b'*') {
                return Some(Header::Leaf);
            }
            if line.first() != Some(if first { &b'*' } else { &b'$' }) {
                return None;
            }
        }
        let header = header(line.strip_suffix(b"\r")?)?;
        // No client may send an absent word.
        let absent = header == Header::Leaf && self.grammar == Grammar::Requests && !first;
        (!absent).then_some(header)
    }

    /// Handles the end of a value, and returns whether the frame ends.
    fn frame_ends(&mut self) -> bool {
        while let Some(left) = self.open.last_mut() {
            *left -= 1;
            if *left > 0 {
                return false;
            }
            self.open.pop();
        }
        true
    }
}

/// Parses a line without its line end. None if it is not RESP.
pub(super) fn header(line: &[u8]) -> Option<Header> {
    let (kind, rest) = line.split_first()?;
    let number = || str::from_utf8(rest).ok()?.parse::<i64>().ok();
    // A negative length is an absent value.
    let length = || number().map(|number| u64::try_from(number).ok());
    let values = |per: u64, more: u64| {
        let count = length()?;
        Some(match count {
            None => Header::Leaf,
            Some(count) => Header::Values(count.checked_mul(per)?.checked_add(more)?),
        })
    };
    match kind {
        b'+' | b'-' | b',' | b'(' => Some(Header::Leaf),
        b':' => number().map(|_| Header::Leaf),
        b'#' => matches!(rest, b"t" | b"f").then_some(Header::Leaf),
        b'_' => rest.is_empty().then_some(Header::Leaf),
        b'$' | b'=' | b'!' => length().map(|length| length.map_or(Header::Leaf, Header::Body)),
        b'*' | b'~' | b'>' => values(1, 0),
        b'%' => values(2, 0),
        // Attributes precede their value.
        b'|' => values(2, 1),
        _ => None,
    }
}
