//! A master of the tests: the model of Redis, with commands and replies instead of bytes.

use redquorum_protocol::wire::{Command, Greeting, RESERVED};
use redquorum_protocol::{Key, Reply, Time};
use redquorum_redis_model::{Connection, Event, Persistence, Request, Server, ServerReply};

pub(crate) struct Master {
    pub(crate) server: Server,
}

impl Master {
    /// An empty master, which keeps its data over a restart.
    pub(crate) fn new(number: usize) -> Self {
        Self { server: Server::new(number as u64, Persistence::AofEverysec) }
    }

    pub(crate) fn serve(&mut self, now: Time, connection: Connection) -> Vec<Event> {
        let mut events = Vec::new();
        self.server.serve(now.as_nanos(), connection, &mut events);
        events
    }

    /// Executes one command on a connection without other commands. Returns the reply, and the
    /// events for other connections.
    pub(crate) fn execute(
        &mut self,
        now: Time,
        connection: Connection,
        command: &Command,
    ) -> (Reply, Vec<Event>) {
        self.server.deliver(connection, Request::Lock(command.clone()));
        let mut events = self.serve(now, connection);
        match events.pop() {
            Some(Event::Message(to, ServerReply::Value(value))) if to == connection => {
                (value.read(command.expect()), events)
            }
            other => panic!("no reply: {other:?}"),
        }
    }

    /// Connects, and completes a handshake, which loads the scripts.
    pub(crate) fn greet(&mut self, now: Time) -> (Connection, Greeting) {
        let connection = self.server.connect().expect("it is up");
        self.server.deliver(connection, Request::Hello);
        match self.serve(now, connection).pop() {
            Some(Event::Message(_, ServerReply::Greeting(greeting))) => (connection, greeting),
            other => panic!("no greeting: {other:?}"),
        }
    }

    /// The keys of locks, with the start of the last millisecond in which each exists. An expired
    /// key stays until a command reads it, so that a test can find a key without a clean-up.
    pub(crate) fn keys(&self) -> impl Iterator<Item = (&Key, Time)> {
        let locks = self.server.keys().filter(|(key, ..)| !key.starts_with(RESERVED));
        locks.map(|(key, _, end)| (key, Time::from_millis(end / 1_000_000)))
    }
}
