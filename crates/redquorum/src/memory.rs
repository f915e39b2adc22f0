//! Masters that live in the process, for tests of code that uses locks.
//!
//! They are a [model of Redis](redquorum_redis_model) behind pipes in memory. They take the
//! time from Tokio: under [paused time](https://docs.rs/tokio/latest/tokio/time/fn.pause.html) a
//! lease of ten seconds expires at once when nothing else is left to do. You can stop them, kill
//! them and make them forget, to test how your code reacts.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! tokio::time::pause();
//! let masters = redquorum::memory::Masters::new(5);
//! let lock = masters.builder().build().await?;
//! let lease = lock.acquire("invoice:42").await?;
//! assert!(lock.try_acquire("invoice:42").await?.is_none());
//! let lost = lease.lost().await; // ten virtual seconds later
//! println!("{lost}");
//! # Ok(()) }
//! ```

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redquorum_protocol::wire::is_queue;
use redquorum_redis_model::{Close, Connection as Id, Event, Persistence, Request, Server, Wall};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::builder::Builder;
use crate::clock::wall_micros;
use crate::node::{Connecting, Connection, Node};
use crate::redlock::Redlock;

pub use crate::repeatable::Repeatable;

/// The size of a connection's pipe in bytes: its writer waits while the pipe is full.
const PIPE: usize = 64 * 1024;

/// A set of masters in memory. They are counted from 1. Clones share the same masters.
#[derive(Clone)]
pub struct Masters(Vec<Arc<Master>>);

struct Master {
    number: usize,
    state: Mutex<State>,
}

struct State {
    server: Server,
    connections: HashMap<Id, Line>,
    /// Whether it is killed, or cut off: only the next call decides which.
    dead: bool,
    born: Instant,
    /// What its clock showed when it was born.
    birth: Duration,
    /// How far its clock was set ahead.
    ahead: Duration,
}

struct Line {
    serving: AbortHandle,
    outgoing: mpsc::UnboundedSender<Vec<u8>>,
}

impl Masters {
    /// Makes `count` masters, running and empty.
    pub fn new(count: usize) -> Self {
        let birth = Duration::from_micros(wall_micros());
        let master = |number| {
            let state = State {
                server: Server::new(number as u64, Persistence::None),
                connections: HashMap::new(),
                dead: false,
                born: Instant::now(),
                birth,
                ahead: Duration::ZERO,
            };
            Arc::new(Master { number, state: Mutex::new(state) })
        };
        Self((1..=count).map(master).collect())
    }

    /// Starts the description of a lock over these masters, under Tokio's clock.
    pub fn builder(&self) -> Builder {
        let add = |builder: Builder, master: &Arc<Master>| builder.master(Pipe(master.clone()));
        self.0.iter().fold(Redlock::builder().tokio_clock_for_tests(), add)
    }

    /// One of these masters, to wrap in a node of your own, for instance one that counts.
    pub fn node(&self, number: usize) -> impl Node + use<> {
        Pipe(self.master(number).clone())
    }

    fn master(&self, number: usize) -> &Arc<Master> {
        assert!(
            (1..=self.0.len()).contains(&number),
            "there is no master {number}: they are counted from 1"
        );
        &self.0[number - 1]
    }

    fn state(&self, number: usize) -> MutexGuard<'_, State> {
        self.master(number).lock()
    }

    /// Stops a master, as `SIGSTOP` does: it receives commands and answers none, until it is
    /// [resumed](Masters::resume).
    pub fn stop(&self, number: usize) {
        self.state(number).server.pause();
    }

    /// Resumes a stopped master: it executes and answers the commands that it received meanwhile.
    pub fn resume(&self, number: usize) {
        let mut state = self.state(number);
        state.server.resume();
        let waiting: Vec<_> = state.server.waiting().collect();
        waiting.into_iter().for_each(|id| state.serve(id));
    }

    /// Kills a master, or cuts it off. Its connections break, and no new ones come up until it is
    /// [restarted](Masters::restart) or [revived](Masters::revive).
    pub fn kill(&self, number: usize) {
        let mut state = self.state(number);
        state.dead = true;
        let mut events = Vec::new();
        state.server.drop_connections(&mut events);
        state.carry_out(events);
    }

    /// Starts a killed master again without its data, like Redis without persistence. It is a new
    /// process, which is not stopped.
    pub fn restart(&self, number: usize) {
        self.kill(number);
        let mut state = self.state(number);
        let wall = state.wall();
        state.server.kill(&mut Vec::new());
        state.server.start(wall);
        state.dead = false;
    }

    /// Brings a killed master back with its data, like a network that was cut, or Redis with
    /// `appendfsync always`.
    pub fn revive(&self, number: usize) {
        self.state(number).dead = false;
    }

    /// Makes a master forget all keys, like `FLUSHALL`.
    pub fn forget(&self, number: usize) {
        self.state(number).server.flush_all();
    }

    /// Sets a master's clock ahead, at once: its keys expire that much earlier.
    pub fn step_clock(&self, number: usize, by: Duration) {
        self.state(number).ahead += by;
    }

    /// The value of a key on one master, if the key exists and is not one that
    /// [shared leases](crate::Acquire::shared) hold.
    pub fn value(&self, number: usize, key: impl AsRef<[u8]>) -> Option<Vec<u8>> {
        let state = self.state(number);
        state.server.value(state.wall(), key.as_ref()).map(|value| value.to_vec())
    }

    /// Sets a key on one master, even if a client holds it. Without a TTL it stays; a TTL of zero
    /// deletes it.
    pub fn set(
        &self,
        number: usize,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: Option<Duration>,
    ) {
        let ttl_ms = ttl.map(|ttl| u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX));
        let mut state = self.state(number);
        let wall = state.wall();
        state.server.set(wall, key.as_ref(), value.as_ref(), ttl_ms);
    }

    /// The keys on one master, except those of queues.
    pub fn keys(&self, number: usize) -> Vec<Vec<u8>> {
        let state = self.state(number);
        let wall = state.wall();
        let exist = state.server.keys().filter(|(key, _, last)| !is_queue(key) && wall <= *last);
        exist.map(|(key, ..)| key.to_vec()).collect()
    }
}

impl fmt::Debug for Masters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Masters({} in memory)", self.0.len())
    }
}

struct Pipe(Arc<Master>);

impl Node for Pipe {
    fn name(&self) -> String {
        format!("memory-{}", self.0.number)
    }

    fn connect(&self) -> Connecting<'_> {
        Box::pin(async {
            let mut state = self.0.lock();
            let id = if state.dead { None } else { state.server.connect() };
            let id = id.ok_or(io::ErrorKind::ConnectionRefused)?;
            let (ours, theirs) = duplex(PIPE);
            let (outgoing, bytes) = mpsc::unbounded_channel();
            let serving = tokio::spawn(serve(self.0.clone(), id, theirs, bytes)).abort_handle();
            state.connections.insert(id, Line { serving, outgoing });
            Ok(Box::new(ours) as Box<dyn Connection>)
        })
    }
}

async fn serve(
    master: Arc<Master>,
    id: Id,
    mut pipe: DuplexStream,
    mut outgoing: mpsc::UnboundedReceiver<Vec<u8>>,
) {
    let mut incoming = Vec::new();
    loop {
        tokio::select! {
            biased;
            message = outgoing.recv() => match message {
                Some(mut bytes) => {
                    while let Ok(more) = outgoing.try_recv() {
                        bytes.extend(more);
                    }
                    if pipe.write_all(&bytes).await.is_err() {
                        break;
                    }
                }
                None => break,
            },
            read = pipe.read_buf(&mut incoming) => match read {
                Ok(1..) if master.lock().take(id, &mut incoming) => {}
                _ => break,
            },
        }
    }
    let mut state = master.lock();
    state.connections.remove(&id);
    state.server.close(id, Close::Fin);
    state.serve(id);
}

impl Master {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The time on its clock, which runs with Tokio's.
    fn wall(&self) -> Wall {
        let shows = self.birth + self.born.elapsed() + self.ahead;
        u64::try_from(shows.as_nanos()).unwrap_or(u64::MAX)
    }

    /// Takes the complete requests from the bytes that arrived. Returns false if the bytes are not
    /// Redis's protocol.
    fn take(&mut self, id: Id, incoming: &mut Vec<u8>) -> bool {
        let mut used = 0;
        loop {
            match Request::parse(&incoming[used..]) {
                Ok(Some((request, length))) => {
                    self.server.deliver(id, request);
                    used += length;
                }
                Ok(None) => break,
                Err(_) => return false,
            }
        }
        incoming.drain(..used);
        self.serve(id);
        true
    }

    fn serve(&mut self, id: Id) {
        let (wall, mut events) = (self.wall(), Vec::new());
        self.server.serve(wall, id, &mut events);
        self.carry_out(events);
    }

    fn carry_out(&mut self, events: Vec<Event>) {
        for event in events {
            match event {
                // A connection that has just closed gets nothing.
                Event::Message(to, message) => {
                    if let Some(line) = self.connections.get(&to) {
                        let mut bytes = Vec::new();
                        message.encode(&mut bytes);
                        _ = line.outgoing.send(bytes);
                    }
                }
                Event::Dropped(of) => {
                    if let Some(line) = self.connections.remove(&of) {
                        line.serving.abort();
                    }
                }
            }
        }
    }
}
