//! The keys of a master, and the commands on them.

use std::collections::BTreeMap;
use std::sync::Arc;

use redquorum_protocol::wire::{Command, DELETE, KEEP, Script};
use redquorum_protocol::{Answer, Cause, Holder, Key, Token};

use super::{Reply, Request, Wall};

/// A value, and the last millisecond of the wall clock at which it is there.
type Entry = (Token, u64);

/// What a file or a replica keeps.
pub(super) type Stored = BTreeMap<Key, Entry>;

const NANOS_PER_MS: u64 = 1_000_000;

const LOADING: &str = "LOADING Redis is loading the dataset in memory";
const NO_MEMORY: &str = "OOM command not allowed when used memory > 'maxmemory'.";
const BAD_PX: &str = "ERR invalid expire time in 'set' command";
const BAD_PEXPIRE: &str = "ERR invalid expire time in 'pexpire' command";
const NO_INTEGER: &str = "ERR value is not an integer or out of range";

#[derive(Clone, Debug, Default)]
pub(super) struct Keys {
    stored: Stored,
    /// Whether anything was written since it was last asked.
    changed: bool,
    /// Whether the scripts are known: to delete, to keep.
    scripts: [bool; 2],
    pub(super) out_of_memory: bool,
    pub(super) loading: bool,
}

impl Keys {
    /// Everything but the handshake and `CLIENT KILL`, which are about connections.
    pub(super) fn execute(&mut self, wall: Wall, request: Request) -> Reply {
        match request {
            Request::Time => Reply::Time(wall / 1000 * 1000),
            Request::Lock(_) if self.loading => Reply::Answer(error(LOADING)),
            _ if self.loading => Reply::Error(LOADING),
            Request::Lock(command) => Reply::Answer(self.command(wall / NANOS_PER_MS, command)),
            Request::Get(key) => {
                let found = self.found(wall / NANOS_PER_MS, &key);
                Reply::Value(found.map(|(token, _)| token))
            }
            Request::Del(key) => {
                let was = self.found(wall / NANOS_PER_MS, &key).is_some();
                self.evict(&key);
                Reply::Answer(if was { Answer::Deleted } else { Answer::Absent })
            }
            Request::PExpire(key, ttl_ms) => {
                let now = wall / NANOS_PER_MS;
                let found = self.found(now, &key);
                if let Some((token, _)) = found {
                    self.stored.insert(key, (token, now.saturating_add(ttl_ms)));
                    self.changed = true;
                }
                Reply::Answer(if found.is_some() { Answer::Kept } else { Answer::Absent })
            }
            Request::Pttl(key) => {
                let now = wall / NANOS_PER_MS;
                let left = self.found(now, &key).map(|(_, last)| (last - now).cast_signed());
                Reply::Pttl(left.unwrap_or(-2))
            }
            Request::FlushAll => {
                self.flush();
                Reply::Ok
            }
            Request::ScriptFlush => {
                self.forget_scripts();
                Reply::Ok
            }
            Request::Hello => unreachable!("greeted by the server"),
        }
    }

    fn command(&mut self, now: u64, command: Command) -> Answer {
        match command {
            // Refused before it looks at the key: one that has expired is not noticed.
            Command::Set { .. } if self.out_of_memory => error(NO_MEMORY),
            Command::Set { key, token, ttl_ms } => match invalid(now, ttl_ms, BAD_PX) {
                Some(error) => error,
                None if self.found(now, &key).is_some() => Answer::Taken(Holder::NotAsked),
                None => self.create(now, key, token, ttl_ms),
            },
            Command::Delete { .. } if !self.scripts[0] => Answer::Unknown(Cause::NoScript),
            Command::Delete { key, token } => match self.found(now, &key) {
                Some((ours, _)) if ours == token => {
                    self.stored.remove(&key);
                    self.changed = true;
                    Answer::Deleted
                }
                Some(other) => taken(now, other),
                None => Answer::Absent,
            },
            Command::Keep { .. } if !self.scripts[1] => Answer::Unknown(Cause::NoScript),
            Command::Keep { key, token, ttl_ms, repair } => {
                self.keep(now, key, token, ttl_ms, repair)
            }
            Command::Load(script) => self.load(script),
            Command::Ping => Answer::Alive,
            Command::Kill { .. } => unreachable!("executed by the server"),
        }
    }

    fn keep(&mut self, now: u64, key: Key, token: Token, ttl_ms: u64, repair: bool) -> Answer {
        match self.found(now, &key) {
            Some((ours, last)) if ours == token => {
                if last - now < ttl_ms {
                    if let Some(error) = invalid(now, ttl_ms, BAD_PEXPIRE) {
                        return error;
                    }
                    self.stored.insert(key, (ours, now + ttl_ms));
                    self.changed = true;
                }
                Answer::Kept
            }
            Some(other) => taken(now, other),
            None if !repair => Answer::Absent,
            None if self.out_of_memory => error(NO_MEMORY),
            None => match invalid(now, ttl_ms, BAD_PX) {
                Some(error) => error,
                None => self.create(now, key, token, ttl_ms),
            },
        }
    }

    fn load(&mut self, script: Script) -> Answer {
        if script == DELETE {
            self.scripts[0] = true;
        } else if script == KEEP {
            self.scripts[1] = true;
        }
        Answer::Alive
    }

    /// What a handshake loads.
    pub(super) fn load_scripts(&mut self) -> Result<(), &'static str> {
        if self.loading {
            return Err(LOADING);
        }
        self.scripts = [true; 2];
        Ok(())
    }

    /// `SCRIPT FLUSH`, or another process.
    pub(super) fn forget_scripts(&mut self) {
        self.scripts = [false; 2];
    }

    /// The key, unless it has expired: then it is deleted by the look at it.
    fn found(&mut self, now: u64, key: &Key) -> Option<Entry> {
        let entry = *self.stored.get(key)?;
        if !expired(now, entry) {
            return Some(entry);
        }
        self.stored.remove(key);
        self.changed = true;
        None
    }

    fn create(&mut self, now: u64, key: Key, token: Token, ttl_ms: u64) -> Answer {
        self.stored.insert(key, (token, now + ttl_ms));
        self.changed = true;
        Answer::Created
    }

    /// Active expiry.
    pub(super) fn expire(&mut self, wall: Wall) {
        let before = self.stored.len();
        self.stored.retain(|_, entry| !expired(wall / NANOS_PER_MS, *entry));
        self.changed |= self.stored.len() != before;
    }

    pub(super) fn flush(&mut self) {
        self.stored.clear();
        self.changed = true;
    }

    pub(super) fn evict(&mut self, key: &Key) -> bool {
        let was = self.stored.remove(key).is_some();
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

    /// Whether anything was written since the last call.
    pub(super) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (&Key, Token, Wall)> {
        self.stored.iter().map(|(key, (token, last))| {
            // To the end of that millisecond.
            (key, *token, last.saturating_add(1).saturating_mul(NANOS_PER_MS) - 1)
        })
    }
}

/// A key is there for the whole of its last millisecond, with 0 ms left.
fn expired(now: u64, (_, last): Entry) -> bool {
    now > last
}

/// Redis keeps instants as signed milliseconds, and takes no TTL of zero.
fn invalid(now: u64, ttl_ms: u64, bad: &'static str) -> Option<Answer> {
    let longest = i64::MAX.cast_unsigned();
    if ttl_ms > longest {
        Some(error(NO_INTEGER))
    } else if ttl_ms == 0 || ttl_ms > longest - now {
        Some(error(bad))
    } else {
        None
    }
}

fn taken(now: u64, (token, last): Entry) -> Answer {
    Answer::Taken(Holder::Lease { token, left_ms: last - now })
}

#[cold]
fn error(text: &'static str) -> Answer {
    Answer::Unknown(Cause::Error(Arc::from(text)))
}
