//! The keys of a server with their expiry, and Redis's commands on them.

use std::collections::BTreeMap;

use redquorum_protocol::{Key, Waiter};

/// The data that a file or a replica keeps.
pub(crate) type Stored = BTreeMap<Key, Entry>;

/// The text of an error.
pub(crate) type Error = &'static str;

/// A value with its expiry.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Entry {
    pub(crate) data: Data,
    /// The last millisecond of the wall clock at which the key exists: it exists for the whole of
    /// it, with 0 ms left. [`FOREVER`] without a TTL.
    pub(crate) last: u64,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Data {
    Text(Key),
    /// A sorted set: its members with their scores.
    Scores(BTreeMap<Key, u64>),
}

impl Data {
    /// The value, unless it is a sorted set.
    pub(crate) const fn text(&self) -> Option<&Key> {
        match self {
            Self::Text(text) => Some(text),
            Self::Scores(_) => None,
        }
    }
}

pub(crate) const FOREVER: u64 = u64::MAX;

const NO_MEMORY: Error = "OOM command not allowed when used memory > 'maxmemory'.";
const READ_ONLY: Error = "READONLY You can't write against a read only replica.";
const WRONG_TYPE: Error = "WRONGTYPE Operation against a key holding the wrong kind of value";
pub(crate) const NO_INTEGER: Error = "ERR value is not an integer or out of range";

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Keys {
    pub(crate) stored: Stored,
    /// Whether a command wrote anything since the last sync.
    pub(crate) changed: bool,
    pub(crate) out_of_memory: bool,
    /// Whether the server is a replica: it refuses writes, and deletes no key by itself.
    pub(crate) is_replica: bool,
}

impl Keys {
    pub(crate) fn replace(&mut self, stored: Stored) {
        self.stored = stored;
        self.changed = true;
    }

    /// Keeps the keys for which `keep` returns true.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&[u8], &Entry) -> bool) {
        let before = self.stored.len();
        self.stored.retain(|key, entry| keep(key, entry));
        self.changed |= self.stored.len() != before;
    }
}

/// Publishes to the connections that subscribe to a waiter. Returns whether there are any.
pub(crate) type Publish<'a> = &'a mut dyn FnMut(Waiter) -> bool;

/// A command or a script that executes. Its methods are named as Redis's commands.
pub(crate) struct Execution<'a> {
    pub(crate) keys: &'a mut Keys,
    /// The wall clock in microseconds and in milliseconds.
    pub(crate) micros: u64,
    pub(crate) now: u64,
    pub(crate) publish: Publish<'a>,
    /// Whether a command that may write was called. From then on, Redis no longer refuses a script
    /// for lack of memory.
    wrote: bool,
}

impl<'a> Execution<'a> {
    pub(crate) fn new(keys: &'a mut Keys, wall: u64, publish: Publish<'a>) -> Self {
        Self { keys, micros: wall / 1000, now: wall / 1_000_000, publish, wrote: false }
    }

    /// Looks up a key. The look-up deletes an expired key, except on a replica.
    fn found(&mut self, key: &[u8]) -> Option<&mut Entry> {
        let stored = &mut self.keys.stored;
        if self.now > stored.get(key)?.last {
            if !self.keys.is_replica {
                stored.remove(key);
                self.keys.changed = true;
            }
            return None;
        }
        stored.get_mut(key)
    }

    /// Fails for a command that may write, on a replica; and for one that needs memory, if there is
    /// none.
    pub(crate) fn writes(&mut self, grows: bool) -> Result<(), Error> {
        if self.keys.is_replica {
            return Err(READ_ONLY);
        }
        if grows && self.keys.out_of_memory && !self.wrote {
            return Err(NO_MEMORY);
        }
        self.wrote = true;
        Ok(())
    }

    /// The last millisecond of a key with this TTL. Redis keeps instants as signed milliseconds.
    fn last(&self, ttl_ms: u64, bad: Error) -> Result<u64, Error> {
        let longest = i64::MAX.cast_unsigned();
        if ttl_ms > longest {
            return Err(NO_INTEGER);
        }
        (ttl_ms <= longest - self.now).then(|| self.now + ttl_ms).ok_or(bad)
    }

    pub(crate) fn exists(&mut self, key: &[u8]) -> bool {
        self.found(key).is_some()
    }

    pub(crate) fn get(&mut self, key: &[u8]) -> Result<Option<Key>, Error> {
        let Some(entry) = self.found(key) else { return Ok(None) };
        entry.data.text().cloned().map(Some).ok_or(WRONG_TYPE)
    }

    /// −2: there is no such key. −1: it has no TTL.
    pub(crate) fn pttl(&mut self, key: &[u8]) -> i64 {
        let now = self.now;
        self.found(key).map_or(-2, |entry| match entry.last {
            FOREVER => -1,
            last => (last - now).cast_signed(),
        })
    }

    pub(crate) fn del(&mut self, key: &[u8]) -> Result<bool, Error> {
        self.writes(false)?;
        let removed = self.keys.stored.remove(key);
        self.keys.changed |= removed.is_some();
        Ok(removed.is_some_and(|entry| self.now <= entry.last))
    }

    /// `SET`, with `PX` if there is a TTL, and with `NX` if `nx`. Returns whether it set the key.
    pub(crate) fn set(
        &mut self,
        key: &[u8],
        value: &[u8],
        ttl: Option<u64>,
        nx: bool,
    ) -> Result<bool, Error> {
        const BAD: Error = "ERR invalid expire time in 'set' command";
        // Redis refuses the command before it looks at the key.
        self.writes(true)?;
        let last = match ttl {
            None => FOREVER,
            Some(0) => return Err(BAD),
            Some(ttl_ms) => self.last(ttl_ms, BAD)?,
        };
        let known = self.found(key);
        if nx && known.is_some() {
            return Ok(false);
        }
        let entry = Entry { data: Data::Text(Key::from(value)), last };
        match known {
            Some(known) => *known = entry,
            None => _ = self.keys.stored.insert(Key::from(key), entry),
        }
        self.keys.changed = true;
        Ok(true)
    }

    pub(crate) fn pexpire(&mut self, key: &[u8], ttl_ms: u64) -> Result<bool, Error> {
        self.writes(false)?;
        let last = self.last(ttl_ms, "ERR invalid expire time in 'pexpire' command")?;
        if ttl_ms == 0 {
            return self.del(key);
        }
        let Some(entry) = self.found(key) else { return Ok(false) };
        entry.last = last;
        self.keys.changed = true;
        Ok(true)
    }

    fn scores(&mut self, key: &[u8]) -> Result<Option<&mut BTreeMap<Key, u64>>, Error> {
        match self.found(key).map(|entry| &mut entry.data) {
            None => Ok(None),
            Some(Data::Scores(scores)) => Ok(Some(scores)),
            Some(Data::Text(_)) => Err(WRONG_TYPE),
        }
    }

    pub(crate) fn zscore(&mut self, key: &[u8], member: &[u8]) -> Result<Option<u64>, Error> {
        Ok(self.scores(key)?.and_then(|scores| scores.get(member).copied()))
    }

    pub(crate) fn zcard(&mut self, key: &[u8]) -> Result<usize, Error> {
        Ok(self.scores(key)?.map_or(0, |scores| scores.len()))
    }

    /// The last member, in order, and its score.
    pub(crate) fn last_member(&mut self, key: &[u8]) -> Result<Option<(Key, u64)>, Error> {
        let scores = self.scores(key)?.into_iter().flatten();
        let last = scores.map(|(member, score)| (*score, member)).max();
        Ok(last.map(|(score, member)| (member.clone(), score)))
    }

    /// `ZCOUNT`
    pub(crate) fn zcount(
        &mut self,
        key: &[u8],
        matches: impl Fn(u64) -> bool,
    ) -> Result<usize, Error> {
        let scores = self.scores(key)?.into_iter().flatten();
        Ok(scores.filter(|(_, score)| matches(**score)).count())
    }

    /// `ZRANK`: the number of members before this one, or of all members if it is none of them.
    pub(crate) fn zrank(&mut self, key: &[u8], member: &Key) -> Result<usize, Error> {
        let Some(scores) = self.scores(key)? else { return Ok(0) };
        let Some(ours) = scores.get(member) else { return Ok(scores.len()) };
        let place = (ours, member);
        Ok(scores.iter().filter(|(member, score)| (*score, *member) < place).count())
    }

    /// The member at this index, in order, and its score.
    pub(crate) fn member(&mut self, key: &[u8], index: usize) -> Result<Option<(Key, u64)>, Error> {
        let scores = self.scores(key)?.into_iter().flatten();
        let mut all: Vec<_> = scores.map(|(member, score)| (score, member)).collect();
        if index >= all.len() {
            return Ok(None);
        }
        let (_, (score, member), _) = all.select_nth_unstable(index);
        Ok(Some((member.clone(), **score)))
    }

    /// The first members in order, up to this number, whose scores match.
    pub(crate) fn members(
        &mut self,
        key: &[u8],
        most: usize,
        matches: impl Fn(u64) -> bool,
    ) -> Result<Vec<Key>, Error> {
        let scores = self.scores(key)?.into_iter().flatten();
        let found = scores.filter(|(_, score)| matches(**score));
        let mut found: Vec<_> = found.map(|(member, score)| (*score, member.clone())).collect();
        found.sort_unstable();
        Ok(found.into_iter().take(most).map(|(_, member)| member).collect())
    }

    pub(crate) fn zadd(&mut self, key: &[u8], member: &[u8], score: u64) -> Result<(), Error> {
        self.writes(true)?;
        let before = if let Some(scores) = self.scores(key)? {
            scores.insert(Key::from(member), score)
        } else {
            let data = Data::Scores(BTreeMap::from([(Key::from(member), score)]));
            self.keys.stored.insert(Key::from(key), Entry { data, last: FOREVER });
            None
        };
        self.keys.changed |= before != Some(score);
        Ok(())
    }

    /// `ZADD XX LT`
    pub(crate) fn zadd_lower(
        &mut self,
        key: &[u8],
        member: &[u8],
        score: u64,
    ) -> Result<(), Error> {
        self.writes(true)?;
        if let Some(known) = self.scores(key)?.and_then(|scores| scores.get_mut(member))
            && *known > score
        {
            *known = score;
            self.keys.changed = true;
        }
        Ok(())
    }

    pub(crate) fn zrem(&mut self, key: &[u8], members: &[Key]) -> Result<(), Error> {
        self.writes(false)?;
        let Some(scores) = self.scores(key)? else { return Ok(()) };
        let removed = members.iter().filter(|member| scores.remove(*member).is_some()).count();
        let is_empty = scores.is_empty();
        self.keys.changed |= removed > 0;
        if is_empty {
            self.keys.stored.remove(key);
        }
        Ok(())
    }
}
