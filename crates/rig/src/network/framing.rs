//! Cuts one direction's bytes into messages. Called by `connection.rs` and `copies.rs`.

use super::rule::Side;
use crate::{
    RespValue,
    resp::{self, Unparsed},
};

/// What the network knows of the bytes that pass a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    Resp,
    /// Nothing: each piece that arrives is a message.
    Opaque,
}

/// A larger frame is passed on like bytes that are not RESP.
const LARGE: usize = 4 * 1024 * 1024;

/// The next piece.
#[derive(Debug)]
pub(super) enum Piece {
    Request(Vec<Vec<u8>>, Vec<u8>),
    Reply(RespValue, Vec<u8>),
    /// Bytes that are not RESP.
    Bytes(Vec<u8>),
}

/// Cuts bytes into frames, until one is not RESP.
#[derive(Debug)]
pub(super) struct Framing {
    side: Side,
    protocol: Protocol,
    buffer: Vec<u8>,
    /// The start of the next frame in the buffer, so that many frames are cut out at the cost of
    /// one move.
    start: usize,
    strange: bool,
}

impl Framing {
    pub(super) fn new(side: Side, protocol: Protocol) -> Self {
        Self { side, protocol, buffer: Vec::new(), start: 0, strange: false }
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
            return (!rest.is_empty()).then(|| Piece::Bytes(self.rest()));
        }
        if self.protocol == Protocol::Opaque {
            return (!rest.is_empty()).then(|| self.opaque());
        }
        let parsed = if self.side == Side::Request {
            resp::request(rest).map(|(words, length)| Piece::Request(words, self.take(length)))
        } else {
            resp::reply(rest).map(|(reply, length)| Piece::Reply(reply, self.take(length)))
        };
        match parsed {
            Ok(piece) => Some(piece),
            Err(Unparsed::Incomplete) if self.len() < LARGE => None,
            Err(_) => {
                self.strange = true;
                Some(Piece::Bytes(self.rest()))
            }
        }
    }

    fn opaque(&mut self) -> Piece {
        let bytes = self.rest();
        match self.side {
            Side::Request => Piece::Request(vec![bytes.clone()], bytes),
            _ => Piece::Reply(RespValue::Bulk(bytes.clone()), bytes),
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
