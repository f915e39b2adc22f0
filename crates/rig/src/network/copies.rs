//! Duplicates: requests that are sent once more, each on its own connection. Called by `engine.rs`.

use std::{
    io::{self, Read, Write},
    net::SocketAddr,
    time::Instant,
};

use mio::Token;

use super::{
    dialogue::{Label, Session},
    framing::{Framing, Piece},
    socket::Socket,
    world::{Peer, World},
};
use crate::resp::{decode, scan::Grammar};

/// A forwarded request to send once more.
#[derive(Debug)]
pub(super) struct Duplicate {
    pub(super) who: Peer,
    pub(super) label: Label,
    pub(super) session: Session,
    pub(super) request: Vec<u8>,
}

/// The connection on which it is sent.
pub(super) struct Copy {
    who: Peer,
    label: Label,
    socket: Socket,
    bytes: Vec<u8>,
    written: usize,
    /// How many replies come before the one to the request.
    before: usize,
    framing: Framing,
}

impl Copy {
    pub(super) fn new(
        duplicate: Duplicate,
        address: SocketAddr,
        token: Token,
        world: &World,
    ) -> io::Result<Self> {
        let Duplicate { who, label, session, request } = duplicate;
        let socket = Socket::connecting(address, token, &world.registry)?;
        let bytes = [session.bytes, request].concat();
        let framing = Framing::new(Grammar::Replies);
        Ok(Self { who, label, socket, bytes, written: 0, before: session.requests, framing })
    }

    /// Writes and reads as much as possible. Returns whether it is over. An error means that the
    /// connection broke.
    pub(super) fn serve(
        &mut self,
        event: &mio::event::Event,
        scratch: &mut [u8],
        world: &mut World,
    ) -> io::Result<bool> {
        self.socket.changed(event)?;
        while self.socket.can_write() && self.written < self.bytes.len() {
            let at = Instant::now();
            match self.socket.stream.write(&self.bytes[self.written..]) {
                Ok(count) => self.written += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.socket.blocked = true;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if self.written == self.bytes.len() {
                world.forwarded(at, &self.who, self.label.clone(), true);
            }
        }
        while self.socket.connected && self.socket.readable {
            match self.socket.stream.read(scratch) {
                Ok(0) => return Ok(true),
                Ok(count) => {
                    self.framing.push(&scratch[..count]);
                    if self.replies(Instant::now(), world) {
                        return Ok(true);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.socket.readable = false;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    /// Whether the last reply came.
    fn replies(&mut self, at: Instant, world: &mut World) -> bool {
        while let Some(piece) = self.framing.next() {
            match piece {
                Piece::Frame(bytes) | Piece::Start(bytes) if self.before == 0 => {
                    let reply = decode::reply(&bytes);
                    world.replied(at, &self.who, &self.label, reply, true);
                    return true;
                }
                Piece::Frame(_) | Piece::Start(_) => self.before -= 1,
                Piece::Middle(_) | Piece::Last(_) => {}
                Piece::Strange | Piece::Bytes(_) => return true,
            }
        }
        false
    }
}
