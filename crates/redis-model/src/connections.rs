//! The connections of a master, with the requests that arrived and are not executed yet.

use std::collections::VecDeque;

use redquorum_protocol::Waiter;

use crate::{Event, Request, ServerReply};

/// Identifies a connection, unique across restarts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Connection(u64);

/// How a client closes its end.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Close {
    /// A FIN, behind all that the client had written. A master that was paused executes all of it
    /// and sends its replies, since the client may have closed only its sending half. If the client
    /// closed both halves, its kernel answers the first reply with a reset. The caller delivers
    /// that reset.
    Fin,
    /// A RST. Linux lets the master read what had arrived. The master reads once, 16 KB or a little
    /// more, executes that, fails to reply, and drops the rest.
    Reset,
}

/// The least that one read takes from a buffer.
const READ: usize = 16 * 1024;

/// Redis uses the ids below for clients of its own.
const FIRST_CLIENT_ID: u64 = 3;

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Wire {
    inbox: VecDeque<Request>,
    /// `None` while the connection waits to be accepted.
    client_id: Option<u64>,
    closed: Option<Close>,
    /// The master has read all that it will read. Its next turn finds the end of the connection.
    over: bool,
    /// The waiters whose wake-ups this connection subscribes to.
    subscribed: Vec<u64>,
}

impl Wire {
    /// Subscribes to an inbox, and returns the number of subscriptions.
    pub(crate) fn subscribe(&mut self, inbox: u64) -> usize {
        if !self.subscribed.contains(&inbox) {
            self.subscribed.push(inbox);
        }
        self.subscribed.len()
    }

    /// Adds a request. Nothing arrives behind the end of the connection.
    pub(crate) fn arrive(&mut self, request: Request) {
        if self.closed.is_none() {
            self.inbox.push_back(request);
        }
    }

    /// Whether the client closed the connection and no earlier request is left.
    pub(crate) fn is_ended(&self) -> bool {
        self.closed.is_some() && self.inbox.is_empty()
    }

    /// How the client closed the connection, and how many bytes of the buffer the master will read.
    pub(crate) fn end(&self) -> (Option<Close>, usize) {
        (self.closed, if self.closed == Some(Close::Reset) { READ } else { usize::MAX })
    }

    /// Records that the event loop has read the connection.
    pub(crate) fn read(&mut self) {
        self.over = self.closed.is_some();
    }

    /// The next request, if it lies within what the master reads.
    pub(crate) fn next(&mut self, room: &mut usize) -> Option<Request> {
        let request = self.inbox.pop_front()?;
        // Sizes are counted only if the read is bounded.
        if *room != usize::MAX {
            *room = room.checked_sub(request.size())?;
        }
        Some(request)
    }
}

/// Open connections in order of age. There are few, so a linear search is faster than a tree.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Wires {
    open: Vec<(Connection, Wire)>,
    opened: u64,
    accepted: u64,
}

impl Wires {
    pub(crate) fn open(&mut self, accepted: bool) -> Connection {
        self.opened += 1;
        let connection = Connection(self.opened);
        self.open.push((connection, Wire::default()));
        if accepted {
            self.accept(self.open.len() - 1);
        }
        connection
    }

    /// Accepts a connection and returns its client id.
    pub(crate) fn accept(&mut self, index: usize) -> u64 {
        let accepted = &mut self.accepted;
        *self.open[index].1.client_id.get_or_insert_with(|| {
            *accepted += 1;
            FIRST_CLIENT_ID - 1 + *accepted
        })
    }

    pub(crate) fn index(&self, connection: Connection) -> Option<usize> {
        self.open.binary_search_by_key(&connection, |(it, _)| *it).ok()
    }

    pub(crate) fn at(&mut self, index: usize) -> &mut Wire {
        &mut self.open[index].1
    }

    pub(crate) fn waiting(&self) -> impl Iterator<Item = Connection> + '_ {
        let waits = |wire: &Wire| !wire.inbox.is_empty() || wire.closed.is_some();
        self.open.iter().filter(move |(_, wire)| waits(wire)).map(|(it, _)| *it)
    }

    /// Closes a connection. If its buffer is empty, the connection is removed at once. But while
    /// its master is paused, a subscribed connection stays, and still counts as a subscriber.
    pub(crate) fn close(&mut self, connection: Connection, how: Close, paused: bool) {
        let Some(index) = self.index(connection) else { return };
        let wire = &mut self.open[index].1;
        if wire.inbox.is_empty() && (!paused || wire.subscribed.is_empty()) {
            self.open.remove(index);
        } else if wire.closed != Some(Close::Reset) {
            wire.closed = Some(how);
        }
    }

    /// Wakes a waiter on the connections that subscribe to it. Returns whether there are any.
    pub(crate) fn publish(&self, waiter: Waiter, out: &mut Vec<Event>) -> bool {
        let mut any = false;
        let subscribed = |wire: &Wire| wire.subscribed.contains(&waiter.inbox);
        for (connection, wire) in self.open.iter().filter(|(_, wire)| subscribed(wire)) {
            any = true;
            if wire.closed != Some(Close::Reset) {
                out.push(Event::Message(*connection, ServerReply::Woken(waiter)));
            }
        }
        any
    }

    pub(crate) fn remove(&mut self, index: usize) {
        self.open.remove(index);
    }

    /// Removes a connection that was closed and read to its end.
    pub(crate) fn forget(&mut self, connection: Connection) {
        if let Some(index) = self.index(connection).filter(|index| self.open[*index].1.over) {
            self.open.remove(index);
        }
    }

    /// Closes the connection with this client id. Returns whether there was one.
    pub(crate) fn kill(&mut self, client_id: u64, out: &mut Vec<Event>) -> bool {
        let found = self.open.iter().position(|(_, wire)| wire.client_id == Some(client_id));
        if let Some(index) = found {
            let (connection, wire) = self.open.remove(index);
            if wire.closed.is_none() {
                out.push(Event::Dropped(connection));
            }
        }
        found.is_some()
    }

    pub(crate) fn drop_all(&mut self, out: &mut Vec<Event>) {
        let open = self.open.drain(..).filter(|(_, wire)| wire.closed.is_none());
        out.extend(open.map(|(it, _)| Event::Dropped(it)));
    }

    /// Starts over: a new process numbers its clients anew.
    pub(crate) fn restart(&mut self) {
        self.accepted = 0;
    }
}
