//! Plays the steps on a model. Mutated models have a plausible mistake about Redis each.

use std::collections::{BTreeMap, VecDeque};
use std::mem::discriminant;

use crate::compare::{ReceivedMessage, Record, Runs, Seen};
use crate::plan::{End, INBOXES, Leave, Planned, SLOTS, Step, waiter_of};
use crate::real::NOBODY;
use redquorum_protocol::wire::{Command, parse};
use redquorum_protocol::{Key, Position, Token, Waiter, WaiterId, WakeUp};
use redquorum_redis_model::{
    Close, Connection, Event, Persistence, Request, Server, ServerReply, Value, Wall,
};

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

const MS: Wall = 1_000_000;

macro_rules! mutations {
    ($($(#[$doc:meta])* $name:ident,)+) => {
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        enum Mutation { $($(#[$doc])* $name,)+ }

        const ALL: &[Mutation] = &[$(Mutation::$name),+];
    };
}

mutations! {
    /// A key is gone in its last millisecond, not after it.
    ExpiryOffByOne,
    RestartRemembers,
    /// A refused `SET NX PX` gives the key its TTL.
    RepeatRenews,
    /// Active expiry uses the time since the start, and ignores steps of the wall clock.
    ExpiryIgnoresClock,
    /// Commands that a client had sent to a paused master are lost with the client.
    SetLostWithClient,
    TtlRoundedUp,
    /// A power loss takes only what a kill would take.
    PowerLossTakesNothing,
    /// `CLIENT KILL` replies, but kills nothing.
    KillSpares,
    /// A request that only counts waiters wakes one.
    CountingWakes,
    /// A request that wakes waiters only counts them.
    WakesAreCounts,
    /// A waiter for which no connection is subscribed keeps its position.
    KeepsUnreachable,
    /// A connection that wakes its own waiter gets no message.
    SkipsOwnWakeUp,
    WakesBehindReply,
    /// The message names the waiter that enqueued last, not the first in the queue.
    NamesLast,
    /// A woken waiter keeps its position for as long as if it had sent a new request.
    KeepsWoken,
    /// A waiter that leaves wakes no other waiter.
    LeavesInSilence,
    /// A waiter that leaves keeps its position.
    LeavesNot,
    /// A waiter that leaves with a key keeps its position.
    LeavesNotWithKey,
    /// A waiter that leaves with a key is counted.
    CountsLeaver,
    AllAtOne,
    /// A position that another master gave comes before the last waiter.
    NotBehindLast,
    /// A check of a free resource wakes no waiter.
    LooksInSilence,
    /// A check wakes the first waiter even if it need not.
    LooksAlwaysWake,
    /// A fair grant does not look at the queue.
    GrantsBeforeWaiters,
}

/// A waiter that is in no queue.
const STRANGER: Waiter = Waiter { inbox: 0x77, waiter_id: WaiterId::new(77) };

struct MutatedMaster {
    server: Server,
    mutation: Mutation,
    /// The requests of each connection without a reply.
    asked: BTreeMap<Connection, VecDeque<Request>>,
    /// [`Mutation::SetLostWithClient`]: requests that the server has not messages.
    held: BTreeMap<Connection, Vec<Request>>,
    /// [`Mutation::ExpiryIgnoresClock`]: the first instant, and the number of checks since.
    looks: Option<(Wall, u64)>,
    /// [`Mutation::NamesLast`]: the waiter id of the waiter that enqueued last.
    last: WaiterId,
}

/// Every mutation causes a difference.
pub(crate) fn all_noticed(record: &Record) {
    let shows = |mutation: &Mutation| match mutation {
        Mutation::RestartRemembers => record.persistence == Persistence::None,
        Mutation::PowerLossTakesNothing => record.persistence == Persistence::AofEverysec,
        _ => true,
    };
    for mutation in ALL.iter().copied().filter(shows) {
        let remembers = mutation == Mutation::RestartRemembers;
        let server = right(if remembers { Persistence::AofAlways } else { record.persistence });
        let (asked, held) = Default::default();
        let last = STRANGER.waiter_id;
        match record.play(MutatedMaster { server, mutation, asked, held, looks: None, last }) {
            Ok(()) => panic!("{mutation:?} was not noticed within {} replies", record.replies()),
            Err(difference) => {
                println!("{mutation:?}: after {} replies", record.replies_until(difference.step));
            }
        }
    }
}

impl MutatedMaster {
    fn misunderstood(&self, request: Request) -> Request {
        let Request::Lock(command) = request else { return request };
        Request::Lock(match (self.mutation, command) {
            (Mutation::KillSpares, Command::Kill { .. }) => Command::Probe,
            (
                Mutation::GrantsBeforeWaiters,
                Command::Set { key, token, ttl_ms, fair: true, fence: fence @ Some(_) },
            ) => Command::Set { key, token, ttl_ms, fair: false, fence },
            (
                Mutation::CountingWakes,
                Command::Delete { key, token, wake_up: WakeUp::Count, leave },
            ) => Command::Delete { key, token, wake_up: WakeUp::First, leave },
            (
                Mutation::WakesAreCounts,
                Command::Delete { key, token, wake_up: WakeUp::First, leave },
            ) => Command::Delete { key, token, wake_up: WakeUp::Count, leave },
            (Mutation::LeavesInSilence, Command::Dequeue { key, waiter, .. }) => {
                Command::Dequeue { key, waiter, wake: false }
            }
            (Mutation::LeavesNot, Command::Dequeue { key, wake, .. }) => {
                Command::Dequeue { key, waiter: STRANGER, wake }
            }
            (
                Mutation::LeavesNotWithKey,
                Command::Delete { key, token, wake_up, leave: Some(_) },
            ) => Command::Delete { key, token, wake_up, leave: Some(STRANGER) },
            (Mutation::AllAtOne, Command::Enqueue { key, waiter, position: Position::Last }) => {
                Command::Enqueue { key, waiter, position: Position::At(1) }
            }
            (
                Mutation::NotBehindLast,
                Command::Enqueue { key, waiter, position: Position::NotBefore(at) },
            ) => Command::Enqueue { key, waiter, position: Position::At(at) },
            (
                Mutation::LooksInSilence,
                Command::Enqueue { key, waiter, position: Position::Last },
            ) => Command::Enqueue { key, waiter, position: Position::Any },
            (
                Mutation::LooksAlwaysWake,
                Command::Enqueue { key, waiter, position: Position::Any },
            ) => Command::Enqueue { key, waiter, position: Position::Last },
            (_, command) => command,
        })
    }

    /// A connection's message to itself precedes its reply.
    fn tell_itself(&self, out: &mut Vec<Event>) {
        let mut from = 0;
        while let Some(index) =
            out[from..].iter().position(|it| matches!(it, Event::Message(_, ServerReply::Woken(_))))
        {
            let index = from + index;
            let Event::Message(message, _) = out[index] else { unreachable!("it is one") };
            let reply = |it: &Event| matches!(it, Event::Message(_, ServerReply::Value(_)));
            let next = out[index..].iter().position(reply).map(|next| index + next);
            from = index + 1;
            match next.filter(|next| matches!(out[*next], Event::Message(of, _) if of == message)) {
                Some(_) if self.mutation == Mutation::SkipsOwnWakeUp => {
                    out.remove(index);
                    from = index;
                }
                Some(next) if self.mutation == Mutation::WakesBehindReply => {
                    out[index..=next].rotate_left(1);
                    from = next + 1;
                }
                _ => {}
            }
        }
    }

    /// Renews a key for an absent client: the server executes the command between two turns.
    fn renew(&mut self, wall: Wall, key: &Key, ttl_ms: u64, ghost: Connection) {
        let holder = self.server.value(wall, key).and_then(|value| Token::from_slice(value));
        let Some(token) = holder else { return };
        let keep = Command::Keep {
            key: key.clone(),
            token,
            ttl_ms,
            repair: false,
            marker: None,
            fence: None,
        };
        self.haunt(wall, ghost, keep);
    }

    fn haunt(&mut self, wall: Wall, ghost: Connection, command: Command) {
        self.server.deliver(ghost, Request::Lock(command));
        self.server.serve(wall, ghost, &mut Vec::new());
    }

    /// A connection that is subscribed for all inboxes while the server serves other connections.
    fn subscribed(&mut self, wall: Wall) -> Option<Connection> {
        let runs = self.server.is_up() && !self.server.is_paused();
        if self.mutation != Mutation::KeepsUnreachable || !runs {
            return None;
        }
        let ghost = self.server.connect()?;
        for inbox in INBOXES.into_iter().chain([waiter_of(WaiterId::new(4)).inbox]) {
            self.haunt(wall, ghost, Command::Subscribe { inbox });
        }
        Some(ghost)
    }
}

impl Master for MutatedMaster {
    fn server(&mut self) -> &mut Server {
        &mut self.server
    }

    fn deliver(&mut self, connection: Connection, request: Request) {
        self.asked.entry(connection).or_default().push_back(request.clone());
        if let Request::Lock(Command::Enqueue { waiter, .. }) = &request {
            self.last = waiter.waiter_id;
        }
        if self.mutation == Mutation::SetLostWithClient && self.server.is_paused() {
            return self.held.entry(connection).or_default().push(request);
        }
        let request = self.misunderstood(request);
        self.server.deliver(connection, request);
    }

    fn close(&mut self, connection: Connection, how: Close) {
        self.held.remove(&connection);
        self.server.close(connection, how);
    }

    fn resume(&mut self) {
        self.server.resume();
        for (connection, requests) in std::mem::take(&mut self.held) {
            for request in requests {
                self.server.deliver(connection, request);
            }
        }
    }

    fn turn(&mut self, wall: Wall, connections: &[Connection], out: &mut Vec<Event>) {
        if self.mutation == Mutation::ExpiryOffByOne {
            let last =
                |(key, _, until): (&Key, _, Wall)| (until / MS == wall / MS).then(|| key.clone());
            let early: Vec<Key> = self.server.keys().filter_map(last).collect();
            for key in early {
                self.server.evict(&key);
            }
        }
        let from = out.len();
        let everywhere = self.subscribed(wall);
        self.server.turn(wall, connections, out);
        if let Some(ghost) = everywhere {
            out.retain(|event| !matches!(event, Event::Message(of, _) if *of == ghost));
            self.server.close(ghost, Close::Fin);
        }
        self.tell_itself(out);
        let (mut refused, mut waking, mut woken) = (Vec::new(), Vec::new(), Vec::new());
        for event in &mut out[from..] {
            let (of, reply) = match event {
                Event::Message(_, ServerReply::Woken(waiter)) => {
                    waking.push(*waiter);
                    if self.mutation == Mutation::NamesLast {
                        waiter.waiter_id = self.last;
                    }
                    continue;
                }
                Event::Message(of, reply) => (of, reply),
                Event::Dropped(_) => continue,
            };
            let asked = self.asked.get_mut(of).and_then(VecDeque::pop_front);
            let ServerReply::Value(value) = reply else { continue };
            if self.mutation == Mutation::TtlRoundedUp
                && !wall.is_multiple_of(MS)
                && let Some(left) = asked.as_ref().and_then(|asked| ttl_in(asked, value))
            {
                *left += 1;
            }
            match asked {
                Some(Request::Lock(Command::Set { key, ttl_ms, .. }))
                    if matches!(value, Value::Null | Value::Integer(0)) =>
                {
                    refused.push((key, ttl_ms));
                }
                Some(Request::Lock(
                    Command::Delete { key, leave: None, .. }
                    | Command::Enqueue { key, .. }
                    | Command::Dequeue { key, .. },
                )) => {
                    // Later commands in this turn may change the queue again.
                    woken.retain(|(other, _)| *other != key);
                    woken.extend(waking.drain(..).map(|waiter| (key.clone(), waiter)));
                }
                Some(Request::Lock(Command::Delete { key, leave: Some(_), .. })) => {
                    // One more than the number of waiters, if the key was deleted.
                    if self.mutation == Mutation::CountsLeaver
                        && let Value::Integer(count @ 1..) = value
                    {
                        *count += 1;
                    }
                    woken.retain(|(other, _)| *other != key);
                }
                _ => {}
            }
            waking.clear();
        }
        if matches!(self.mutation, Mutation::RepeatRenews | Mutation::KeepsWoken)
            && let Some(ghost) = self.server.connect()
        {
            if self.mutation == Mutation::RepeatRenews {
                for (key, ttl_ms) in refused {
                    self.renew(wall, &key, ttl_ms, ghost);
                }
            } else {
                for (key, waiter) in woken {
                    self.haunt(
                        wall,
                        ghost,
                        Command::Enqueue { key, waiter, position: Position::Any },
                    );
                }
            }
            self.server.close(ghost, Close::Fin);
        }
    }

    fn power_loss(&mut self, out: &mut Vec<Event>) {
        if self.mutation == Mutation::PowerLossTakesNothing {
            self.server.kill(out);
        } else {
            self.server.power_loss(out);
        }
    }

    fn tick(&mut self, wall: Wall) {
        if self.mutation == Mutation::ExpiryIgnoresClock {
            let (first, looks) = self.looks.get_or_insert((wall, 0));
            *looks += 1;
            let own = *first + *looks * MS;
            self.server.tick(own);
        } else {
            self.server.tick(wall);
        }
    }
}

/// The TTL in a reply, if there is one.
fn ttl_in<'a>(request: &Request, reply: &'a mut Value) -> Option<&'a mut i64> {
    let is_pttl = matches!(request, Request::Words(words) if words[0] == b"PTTL");
    let names_holder = matches!(
        request,
        Request::Lock(
            Command::Enqueue { .. }
                | Command::Delete { .. }
                | Command::Keep { .. }
                | Command::Certify { .. }
        )
    );
    let left = match reply {
        Value::Integer(left) if is_pttl => left,
        Value::Array(parts) if names_holder => match &mut parts[..] {
            [.., Value::Integer(left), Value::Bulk(_)] => left,
            _ => return None,
        },
        _ => return None,
    };
    (*left >= 0).then_some(left)
}
