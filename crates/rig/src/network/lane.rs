//! One direction of a connection: the arrivals, in order, until they may be written. Called by
//! `connection.rs`, which has applied the rules.

use std::{
    collections::VecDeque,
    io::IoSlice,
    time::{Duration, Instant},
};

use super::{
    copies::Duplicate,
    dialogue::{Label, Session},
    engine::{Peer, World},
    framing::{Framing, Protocol},
    rule::{RuleId, Side},
    socket::Socket,
    table::{Gate, Table},
    traffic::TrafficEvent,
};

/// The largest size of waiting data in one direction, beyond which reading stops: the sender sees a
/// network that is stuck.
const MAX_WAITING: usize = 16 * 1024 * 1024;

/// The approximate cost of an item in addition to its bytes.
const ITEM: usize = 200;

/// How many messages are written with one call.
const SLICES: usize = 64;

/// How often a trickle writes: a fast one would else be served for each byte.
const TRICKLE_PERIOD: Duration = Duration::from_millis(1);

/// How much a late trickle catches up, so that an idle one does not send a burst.
const TRICKLE_LAG: Duration = Duration::from_millis(10);

/// An item in a lane.
#[derive(Debug)]
pub(super) enum Cargo {
    /// A message. If there is a session, the request is to be sent once more.
    Message(Label, Option<Session>),
    /// Bytes that are not RESP.
    Bytes,
    /// The sender will send no more.
    Fin,
    /// The sender is gone.
    Rst,
}

#[derive(Debug)]
pub(super) struct Item {
    pub(super) bytes: Vec<u8>,
    pub(super) cargo: Cargo,
    pub(super) gates: Vec<(RuleId, Gate)>,
}

#[derive(Debug)]
pub(super) struct Lane {
    pub(super) side: Side,
    pub(super) framing: Framing,
    queue: VecDeque<Item>,
    /// The memory that the queue takes.
    waiting: usize,
    /// The number of written bytes of the first item.
    written: usize,
    /// The rule that struck this lane: everything that arrives is lost.
    pub(super) dropped: Option<RuleId>,
    /// Whether the sender's end was passed on.
    pub(super) ended: bool,
    /// When a trickle passes the next byte.
    next_byte: Option<Instant>,
    /// The instant from which a rule lets this lane write again, if a rule holds it back.
    pub(super) timer: Option<Instant>,
}

impl Lane {
    pub(super) fn new(side: Side, protocol: Protocol) -> Self {
        Self {
            side,
            framing: Framing::new(side, protocol),
            queue: VecDeque::new(),
            waiting: 0,
            written: 0,
            dropped: None,
            ended: false,
            next_byte: None,
            timer: None,
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.waiting + self.framing.len() >= MAX_WAITING
    }

    pub(super) fn push(&mut self, item: Item) {
        self.waiting += item.bytes.len() + ITEM;
        self.queue.push_back(item);
    }

    /// Drops everything that waits.
    pub(super) fn discard(&mut self, peer: &Peer, world: &mut World) {
        while let Some(item) = self.pop() {
            if let Cargo::Message(label, _) = item.cargo {
                world.lost(peer, self.side, label);
            }
        }
    }

    /// Writes as much as the rules allow. Returns whether the receiver is to be reset.
    pub(super) fn flush(&mut self, sink: &mut Socket, peer: &Peer, world: &mut World) -> bool {
        self.timer = None;
        while sink.can_write() {
            // Before the write, and after all of it was read: see `Traffic`.
            let now = Instant::now();
            let Some(front) = self.queue.front() else { return false };
            let Some((at, rate)) = front.ready(&world.rules) else { return false };
            if let Some(at) = at.filter(|at| *at > now) {
                self.timer = Some(at);
                return false;
            }
            if matches!(front.cargo, Cargo::Fin | Cargo::Rst) {
                self.ended = true;
                if matches!(self.pop(), Some(Item { cargo: Cargo::Rst, .. })) {
                    return true;
                }
                sink.finish();
                continue;
            }
            let rest = &front.bytes[self.written..];
            let result = if let Some(rate) = rate {
                let next = self.next_byte.map_or(now, |next| next.max(now - TRICKLE_LAG));
                if next > now {
                    self.timer = Some(next.max(now + TRICKLE_PERIOD));
                    return false;
                }
                let due = bytes_due(now - next, rate).min(rest.len());
                let result = sink.write(&[IoSlice::new(&rest[..due])]);
                let count = result.as_ref().map_or(0, |count| count.unwrap_or(0)) as u64;
                let each = Duration::from_nanos(count * 1_000_000_000 / u64::from(rate));
                self.next_byte = Some(next + each);
                result
            } else {
                let more = self.queue.iter().skip(1).take(SLICES - 1).take_while(|item| {
                    !item.bytes.is_empty()
                        && matches!(item.ready(&world.rules), Some((at, None)) if at <= Some(now))
                });
                let mut slices = vec![IoSlice::new(rest)];
                slices.extend(more.map(|item| IoSlice::new(&item.bytes)));
                sink.write(&slices)
            };
            match result {
                Ok(Some(0)) | Err(_) => sink.broken = true,
                Ok(Some(count)) => self.wrote(count, now, peer, world),
                Ok(None) => {}
            }
        }
        false
    }

    fn wrote(&mut self, mut count: usize, at: Instant, peer: &Peer, world: &mut World) {
        while count > 0 {
            let Some(front) = self.queue.front() else { return };
            let rest = front.bytes.len() - self.written;
            if count < rest {
                self.written += count;
                return;
            }
            count -= rest;
            let Some(Item { bytes, cargo: Cargo::Message(label, session), .. }) = self.pop() else {
                continue;
            };
            let Label { number, command } = label.clone();
            if self.side == Side::Reply {
                world.report(at, peer, TrafficEvent::Delivered { number, command });
                continue;
            }
            world.report(at, peer, TrafficEvent::Forwarded { number, command, duplicate: false });
            if let Some(session) = session {
                let peer = peer.clone();
                world.duplicates.push(Duplicate { peer, label, session, request: bytes });
            }
        }
    }

    fn pop(&mut self) -> Option<Item> {
        let item = self.queue.pop_front()?;
        self.waiting -= item.bytes.len() + ITEM;
        self.written = 0;
        Some(item)
    }
}

impl Item {
    /// From when on it may be written, and how many of its bytes in a second: `None`, no limit. A
    /// rule holds it: nothing.
    fn ready(&self, rules: &Table) -> Option<(Option<Instant>, Option<u32>)> {
        let (mut at, mut slowest) = (None, None::<u32>);
        for (_, gate) in self.gates.iter().filter(|(rule, _)| rules.lives(*rule)) {
            match *gate {
                Gate::Hold => return None,
                Gate::Until(until) => at = at.max(Some(until)),
                Gate::Rate(rate) => slowest = Some(slowest.map_or(rate, |other| other.min(rate))),
            }
        }
        Some((at, slowest))
    }
}

/// How many bytes may pass if the next one has been due for this long.
fn bytes_due(late: Duration, rate: u32) -> usize {
    let more = late.as_nanos() * u128::from(rate) / 1_000_000_000;
    usize::try_from(more).unwrap_or(usize::MAX).saturating_add(1)
}
