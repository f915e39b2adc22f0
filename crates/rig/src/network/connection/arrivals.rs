//! Handles an arrival on a connection: asks the rules, notifies the observer, and puts it into its
//! lane or cuts the connection.

use std::time::Instant;

use super::{CLIENT, Connection, MASTER};
use crate::{
    RespValue,
    network::{
        dialogue::Label,
        framing::Piece,
        lane::{Cargo, Item},
        rule::{End, Message, RuleId},
        table::{Delivery, Gate, Verdict},
        traffic::ClosedBy,
        world::World,
    },
    resp::decode,
};

impl Connection {
    /// Applies the rules to the arrivals.
    pub(super) fn arrived(&mut self, end: usize, at: Instant, world: &mut World) {
        while !self.over
            && let Some(piece) = self.lanes[end].framing.next()
        {
            match piece {
                Piece::Frame(bytes) => self.message(end, bytes, false, at, world),
                Piece::Start(bytes) => self.message(end, bytes, true, at, world),
                Piece::Middle(bytes) => self.push(end, bytes, Cargo::Bytes, Vec::new()),
                Piece::Last(bytes) => {
                    let label = self.large[end].take().unwrap_or_else(Label::none);
                    self.push(end, bytes, Cargo::Message(label, None), Vec::new());
                }
                Piece::Strange => world.unparsed(&self.who, self.lanes[end].side()),
                Piece::Bytes(bytes) => self.bytes(end, bytes, Cargo::Bytes, world),
            }
        }
    }

    /// A frame, or the start of a large one.
    fn message(&mut self, end: usize, bytes: Vec<u8>, large: bool, at: Instant, world: &mut World) {
        let (label, reply) = if end == CLIENT {
            let words = decode::words(&bytes);
            if words.is_empty() {
                // Servers ignore it, so it is no message.
                return self.bytes(end, bytes, Cargo::Bytes, world);
            }
            (self.dialogue.request(words), None)
        } else {
            let reply = decode::reply(&bytes);
            let label = self.dialogue.answered(&reply, bytes[0] == b'>');
            (label, Some(reply))
        };
        if let Some(reply) = &reply {
            world.replied(at, &self.who, &label, reply.clone(), false);
        }
        let verdict = self.judge(end, &label, reply.as_ref(), at, world);
        if verdict.fate != Delivery::Pass {
            world.lost(&self.who, self.lanes[end].side(), label, verdict.fate.rule());
            return self.cut_lane(end, verdict.fate, world);
        }
        if end == CLIENT {
            self.dialogue.expect(&label, &bytes);
        }
        let cargo = if large {
            self.large[end] = Some(label);
            Cargo::Bytes
        } else {
            let session = verdict.duplicate.then(|| self.dialogue.session.clone());
            Cargo::Message(label, session)
        };
        self.push(end, bytes, cargo, verdict.gates);
    }

    fn judge(
        &self,
        end: usize,
        label: &Label,
        reply: Option<&RespValue>,
        at: Instant,
        world: &mut World,
    ) -> Verdict {
        let lane = &self.lanes[end];
        if let Some(rule) = lane.dropped {
            return Verdict { fate: Delivery::Drop(rule), ..Verdict::pass() };
        }
        let message = Message {
            client: &self.who.client,
            node: self.who.node,
            connection: self.who.connection,
            side: lane.side(),
            number: label.number,
            command: &label.command,
            reply,
        };
        let verdict = world.rules.judge(&message, at);
        for &rule in &verdict.struck {
            world.struck(&self.who, lane.side(), label.clone(), rule);
        }
        verdict
    }

    /// Handles an arrival that is no message.
    pub(super) fn bytes(&mut self, end: usize, bytes: Vec<u8>, cargo: Cargo, world: &mut World) {
        let side = self.lanes[end].side();
        let verdict = world.rules.judge_all_that_passes(self.who.link(), side, Instant::now());
        match verdict.fate {
            Delivery::Pass => self.push(end, bytes, cargo, verdict.gates),
            fate => self.cut_lane(end, fate, world),
        }
    }

    /// Puts an arrival into a lane.
    fn push(&mut self, end: usize, bytes: Vec<u8>, cargo: Cargo, gates: Vec<(RuleId, Gate)>) {
        if self.lanes[end].dropped.is_none() {
            self.lanes[end].push(Item { bytes, cargo, gates });
        }
    }

    fn cut_lane(&mut self, end: usize, fate: Delivery, world: &mut World) {
        match fate {
            Delivery::Drop(rule) => {
                self.lanes[end].dropped.get_or_insert(rule);
            }
            fate => self.cut(fate, world),
        }
    }

    /// Resets one end or both, behind the data that may still pass.
    pub(super) fn cut(&mut self, fate: Delivery, world: &mut World) {
        for end in [CLIENT, MASTER] {
            self.flush(end, world);
        }
        match fate {
            Delivery::Reset(rule) => self.reset(ClosedBy::Rule(rule), world),
            Delivery::HalfOpen(rule, end) => {
                let end = if end == End::Client { CLIENT } else { MASTER };
                self.by.get_or_insert(ClosedBy::Rule(rule));
                if let Some(socket) = self.ends[end].take() {
                    socket.reset();
                }
                self.waiting = false;
                for lane in &mut self.lanes {
                    lane.dropped.get_or_insert(rule);
                }
            }
            Delivery::Pass | Delivery::Drop(_) => {}
        }
    }
}
