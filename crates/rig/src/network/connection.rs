//! One connection: a client's socket, a master's socket, and a lane each way. Each arrival is
//! checked once against the rules; `lane.rs` passes it on. `engine.rs` calls it when something
//! changed.
//!
//! A close or a reset is an arrival like any other: it goes behind the data that was sent before
//! it, waits where that waits, and is lost where that is lost.

use std::{future::pending, rc::Rc, time::Instant};

use tokio::{io::Interest, net::TcpStream, sync::Notify};

use super::{
    dialogue::{Dialogue, Label},
    engine::{Peer, World},
    framing::{Piece, Protocol},
    lane::{Cargo, Item, Lane},
    rule::{End, Message, MessageFault, RuleId, Side},
    socket::Socket,
    table::{Gate, Verdict},
    timer::Timer,
    traffic::TrafficEvent,
};
use crate::RespValue;

/// How often one end is read before other connections get their turn.
const READS: usize = 16;

/// Index of an end, and of the lane that starts there.
pub(super) const CLIENT: usize = 0;
pub(super) const MASTER: usize = 1;

pub(super) struct Connection {
    pub(super) peer: Peer,
    ends: [Option<Socket>; 2],
    lanes: [Lane; 2],
    dialogue: Dialogue,
    /// Whether no connection to the master was tried yet.
    waiting: bool,
    /// Whether both ends are finished.
    over: bool,
    /// Whether there is more to read, and other connections have their turn first.
    more: bool,
    /// An order changed it or the rules.
    pub(super) changed: Rc<Notify>,
}

/// What a connection waits for.
pub(super) struct Wait {
    ends: [Option<(Rc<TcpStream>, Interest)>; 2],
    timer: Option<Instant>,
    changed: Rc<Notify>,
    more: bool,
}

impl Wait {
    pub(super) async fn until_something_changes(self, timer: &Timer) {
        if self.more {
            return tokio::task::yield_now().await;
        }
        let ready = async |end: usize| match &self.ends[end] {
            Some((stream, interest)) => drop(stream.ready(*interest).await),
            None => pending().await,
        };
        let due = async {
            match self.timer {
                Some(at) => timer.until(at).await,
                None => pending().await,
            }
        };
        tokio::select! {
            () = ready(CLIENT) => {}
            () = ready(MASTER) => {}
            () = due => {}
            () = self.changed.notified() => {}
        }
    }
}

impl Connection {
    pub(super) fn new(peer: Peer, client: Socket, protocol: Protocol) -> Self {
        Self {
            peer,
            ends: [Some(client), None],
            lanes: [Side::Request, Side::Reply].map(|side| Lane::new(side, protocol)),
            dialogue: Dialogue::new(protocol),
            waiting: true,
            over: false,
            more: false,
            changed: Rc::default(),
        }
    }

    /// What it waits for after it was served. `None`: it is over.
    pub(super) fn wait(&self) -> Option<Wait> {
        let ends = [CLIENT, MASTER].map(|end| {
            let socket = self.ends[end].as_ref()?;
            Some((Rc::clone(&socket.stream), socket.interest(!self.lanes[end].is_full())?))
        });
        let timer = self.lanes.iter().filter_map(|lane| lane.timer).min();
        let wait = Wait { ends, timer, changed: Rc::clone(&self.changed), more: self.more };
        (!self.over).then_some(wait)
    }

    /// Does everything that is possible now.
    pub(super) fn serve(&mut self, scratch: &mut [u8], world: &mut World) {
        if self.waiting && !self.over {
            self.connect(world);
        }
        self.ends.iter_mut().flatten().for_each(Socket::look);
        self.more = [CLIENT, MASTER].map(|end| self.read(end, scratch, world)).contains(&true);
        self.flush_both(world);
        for end in [CLIENT, MASTER] {
            if self.ends[end].as_ref().is_some_and(|socket| socket.broken) {
                // Reads first what it sent before it went away.
                self.read(end, scratch, world);
                if self.ends[end].is_some() {
                    self.gone(end, world);
                }
            }
        }
        if self.ends.iter().all(Option::is_none) || self.lanes.iter().all(|lane| lane.ended) {
            self.end(world);
        }
    }

    /// Handles a healed rule. If the rule lost data here, the connection cannot continue.
    pub(super) fn healed(&mut self, rule: RuleId, world: &mut World) {
        if self.lanes.iter().any(|lane| lane.dropped == Some(rule)) {
            self.reset(world);
        }
    }

    /// A rule strikes the connection itself.
    pub(super) fn struck(&mut self, rule: RuleId, fault: MessageFault, world: &mut World) {
        world.struck(&self.peer, Side::Both, Label::none(), rule);
        self.cut(CLIENT, rule, fault, world);
    }

    /// Resets both ends. Waiting data is lost.
    pub(super) fn reset(&mut self, world: &mut World) {
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
        for lane in &mut self.lanes {
            lane.discard(&self.peer, world);
        }
    }

    fn connect(&mut self, world: &mut World) {
        if self.lanes[CLIENT].dropped.is_some() {
            return;
        }
        match world.rules.on_connect(self.peer.link()) {
            Some((rule, MessageFault::Drop)) => {
                // The handshake was lost, so nothing that is sent on it will ever arrive.
                world.struck(&self.peer, Side::Both, Label::none(), rule);
                for lane in &mut self.lanes {
                    lane.dropped = Some(rule);
                }
                return;
            }
            Some(_) => return,
            None => self.waiting = false,
        }
        match world.upstreams.get(&self.peer.node).map(|address| Socket::connecting(*address)) {
            Some(Ok(socket)) => self.ends[MASTER] = Some(socket),
            _ => self.gone(MASTER, world),
        }
    }

    /// Reads one end. Returns whether there may be more.
    fn read(&mut self, end: usize, scratch: &mut [u8], world: &mut World) -> bool {
        for _ in 0..READS {
            let Some(socket) = &mut self.ends[end] else { return false };
            if !socket.can_read() || self.lanes[end].is_full() {
                return false;
            }
            match socket.read(scratch) {
                Ok(Some(0)) => self.arrived_end(end, Cargo::Fin, world),
                Ok(Some(count)) => {
                    let at = Instant::now();
                    self.lanes[end].framing.push(&scratch[..count]);
                    self.arrived(end, at, world);
                    self.flush(end, world);
                }
                Ok(None) => return false,
                Err(_) => self.gone(end, world),
            }
        }
        true
    }

    /// Handles an end that was reset, or that never existed.
    fn gone(&mut self, end: usize, world: &mut World) {
        self.ends[end] = None;
        self.arrived_end(end, Cargo::Rst, world);
    }

    fn arrived_end(&mut self, end: usize, cargo: Cargo, world: &mut World) {
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
        self.flush_both(world);
    }

    fn flush_both(&mut self, world: &mut World) {
        for end in [CLIENT, MASTER] {
            self.flush(end, world);
        }
    }

    /// Writes the data of one end to the other.
    fn flush(&mut self, end: usize, world: &mut World) {
        let other = 1 - end;
        let Some(sink) = &mut self.ends[other] else {
            if !(other == MASTER && self.waiting) {
                self.lanes[end].discard(&self.peer, world);
            }
            return;
        };
        if self.lanes[end].flush(sink, &self.peer, world)
            && let Some(sink) = self.ends[other].take()
        {
            sink.reset();
        }
    }

    /// Applies the rules to the arrivals.
    fn arrived(&mut self, end: usize, at: Instant, world: &mut World) {
        while !self.over
            && let Some(piece) = self.lanes[end].framing.next()
        {
            match piece {
                // Servers ignore an empty line, so it is no message.
                Piece::Request(words, bytes) if words.is_empty() => {
                    self.bytes(end, bytes, Cargo::Bytes, world);
                }
                Piece::Request(words, bytes) => {
                    let label = self.dialogue.request(words);
                    self.message(end, label, None, bytes, at, world);
                }
                Piece::Reply(reply, bytes) => {
                    let label = self.dialogue.answered(&reply, bytes[0] == b'>');
                    let Label { number, command } = label.clone();
                    let (copy, duplicate) = (reply.clone(), false);
                    let event = TrafficEvent::Replied { number, command, reply: copy, duplicate };
                    world.report(at, &self.peer, event);
                    self.message(end, label, Some(&reply), bytes, at, world);
                }
                Piece::Bytes(bytes) => self.bytes(end, bytes, Cargo::Bytes, world),
            }
        }
    }

    fn message(
        &mut self,
        end: usize,
        label: Label,
        reply: Option<&RespValue>,
        bytes: Vec<u8>,
        at: Instant,
        world: &mut World,
    ) {
        let side = self.lanes[end].side;
        let verdict = match self.lanes[end].dropped {
            Some(rule) => Verdict { end: Some((rule, MessageFault::Drop)), ..Verdict::default() },
            None => world.rules.on_message(
                &Message {
                    client: &self.peer.client,
                    node: self.peer.node,
                    connection: self.peer.connection,
                    side,
                    number: label.number,
                    command: &label.command,
                    reply,
                },
                at,
            ),
        };
        for &rule in &verdict.struck {
            world.struck(&self.peer, side, label.clone(), rule);
        }
        if let Some((rule, fault)) = verdict.end {
            world.lost(&self.peer, side, label);
            return self.cut(end, rule, fault, world);
        }
        if end == CLIENT {
            self.dialogue.expect(&label, &bytes);
        }
        let session = verdict.duplicate.then(|| self.dialogue.session.clone());
        self.push(end, bytes, Cargo::Message(label, session), verdict.gates);
    }

    /// Handles an arrival that is no message.
    fn bytes(&mut self, end: usize, bytes: Vec<u8>, cargo: Cargo, world: &mut World) {
        let side = self.lanes[end].side;
        let verdict = world.rules.on_bytes(self.peer.link(), side, Instant::now());
        match verdict.end {
            None => self.push(end, bytes, cargo, verdict.gates),
            Some((rule, fault)) => self.cut(end, rule, fault, world),
        }
    }

    /// Puts an arrival into a lane.
    fn push(&mut self, end: usize, bytes: Vec<u8>, cargo: Cargo, gates: Vec<(RuleId, Gate)>) {
        if self.lanes[end].dropped.is_none() {
            self.lanes[end].push(Item { bytes, cargo, gates });
        }
    }

    /// Drops everything that arrives from now on in a lane, or resets one end or both, behind the
    /// data that may still pass.
    fn cut(&mut self, end: usize, rule: RuleId, fault: MessageFault, world: &mut World) {
        if fault == MessageFault::Drop {
            self.lanes[end].dropped.get_or_insert(rule);
            return;
        }
        self.flush_both(world);
        let MessageFault::HalfOpen(end) = fault else {
            return self.reset(world);
        };
        let end = if end == End::Client { CLIENT } else { MASTER };
        if let Some(socket) = self.ends[end].take() {
            socket.reset();
        }
        self.waiting = false;
        for lane in &mut self.lanes {
            lane.dropped.get_or_insert(rule);
        }
    }
}
