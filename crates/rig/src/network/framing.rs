//! Cuts one direction's bytes into frames. Called by `connection.rs`.

use crate::resp::scan::{Grammar, Scan, Scanner};

/// A larger frame is passed on in parts: the rules see only its start.
pub(super) const LARGE: usize = 4 * 1024 * 1024;

/// The next piece.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// A whole frame.
    Frame(Vec<u8>),
    /// The start of a large frame.
    Start(Vec<u8>),
    /// More of it.
    Middle(Vec<u8>),
    /// The last of it.
    Last(Vec<u8>),
    /// The following bytes are not RESP. Reported once.
    Strange,
    /// Bytes that are not RESP.
    Bytes(Vec<u8>),
}

/// Cuts bytes into frames, until one is not RESP.
#[derive(Debug)]
pub(super) struct Framing {
    scanner: Scanner,
    buffer: Vec<u8>,
    /// The start of the next frame in the buffer, so that many frames are cut out at the cost of
    /// one move.
    start: usize,
    in_large: bool,
    strange: bool,
}

impl Framing {
    pub(super) fn new(grammar: Grammar) -> Self {
        let scanner = Scanner::new(grammar);
        Self { scanner, buffer: Vec::new(), start: 0, in_large: false, strange: false }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.start);
        self.start = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// The next piece, if there is one. Call it until it returns none.
    pub(super) fn next(&mut self) -> Option<Piece> {
        let rest = &self.buffer[self.start..];
        if self.strange {
            return (!rest.is_empty()).then(|| Piece::Bytes(self.take(self.len())));
        }
        match self.scanner.scan(rest) {
            Scan::Complete(length) => {
                let bytes = self.take(length);
                let large = std::mem::take(&mut self.in_large);
                Some(if large { Piece::Last(bytes) } else { Piece::Frame(bytes) })
            }
            Scan::Strange => {
                self.strange = true;
                Some(Piece::Strange)
            }
            Scan::More => {
                let done = self.scanner.done_with();
                let first = !self.in_large;
                if done == 0 || (first && rest.len() < LARGE) {
                    return None;
                }
                self.in_large = true;
                self.scanner.forget(done);
                let bytes = self.take(done);
                Some(if first { Piece::Start(bytes) } else { Piece::Middle(bytes) })
            }
        }
    }

    /// The rest when no more bytes will come: part of a frame.
    pub(super) fn rest(&mut self) -> Vec<u8> {
        self.take(self.len())
    }

    /// How many bytes it keeps.
    pub(super) fn len(&self) -> usize {
        self.buffer.len() - self.start
    }

    fn take(&mut self, length: usize) -> Vec<u8> {
        let end = self.start + length;
        let bytes = self.buffer[self.start..end].to_vec();
        self.start = end;
        bytes
    }
}
