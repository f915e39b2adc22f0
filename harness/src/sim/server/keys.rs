//! The keys of a master, and the commands on them.

use std::collections::BTreeMap;
use std::sync::Arc;

use redquorum_protocol::wire::{Command, Markers, Script, WaitQueue, scripts};
use redquorum_protocol::{
    Cause, Fence, Holder, Key, MAX_NUMBER, Position, Reply, Token, Waiter, WakeUp,
};

use super::{Request, ServerReply, Wall};
use crate::client_protocol::FENCING_MEMORY;
use crate::mutants::ScriptMutant;
use crate::scenario::Ahead;

/// A value, and the last millisecond of the wall clock at which the key exists.
type Entry = (Token, u64);

/// The data that a file or a replica keeps.
#[derive(Clone, Debug, Default)]
pub(super) struct Stored {
    locks: BTreeMap<Key, Entry>,
    /// The fencing counters by the keys of their locks, each with the last millisecond of its life.
    counters: BTreeMap<Key, (u64, u64)>,
    /// The boot marker by which guarded locks recognize a master, and what belongs to it.
    markers: Markers,
    /// The waiters for each resource, in order.
    queues: BTreeMap<Key, WaitQueue>,
}

/// The number of scripts that a master can have loaded.
const SCRIPTS: usize = 7;

impl Stored {
    pub(super) fn len(&self) -> usize {
        // A queue is two sorted sets.
        let queues: usize = self.queues.values().map(WaitQueue::keys).sum();
        self.locks.len() + self.counters.len() + self.markers.len() + queues
    }
}

/// Publishes to the connections that subscribe to a waiter. Returns whether there are any.
pub(super) type Publish<'a> = &'a mut dyn FnMut(Waiter) -> bool;

const NANOS_PER_MS: u64 = 1_000_000;
/// How far ahead of its own clock a master accepts a hint, in microseconds.
const HINT_AHEAD: u64 = 1_000_000;

const LOADING: &str = "LOADING Redis is loading the dataset in memory";
const NO_MEMORY: &str = "OOM command not allowed when used memory > 'maxmemory'.";
const BAD_PX: &str = "ERR invalid expire time in 'set' command";
const BAD_PEXPIRE: &str = "ERR invalid expire time in 'pexpire' command";
const SPENT: &str = "FENCE the counter of this resource holds no number, or one too large to go on";
const NO_INTEGER: &str = "ERR value is not an integer or out of range";

#[derive(Clone, Debug, Default)]
pub(super) struct Keys {
    stored: Stored,
    /// Whether a command wrote anything since the last check.
    changed: bool,
    /// Which of the lock's [`scripts`] are loaded.
    scripts: [bool; SCRIPTS],
    pub(super) out_of_memory: bool,
    pub(super) loading: bool,
}

impl Keys {
    /// Executes every command but the handshake and `CLIENT KILL`, which concern connections.
    pub(super) fn execute(
        &mut self,
        wall: Wall,
        request: Request,
        publish: Publish<'_>,
    ) -> ServerReply {
        match request {
            Request::Time => ServerReply::Time(wall / 1000 * 1000),
            Request::Lock(_) | Request::Lax(..) if self.loading => {
                ServerReply::Reply(error(LOADING))
            }
            _ if self.loading => ServerReply::Error(LOADING),
            Request::Lock(command) => {
                ServerReply::Reply(self.command(wall, command, None, publish))
            }
            Request::Lax(command, script_mutant) => {
                ServerReply::Reply(self.command(wall, command, Some(script_mutant), publish))
            }
            Request::Get(key) => {
                let found = self.found(wall / NANOS_PER_MS, &key);
                ServerReply::Value(found.map(|(token, _)| token))
            }
            Request::Del(key) => {
                let was = self.found(wall / NANOS_PER_MS, &key).is_some();
                self.evict(&key);
                ServerReply::Reply(if was { Reply::Deleted } else { Reply::Absent })
            }
            Request::PExpire(key, ttl_ms) => {
                let now = wall / NANOS_PER_MS;
                let found = self.found(now, &key);
                if let Some((token, _)) = found {
                    self.stored.locks.insert(key, (token, now.saturating_add(ttl_ms)));
                    self.changed = true;
                }
                ServerReply::Reply(if found.is_some() { Reply::Kept } else { Reply::Absent })
            }
            Request::Pttl(key) => {
                let now = wall / NANOS_PER_MS;
                let left = self.found(now, &key).map(|(_, last)| (last - now).cast_signed());
                ServerReply::Pttl(left.unwrap_or(-2))
            }
            Request::FlushAll => {
                self.flush();
                ServerReply::Ok
            }
            Request::ScriptFlush => {
                self.forget_scripts();
                ServerReply::Ok
            }
            Request::Hello => unreachable!("greeted by the server"),
        }
    }

    fn command(
        &mut self,
        wall: Wall,
        command: Command,
        script_mutant: Option<ScriptMutant>,
        publish: Publish<'_>,
    ) -> Reply {
        let now = wall / NANOS_PER_MS;
        // A command that carries its whole script does not need a loaded one.
        if script_mutant.is_none() && script_of(&command).is_some_and(|place| !self.scripts[place])
        {
            return Reply::Unknown(Cause::NoScript);
        }
        match command {
            Command::Set { key, token, ttl_ms, fence } => {
                self.grant(wall, key, token, ttl_ms, fence, script_mutant)
            }
            Command::Guarded { key, token, ttl_ms, fence, marker } => {
                let refusal = self.stored.markers.refusal(&marker);
                let answer = refusal
                    .unwrap_or_else(|| self.grant(wall, key, token, ttl_ms, fence, script_mutant));
                answer.stamped(wall / 1000)
            }
            command @ Command::Watch { .. } => self.mark(now, &command).stamped(wall / 1000),
            command @ Command::Initialize { .. } => self.mark(now, &command),
            Command::Certify { key, token, fence } => match self.found(now, &key) {
                found
                    if script_mutant == Some(ScriptMutant::Uncompared)
                        || found.is_some_and(|(ours, _)| ours == token) =>
                {
                    match self.raise(now, &key, 0, fence) {
                        Ok(number) => Reply::Certified { number },
                        Err(text) => error(text),
                    }
                }
                Some(other) => taken(now, other),
                None => Reply::Absent,
            },
            Command::Delete { key, token, call, leave } => {
                let (answer, is_free) = match self.found(now, &key) {
                    Some((ours, _)) if ours == token => {
                        self.stored.locks.remove(&key);
                        self.changed = true;
                        (Reply::Deleted, true)
                    }
                    Some(other) => (taken(now, other), false),
                    None => (Reply::Absent, true),
                };
                if let Some(waiter) = leave {
                    self.leave(now, &key, waiter);
                }
                if is_free && call == WakeUp::First {
                    // Redis does not refuse a script for lack of memory once the script has called
                    // a command that may write.
                    let may_write = leave.is_some() || answer == Reply::Deleted;
                    self.wake(now, &key, None, may_write, publish);
                }
                let counts = call != WakeUp::None || leave.is_some();
                let listeners = if counts { self.waiters(now, &key) } else { 0 };
                match answer {
                    Reply::Deleted if listeners > 0 => Reply::Freed { listeners },
                    answer => answer,
                }
            }
            Command::Keep { key, token, ttl_ms, repair, fence } => {
                self.keep(wall, key, token, ttl_ms, repair, fence)
            }
            Command::Enqueue { key, waiter, position } => {
                self.stand(now, &key, (waiter, position), publish)
            }
            Command::Dequeue { key, waiter, call } => {
                self.leave(now, &key, waiter);
                if call && self.found(now, &key).is_none() {
                    self.wake(now, &key, None, true, publish);
                }
                Reply::Alive
            }
            Command::Load(script) => self.load(script),
            Command::Probe if self.out_of_memory => error(NO_MEMORY),
            Command::Probe => Reply::Alive,
            Command::Kill { .. } | Command::Hello | Command::Subscribe { .. } => {
                unreachable!("executed by the server")
            }
        }
    }

    fn grant(
        &mut self,
        wall: Wall,
        key: Key,
        token: Token,
        ttl_ms: u64,
        fence: Option<Fence>,
        script_mutant: Option<ScriptMutant>,
    ) -> Reply {
        let now = wall / NANOS_PER_MS;
        // Redis refuses the script before it looks at the key, so an expired key stays unnoticed.
        if self.out_of_memory {
            return error(NO_MEMORY);
        }
        match invalid(now, ttl_ms, BAD_PX) {
            Some(error) => error,
            None if self.found(now, &key).is_some() => Reply::Taken(Holder::NotAsked),
            None => match self.count(wall, &key, fence, script_mutant) {
                Ok(answer) => {
                    self.create(now, key, token, ttl_ms);
                    answer
                }
                Err(text) => error(text),
            },
        }
    }

    /// Enters a waiter and returns its position in the queue. While memory is short, Redis does not
    /// refuse a script that has already written: here, one that has dropped lapsed waiters. Nor
    /// does it refuse a script that writes nothing.
    fn stand(
        &mut self,
        now: u64,
        key: &Key,
        (waiter, position): (Waiter, Position),
        publish: Publish<'_>,
    ) -> Reply {
        let queue = self.stored.queues.entry(key.clone()).or_default();
        self.changed |= queue.expire(now);
        let swept = queue.sweep(now);
        let writes = queue.writes(now, waiter, position);
        self.changed |= swept || writes;
        if self.out_of_memory && !swept && writes {
            self.tidy(key);
            return error(NO_MEMORY);
        }
        let (number, mut ahead) = queue.enqueue(now, waiter, position);
        let holder = self.found(now, key).map(|entry| held(now, entry));
        if holder.is_none() && ahead > 0 && position != Position::Any {
            self.wake(now, key, Some(waiter), swept || writes, publish);
            ahead = self.stored.queues.get(key).map_or(0, |queue| queue.before(waiter));
        }
        Reply::Place { number, ahead, holder }
    }

    /// Wakes the first waiter.
    fn wake(
        &mut self,
        now: u64,
        key: &Key,
        asker: Option<Waiter>,
        may_write: bool,
        publish: Publish<'_>,
    ) {
        if let Some(queue) = self.stored.queues.get_mut(key) {
            self.changed |= queue.expire(now);
            self.changed |= queue.wake(now, asker, may_write || !self.out_of_memory, publish);
        }
        self.tidy(key);
    }

    /// Removes a waiter from the queue.
    fn leave(&mut self, now: u64, key: &Key, waiter: Waiter) {
        if let Some(queue) = self.stored.queues.get_mut(key) {
            self.changed |= queue.expire(now) || queue.leave(waiter);
        }
        self.tidy(key);
    }

    fn waiters(&mut self, now: u64, key: &Key) -> u32 {
        let (waiters, expired) =
            self.stored.queues.get_mut(key).map_or((0, false), |queue| queue.count(now));
        self.changed |= expired;
        self.tidy(key);
        u32::try_from(waiters).unwrap_or(u32::MAX)
    }

    /// Drops an empty queue: it has no keys.
    fn tidy(&mut self, key: &Key) {
        if self.stored.queues.get(key).is_some_and(WaitQueue::is_empty) {
            self.stored.queues.remove(key);
        }
    }

    /// Executes a command on the boot marker and the probation key.
    fn mark(&mut self, now: u64, command: &Command) -> Reply {
        if self.out_of_memory && matches!(command, Command::Initialize { .. }) {
            return error(NO_MEMORY);
        }
        // Only this command looks at the probation key.
        if matches!(command, Command::Watch { .. }) {
            self.changed |= self.stored.markers.expire(now);
        }
        let mut after = self.stored.markers.clone();
        let answer = after.execute(now, command);
        if after != self.stored.markers {
            if self.out_of_memory {
                return error(NO_MEMORY);
            }
            self.stored.markers = after;
            self.changed = true;
        }
        answer.expect("it is about markers")
    }

    /// Sets or deletes the boot marker from outside the lock.
    pub(super) fn set_marker(&mut self, marker: Option<Arc<str>>) {
        self.stored.markers.set_boot(marker);
        self.changed = true;
    }

    fn keep(
        &mut self,
        wall: Wall,
        key: Key,
        token: Token,
        ttl_ms: u64,
        repair: bool,
        fence: Option<Fence>,
    ) -> Reply {
        let now = wall / NANOS_PER_MS;
        match self.found(now, &key) {
            Some((ours, last)) if ours == token => {
                let extends = last - now < ttl_ms;
                if extends {
                    if let Some(error) = invalid(now, ttl_ms, BAD_PEXPIRE) {
                        return error;
                    }
                    self.create(now, key.clone(), token, ttl_ms);
                }
                match fence.map(|fence| self.remember(now, key, fence, extends)) {
                    Some(Err(text)) => error(text),
                    _ => Reply::Kept,
                }
            }
            Some(other) => taken(now, other),
            None if !repair => Reply::Absent,
            // The counter comes before the key: Redis checks the TTL only when it sets the key.
            None => match (self.count(wall, &key, fence, None), invalid(now, ttl_ms, BAD_PX)) {
                (Err(text), _) => error(text),
                (Ok(_), _) if self.out_of_memory => error(NO_MEMORY),
                (Ok(_), Some(error)) => error,
                (Ok(_), None) => {
                    self.create(now, key, token, ttl_ms);
                    Reply::Created
                }
            },
        }
    }

    fn load(&mut self, script: Script) -> Reply {
        if let Some(place) = scripts(true).position(|known| known == script) {
            self.scripts[place] = true;
        }
        Reply::Alive
    }

    pub(super) const fn marker(&self) -> Option<&Arc<str>> {
        self.stored.markers.boot()
    }

    /// Loads the scripts, as a handshake does.
    pub(super) fn load_scripts(&mut self) -> Result<(), &'static str> {
        if self.loading {
            return Err(LOADING);
        }
        self.scripts = [true; SCRIPTS];
        Ok(())
    }

    /// Forgets the scripts: `SCRIPT FLUSH`, or a new process.
    pub(super) fn forget_scripts(&mut self) {
        self.scripts = [false; SCRIPTS];
    }

    /// Looks up a key. The look-up deletes an expired key.
    fn found(&mut self, now: u64, key: &Key) -> Option<Entry> {
        let entry = *self.stored.locks.get(key)?;
        if !expired(now, entry) {
            return Some(entry);
        }
        self.stored.locks.remove(key);
        self.changed = true;
        None
    }

    fn create(&mut self, now: u64, key: Key, token: Token, ttl_ms: u64) {
        self.stored.locks.insert(key, (token, now + ttl_ms));
        self.changed = true;
    }

    /// Counts a grant, if its lease is to have a fencing token.
    fn count(
        &mut self,
        wall: Wall,
        key: &Key,
        fence: Option<Fence>,
        script_mutant: Option<ScriptMutant>,
    ) -> Result<Reply, &'static str> {
        let Some(fence) = fence else { return Ok(Reply::Created) };
        // A hint counts only as far as the master's own clock allows.
        let most = if script_mutant == Some(ScriptMutant::Unclamped) {
            u64::MAX
        } else {
            wall / 1000 + HINT_AHEAD
        };
        let number = fence.number.min(most);
        if script_mutant == Some(ScriptMutant::Endless)
            && let Some(count) = self.counter(wall / NANOS_PER_MS, key)
            && count >= MAX_NUMBER
        {
            // The counter stays where it is.
            return Ok(Reply::Granted { number: MAX_NUMBER });
        }
        let number = self.raise(wall / NANOS_PER_MS, key, 1, Fence { number, ..fence })?;
        Ok(Reply::Granted { number })
    }

    /// Looks up a counter. The look-up deletes an expired counter.
    fn counter(&mut self, now: u64, key: &Key) -> Option<u64> {
        let (number, last) = *self.stored.counters.get(key)?;
        if now <= last {
            return Some(number);
        }
        self.stored.counters.remove(key);
        self.changed = true;
        None
    }

    pub(super) fn set_counter(&mut self, wall: Wall, key: Key, ahead: Ahead) {
        let now = wall / NANOS_PER_MS;
        let number = match ahead {
            Ahead::By(by) => {
                let by = u64::try_from(by.0.as_micros()).unwrap_or(u64::MAX);
                (wall / 1000).saturating_add(by).min(MAX_NUMBER)
            }
            fixed => fixed.number().unwrap_or(MAX_NUMBER),
        };
        let number = self.counter(now, &key).unwrap_or(0).max(number);
        let last =
            now.saturating_add(u64::try_from(FENCING_MEMORY.as_millis()).unwrap_or(u64::MAX));
        self.stored.counters.insert(key, (number, last));
        self.changed = true;
    }

    fn raise(&mut self, now: u64, key: &Key, step: u64, fence: Fence) -> Result<u64, &'static str> {
        let number = (self.counter(now, key).unwrap_or(0) + step).max(fence.number).max(1);
        if number > MAX_NUMBER {
            return Err(SPENT);
        }
        if self.out_of_memory {
            return Err(NO_MEMORY);
        }
        self.set(now, key.clone(), number, fence);
        Ok(number)
    }

    /// Prolongs the counter of a lease, or restarts it at the lease's token if it is gone. While
    /// memory is short, Redis does not refuse a script that has already written.
    fn remember(
        &mut self,
        now: u64,
        key: Key,
        fence: Fence,
        has_written: bool,
    ) -> Result<(), &'static str> {
        let number = match self.counter(now, &key) {
            Some(number) => number,
            None if self.out_of_memory && !has_written => return Err(NO_MEMORY),
            None => fence.number,
        };
        self.set(now, key, number, fence);
        Ok(())
    }

    /// Sets a counter. Never shortens its life.
    fn set(&mut self, now: u64, key: Key, number: u64, fence: Fence) {
        let last = now.saturating_add(fence.memory_ms);
        let before = self.stored.counters.get(&key).map_or(0, |(_, last)| *last);
        self.stored.counters.insert(key, (number, last.max(before)));
        self.changed = true;
    }

    /// Active expiry.
    pub(super) fn expire(&mut self, wall: Wall) {
        let now = wall / NANOS_PER_MS;
        let before = self.stored.len();
        let Stored { locks, counters, markers, queues } = &mut self.stored;
        markers.expire(now);
        locks.retain(|_, entry| !expired(now, *entry));
        counters.retain(|_, (_, last)| now <= *last);
        queues.retain(|_, queue| queue.is_there(now));
        self.changed |= self.stored.len() != before;
    }

    pub(super) fn flush(&mut self) {
        self.stored = Stored::default();
        self.changed = true;
    }

    /// Evicts every key that has a TTL.
    pub(super) fn evict_all(&mut self) {
        self.stored.locks.clear();
        self.stored.counters.clear();
        self.stored.queues.clear();
        self.stored.markers.evict();
        self.changed = true;
    }

    pub(super) fn evict(&mut self, key: &Key) -> bool {
        let was = self.stored.locks.remove(key).is_some();
        self.changed |= was;
        was
    }

    pub(super) fn stored(&self) -> &Stored {
        &self.stored
    }

    pub(super) fn replace(&mut self, stored: Stored) {
        self.stored = stored;
        self.changed = true;
    }

    /// Whether a command wrote anything since the last call.
    pub(super) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (&Key, Token, Wall)> {
        self.stored.locks.iter().map(|(key, (token, last))| {
            // To the end of that millisecond.
            (key, *token, last.saturating_add(1).saturating_mul(NANOS_PER_MS) - 1)
        })
    }

    pub(super) fn queues(&self, wall: Wall) -> impl Iterator<Item = &Key> {
        let now = wall / NANOS_PER_MS;
        let queues = self.stored.queues.iter();
        queues.filter(move |(_, queue)| queue.is_there(now)).map(|(key, _)| key)
    }
}

/// The index among the lock's [`scripts`] of the script that a command calls.
const fn script_of(command: &Command) -> Option<usize> {
    match command {
        Command::Delete { .. } => Some(0),
        Command::Keep { .. } => Some(1),
        Command::Set { fence: Some(_), .. } => Some(2),
        Command::Certify { .. } => Some(3),
        Command::Enqueue { .. } | Command::Dequeue { .. } => Some(4),
        Command::Guarded { .. } => Some(5),
        Command::Watch { .. } => Some(6),
        _ => None,
    }
}

/// A key exists for the whole of its last millisecond, with 0 ms left.
fn expired(now: u64, (_, last): Entry) -> bool {
    now > last
}

/// Checks a TTL: Redis keeps instants as signed milliseconds and accepts no TTL of zero.
fn invalid(now: u64, ttl_ms: u64, bad: &'static str) -> Option<Reply> {
    let longest = i64::MAX.cast_unsigned();
    if ttl_ms > longest {
        Some(error(NO_INTEGER))
    } else if ttl_ms == 0 || ttl_ms > longest - now {
        Some(error(bad))
    } else {
        None
    }
}

fn taken(now: u64, entry: Entry) -> Reply {
    Reply::Taken(held(now, entry))
}

const fn held(now: u64, (token, last): Entry) -> Holder {
    Holder::Lease { token, left_ms: last - now }
}

#[cold]
fn error(text: &'static str) -> Reply {
    Reply::Unknown(Cause::Error(Arc::from(text)))
}
