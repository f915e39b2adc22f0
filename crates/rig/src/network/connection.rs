//! One connection: a client's socket, a master's socket, and a lane each way. What arrives is
//! judged once, in `arrivals.rs`; `lane.rs` passes it on. Called by `engine.rs` when something
//! changed.
//!
//! An end that closes or resets is a thing that arrives like any other: it goes behind what was
//! sent before it, waits where that waits, and is lost where that is lost.

mod arrivals;

use std::{
    io::{self, Read},
    time::Instant,
};

use super::{
    dialogue::{Dialogue, Label},
    lane::{Cargo, Flow, Lane},
    rule::{Harm, RuleId, Side},
    socket::Socket,
    table::Fate,
    tokens::{Kind, token},
    traffic::ClosedBy,
    world::{Who, World},
};

/// How often one end is read before others get their turn.
const READS: usize = 16;

/// Index of an end, and of the lane that starts there.
pub(super) const CLIENT: usize = 0;
pub(super) const MASTER: usize = 1;

pub(super) struct Connection {
    pub(super) who: Who,
    ends: [Option<Socket>; 2],
    lanes: [Lane; 2],
    dialogue: Dialogue,
    /// The last part of a large frame has this name.
    large: [Option<Label>; 2],
    /// No connection to the master was tried yet.
    waiting: bool,
    by: Option<ClosedBy>,
    /// Both ends are done with; the engine forgets it.
    over: bool,
}

impl Connection {
    pub(super) fn new(who: Who, client: Socket) -> Self {
        Self {
            who,
            ends: [Some(client), None],
            lanes: [Lane::new(Side::Requests), Lane::new(Side::Replies)],
            dialogue: Dialogue::default(),
            large: [None, None],
            waiting: true,
            by: None,
            over: false,
        }
    }

    /// Why it is over, if it is.
    pub(super) fn ended(&self) -> Option<ClosedBy> {
        self.over.then(|| self.by.unwrap_or(ClosedBy::Network))
    }

    /// The system said that something changed at one end.
    pub(super) fn changed(&mut self, end: usize, event: &mio::event::Event, world: &mut World) {
        let Some(socket) = &mut self.ends[end] else { return };
        let connecting = !socket.connected;
        if socket.changed(event).is_err() {
            let by = if connecting { ClosedBy::Refused } else { closer(end) };
            self.gone(end, by, world);
        }
    }

    /// Does all that can be done now.
    pub(super) fn serve(&mut self, scratch: &mut [u8], world: &mut World) {
        if self.waiting && !self.over {
            self.connect(world);
        }
        for end in [CLIENT, MASTER] {
            self.read(end, scratch, world);
        }
        for end in [CLIENT, MASTER] {
            self.flush(end, world);
        }
        for end in [CLIENT, MASTER] {
            if self.ends[end].as_ref().is_some_and(|socket| socket.broken) {
                // What it sent before it went away comes first.
                self.read(end, scratch, world);
                if self.ends[end].is_some() {
                    self.gone(end, closer(end), world);
                }
            }
        }
        if self.ends.iter().all(Option::is_none) || self.lanes.iter().all(|lane| lane.ended) {
            self.end(world);
        }
        let more = |end: usize| {
            let readable = |socket: &Socket| socket.readable && socket.connected && !socket.ended;
            !self.lanes[end].is_full() && self.ends[end].as_ref().is_some_and(readable)
        };
        if more(CLIENT) || more(MASTER) {
            world.again.push(self.who.connection);
        }
    }

    /// Something was healed: if it had made a gap here, nothing can go on.
    pub(super) fn healed(&mut self, rule: RuleId, world: &mut World) {
        if self.lanes.iter().any(|lane| lane.dropped == Some(rule)) {
            self.reset(ClosedBy::Rule(rule), world);
        }
    }

    /// A rule strikes the connection itself.
    pub(super) fn struck(&mut self, rule: RuleId, harm: Harm, world: &mut World) {
        let fate = match harm {
            Harm::HalfOpen(end) => Fate::HalfOpen(rule, end),
            _ => Fate::Reset(rule),
        };
        world.struck(&self.who, Side::Both, Label::none(), rule);
        self.cut(fate, world);
    }

    /// Resets both ends; what still waits is lost.
    pub(super) fn reset(&mut self, by: ClosedBy, world: &mut World) {
        self.by.get_or_insert(by);
        for socket in &mut self.ends {
            if let Some(socket) = socket.take() {
                socket.reset();
            }
        }
        self.end(world);
    }

    fn end(&mut self, world: &mut World) {
        self.over = true;
        self.waiting = false;
        self.ends = [None, None];
        for (lane, large) in self.lanes.iter_mut().zip(&mut self.large) {
            lane.discard(&self.who, world);
            if let Some(label) = large.take() {
                world.lost(&self.who, lane.side(), label, lane.dropped);
            }
        }
    }

    fn connect(&mut self, world: &mut World) {
        if self.lanes[CLIENT].dropped.is_some() {
            return;
        }
        match world.rules.judge_connect(self.who.link()) {
            Some((rule, Harm::Drop)) => {
                // Nothing that is sent on it will ever arrive: the handshake was lost.
                world.struck(&self.who, Side::Both, Label::none(), rule);
                for lane in &mut self.lanes {
                    lane.dropped = Some(rule);
                }
                return;
            }
            Some(_) => return,
            None => self.waiting = false,
        }
        let connected = || -> io::Result<Socket> {
            let nowhere = || io::Error::from(io::ErrorKind::ConnectionRefused);
            let address = *world.upstreams.get(&self.who.node).ok_or_else(nowhere)?;
            let token = token(self.who.connection, Kind::Master);
            Socket::connecting(address, token, &world.registry)
        };
        match connected() {
            Ok(socket) => self.ends[MASTER] = Some(socket),
            Err(_) => self.gone(MASTER, ClosedBy::Refused, world),
        }
    }

    fn read(&mut self, end: usize, scratch: &mut [u8], world: &mut World) {
        for _ in 0..READS {
            let Some(socket) = &mut self.ends[end] else { return };
            if !socket.readable || !socket.connected || socket.ended || self.lanes[end].is_full() {
                return;
            }
            match socket.stream.read(scratch) {
                Ok(0) => {
                    socket.ended = true;
                    self.arrived_end(end, Cargo::Fin, closer(end), world);
                }
                Ok(count) => {
                    let at = Instant::now();
                    self.lanes[end].framing.push(&scratch[..count]);
                    self.arrived(end, at, world);
                    self.flush(end, world);
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => socket.readable = false,
                    io::ErrorKind::Interrupted => {}
                    _ => self.gone(end, closer(end), world),
                },
            }
        }
    }

    /// An end was reset, or never there.
    fn gone(&mut self, end: usize, by: ClosedBy, world: &mut World) {
        self.ends[end] = None;
        self.arrived_end(end, Cargo::Rst, by, world);
    }

    fn arrived_end(&mut self, end: usize, cargo: Cargo, by: ClosedBy, world: &mut World) {
        self.by.get_or_insert(by);
        let rest = self.lanes[end].framing.rest();
        if !rest.is_empty() {
            // Part of a message: what it was meant to be, the receiver may guess.
            self.bytes(end, rest, Cargo::Bytes, world);
        }
        self.bytes(end, Vec::new(), cargo, world);
        if self.waiting && self.lanes[end].dropped.is_some() {
            // The master never heard of it, and the client will not hear of anything.
            return self.end(world);
        }
        for end in [CLIENT, MASTER] {
            self.flush(end, world);
        }
    }

    /// Writes what one end sent to the other.
    fn flush(&mut self, end: usize, world: &mut World) {
        let other = 1 - end;
        let Some(sink) = &mut self.ends[other] else {
            if !(other == MASTER && self.waiting) {
                self.lanes[end].discard(&self.who, world);
            }
            return;
        };
        if self.lanes[end].flush(sink, &self.who, world) == Flow::Reset
            && let Some(sink) = self.ends[other].take()
        {
            sink.reset();
        }
    }
}

fn closer(end: usize) -> ClosedBy {
    if end == CLIENT { ClosedBy::Client } else { ClosedBy::Master }
}
