//! Plays the steps on a model.

use std::collections::VecDeque;
use std::mem::discriminant;

use redquorum_protocol::wire::{Command, parse};
use redquorum_redis_model::{
    Close, Connection, Event, Persistence, Request, Server, ServerReply, Value, Wall,
};

use crate::plan::{End, Leave, Planned, SLOTS, Step};
use crate::real::NOBODY;
use crate::world::{ReceivedMessage, Runs, Seen};

pub(crate) trait Master {
    fn server(&mut self) -> &mut Server;

    fn deliver(&mut self, connection: Connection, request: Request) {
        self.server().deliver(connection, request);
    }

    fn turn(&mut self, wall: Wall, connections: &[Connection], out: &mut Vec<Event>) {
        self.server().turn(wall, connections, out);
    }

    fn close(&mut self, connection: Connection, how: Close) {
        self.server().close(connection, how);
    }

    fn resume(&mut self) {
        self.server().resume();
    }

    fn tick(&mut self, wall: Wall) {
        self.server().tick(wall);
    }

    fn power_loss(&mut self, out: &mut Vec<Event>) {
        self.server().power_loss(out);
    }
}

impl Master for Server {
    fn server(&mut self) -> &mut Server {
        self
    }
}

struct Line {
    number: usize,
    /// `None`: the client has closed the connection.
    slot: Option<usize>,
    connection: Connection,
    /// The client is gone for good, so it receives nothing.
    ignores_replies: bool,
}

/// Plays steps on a model.
pub(crate) struct Model<M> {
    master: M,
    open: Vec<Line>,
    opened: usize,
    greeted: [u64; SLOTS],
    runs: Runs,
    /// The connections that wait for service, in the order of the first bytes on each. The second
    /// queue has those that are not yet accepted.
    arrived: [VecDeque<Connection>; 2],
    /// The number of connections accepted before the pause.
    accepted: usize,
}

impl<M: Master> Model<M> {
    pub(crate) fn new(master: M) -> Self {
        Self {
            master,
            open: Vec::new(),
            opened: 0,
            greeted: [NOBODY; SLOTS],
            runs: Runs::default(),
            arrived: Default::default(),
            accepted: 0,
        }
    }

    /// Plays a step, at the wall clock of the real master.
    pub(crate) fn step(&mut self, step: &Step, wall: Wall) -> Seen {
        let mut events = Vec::new();
        match step {
            Step::Send(slot, asks) => {
                self.say(wall, *slot, asks);
            }
            Step::Leave(slot, asks, how) => {
                let index = self.say(wall, *slot, asks);
                let line = &mut self.open[index];
                line.slot = None;
                line.ignores_replies = *how != Leave::Half;
                let how = if *how == Leave::Reset { Close::Reset } else { Close::Fin };
                self.master.close(line.connection, how);
            }
            Step::Pause => {
                self.master.server().pause();
                self.accepted = self.opened;
            }
            Step::Resume => self.master.resume(),
            Step::Restart(end, _) => {
                let paused = self.master.server().is_paused();
                match end {
                    End::Stop if !paused => self.master.server().stop(&mut events),
                    End::Stop | End::Kill => self.master.server().kill(&mut events),
                    End::PowerLoss => self.master.power_loss(&mut events),
                }
                let server = self.master.server();
                assert_eq!(server.connect(), None);
                server.set_out_of_memory(false);
                server.start(wall);
                self.greeted = [NOBODY; SLOTS];
                self.arrived.iter_mut().for_each(VecDeque::clear);
            }
            Step::Sync => {
                self.master.server().fsync(wall);
            }
            Step::Expire => self.master.tick(wall),
            Step::Memory(short) if !self.master.server().is_paused() => {
                self.master.server().set_out_of_memory(*short);
            }
            Step::Clock(_) | Step::Run(_) | Step::Memory(_) => {}
        }
        self.look(wall, events)
    }

    fn say(&mut self, wall: Wall, slot: usize, asks: &[Planned]) -> usize {
        let index = match self.open.iter().position(|line| line.slot == Some(slot)) {
            Some(index) => index,
            None => {
                let connection = self.master.server().connect().expect("it is up");
                self.opened += 1;
                let (number, slot) = (self.opened, Some(slot));
                self.open.push(Line { number, slot, connection, ignores_replies: false });
                self.deliver(self.open.len() - 1, Request::Hello);
                if !self.master.server().is_paused() {
                    // The real connection reads its greeting first; other events do not matter
                    // here.
                    let mut greeting = Vec::new();
                    self.serve(wall, &mut greeting);
                    self.receive(&greeting, &mut Vec::new());
                }
                self.open.len() - 1
            }
        };
        for request in asks {
            let request = match request {
                Planned::Request(request) => request.clone(),
                Planned::Kill(slot) => {
                    Request::Lock(Command::Kill { client_id: self.greeted[*slot] })
                }
            };
            self.deliver(index, request);
        }
        index
    }

    fn deliver(&mut self, index: usize, request: Request) {
        let Line { connection, number, .. } = self.open[index];
        let paused = self.master.server().is_paused();
        let queue = &mut self.arrived[usize::from(paused && number > self.accepted)];
        if !queue.contains(&connection) {
            queue.push_back(connection);
        }
        self.master.deliver(connection, over_the_wire(request));
    }

    fn serve(&mut self, wall: Wall, events: &mut Vec<Event>) {
        for queue in 0..2 {
            // Connections that are not yet accepted are read one turn later.
            let turn = Vec::from(std::mem::take(&mut self.arrived[queue]));
            self.master.turn(wall, &turn, events);
        }
    }

    fn look(&mut self, wall: Wall, mut events: Vec<Event>) -> Seen {
        let mut seen = Seen { wall, ..Seen::default() };
        if self.master.server().is_paused() {
            return seen;
        }
        self.serve(wall, &mut events);
        let mut messages: Vec<ReceivedMessage> = Vec::new();
        self.receive(&events, &mut messages);
        messages.sort_by_key(|it| it.number);
        seen.messages = messages;
        seen.count = Some(self.master.server().count());
        self.open.retain(|line| line.slot.is_some());
        seen
    }

    fn receive(&mut self, events: &[Event], messages: &mut Vec<ReceivedMessage>) {
        for event in events {
            let (Event::Message(connection, _) | Event::Dropped(connection)) = event;
            let of = |line: &Line| line.connection == *connection;
            let index = self.open.iter().position(of).expect("an event of an open connection");
            let line = &mut self.open[index];
            if line.ignores_replies {
                continue;
            }
            let found = messages.iter().position(|it| it.number == line.number);
            let at = found.unwrap_or_else(|| {
                messages
                    .push(ReceivedMessage { number: line.number, ..ReceivedMessage::default() });
                messages.len() - 1
            });
            match event {
                Event::Dropped(_) => {
                    messages[at].dropped = true;
                    line.slot = None;
                }
                Event::Message(_, reply) => {
                    let mut reply = received(reply);
                    if let ServerReply::Greeting(greeting) = &mut reply {
                        if let Some(slot) = line.slot {
                            self.greeted[slot] = greeting.client_id.unwrap();
                        }
                        self.runs.rename(greeting);
                    }
                    messages[at].replies.push(reply);
                }
            }
        }
    }
}

/// The request as a server reads it from the client's bytes.
fn over_the_wire(request: Request) -> Request {
    if request == Request::Hello {
        // Several commands, which are one request of the model.
        return request;
    }
    let mut bytes = Vec::new();
    request.encode(&mut bytes);
    let (read, length) = Request::parse(&bytes).unwrap().expect("complete");
    // Two requests may have the same bytes, but a command of the lock is read as one.
    assert_eq!(discriminant(&read), discriminant(&request), "{request:?}");
    assert_eq!(length, bytes.len());
    read
}

/// The message as a client reads it from the server's bytes.
pub(crate) fn received(message: &ServerReply) -> ServerReply {
    if let ServerReply::Greeting(_) = message {
        return message.clone();
    }
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    let (frame, length) = parse(&bytes, usize::MAX).unwrap().expect("complete");
    assert_eq!(length, bytes.len());
    ServerReply::Value(Value::from(&frame))
}

/// The model without changes.
pub(crate) fn right(persistence: Persistence) -> Server {
    Server::new(1, persistence)
}
