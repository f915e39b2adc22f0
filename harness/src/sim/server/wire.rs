//! The connections of a master, with what has arrived on them and is not executed.

use std::collections::VecDeque;

use redquorum_protocol::Waiter;

use super::{Event, Request};

/// A connection, unique over restarts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Connection(u64);

/// How a client closes its end.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Close {
    /// A FIN, behind all it had written. A master that was paused executes all of it, and its
    /// replies go out: the client may have closed only its sending half. If it closed both, its
    /// kernel answers the first reply with a reset, and that is for the caller to deliver.
    Fin,
    /// A RST. Linux lets the master read on what had arrived. It reads once, 16 KB or a little
    /// more, executes that, fails to reply, and forgets the rest.
    Reset,
}

/// What one read takes from a buffer at least.
const READ: usize = 16 * 1024;

/// Redis has used up the ids below for clients of its own.
const FIRST_CLIENT_ID: u64 = 3;

#[derive(Clone, Debug, Default)]
pub(super) struct Wire {
    inbox: VecDeque<Request>,
    /// `None` while it waits to be accepted.
    client_id: Option<u64>,
    closed: Option<Close>,
    /// All that will be read of it was read: the next turn finds its end.
    over: bool,
    /// The waiters that are woken on it.
    subscribed: Vec<u64>,
}

impl Wire {
    pub(super) fn subscribe(&mut self, inbox: u64) {
        if !self.subscribed.contains(&inbox) {
            self.subscribed.push(inbox);
        }
    }

    /// Behind its end nothing arrives.
    pub(super) fn arrive(&mut self, request: Request) {
        if self.closed.is_none() {
            self.inbox.push_back(request);
        }
    }

    /// Its client has closed it, and nothing that had arrived before is left.
    pub(super) fn is_ended(&self) -> bool {
        self.closed.is_some() && self.inbox.is_empty()
    }

    /// How its client closed it, and how many bytes of its buffer will be read.
    pub(super) fn end(&self) -> (Option<Close>, usize) {
        (self.closed, if self.closed == Some(Close::Reset) { READ } else { usize::MAX })
    }

    /// The event loop was there.
    pub(super) fn read(&mut self) {
        self.over = self.closed.is_some();
    }

    /// The next request, if it is within what is read.
    pub(super) fn next(&mut self, room: &mut usize) -> Option<Request> {
        let request = self.inbox.pop_front()?;
        // Bytes are counted only where they matter.
        if *room != usize::MAX {
            *room = room.checked_sub(size(&request))?;
        }
        Some(request)
    }
}

fn size(request: &Request) -> usize {
    match request {
        Request::Lock(command) | Request::Lax(command, _) => command.size_hint(),
        Request::Hello => 1024,
        Request::Get(key) | Request::Pttl(key) | Request::Del(key) | Request::PExpire(key, _) => {
            key.len() + 64
        }
        Request::Time | Request::FlushAll | Request::ScriptFlush => 64,
    }
}

/// A few, in order of age: a search through them is faster than a tree.
#[derive(Clone, Debug, Default)]
pub(super) struct Wires {
    open: Vec<(Connection, Wire)>,
    opened: u64,
    accepted: u64,
}

impl Wires {
    pub(super) fn open(&mut self, accepted: bool) -> Connection {
        self.opened += 1;
        let connection = Connection(self.opened);
        self.open.push((connection, Wire::default()));
        if accepted {
            self.accept(self.open.len() - 1);
        }
        connection
    }

    /// Its client id, which it is given when it is accepted.
    pub(super) fn accept(&mut self, index: usize) -> u64 {
        let accepted = &mut self.accepted;
        *self.open[index].1.client_id.get_or_insert_with(|| {
            *accepted += 1;
            FIRST_CLIENT_ID - 1 + *accepted
        })
    }

    pub(super) fn index(&self, connection: Connection) -> Option<usize> {
        self.open.binary_search_by_key(&connection, |(it, _)| *it).ok()
    }

    pub(super) fn at(&mut self, index: usize) -> &mut Wire {
        &mut self.open[index].1
    }

    pub(super) fn waiting(&self) -> impl Iterator<Item = Connection> + '_ {
        let waits = |wire: &Wire| !wire.inbox.is_empty() || wire.closed.is_some();
        self.open.iter().filter(move |(_, wire)| waits(wire)).map(|(it, _)| *it)
    }

    /// With nothing in its buffer it is forgotten at once; but while its master is paused it counts as one
    /// who listens, if it did.
    pub(super) fn close(&mut self, connection: Connection, how: Close, paused: bool) {
        let Some(index) = self.index(connection) else { return };
        let wire = &mut self.open[index].1;
        if wire.inbox.is_empty() && (!paused || wire.subscribed.is_empty()) {
            self.open.remove(index);
        } else if wire.closed != Some(Close::Reset) {
            wire.closed = Some(how);
        }
    }

    /// Wakes a waiter on the connections that are subscribed for it. Whether there are any.
    pub(super) fn publish(&self, waiter: Waiter, out: &mut Vec<Event>) -> bool {
        let mut any = false;
        let subscribed = |wire: &Wire| wire.subscribed.contains(&waiter.inbox);
        for (connection, wire) in self.open.iter().filter(|(_, wire)| subscribed(wire)) {
            any = true;
            if wire.closed != Some(Close::Reset) {
                out.push(Event::Woken(*connection, waiter.ticket));
            }
        }
        any
    }

    pub(super) fn remove(&mut self, index: usize) {
        self.open.remove(index);
    }

    /// If it was closed, and all of it is read.
    pub(super) fn forget(&mut self, connection: Connection) {
        if let Some(index) = self.index(connection).filter(|index| self.open[*index].1.over) {
            self.open.remove(index);
        }
    }

    /// Returns whether there was one.
    pub(super) fn kill(&mut self, client_id: u64, out: &mut Vec<Event>) -> bool {
        let found = self.open.iter().position(|(_, wire)| wire.client_id == Some(client_id));
        if let Some(index) = found {
            let (connection, wire) = self.open.remove(index);
            if wire.closed.is_none() {
                out.push(Event::Dropped(connection));
            }
        }
        found.is_some()
    }

    pub(super) fn drop_all(&mut self, out: &mut Vec<Event>) {
        let told =
            |(it, wire): (Connection, Wire)| wire.closed.is_none().then_some(Event::Dropped(it));
        out.extend(self.open.drain(..).filter_map(told));
    }

    /// Another process counts its clients anew.
    pub(super) fn restart(&mut self) {
        self.accepted = 0;
    }
}
