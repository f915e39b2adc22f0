//! A master: what Redis does with the commands of the library, and with the connections on which
//! they come.
//!
//! Pure: it reads no clock (every call that needs one is told what the master's wall clock shows),
//! waits for nothing and draws nothing by lot. The simulator decides when bytes arrive, when the
//! event loop gets to a connection and when expired keys are looked for; this decides what comes
//! of it. `tests/differential` runs both this and a real `redis-server` through random sequences
//! and compares every reply; what is known to differ is listed in `docs/safety.md`.
//!
//! `server/keys.rs` has the keys and the commands on them, `server/wire.rs` the connections,
//! `server/words.rs` what is said; here are the process and its life.

mod keys;
#[cfg(test)]
mod tests;
mod wire;
mod words;

use std::sync::Arc;

use redquorum_protocol::wire::Command;
use redquorum_protocol::{Answer, Key, RunId, Token};

use crate::scenario::{Ahead, Persistence};
use keys::{Keys, Stored};
use wire::Wires;
pub use wire::{Close, Connection};
pub use words::{Event, Reply, Request, Wall};

/// A snapshot of the keys, which lags behind its master from the moment at which it was taken.
#[derive(Clone, Debug)]
pub struct Replica(Stored);

/// A master, or where one could be: it may be down.
#[derive(Clone, Debug)]
pub struct Server {
    seed: u64,
    persistence: Persistence,
    /// It was a replica, and took over.
    promoted: bool,
    up: bool,
    paused: bool,
    /// How often another process took over.
    starts: u64,
    keys: Keys,
    /// What a power loss leaves, under [`Persistence::AofEverysec`].
    synced: Stored,
    /// The second of the wall clock of the latest sync.
    synced_at: u64,
    wires: Wires,
}

impl Server {
    /// A master that runs and is empty. The seed makes its run ids others than another master's.
    pub fn new(seed_of_run_id: u64, persistence: Persistence) -> Self {
        Self {
            seed: seed_of_run_id,
            persistence,
            promoted: false,
            up: true,
            paused: false,
            starts: 0,
            keys: Keys::default(),
            synced: Stored::default(),
            synced_at: 0,
            wires: Wires::default(),
        }
    }

    /// A client connects. The kernel accepts for a paused master too. `None`: refused, it is down.
    pub fn connect(&mut self) -> Option<Connection> {
        self.up.then(|| self.wires.open(!self.paused))
    }

    /// Bytes have arrived in the socket's buffer; nothing is executed yet. What arrives on a
    /// connection that is no more is lost.
    pub fn deliver(&mut self, connection: Connection, request: Request) {
        if let Some(index) = self.wires.index(connection) {
            self.wires.at(index).arrive(request);
        }
    }

    /// The connections on which something waits to be read, oldest first: what the event loop has to
    /// do after [`resume`](Self::resume).
    pub fn waiting(&self) -> impl Iterator<Item = Connection> + '_ {
        self.wires.waiting()
    }

    /// The event loop gets to a connection, and executes what is in its buffer, in order. Nothing
    /// while it is paused or down.
    ///
    /// A connection that its client has closed is forgotten after that; one that was reset gets no
    /// replies, and no more than [one read](Close::Reset) of its buffer is executed.
    pub fn serve(&mut self, wall: Wall, connection: Connection, out: &mut Vec<Event>) {
        self.turn(wall, &[connection], out);
    }

    /// The same for all connections on which something had arrived before one turn of the event loop.
    ///
    /// That a client has closed its end, Redis reads behind what had arrived: in the next turn, and in
    /// this one it still counts as one who listens.
    pub fn turn(&mut self, wall: Wall, connections: &[Connection], out: &mut Vec<Event>) {
        if !self.up || self.paused {
            return;
        }
        for connection in connections {
            self.execute(wall, *connection, out);
        }
        for connection in connections {
            self.wires.forget(*connection);
        }
    }

    fn execute(&mut self, wall: Wall, connection: Connection, out: &mut Vec<Event>) {
        let Some(mut index) = self.wires.index(connection) else { return };
        let id = self.wires.accept(index);
        if self.wires.at(index).is_ended() {
            // Nothing stands before its end, and so this turn finds it. What was said to it in the same turn
            // is still to be written, and never is.
            out.retain(|said| !matches!(said, Event::Woken(to, ..) if *to == connection));
            return self.wires.remove(index);
        }
        let (closed, mut room) = self.wires.at(index).end();
        while let Some(request) = self.wires.at(index).next(&mut room) {
            let reply = match request {
                Request::Lock(Command::Kill { client_id }) => {
                    // Redis spares the one who asks.
                    if client_id != id && self.wires.kill(client_id, out) {
                        index = self.wires.index(connection).expect("only another was removed");
                    }
                    Reply::Answer(Answer::Alive)
                }
                Request::Hello => self.greet(id),
                Request::Lock(Command::Hello) => Reply::Answer(Answer::Alive),
                Request::Lock(Command::Subscribe { inbox }) => {
                    self.wires.at(index).subscribe(inbox);
                    Reply::Answer(Answer::Alive)
                }
                request => {
                    let mut publish = |waiter| self.wires.publish(waiter, out);
                    self.keys.execute(wall, request, &mut publish)
                }
            };
            if closed != Some(Close::Reset) {
                out.push(Event::Reply(connection, reply));
            }
        }
        self.wires.at(index).read();
    }

    fn greet(&mut self, client_id: u64) -> Reply {
        match self.keys.load_scripts() {
            Ok(()) => Reply::Greeting {
                client_id,
                run_id: self.run_id(),
                boot: self.keys.marker().cloned(),
                durable: self.persistence == Persistence::AofAlways && !self.promoted,
            },
            Err(error) => Reply::Error(error),
        }
    }

    /// The client's end of a connection is closed, and the master's kernel knows it. What had
    /// arrived before is still executed when the connection is served: see [`Close`].
    pub fn close(&mut self, connection: Connection, how: Close) {
        self.wires.close(connection, how, self.paused);
    }

    /// Whether the connection is known here: neither dropped nor closed and forgotten.
    pub fn knows(&self, connection: Connection) -> bool {
        self.wires.index(connection).is_some()
    }

    /// `SIGSTOP`: connections and data are taken, nothing is executed.
    pub fn pause(&mut self) {
        self.paused = self.up;
    }

    /// `SIGCONT`. The caller serves what is [`waiting`](Self::waiting), in any order.
    pub fn resume(&mut self) {
        self.paused = false;
    }

    /// Whether it is paused.
    pub fn is_paused(&self) -> bool {
        self.paused
    }

    /// Whether it runs, paused or not.
    pub fn is_up(&self) -> bool {
        self.up
    }

    /// The identity of the process.
    pub fn run_id(&self) -> u64 {
        mixed(self.seed, self.starts)
    }

    /// `SIGKILL`. An append-only file keeps all that was answered: it is in the page cache.
    pub fn kill(&mut self, out: &mut Vec<Event>) {
        self.end(out);
        if self.persistence == Persistence::None {
            self.keys.replace(Stored::default());
        }
    }

    /// `SIGTERM`: as [`kill`](Self::kill), and what it has on disk is synced. What waits in the
    /// buffers is not executed.
    pub fn stop(&mut self, out: &mut Vec<Event>) {
        self.kill(out);
        self.synced = self.keys.stored().clone();
    }

    /// The machine loses power: of the append-only file is left what was synced.
    pub fn power_loss(&mut self, out: &mut Vec<Event>) {
        self.kill(out);
        if self.persistence == Persistence::AofEverysec {
            self.keys.replace(self.synced.clone());
        }
    }

    fn end(&mut self, out: &mut Vec<Event>) {
        (self.up, self.paused) = (false, false);
        self.wires.drop_all(out);
    }

    /// Under [`Persistence::AofEverysec`], Redis's own attempt to sync; to be called after every
    /// command and ten times a second. It syncs if there is anything to sync, and only if its wall
    /// clock shows a later second than at the latest sync: what is written first in a second is synced
    /// at once, and all that follows with the next second. While a clock that was set back catches up,
    /// nothing is. Seen on 7.0: no sync in six seconds under a clock that was set back an hour, seven
    /// otherwise. Returns whether it synced.
    pub fn fsync(&mut self, wall: Wall) -> bool {
        let second = wall / 1_000_000_000;
        let syncs = self.persistence == Persistence::AofEverysec
            && self.up
            && !self.paused
            && second > self.synced_at
            && self.keys.take_changed();
        if syncs {
            self.synced_at = second;
            self.synced.clone_from(self.keys.stored());
        }
        syncs
    }

    /// Another process starts where one was killed, stopped or lost its power, with what is on the
    /// disk. What expired meanwhile, by the wall clock, is gone. One that runs goes on.
    pub fn start(&mut self, wall: Wall) {
        if !self.up {
            // Its file does not say that it was a replica.
            self.promoted = false;
            self.begin();
            self.synced_at = wall / 1_000_000_000;
            // What it finds on the disk it takes for synced.
            self.keys.take_changed();
            self.tick(wall);
        }
    }

    fn begin(&mut self) {
        (self.up, self.paused) = (true, false);
        self.starts += 1;
        self.keys.forget_scripts();
        self.wires.restart();
    }

    /// The active expiry cycle: Redis looks ten times a second for keys that have expired and were
    /// not touched since.
    pub fn tick(&mut self, wall: Wall) {
        if self.up && !self.paused {
            self.keys.expire(wall);
        }
    }

    /// Somebody runs `FLUSHALL`. Nothing while it is paused or down.
    pub fn flush_all(&mut self) {
        if self.up && !self.paused {
            self.keys.flush();
        }
    }

    /// Somebody sets the fencing counter of a lock, ahead of where it is. Nothing while it is paused or
    /// down.
    pub fn set_counter(&mut self, wall: Wall, key: Key, ahead: Ahead) {
        if self.up && !self.paused {
            self.keys.set_counter(wall, key, ahead);
        }
    }

    /// Memory is short, and Redis evicts this key. Returns whether it was there.
    pub fn evict(&mut self, key: &Key) -> bool {
        self.up && !self.paused && self.keys.evict(key)
    }

    /// Memory is so short that Redis evicts every key that has a TTL, which all have that a lock
    /// sets; the marker of a guarded lock has none. Nothing while it is paused or down.
    pub fn evict_all(&mut self) {
        if self.up && !self.paused {
            self.keys.evict_all();
        }
    }

    /// Somebody writes, or deletes, the marker of guarded locks.
    pub fn mark(&mut self, marker: Option<Arc<str>>) {
        self.keys.set_marker(marker);
    }

    /// While memory is short and nothing may be evicted, every creation of a key is refused.
    pub fn set_out_of_memory(&mut self, is: bool) {
        self.keys.out_of_memory = is;
    }

    /// While it loads its file it answers, but to next to nothing. A start does not set this.
    pub fn set_loading(&mut self, is: bool) {
        self.keys.loading = is;
    }

    /// What a replica has that is up to date at this moment.
    pub fn replicate(&self) -> Replica {
        Replica(self.keys.stored().clone())
    }

    /// The replica takes the master's place, under its address: another process, with the keys
    /// that it had. What the master had in its buffers is lost.
    pub fn fail_over(&mut self, replica: Replica, out: &mut Vec<Event>) {
        self.end(out);
        self.begin();
        self.promoted = true;
        self.keys.out_of_memory = false;
        self.synced.clone_from(&replica.0);
        self.keys.replace(replica.0);
    }

    /// As `DBSIZE`: keys of locks and fencing counters, those included that have expired unseen.
    pub fn count(&self) -> usize {
        if self.up { self.keys.stored().len() } else { 0 }
    }

    /// The keys of locks in memory with their tokens and the last instant at which they are still there;
    /// with those that have expired and were not looked at since.
    pub fn keys(&self) -> impl Iterator<Item = (&Key, Token, Wall)> {
        self.keys.all().filter(|_| self.up)
    }

    /// The keys of the resources that have waiters.
    pub fn queues(&self, wall: Wall) -> impl Iterator<Item = &Key> {
        self.keys.queues(wall).filter(|_| self.up)
    }
}

/// How a run id is written.
pub fn name_of(run_id: u64) -> RunId {
    RunId(Arc::from(format!("{run_id:016x}")))
}

/// The finalizer of splitmix64 over both: different for each start of each master.
fn mixed(seed: u64, starts: u64) -> u64 {
    let mut mixed = seed.wrapping_add((starts + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
