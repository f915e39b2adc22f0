//! The process of a server, and its life.

use std::sync::Arc;

use redquorum_protocol::wire::{
    BOOT, Command, GUARD_SCRIPTS, Greeting, SCRIPTS, Script, channel_of, scripts,
};
use redquorum_protocol::{Key, RunId, splitmix64};

use crate::connections::{Close, Connection, Wires};
use crate::keys::{Data, Entry, Error, Execution, FOREVER, Keys, NO_INTEGER, Stored};
use crate::request::number;
use crate::scripts::{integer, script_of};
use crate::{Event, Request, ScriptMutant, ServerReply, Value, Wall};

const LOADING: Error = "LOADING Redis is loading the dataset in memory";
const NO_SCRIPT: Error = "NOSCRIPT No matching script. Please use EVAL.";

/// The number of scripts that a server can have loaded.
const LOADABLE: usize = SCRIPTS.len() + GUARD_SCRIPTS.len();

/// What a master keeps over a restart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "kebab-case")
)]
pub enum Persistence {
    /// Nothing.
    #[default]
    None,
    /// An append-only file that is synced every second: a killed process loses nothing, a power
    /// loss loses the last second.
    AofEverysec,
    /// An append-only file that is synced before every reply.
    AofAlways,
}

/// A snapshot of the keys. It lags behind its server from the moment at which it was taken.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Replica(Stored);

/// A server, which may be down.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
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
    /// Which of the lock's [`scripts`] are loaded.
    scripts: [bool; LOADABLE],
    loading: bool,
}

impl Server {
    /// Starts an empty server. The seed makes its run ids differ from those of other servers.
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
            scripts: [false; LOADABLE],
            loading: false,
        }
    }

    /// Opens a connection. The kernel accepts for a paused server, too. `None` if the server is
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
    /// server is paused or down.
    ///
    /// Afterwards, a connection that its client has closed is removed. A connection that was reset
    /// gets no replies, and the server executes no more than [one read](Close::Reset) of its
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
            let is_push = |event: &Event| matches!(event, Event::Message(to, ServerReply::Woken(_)) if *to == connection);
            out.retain(|event| !is_push(event));
            return self.wires.remove(index);
        }
        let (closed, mut room) = self.wires.at(index).end();
        while let Some(request) = self.wires.at(index).next(&mut room) {
            let reply = match &request {
                Request::Lock(Command::Kill { client_id }) => {
                    // Redis spares the connection that sends the command.
                    let killed = *client_id != id && self.wires.kill(*client_id, out);
                    index = self.wires.index(connection).expect("only another was removed");
                    Ok(Value::Integer(killed.into()))
                }
                Request::Lock(Command::Hello) => {
                    Ok(Value::Map(vec![Value::bulk(b"proto"), Value::Integer(3)]))
                }
                Request::Lock(Command::Subscribe { inbox }) => {
                    let count = self.wires.at(index).subscribe(*inbox);
                    let channel = Value::bulk(channel_of(*inbox));
                    let count = integer(count as u64);
                    Ok(Value::Push(vec![Value::bulk(b"subscribe"), channel, count]))
                }
                Request::Words(words) => {
                    let words: Vec<_> = words.iter().map(Vec::as_slice).collect();
                    self.words(wall, id, &words)
                }
                _ if self.loading => Err(LOADING),
                Request::Hello => {
                    self.scripts = [true; LOADABLE];
                    let greeting = ServerReply::Greeting(self.greeting(id));
                    out.push(Event::Message(connection, greeting));
                    continue;
                }
                Request::Lock(Command::Load(script)) => Ok(self.load(*script)),
                Request::Lock(command)
                    if script_of(command).is_some_and(|at| !self.scripts[at]) =>
                {
                    Err(NO_SCRIPT)
                }
                Request::Lock(command) => self.command(wall, command, None, out),
                Request::Mutant(command, mutant) => self.command(wall, command, Some(*mutant), out),
            };
            if closed != Some(Close::Reset) {
                let reply = ServerReply::Value(reply.unwrap_or_else(Value::from));
                out.push(Event::Message(connection, reply));
            }
        }
        self.wires.at(index).read();
    }

    fn command(
        &mut self,
        wall: Wall,
        command: &Command,
        mutant: Option<ScriptMutant>,
        out: &mut Vec<Event>,
    ) -> Result<Value, Error> {
        let mut publish = |waiter| self.wires.publish(waiter, out);
        Execution::new(&mut self.keys, wall, &mut publish).command(command, mutant)
    }

    fn load(&mut self, script: Script) -> Value {
        if let Some(place) = scripts(true).position(|known| known == script) {
            self.scripts[place] = true;
        }
        Value::bulk(script.sha1)
    }

    /// Executes a command that is no command of the lock.
    fn words(&mut self, wall: Wall, client_id: u64, words: &[&[u8]]) -> Result<Value, Error> {
        if let Some(reply) = about(words, || self.greeting(client_id)) {
            return Ok(reply);
        }
        match words {
            [b"TIME"] => {
                let parts = [wall / 1_000_000_000, wall / 1000 % 1_000_000];
                return Ok(Value::Array(parts.map(|part| Value::bulk(part.to_string())).into()));
            }
            _ if self.loading => return Err(LOADING),
            [b"SCRIPT", b"FLUSH"] => {
                self.scripts = [false; LOADABLE];
                return Ok(Value::OK);
            }
            [b"FLUSHALL"] if !self.keys.is_replica => {
                self.keys.replace(Stored::default());
                return Ok(Value::OK);
            }
            [b"DBSIZE"] => return Ok(integer(self.count() as u64)),
            _ => {}
        }
        let mut publish = |_| false;
        let mut execution = Execution::new(&mut self.keys, wall, &mut publish);
        match words {
            [b"GET", key] => Ok(execution.get(key)?.map_or(Value::Null, Value::Bulk)),
            [b"GETRANGE", key, b"0", last] => {
                let value = execution.get(key)?.unwrap_or_default();
                let last = number(last).ok_or(NO_INTEGER)?;
                let end = usize::try_from(last).unwrap_or(usize::MAX).saturating_add(1);
                Ok(Value::bulk(&value[..end.min(value.len())]))
            }
            [b"PTTL", key] => Ok(Value::Integer(execution.pttl(key))),
            [b"DEL", key] => Ok(Value::Integer(execution.del(key)?.into())),
            [b"PEXPIRE", key, ttl_ms] => {
                let ttl_ms = number(ttl_ms).ok_or(NO_INTEGER)?;
                Ok(Value::Integer(execution.pexpire(key, ttl_ms)?.into()))
            }
            _ => Err("ERR unknown command, or one that the model of Redis does not have"),
        }
    }

    fn greeting(&self, client_id: u64) -> Greeting {
        let boot = self.keys.stored.get(BOOT).and_then(|entry| entry.data.text());
        let boot = boot.and_then(|text| str::from_utf8(text).ok()).map(Arc::from);
        Greeting {
            client_id: Some(client_id),
            run_id: Some(self.run_id()),
            boot,
            durable: self.persistence == Persistence::AofAlways && !self.promoted,
        }
    }

    /// Closes the client's end of a connection. The server's kernel knows it at once. The server
    /// still executes earlier requests when it serves the connection: see [`Close`].
    pub fn close(&mut self, connection: Connection, how: Close) {
        self.wires.close(connection, how, self.paused);
    }

    /// Whether the model has the connection: neither dropped nor closed and removed.
    pub fn has_connection(&self, connection: Connection) -> bool {
        self.wires.index(connection).is_some()
    }

    /// `SIGSTOP`: the kernel accepts connections and data, the server executes nothing.
    pub fn pause(&mut self) {
        self.paused = self.up;
    }

    /// `SIGCONT`. The caller serves the [`waiting`](Self::waiting) connections, in any order.
    pub fn resume(&mut self) {
        self.paused = false;
    }

    /// Whether the server is paused.
    pub fn is_paused(&self) -> bool {
        self.paused
    }

    /// Whether the server runs, paused or not.
    pub fn is_up(&self) -> bool {
        self.up
    }

    /// The identity of the process, which differs for each start of each server.
    pub fn run_id(&self) -> RunId {
        let start = self.starts.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let number = splitmix64(&mut self.seed.wrapping_add(start));
        RunId(Arc::from(format!("{number:016x}")))
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
        self.synced = self.keys.stored.clone();
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
        self.drop_connections(out);
    }

    /// Drops all connections, with the requests in their buffers.
    pub fn drop_connections(&mut self, out: &mut Vec<Event>) {
        self.wires.drop_all(out);
    }

    /// Attempts to sync as Redis does by itself, under [`Persistence::AofEverysec`]. Call it after
    /// every command and ten times a second. Returns whether the server synced.
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
            && std::mem::take(&mut self.keys.changed);
        if syncs {
            self.synced_at = second;
            self.synced.clone_from(&self.keys.stored);
        }
        syncs
    }

    /// Starts a new process after a kill, a stop or a power loss, with the data on the disk. Keys
    /// that expired meanwhile, by the wall clock, are gone. A server that runs is left alone.
    pub fn start(&mut self, wall: Wall) {
        if !self.up {
            // The file does not record that the process was a replica.
            self.promoted = false;
            self.begin();
            self.synced_at = wall / 1_000_000_000;
            // The process takes the data on the disk for synced.
            self.keys.changed = false;
            self.tick(wall);
        }
    }

    fn begin(&mut self) {
        (self.up, self.paused) = (true, false);
        self.starts += 1;
        self.scripts = [false; LOADABLE];
        // No file records `REPLICAOF`.
        self.keys.is_replica = false;
        self.wires.restart();
    }

    /// The active expiry cycle. Ten times a second, Redis looks for expired keys that no command
    /// has touched since. A replica waits for its master to delete them.
    pub fn tick(&mut self, wall: Wall) {
        if self.up && !self.paused && !self.keys.is_replica {
            let now = wall / 1_000_000;
            self.keys.retain(|_, entry| now <= entry.last);
        }
    }

    /// `FLUSHALL` from outside the lock.
    pub fn flush_all(&mut self) {
        self.keys.replace(Stored::default());
    }

    /// Evicts this key for lack of memory. Returns whether the key existed.
    pub fn evict(&mut self, key: &[u8]) -> bool {
        let was = self.up && !self.paused && self.keys.stored.remove(key).is_some();
        self.keys.changed |= was;
        was
    }

    /// Evicts every key that has a TTL, for lack of memory. All keys that a lock sets have a TTL;
    /// the boot marker of a guarded lock has none.
    pub fn evict_all(&mut self) {
        self.keys.retain(|_, entry| entry.last == FOREVER);
        self.keys.changed = true;
    }

    /// Sets a key from outside the lock, with a TTL in milliseconds if there is one. A TTL of zero
    /// deletes the key.
    pub fn set(&mut self, wall: Wall, key: &[u8], value: &[u8], ttl_ms: Option<u64>) {
        if ttl_ms == Some(0) {
            self.keys.stored.remove(key);
            self.keys.changed = true;
            return;
        }
        let last = ttl_ms.map_or(FOREVER, |ttl_ms| (wall / 1_000_000).saturating_add(ttl_ms));
        let entry = Entry { data: Data::Text(Key::from(value)), last };
        self.keys.stored.insert(Key::from(key), entry);
        self.keys.changed = true;
    }

    /// The value of a key, if the key exists and is no sorted set.
    pub fn value(&self, wall: Wall, key: &[u8]) -> Option<&Key> {
        let entry = self.keys.stored.get(key).filter(|entry| wall / 1_000_000 <= entry.last)?;
        entry.data.text()
    }

    /// The members of a key with their scores, if it is a sorted set in memory.
    pub fn members(&self, key: &[u8]) -> impl Iterator<Item = (&Key, u64)> {
        let scores = self.keys.stored.get(key).and_then(|entry| match &entry.data {
            Data::Scores(scores) => Some(scores),
            Data::Text(_) => None,
        });
        scores.into_iter().flatten().map(|(member, score)| (member, *score))
    }

    /// While memory is full and no key may be evicted, the server refuses to create keys.
    pub fn set_out_of_memory(&mut self, is: bool) {
        self.keys.out_of_memory = is;
    }

    /// `REPLICAOF` with the address of a server that does not answer: the server keeps its keys and
    /// refuses every write. A restart ends this, too.
    pub fn demote(&mut self) {
        self.keys.is_replica = self.up;
    }

    /// Whether the server is [demoted](Self::demote).
    pub fn is_replica(&self) -> bool {
        self.keys.is_replica
    }

    /// `REPLICAOF NO ONE`. Does nothing on a master.
    pub fn promote(&mut self) {
        self.promoted |= std::mem::take(&mut self.keys.is_replica);
    }

    /// While a server loads its file, it replies to almost every request with an error. A start
    /// does not set this.
    pub fn set_loading(&mut self, is: bool) {
        self.loading = is;
    }

    /// The state of a replica that is up to date at this moment.
    pub fn replicate(&self) -> Replica {
        Replica(self.keys.stored.clone())
    }

    /// Lets the replica take over at the server's address: a new process with the replica's keys.
    /// Requests in the server's buffers are lost.
    pub fn fail_over(&mut self, replica: Replica, out: &mut Vec<Event>) {
        self.end(out);
        self.begin();
        self.promoted = true;
        self.keys.out_of_memory = false;
        self.synced.clone_from(&replica.0);
        self.keys.replace(replica.0);
    }

    /// Like `DBSIZE`: the number of keys, including expired ones that are not deleted yet.
    pub fn count(&self) -> usize {
        self.keys().count()
    }

    /// The keys in memory, in order, with their values and the last instant at which each exists.
    /// Includes expired keys that no command has touched since. A sorted set has no value.
    pub fn keys(&self) -> impl Iterator<Item = (&Key, Option<&Key>, Wall)> {
        self.keys.stored.iter().filter(|_| self.up).map(|(key, entry)| {
            // To the end of that millisecond.
            (key, entry.data.text(), entry.last.saturating_add(1).saturating_mul(1_000_000) - 1)
        })
    }
}

/// The reply to a command of a link's handshake, from a server that greets like this. `None` for
/// any other request.
pub fn greet(request: &Request, greeting: &Greeting) -> Option<Value> {
    match request {
        Request::Lock(Command::Load(script)) => Some(Value::bulk(script.sha1)),
        Request::Words(words) => match &*words.iter().map(Vec::as_slice).collect::<Vec<_>>() {
            [b"GETRANGE", BOOT, ..] => {
                Some(Value::bulk(greeting.boot.as_deref().unwrap_or_default()))
            }
            words => about(words, || greeting.clone()),
        },
        _ => None,
    }
}

/// The reply to a question about the server or the connection.
fn about(words: &[&[u8]], greeting: impl FnOnce() -> Greeting) -> Option<Value> {
    Some(match words {
        [b"CLIENT", b"ID"] => integer(greeting().client_id?),
        [b"CLIENT", b"SETNAME", _] | [b"CLIENT", b"SETINFO", _, _] => Value::OK,
        [b"INFO", b"server"] => Value::bulk(format!("run_id:{}\r\n", greeting().run_id?.0)),
        [b"INFO", b"replication"] => Value::bulk("master_replid2:0000\r\n"),
        [b"CONFIG", b"GET", _] => {
            let appends = if greeting().durable { "yes" } else { "no" };
            let settings =
                ["appendonly", appends, "appendfsync", "always", "no-appendfsync-on-rewrite", "no"];
            Value::Array(settings.map(Value::bulk).into())
        }
        _ => return None,
    })
}
