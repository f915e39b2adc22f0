//! Masters that live in the process, for tests of code that uses locks.
//!
//! They implement as much of Redis's protocol as a lock uses, over pipes in memory. They take the
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

use redquorum_protocol::wire::{Frame, WaitQueue, parse};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::builder::Builder;
use crate::node::{Connecting, Connection, Node};
use crate::redlock::Redlock;

mod commands;
pub(crate) mod repeatable;

pub use repeatable::Repeatable;

/// The size of a connection's pipe in bytes: its writer waits while the pipe is full.
const PIPE: usize = 64 * 1024;

/// A set of masters in memory. They are counted from 1. Clones share the same masters.
#[derive(Clone)]
pub struct Masters(Vec<Arc<Master>>);

struct Master {
    number: usize,
    born: Instant,
    state: Mutex<State>,
    stopped: watch::Sender<bool>,
}

#[derive(Default)]
struct State {
    keys: HashMap<Vec<u8>, Entry>,
    /// The waiters for each resource, in order.
    queues: HashMap<Vec<u8>, WaitQueue>,
    connections: HashMap<u64, Line>,
    /// The subscribers of each channel, in the order of their subscriptions. They are notified in
    /// this order.
    channels: HashMap<Vec<u8>, Vec<u64>>,
    last_id: u64,
    restarts: u64,
    dead: bool,
    /// How far its clock was set ahead.
    ahead: Duration,
}

/// A connection, and the sender for push messages on it.
struct Line {
    serving: AbortHandle,
    unasked: mpsc::UnboundedSender<Vec<u8>>,
}

struct Entry {
    value: Vec<u8>,
    expires: Option<Instant>,
}

impl Masters {
    /// Makes `count` masters, running and empty.
    pub fn new(count: usize) -> Self {
        let born = Instant::now();
        let master = |number| {
            let (state, stopped) = (Mutex::default(), watch::Sender::new(false));
            Arc::new(Master { number, born, state, stopped })
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

    /// Stops a master, as `SIGSTOP` does: it receives commands and answers none, until it is
    /// [resumed](Masters::resume).
    pub fn stop(&self, number: usize) {
        self.master(number).stopped.send_replace(true);
    }

    /// Resumes a stopped master: it executes and answers the commands that it received meanwhile.
    pub fn resume(&self, number: usize) {
        self.master(number).stopped.send_replace(false);
    }

    /// Kills a master, or cuts it off. Its connections break, and no new ones come up until it is
    /// [restarted](Masters::restart) or [revived](Masters::revive).
    pub fn kill(&self, number: usize) {
        let mut state = self.master(number).lock();
        state.dead = true;
        state.connections.drain().for_each(|(_, line)| line.serving.abort());
        state.channels.clear();
    }

    /// Starts a killed master again without its data, like Redis without persistence.
    pub fn restart(&self, number: usize) {
        self.kill(number);
        let mut state = self.master(number).lock();
        state.forget();
        state.restarts += 1;
        state.dead = false;
        // A restarted master is a new process, which is not stopped.
        self.master(number).stopped.send_replace(false);
    }

    /// Brings a killed master back with its data, like a network that was cut, or Redis with
    /// `appendfsync always`.
    pub fn revive(&self, number: usize) {
        self.master(number).lock().dead = false;
    }

    /// Makes a master forget all keys, like `FLUSHALL`.
    pub fn forget(&self, number: usize) {
        self.master(number).lock().forget();
    }

    /// Sets a master's clock ahead, at once: its keys expire that much earlier.
    pub fn step_clock(&self, number: usize, by: Duration) {
        let mut state = self.master(number).lock();
        state.ahead += by;
        let now = Instant::now();
        for expires in state.keys.values_mut().filter_map(|entry| entry.expires.as_mut()) {
            *expires = expires.checked_sub(by).unwrap_or(now).max(now);
        }
    }

    /// The value of a key on one master, if the key exists.
    pub fn value(&self, number: usize, key: impl AsRef<[u8]>) -> Option<Vec<u8>> {
        Some(self.master(number).lock().live(key.as_ref())?.value.clone())
    }

    /// Sets a key on one master, even if a client holds it. Without a TTL it stays.
    pub fn set(
        &self,
        number: usize,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: Option<Duration>,
    ) {
        let expires = ttl.map(|ttl| Instant::now() + ttl);
        let entry = Entry { value: value.as_ref().to_vec(), expires };
        self.master(number).lock().keys.insert(key.as_ref().to_vec(), entry);
    }

    /// The keys on one master.
    pub fn keys(&self, number: usize) -> Vec<Vec<u8>> {
        let mut state = self.master(number).lock();
        state.keys.retain(|_, entry| entry.is_live());
        state.keys.keys().cloned().collect()
    }
}

impl fmt::Debug for Masters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Masters({} in memory)", self.0.len())
    }
}

/// The address of a master in memory.
struct Pipe(Arc<Master>);

impl Node for Pipe {
    fn name(&self) -> String {
        format!("memory-{}", self.0.number)
    }

    fn connect(&self) -> Connecting<'_> {
        Box::pin(async {
            let mut state = self.0.lock();
            if state.dead {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            let (ours, theirs) = duplex(PIPE);
            state.last_id += 1;
            let id = state.last_id;
            let (unasked, inbox) = mpsc::unbounded_channel();
            let serving = tokio::spawn(serve(self.0.clone(), id, theirs, inbox)).abort_handle();
            state.connections.insert(id, Line { serving, unasked });
            Ok(Box::new(ours) as Box<dyn Connection>)
        })
    }
}

/// Serves one connection until it breaks or the task is aborted.
async fn serve(
    master: Arc<Master>,
    id: u64,
    mut pipe: DuplexStream,
    mut unasked: mpsc::UnboundedReceiver<Vec<u8>>,
) {
    let (mut incoming, mut outgoing) = (Vec::new(), Vec::new());
    let mut stopped = master.stopped.subscribe();
    loop {
        tokio::select! {
            read = pipe.read_buf(&mut incoming) => match read {
                Ok(1..) => {}
                _ => break,
            },
            Some(message) = unasked.recv() => match pipe.write_all(&message).await {
                Ok(()) => continue,
                Err(_) => break,
            },
        }
        let mut used = 0;
        loop {
            // A master also stops between two commands, not only between two reads.
            if stopped.wait_for(|stopped| !stopped).await.is_err() {
                return;
            }
            match parse(&incoming[used..], usize::MAX) {
                Ok(None) => break,
                Ok(Some((Frame::Array(args), length))) => {
                    master.execute(id, &args, &mut outgoing);
                    used += length;
                }
                _ => return,
            }
        }
        incoming.drain(..used);
        if pipe.write_all(&outgoing).await.is_err() {
            break;
        }
        outgoing.clear();
    }
    master.lock().hang_up(id);
}

/// The time that the clocks of masters in memory show at first, in seconds since 1970. A real clock
/// is never near zero.
const BIRTH: Duration = Duration::from_secs(1_700_000_000);

impl Master {
    /// The time on its clock, which runs with Tokio's.
    fn micros(&self, state: &State) -> i64 {
        let shows = BIRTH + self.born.elapsed() + state.ahead;
        i64::try_from(shows.as_micros()).unwrap_or(i64::MAX)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
