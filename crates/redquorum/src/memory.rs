//! Masters that live in the process, for tests of code that locks.
//!
//! They speak Redis's protocol as far as a lock does, over pipes in memory, and take the time
//! from Tokio: under [paused time](https://docs.rs/tokio/latest/tokio/time/fn.pause.html) a
//! lease of ten seconds expires at once when nothing else is to be done. They can be stopped,
//! killed and made to forget, so that a test can show what its code does then.
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

/// Bytes that fit into a connection's pipe before its writer has to wait.
const PIPE: usize = 64 * 1024;

/// A set of masters in memory. They are counted from 1. Clones are the same masters.
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
    /// Who waits for each resource, in order.
    queues: HashMap<Vec<u8>, WaitQueue>,
    connections: HashMap<u64, Line>,
    /// Who listens to each channel, for longest first, in which order they are told.
    channels: HashMap<Vec<u8>, Vec<u64>>,
    last_id: u64,
    restarts: u64,
    dead: bool,
    /// By how much its clock was set ahead.
    ahead: Duration,
}

/// A connection, and what is said on it unasked.
struct Line {
    serving: AbortHandle,
    unasked: mpsc::UnboundedSender<Vec<u8>>,
}

struct Entry {
    value: Vec<u8>,
    expires: Option<Instant>,
}

impl Masters {
    /// `count` masters, running and empty.
    pub fn new(count: usize) -> Self {
        let born = Instant::now();
        let master = |number| {
            let (state, stopped) = (Mutex::default(), watch::Sender::new(false));
            Arc::new(Master { number, born, state, stopped })
        };
        Self((1..=count).map(master).collect())
    }

    /// The description of a lock over these masters, under Tokio's clock.
    pub fn builder(&self) -> Builder {
        let add = |builder: Builder, master: &Arc<Master>| builder.node(Pipe(master.clone()));
        self.0.iter().fold(Redlock::builder().tokio_clock_for_tests(), add)
    }

    /// One of these masters, for a node of your own that does something besides, such as counting.
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

    /// Stops a master, as `SIGSTOP` does: it takes commands and answers none, until it is
    /// [resumed](Masters::resume).
    pub fn stop(&self, number: usize) {
        self.master(number).stopped.send_replace(true);
    }

    /// Lets a stopped master go on: it executes and answers what it got meanwhile.
    pub fn resume(&self, number: usize) {
        self.master(number).stopped.send_replace(false);
    }

    /// Kills a master, or cuts it off: its connections break, and no new ones come up until it is
    /// [restarted](Masters::restart) or [revived](Masters::revive).
    pub fn kill(&self, number: usize) {
        let mut state = self.master(number).lock();
        state.dead = true;
        state.connections.drain().for_each(|(_, line)| line.serving.abort());
        state.channels.clear();
    }

    /// Starts a killed master again, without its memory: Redis without persistence.
    pub fn restart(&self, number: usize) {
        self.kill(number);
        let mut state = self.master(number).lock();
        state.forget();
        state.restarts += 1;
        state.dead = false;
        // It is another process now, which nobody has stopped.
        self.master(number).stopped.send_replace(false);
    }

    /// Brings a killed master back with its memory: a network that was cut, or Redis with
    /// `appendfsync always`.
    pub fn revive(&self, number: usize) {
        self.master(number).lock().dead = false;
    }

    /// Makes a master forget all keys: `FLUSHALL`.
    pub fn forget(&self, number: usize) {
        self.master(number).lock().forget();
    }

    /// Sets a master's clock ahead, at once: its keys expire so much earlier.
    pub fn step_clock(&self, number: usize, by: Duration) {
        let mut state = self.master(number).lock();
        state.ahead += by;
        let now = Instant::now();
        for expires in state.keys.values_mut().filter_map(|entry| entry.expires.as_mut()) {
            *expires = expires.checked_sub(by).unwrap_or(now).max(now);
        }
    }

    /// The value of a key on one master, if it is there.
    pub fn value(&self, number: usize, key: impl AsRef<[u8]>) -> Option<Vec<u8>> {
        Some(self.master(number).lock().live(key.as_ref())?.value.clone())
    }

    /// Sets a key on one master, whoever holds it: without a TTL it stays.
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

/// Serves one connection until it breaks or is aborted.
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
            // A stopped master is stopped between two commands as well as between two reads.
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

/// What the clocks of masters in memory show as they are made, in seconds: none began with 1970.
const BIRTH: Duration = Duration::from_secs(1_700_000_000);

impl Master {
    /// Its clock, which goes as Tokio's does.
    fn micros(&self, state: &State) -> i64 {
        let shows = BIRTH + self.born.elapsed() + state.ahead;
        i64::try_from(shows.as_micros()).unwrap_or(i64::MAX)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
