//! The world of the driver: time, model masters, the connections to them, and their faults.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use redquorum_protocol::wire::{Command, Markers};
use redquorum_protocol::{
    ClaimId, Fence, Guard, Holder, Key, Reply, Rng, RunId, TOKEN_LEN, Time, Token,
};

/// splitmix64. The generator never changes, so a seed always means the same run.
#[derive(Clone)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub(crate) fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).expect("an index fits")
    }
}

impl Rng for Random {
    fn token(&mut self) -> Token {
        let mut bytes = [0; TOKEN_LEN];
        bytes
            .chunks_mut(8)
            .for_each(|part| part.copy_from_slice(&self.next().to_le_bytes()[..part.len()]));
        Token::new(bytes)
    }

    /// A wall clock that jumps: tokens must not depend on it.
    fn hint(&mut self) -> u64 {
        self.below(400)
    }

    fn pause(&mut self, _attempt: u32) -> Duration {
        Duration::from_micros(2_000 + self.below(20_000))
    }

    fn random(&mut self) -> u64 {
        self.below(u64::MAX)
    }
}

/// A model master, which executes the commands that links write.
#[derive(Default)]
pub(crate) struct Master {
    /// Values with their expiry. An expired key stays until a command reads it, so that a test can
    /// find a key without a clean-up.
    pub(crate) keys: BTreeMap<Key, (Token, Time)>,
    pub(crate) counters: BTreeMap<Key, u64>,
    pub(crate) markers: Markers,
    /// How far the clock was set ahead.
    pub(crate) ahead: Duration,
    stopped: bool,
    down: bool,
    restarts: u64,
    clients: u64,
}

impl Master {
    fn mark(&mut self, now: Time, command: &Command) -> Reply {
        let now = u64::try_from(now.since(Time::ZERO).as_millis()).expect("it fits");
        self.markers.execute(now, command).expect("it is about markers")
    }

    fn execute(&mut self, now: Time, command: &Command) -> Reply {
        match command {
            Command::Guarded { marker, key, token, ttl_ms, fence } => {
                let answer = self.markers.refusal(marker).unwrap_or_else(|| {
                    let (key, token, ttl_ms, fence) = (key.clone(), *token, *ttl_ms, *fence);
                    self.execute(now, &Command::Set { key, token, ttl_ms, fence })
                });
                answer.stamped(now.as_nanos() / 1000)
            }
            Command::Watch { .. } => self.mark(now, command).stamped(now.as_nanos() / 1000),
            Command::Initialize { .. } => self.mark(now, command),
            Command::Set { key, token, ttl_ms, fence } => match self.found(now, key) {
                Some(_) => Reply::Taken(Holder::NotAsked),
                None => {
                    self.create(now, key, *token, *ttl_ms);
                    fence.map_or(Reply::Created, |fence| Reply::Granted {
                        number: self.raise(key, 1, fence),
                    })
                }
            },
            Command::Certify { key, token, fence } => match self.found(now, key) {
                Some((ours, _)) if ours == *token => {
                    Reply::Certified { number: self.raise(key, 0, *fence) }
                }
                Some(other) => taken(now, other),
                None => Reply::Absent,
            },
            Command::Keep { key, token, ttl_ms, repair, fence } => match self.found(now, key) {
                Some((ours, expiry)) if ours == *token => {
                    let expiry = expiry.max(now.plus(Duration::from_millis(*ttl_ms)));
                    self.keys.insert(key.clone(), (ours, expiry));
                    Reply::Kept
                }
                Some(other) => taken(now, other),
                None if *repair => {
                    if let Some(fence) = fence {
                        self.raise(key, 1, *fence);
                    }
                    self.create(now, key, *token, *ttl_ms);
                    Reply::Created
                }
                None => Reply::Absent,
            },
            Command::Delete { key, token, .. } => match self.found(now, key) {
                Some((ours, _)) if ours == *token => {
                    self.keys.remove(key);
                    Reply::Deleted
                }
                Some(other) => taken(now, other),
                None => Reply::Absent,
            },
            Command::Enqueue { .. } => Reply::Place { number: 1, ahead: 0, holder: None },
            Command::Dequeue { .. }
            | Command::Kill { .. }
            | Command::Load(_)
            | Command::Hello
            | Command::Subscribe { .. }
            | Command::Probe => Reply::Alive,
        }
    }

    fn found(&mut self, now: Time, key: &Key) -> Option<(Token, Time)> {
        if self.keys.get(key).is_some_and(|(_, expiry)| now >= *expiry) {
            self.keys.remove(key);
        }
        self.keys.get(key).copied()
    }

    fn create(&mut self, now: Time, key: &Key, token: Token, ttl_ms: u64) {
        self.keys.insert(key.clone(), (token, now.plus(Duration::from_millis(ttl_ms))));
    }

    fn raise(&mut self, key: &Key, step: u64, fence: Fence) -> u64 {
        let counter = self.counters.entry(key.clone()).or_default();
        *counter = (*counter + step).max(fence.number);
        *counter
    }
}

fn taken(now: Time, (token, expiry): (Token, Time)) -> Reply {
    let left_ms = u64::try_from(expiry.since(now).as_millis()).expect("a TTL fits");
    Reply::Taken(Holder::Lease { token, left_ms })
}

/// A connection: the client, the master, and the link's number for the connection.
pub(crate) type WireId = (usize, usize, u64);

/// A connection, in which bytes arrive in the order in which they were written.
pub(crate) struct Wire {
    client_id: u64,
    /// Requests that have arrived and are not executed: the socket buffer of a stopped master.
    inbox: VecDeque<Request>,
    /// The arrival of the latest bytes in each direction.
    last: [Time; 2],
    /// The client has given up the connection. Bytes that it wrote are still on their way.
    given_up: bool,
    /// The master has dropped the connection, with all requests that were not executed.
    dropped: bool,
}

pub(crate) enum Request {
    Hello,
    Run(Command),
}

pub(crate) enum MasterReply {
    /// A client id, a run id, and a marker.
    Greeting(u64, RunId, Option<Arc<str>>),
    Reply(Reply),
    Reset,
}

pub(crate) enum Event {
    /// A request is in the master's socket buffer.
    Arrived(WireId, Request),
    Served(WireId),
    /// A reply reaches the client.
    Replied(WireId, MasterReply),
    Changed(usize, ClaimId),
}

pub(crate) struct World {
    pub(crate) now: Time,
    pub(crate) random: Random,
    pub(crate) masters: Vec<Master>,
    wires: BTreeMap<WireId, Wire>,
    /// Ordered by time. Events of one instant keep their order of entry.
    queue: BTreeMap<(Time, u64), Event>,
    entered: u64,
}

impl World {
    pub(crate) fn new(seed: u64, masters: usize) -> Self {
        Self {
            now: Time::ZERO,
            random: Random(seed),
            masters: (0..masters).map(|_| Master::default()).collect(),
            wires: BTreeMap::new(),
            queue: BTreeMap::new(),
            entered: 0,
        }
    }

    pub(crate) fn next_event(&self) -> Time {
        self.queue.keys().next().map_or(Time::NEVER, |(time, _)| *time)
    }

    /// Carries out the next event. Returns it if it concerns a client.
    pub(crate) fn happen(&mut self) -> Option<Event> {
        match self.queue.pop_first()?.1 {
            Event::Arrived(id, request) => {
                self.wires.get_mut(&id)?.inbox.push_back(request);
                self.serve(id);
                None
            }
            Event::Served(id) => {
                self.serve(id);
                None
            }
            Event::Replied(id, _) if self.wires.get(&id)?.given_up => None,
            event => Some(event),
        }
    }

    pub(crate) fn give_up(&mut self, id: WireId) {
        self.wires.get_mut(&id).expect("dialled").given_up = true;
    }

    pub(crate) fn enter(&mut self, time: Time, event: Event) {
        self.entered += 1;
        self.queue.insert((time, self.entered), event);
    }

    pub(crate) fn dial(&mut self, id: WireId) {
        let master = &mut self.masters[id.1];
        master.clients += 1;
        let (client_id, dropped) = (master.clients, master.down);
        let last = [self.now; 2];
        let wire = Wire { client_id, inbox: VecDeque::new(), last, given_up: false, dropped };
        self.wires.insert(id, wire);
        if dropped {
            self.reply(id, MasterReply::Reset);
        } else {
            self.transmit(id, Request::Hello);
        }
    }

    pub(crate) fn transmit(&mut self, id: WireId, request: Request) {
        let arrival = self.arrival(id, 0);
        self.enter(arrival, Event::Arrived(id, request));
    }

    fn reply(&mut self, id: WireId, reply: MasterReply) {
        let arrival = self.arrival(id, 1);
        self.enter(arrival, Event::Replied(id, reply));
    }

    fn arrival(&mut self, id: WireId, direction: usize) -> Time {
        let latency = Duration::from_micros(100 + self.random.below(3_000));
        let last = &mut self.wires.get_mut(&id).expect("dialled").last[direction];
        *last = self.now.plus(latency).max(*last);
        *last
    }

    fn serve(&mut self, id: WireId) {
        loop {
            let (master, wire) =
                (&mut self.masters[id.1], self.wires.get_mut(&id).expect("dialled"));
            if master.stopped || wire.dropped {
                return;
            }
            let Some(request) = wire.inbox.pop_front() else { return };
            let reply = match request {
                Request::Hello => {
                    let run_id = RunId(Arc::from(format!("{}-{}", id.1, master.restarts)));
                    MasterReply::Greeting(wire.client_id, run_id, master.markers.boot().cloned())
                }
                Request::Run(Command::Kill { client_id }) => {
                    self.drop_wires(id.1, |wire| wire.client_id == client_id);
                    MasterReply::Reply(Reply::Alive)
                }
                Request::Run(command) => {
                    MasterReply::Reply(master.execute(self.now.plus(master.ahead), &command))
                }
            };
            self.reply(id, reply);
        }
    }

    fn drop_wires(&mut self, master: usize, which: impl Fn(&Wire) -> bool) {
        let chosen = |(id, wire): (&WireId, &Wire)| {
            (id.1 == master && !wire.dropped && which(wire)).then_some(*id)
        };
        let chosen: Vec<WireId> = self.wires.iter().filter_map(chosen).collect();
        for id in chosen {
            self.wires.get_mut(&id).expect("found above").dropped = true;
            self.reply(id, MasterReply::Reset);
        }
    }

    // Faults and how they heal.

    /// Stops the master's process; its sockets fill up.
    pub(crate) fn stop(&mut self, master: usize) {
        self.masters[master].stopped = true;
    }

    /// Resumes the master, which serves its connections one after the other, in any order.
    pub(crate) fn resume(&mut self, master: usize) {
        self.masters[master].stopped = false;
        let ids: Vec<WireId> = self.wires.keys().filter(|id| id.1 == master).copied().collect();
        for id in ids {
            let turn = self.now.plus(Duration::from_micros(self.random.below(10_000)));
            self.enter(turn, Event::Served(id));
        }
    }

    /// Ends the master's process. With `amnesia`, the next process has lost all data.
    pub(crate) fn kill(&mut self, master: usize, amnesia: bool) {
        self.masters[master].down = true;
        self.drop_wires(master, |_| true);
        if amnesia {
            self.masters[master].keys.clear();
            self.masters[master].counters.clear();
            self.masters[master].markers = Markers::default();
        }
    }

    /// `FLUSHALL`
    pub(crate) fn flush(&mut self, master: usize) {
        let master = &mut self.masters[master];
        master.keys.clear();
        master.counters.clear();
        master.markers = Markers::default();
    }

    pub(crate) fn mark_all(&mut self, guard: Guard) {
        for (number, master) in self.masters.iter_mut().enumerate() {
            let run_id = RunId(Arc::from(format!("{number}-{}", master.restarts)));
            master.markers.set_boot(Some(guard.marker(&run_id, false)));
        }
    }

    /// Starts a new process in the place of one that ended.
    pub(crate) fn restart(&mut self, master: usize) {
        let master = &mut self.masters[master];
        if master.down {
            (master.down, master.stopped) = (false, false);
            master.restarts += 1;
        }
    }

    /// Delays bytes on the current connection by `length`, even if the client gives the connection
    /// up meanwhile. A new connection takes another path.
    pub(crate) fn cut(&mut self, client: usize, master: usize, length: Duration) {
        let healed = self.now.plus(length);
        let today = self.wires.range_mut((client, master, 0)..=(client, master, u64::MAX)).last();
        if let Some((_, wire)) = today {
            wire.last = wire.last.map(|last| last.max(healed));
        }
    }
}
