//! One connection: a client's socket, a master's socket, and a lane each way. `arrivals.rs` checks
//! each arrival once against the rules; `lane.rs` passes it on. `engine.rs` calls it when something
//! changed.
//!
//! A close or a reset is an arrival like any other: it goes behind the data that was sent before
//! it, waits where that waits, and is lost where that is lost.

mod arrivals;

use std::{
    io::{self, Read},
    time::Instant,
};

use super::{
    dialogue::{Dialogue, Label},
    lane::{Cargo, Flow, Lane},
    rule::{MessageFault, RuleId, Side},
    socket::Socket,
    table::Delivery,
    tokens::{Kind, token},
    traffic::ClosedBy,
    world::{Peer, World},
};

/// How often one end is read before other connections get their turn.
const READS: usize = 16;

/// Index of an end, and of the lane that starts there.
pub(super) const CLIENT: usize = 0;
pub(super) const MASTER: usize = 1;

pub(super) struct Connection {
    pub(super) who: Peer,
    ends: [Option<Socket>; 2],
    lanes: [Lane; 2],
    dialogue: Dialogue,
    /// The label of the last part of a large frame.
    large: [Option<Label>; 2],
    /// Whether no connection to the master was tried yet.
    waiting: bool,
    by: Option<ClosedBy>,
    /// Whether both ends are finished, so that the engine removes it.
    over: bool,
}

impl Connection {
    pub(super) fn new(who: Peer, client: Socket) -> Self {
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

    /// Handles the system's report of a change at one end.
    pub(super) fn changed(&mut self, end: usize, event: &mio::event::Event, world: &mut World) {
        let Some(socket) = &mut self.ends[end] else { return };
        let connecting = !socket.connected;
        if socket.changed(event).is_err() {
            let by = if connecting { ClosedBy::Refused } else { closer(end) };
            self.gone(end, by, world);
        }
    }

    /// Does everything that is possible now.
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
                // Reads first what it sent before it went away.
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

    /// Handles a healed rule. If the rule lost data here, the connection cannot continue.
    pub(super) fn healed(&mut self, rule: RuleId, world: &mut World) {
        if self.lanes.iter().any(|lane| lane.dropped == Some(rule)) {
            self.reset(ClosedBy::Rule(rule), world);
        }
    }

    /// A rule strikes the connection itself.
    pub(super) fn struck(&mut self, rule: RuleId, fault: MessageFault, world: &mut World) {
        let fate = match fault {
            MessageFault::HalfOpen(end) => Delivery::HalfOpen(rule, end),
            _ => Delivery::Reset(rule),
        };
        world.struck(&self.who, Side::Both, Label::none(), rule);
        self.cut(fate, world);
    }

    /// Resets both ends. Waiting data is lost.
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
            Some((rule, MessageFault::Drop)) => {
                // The handshake was lost, so nothing that is sent on it will ever arrive.
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

    /// Handles an end that was reset, or that never existed.
    fn gone(&mut self, end: usize, by: ClosedBy, world: &mut World) {
        self.ends[end] = None;
        self.arrived_end(end, Cargo::Rst, by, world);
    }

    fn arrived_end(&mut self, end: usize, cargo: Cargo, by: ClosedBy, world: &mut World) {
        self.by.get_or_insert(by);
        let rest = self.lanes[end].framing.rest();
        if !rest.is_empty() {
            // Part of a message. It is passed on as it is.
            self.bytes(end, rest, Cargo::Bytes, world);
        }
        self.bytes(end, Vec::new(), cargo, world);
        if self.waiting && self.lanes[end].dropped.is_some() {
            // The master never received anything, and the client receives no notice.
            return self.end(world);
        }
        for end in [CLIENT, MASTER] {
            self.flush(end, world);
        }
    }

    /// Writes the data of one end to the other.
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
