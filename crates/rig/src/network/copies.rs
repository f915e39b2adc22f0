//! Duplicates: requests that are sent once more, each on its own connection. Called by `engine.rs`.

use std::{
    io::{self, IoSlice},
    net::SocketAddr,
    time::Instant,
};

use mio::Token;

use super::{
    dialogue::{Label, Session},
    engine::{Peer, World},
    framing::{Framing, Piece},
    rule::Side,
    socket::Socket,
    traffic::TrafficEvent,
};

/// A forwarded request to send once more.
#[derive(Debug)]
pub(super) struct Duplicate {
    pub(super) peer: Peer,
    pub(super) label: Label,
    pub(super) session: Session,
    pub(super) request: Vec<u8>,
}

/// The connection on which it is sent.
pub(super) struct Copy {
    peer: Peer,
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
        let Duplicate { peer, label, session, request } = duplicate;
        let socket = Socket::connecting(address, token, &world.registry)?;
        let bytes = [session.bytes, request].concat();
        let framing = Framing::new(Side::Replies);
        Ok(Self { peer, label, socket, bytes, written: 0, before: session.requests, framing })
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
            let rest = IoSlice::new(&self.bytes[self.written..]);
            self.written += self.socket.write(&[rest])?.unwrap_or(0);
            if self.written == self.bytes.len() {
                let Label { number, command } = self.label.clone();
                let event = TrafficEvent::Forwarded { number, command, duplicate: true };
                world.report(at, &self.peer, event);
            }
        }
        while self.socket.connected && self.socket.readable {
            let Some(count) = self.socket.read(scratch)? else { continue };
            self.framing.push(&scratch[..count]);
            if count == 0 || self.replies(Instant::now(), world) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether the last reply came.
    fn replies(&mut self, at: Instant, world: &mut World) -> bool {
        while let Some(piece) = self.framing.next() {
            match piece {
                Piece::Reply(reply, _) if self.before == 0 => {
                    let Label { number, command } = self.label.clone();
                    let event = TrafficEvent::Replied { number, command, reply, duplicate: true };
                    world.report(at, &self.peer, event);
                    return true;
                }
                Piece::Reply(..) => self.before -= 1,
                Piece::Request(..) | Piece::Bytes(_) => return true,
            }
        }
        false
    }
}
