//! Ledger: every key that may be on the master because of us, until the master says it is gone.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

use crate::effect::{Call, Key};
use crate::terms::Drift;
use crate::time::Time;
use crate::token::Token;

/// The keys of one master, by their tokens.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Ledger {
    entries: BTreeMap<Token, Entry>,
    /// What the keys take, all together.
    bytes: usize,
    /// When keys that are left alone are owed.
    ripe: BTreeSet<(Time, Token)>,
    /// Keys whose clean-up met an error, in the order in which they are tried again.
    refused: VecDeque<Token>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Entry {
    key: Key,
    state: State,
    /// When the key has expired by itself, if what was sent for it was executed at once.
    expires: Time,
    /// How long a master keeps it from when it executes what was sent for it.
    ttl: Duration,
    /// When the key has expired by itself, whenever that was executed: known from the first error on.
    gone: Option<Time>,
    /// Whether it is among the refused.
    queued: bool,
    /// Who is told when it is deleted.
    call: Call,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum State {
    /// The claim lives: its key is wanted.
    Claimed,
    /// The claim is over, and its key shall not go yet.
    Left,
    /// The key shall go; nothing that says so is under way.
    Owed,
    /// The compare-and-delete is under way on the current connection.
    Paying,
    /// The master answered the compare-and-delete with an error: it is sent again later.
    Refused,
}

impl Entry {
    const fn new(key: Key, state: State, expires: Time, ttl: Duration, call: Call) -> Self {
        Self { key, state, expires, ttl, gone: None, queued: false, call }
    }

    const fn is_owed(&self) -> bool {
        matches!(self.state, State::Owed | State::Paying | State::Refused)
    }
}

impl Ledger {
    /// Enters a key that is about to be created or extended, and lives so long from then on.
    pub(super) fn claim(&mut self, now: Time, token: Token, key: Key, ttl: Duration) {
        let expires = now.plus(ttl);
        let new = Entry::new(key, State::Claimed, expires, ttl, Call::Nobody);
        let entry = self.enter(token, new);
        entry.expires = entry.expires.max(expires);
        entry.ttl = entry.ttl.max(ttl);
    }

    pub(super) fn contains(&self, token: Token) -> bool {
        self.entries.contains_key(&token)
    }

    /// Whether the key shall go: nothing that may create it must be written any more.
    pub(super) fn is_settled(&self, token: Token) -> bool {
        self.entries.get(&token).is_some_and(|entry| entry.state != State::Claimed)
    }

    /// The key shall go, but is left alone until then; one that was never entered is no concern.
    pub(super) fn leave(&mut self, token: Token, until: Time) {
        if let Some(entry) = self.entries.get_mut(&token)
            && entry.state == State::Claimed
        {
            entry.state = State::Left;
            // It was a lease.
            entry.call = Call::Next;
            self.ripe.insert((until, token));
        }
    }

    /// Owes what was left alone for long enough. Returns whether there was any.
    pub(super) fn ripen(&mut self, now: Time) -> bool {
        let mut any = false;
        while let Some((_, token)) = self.ripe.first().copied().filter(|(until, _)| *until <= now) {
            self.ripe.pop_first();
            if let Some(entry) = self.entries.get_mut(&token)
                && entry.state == State::Left
            {
                entry.state = State::Owed;
                any = true;
            }
        }
        any
    }

    /// When the next key was left alone for long enough.
    pub(super) fn next_ripe(&self) -> Option<Time> {
        self.ripe.first().map(|(until, _)| *until)
    }

    /// The key shall go, and nothing says so yet.
    pub(super) fn owe(&mut self, token: Token, call: Call) {
        if let Some(entry) = self.entries.get_mut(&token) {
            entry.state = State::Owed;
            entry.call = entry.call.max(call);
        }
    }

    /// The key shall go, and the command that says so is being written. A key that was never
    /// entered is entered now: it is asked about all the same.
    pub(super) fn pay(&mut self, token: Token, key: Key, now: Time, call: Call) {
        let new = Entry::new(key, State::Paying, now, Duration::ZERO, call);
        let entry = self.enter(token, new);
        entry.state = State::Paying;
        entry.call = entry.call.max(call);
    }

    /// The key of a token, if somebody is to be told when it is deleted.
    pub(super) fn called(&self, token: Token) -> Option<&Key> {
        let entry = self.entries.get(&token)?;
        (entry.call != Call::Nobody).then_some(&entry.key)
    }

    fn enter(&mut self, token: Token, entry: Entry) -> &mut Entry {
        let bytes = &mut self.bytes;
        self.entries.entry(token).or_insert_with(|| {
            *bytes += entry.key.len();
            entry
        })
    }

    /// All that is owed is being paid: these commands are to be written.
    pub(super) fn pay_all(&mut self) -> Vec<(Token, Key, Call)> {
        let owed = self.entries.iter_mut().filter(|(_, entry)| entry.state == State::Owed);
        owed.map(|(token, entry)| {
            entry.state = State::Paying;
            (*token, entry.key.clone(), entry.call)
        })
        .collect()
    }

    /// The master answered the compare-and-delete with an error. What created the key was executed
    /// before that, so the key is there for no longer than its TTL from now: until then it is tried
    /// again, and if that fails later still, it is given up. Returns whether nothing is left to do.
    pub(super) fn refuse(&mut self, now: Time, token: Token) -> bool {
        let Some(entry) = self.entries.get_mut(&token) else { return true };
        let ttl = entry.ttl;
        let lasts = if ttl.is_zero() { ttl } else { ttl + Drift::default().of(ttl) };
        let given_up = *entry.gone.get_or_insert(now.plus(lasts)) <= now;
        if given_up {
            self.clear(token);
        } else {
            entry.state = State::Refused;
            if !core::mem::replace(&mut entry.queued, true) {
                self.refused.push_back(token);
            }
        }
        given_up
    }

    /// So many of the refused are being paid again, those first that have waited for longest: these
    /// commands are to be written.
    pub(super) fn retry(&mut self, count: usize) -> Vec<(Token, Key, Call)> {
        let mut again = Vec::new();
        while again.len() < count
            && let Some(token) = self.refused.pop_front()
        {
            let Some(entry) = self.entries.get_mut(&token) else { continue };
            entry.queued = false;
            if entry.state == State::Refused {
                entry.state = State::Paying;
                again.push((token, entry.key.clone(), entry.call));
            }
        }
        again
    }

    /// The connection is gone: what was being paid is owed again.
    pub(super) fn unpay_all(&mut self) {
        for entry in self.entries.values_mut().filter(|entry| entry.state == State::Paying) {
            entry.state = State::Owed;
        }
    }

    /// The key is gone.
    pub(super) fn clear(&mut self, token: Token) {
        if let Some(entry) = self.entries.remove(&token) {
            self.bytes -= entry.key.len();
        }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Keys that are wanted.
    pub(super) fn claimed(&self) -> usize {
        self.entries.values().filter(|entry| entry.state == State::Claimed).count()
    }

    /// Keys that shall go, and are not left alone.
    pub(super) fn owed(&self) -> usize {
        self.entries.values().filter(|entry| entry.is_owed()).count()
    }

    /// Keys that shall go and have not yet expired by themselves.
    pub(super) fn owed_and_alive(&self, now: Time) -> usize {
        let counts = |entry: &&Entry| entry.is_owed() && now < entry.expires;
        self.entries.values().filter(counts).count()
    }
}
