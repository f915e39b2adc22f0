//! A model of a master: how Redis handles the commands of the library and their connections.
//!
//! The model is pure: it reads no clock, waits for nothing and draws no random numbers. Every call
//! that needs a time gets what the master's wall clock shows. The simulator decides when bytes
//! arrive, when the event loop serves a connection, and when the master looks for expired keys. The
//! model decides the results. `tests/differential` runs the model and a real `redis-server` through
//! random sequences and compares every reply. `docs/evidence.md` lists the known differences.
//!
//! `server/keys.rs` has the keys and the commands on them, `server/wire.rs` the connections,
//! `server/words.rs` the requests and replies. This file has the process and its life.

mod keys;
#[cfg(test)]
mod tests;
mod wire;
mod words;

use std::sync::Arc;

use redquorum_protocol::wire::Command;
use redquorum_protocol::{Key, Reply, RunId, Token};

use crate::scenario::{Ahead, Persistence};
use keys::{Keys, Stored};
use wire::Wires;
pub use wire::{Close, Connection};
pub use words::{Event, Request, ServerReply, Wall};

/// A snapshot of the keys. It lags behind its master from the moment at which it was taken.
#[derive(Clone, Debug)]
pub struct Replica(Stored);

/// A master, which may be down.
#[derive(Clone, Debug)]
pub struct Server {
    seed: u64,
    persistence: Persistence,
    /// Whether the process was a replica and took over.
    promoted: bool,
    up: bool,
    paused: bool,
    /// How often a new process started.
    starts: u64,
    keys: Keys,
    /// The data that survives a power loss, under [`Persistence::AofEverysec`].
    synced: Stored,
    /// The second that the wall clock showed at the latest sync.
    synced_at: u64,
    wires: Wires,
}

impl Server {
    /// Starts an empty master. The seed makes its run ids differ from those of other masters.
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

    /// Opens a connection. The kernel accepts for a paused master, too. `None` if the master is
    /// down.
    pub fn connect(&mut self) -> Option<Connection> {
        self.up.then(|| self.wires.open(!self.paused))
    }

    /// Delivers bytes to the socket's buffer and executes nothing. Bytes for a closed connection
    /// are lost.
    pub fn deliver(&mut self, connection: Connection, request: Request) {
        if let Some(index) = self.wires.index(connection) {
            self.wires.at(index).arrive(request);
        }
    }

    /// The connections with unread data, oldest first: the work of the event loop after
    /// [`resume`](Self::resume).
    pub fn waiting(&self) -> impl Iterator<Item = Connection> + '_ {
        self.wires.waiting()
    }

    /// Serves a connection: executes the requests in its buffer, in order. Does nothing while the
    /// master is paused or down.
    ///
    /// Afterwards, a connection that its client has closed is removed. A connection that was reset
    /// gets no replies, and the master executes no more than [one read](Close::Reset) of its
    /// buffer.
    pub fn serve(&mut self, wall: Wall, connection: Connection, out: &mut Vec<Event>) {
        self.turn(wall, &[connection], out);
    }

    /// Serves all connections on which data had arrived before one turn of the event loop.
    ///
    /// Redis reads a client's close behind the data that had arrived: in the next turn. In this
    /// turn the connection still counts as a subscriber.
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
            // No data precedes the end of the connection, so this turn finds it. A push
            // message from the same turn is not written yet, and never will be.
            out.retain(|said| !matches!(said, Event::Woken(to, ..) if *to == connection));
            return self.wires.remove(index);
        }
        let (closed, mut room) = self.wires.at(index).end();
        while let Some(request) = self.wires.at(index).next(&mut room) {
            let reply = match request {
                Request::Lock(Command::Kill { client_id }) => {
                    // Redis spares the connection that sends the command.
                    if client_id != id && self.wires.kill(client_id, out) {
                        index = self.wires.index(connection).expect("only another was removed");
                    }
                    ServerReply::Reply(Reply::Alive)
                }
                Request::Hello => self.greet(id),
                Request::Lock(Command::Hello) => ServerReply::Reply(Reply::Alive),
                Request::Lock(Command::Subscribe { inbox }) => {
                    self.wires.at(index).subscribe(inbox);
                    ServerReply::Reply(Reply::Alive)
                }
                request => {
                    let mut publish = |waiter| self.wires.publish(waiter, out);
                    self.keys.execute(wall, request, &mut publish)
                }
            };
            if closed != Some(Close::Reset) {
                out.push(Event::ServerReply(connection, reply));
            }
        }
        self.wires.at(index).read();
    }

    fn greet(&mut self, client_id: u64) -> ServerReply {
        match self.keys.load_scripts() {
            Ok(()) => ServerReply::Greeting {
                client_id,
                run_id: self.run_id(),
                boot: self.keys.marker().cloned(),
                durable: self.persistence == Persistence::AofAlways && !self.promoted,
            },
            Err(error) => ServerReply::Error(error),
        }
    }

    /// Closes the client's end of a connection. The master's kernel knows it at once. The master
    /// still executes earlier requests when it serves the connection: see [`Close`].
    pub fn close(&mut self, connection: Connection, how: Close) {
        self.wires.close(connection, how, self.paused);
    }

    /// Whether the model has the connection: neither dropped nor closed and removed.
    pub fn knows(&self, connection: Connection) -> bool {
        self.wires.index(connection).is_some()
    }

    /// `SIGSTOP`: the kernel accepts connections and data, the master executes nothing.
    pub fn pause(&mut self) {
        self.paused = self.up;
    }

    /// `SIGCONT`. The caller serves the [`waiting`](Self::waiting) connections, in any order.
    pub fn resume(&mut self) {
        self.paused = false;
    }

    /// Whether the master is paused.
    pub fn is_paused(&self) -> bool {
        self.paused
    }

    /// Whether the master runs, paused or not.
    pub fn is_up(&self) -> bool {
        self.up
    }

    /// The identity of the process.
    pub fn run_id(&self) -> u64 {
        mixed(self.seed, self.starts)
    }

    /// `SIGKILL`. An append-only file keeps every acknowledged write, which is in the page cache.
    pub fn kill(&mut self, out: &mut Vec<Event>) {
        self.end(out);
        if self.persistence == Persistence::None {
            self.keys.replace(Stored::default());
        }
    }

    /// `SIGTERM`: like [`kill`](Self::kill), but Redis also syncs its file. It does not execute the
    /// requests that wait in the buffers.
    pub fn stop(&mut self, out: &mut Vec<Event>) {
        self.kill(out);
        self.synced = self.keys.stored().clone();
    }

    /// The machine loses power. Of the append-only file, only the synced part remains.
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

    /// Attempts to sync as Redis does by itself, under [`Persistence::AofEverysec`]. Call it after
    /// every command and ten times a second. Returns whether the master synced.
    ///
    /// Redis syncs if there is anything to sync, and only if its wall clock shows a later second
    /// than at the latest sync. It syncs the first write of a second at once, and all later ones
    /// with the next second. It syncs nothing while a clock that was set back catches up. Seen on
    /// 7.0: no sync in six seconds under a clock that was set back an hour, seven syncs otherwise.
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

    /// Starts a new process after a kill, a stop or a power loss, with the data on the disk. Keys
    /// that expired meanwhile, by the wall clock, are gone. A master that runs is left alone.
    pub fn start(&mut self, wall: Wall) {
        if !self.up {
            // The file does not record that the process was a replica.
            self.promoted = false;
            self.begin();
            self.synced_at = wall / 1_000_000_000;
            // The process takes the data on the disk for synced.
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

    /// The active expiry cycle. Ten times a second, Redis looks for expired keys that no command
    /// has touched since.
    pub fn tick(&mut self, wall: Wall) {
        if self.up && !self.paused {
            self.keys.expire(wall);
        }
    }

    /// `FLUSHALL` from outside the lock. Does nothing while the master is paused or down.
    pub fn flush_all(&mut self) {
        if self.up && !self.paused {
            self.keys.flush();
        }
    }

    /// Sets the fencing counter of a lock ahead, from outside the lock. Does nothing while the
    /// master is paused or down.
    pub fn set_counter(&mut self, wall: Wall, key: Key, ahead: Ahead) {
        if self.up && !self.paused {
            self.keys.set_counter(wall, key, ahead);
        }
    }

    /// Evicts this key for lack of memory. Returns whether the key existed.
    pub fn evict(&mut self, key: &Key) -> bool {
        self.up && !self.paused && self.keys.evict(key)
    }

    /// Evicts every key that has a TTL, for lack of memory. All keys that a lock sets have a TTL;
    /// the boot marker of a guarded lock has none. Does nothing while the master is paused or down.
    pub fn evict_all(&mut self) {
        if self.up && !self.paused {
            self.keys.evict_all();
        }
    }

    /// Writes or deletes the boot marker of guarded locks, from outside the lock.
    pub fn mark(&mut self, marker: Option<Arc<str>>) {
        self.keys.set_marker(marker);
    }

    /// While memory is full and no key may be evicted, the master refuses to create keys.
    pub fn set_out_of_memory(&mut self, is: bool) {
        self.keys.out_of_memory = is;
    }

    /// While a master loads its file, it replies to almost every request with an error. A start
    /// does not set this.
    pub fn set_loading(&mut self, is: bool) {
        self.keys.loading = is;
    }

    /// The state of a replica that is up to date at this moment.
    pub fn replicate(&self) -> Replica {
        Replica(self.keys.stored().clone())
    }

    /// Lets the replica take over at the master's address: a new process with the replica's keys.
    /// Requests in the master's buffers are lost.
    pub fn fail_over(&mut self, replica: Replica, out: &mut Vec<Event>) {
        self.end(out);
        self.begin();
        self.promoted = true;
        self.keys.out_of_memory = false;
        self.synced.clone_from(&replica.0);
        self.keys.replace(replica.0);
    }

    /// Like `DBSIZE`: the keys of locks and fencing counters, including expired ones that are not
    /// deleted yet.
    pub fn count(&self) -> usize {
        if self.up { self.keys.stored().len() } else { 0 }
    }

    /// The keys of locks in memory, with their tokens and the last instant at which each exists.
    /// Includes expired keys that no command has touched since.
    pub fn keys(&self) -> impl Iterator<Item = (&Key, Token, Wall)> {
        self.keys.all().filter(|_| self.up)
    }

    /// The keys of the resources that have waiters.
    pub fn queues(&self, wall: Wall) -> impl Iterator<Item = &Key> {
        self.keys.queues(wall).filter(|_| self.up)
    }
}

/// Formats a run id.
pub fn name_of(run_id: u64) -> RunId {
    RunId(Arc::from(format!("{run_id:016x}")))
}

/// The finalizer of splitmix64 over both values: differs for each start of each master.
fn mixed(seed: u64, starts: u64) -> u64 {
    let mut mixed = seed.wrapping_add((starts + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
