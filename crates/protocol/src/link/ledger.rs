//! Ledger: every key that this client may have on the master, until the master confirms that it is
//! gone. It decides when which clean-up is sent; the caller writes the commands that it returns.

use alloc::collections::btree_map::Entry as Slot;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

use super::types::Bounds;
use crate::effect::{Key, WakeUp};
use crate::lock_config::Drift;
use crate::time::Time;
use crate::token::Token;
use crate::vote::{Cause, Reply};
use crate::wire::Command;

/// How many clean-ups that met an error the link sends again at a time. Each one that is done lets
/// one more follow.
const RETRIES_AT_ONCE: usize = 64;

/// The pause before the link sends them again doubles, up to this many times the first pause.
const MAX_FACTOR: u32 = 16;

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Ledger {
    entries: BTreeMap<Token, Entry>,
    index: Index,
    /// Keys whose clean-up met an error, in the order in which the link tries them again.
    refused: VecDeque<Token>,
    /// When the link tries them again.
    retry_at: Option<Time>,
    /// How often the link has tried them again since the master last completed a clean-up.
    retries: u32,
}

/// What the entries add up to. A client may hold tens of thousands of leases, so no question about
/// all of them walks through them.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct Index {
    /// The size of all keys together.
    bytes: usize,
    claimed: usize,
    /// Clean-ups that wait to be sent.
    pending: BTreeSet<Token>,
    /// Keys that are left alone, by the time at which their clean-ups become pending.
    left: BTreeSet<(Time, Token)>,
    /// Those of them that the ledger can do without, because they expire by themselves.
    settled: BTreeSet<(Time, Token)>,
    settled_bytes: usize,
}

impl Index {
    fn add(&mut self, token: Token, entry: &Entry) {
        self.bytes += entry.key.len();
        match entry.state {
            State::Claimed => self.claimed += 1,
            State::Left { until, settled: false } => _ = self.left.insert((until, token)),
            State::Left { until, settled: true } => {
                self.settled.insert((until, token));
                self.settled_bytes += entry.key.len();
            }
            State::Pending => _ = self.pending.insert(token),
            State::Sent | State::Refused => {}
        }
    }

    fn remove(&mut self, token: Token, entry: &Entry) {
        self.bytes -= entry.key.len();
        match entry.state {
            State::Claimed => self.claimed -= 1,
            State::Left { until, settled: false } => _ = self.left.remove(&(until, token)),
            State::Left { until, settled: true } => {
                self.settled.remove(&(until, token));
                self.settled_bytes -= entry.key.len();
            }
            State::Pending => _ = self.pending.remove(&token),
            State::Sent | State::Refused => {}
        }
    }

    /// The key whose clean-up becomes pending next.
    fn ripe(&self) -> Option<(Time, Token)> {
        self.left.first().into_iter().chain(self.settled.first()).min().copied()
    }
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Entry {
    key: Key,
    state: State,
    /// When the key has expired by itself, if the master executed its commands at once.
    expires: Time,
    /// How long the master keeps the key, counted from the execution of its commands.
    ttl: Duration,
    /// When the key has expired by itself, whenever the master executed its commands. Known from
    /// the first error on.
    gone: Option<Time>,
    /// Whether the key is in the queue of refused clean-ups.
    queued: bool,
    wake_up: WakeUp,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum State {
    /// The claim lives: it wants its key.
    Claimed,
    /// The claim is over, and its key must stay until its time. If it is `settled`, nothing can
    /// create the key any more, so it expires by itself.
    Left { until: Time, settled: bool },
    /// The key must go; no compare-and-delete is under way.
    Pending,
    /// The compare-and-delete is under way on the current connection.
    Sent,
    /// The master replied to the compare-and-delete with an error; the link sends it again later.
    Refused,
}

impl Entry {
    const fn new(key: Key, state: State, expires: Time, ttl: Duration, wake_up: WakeUp) -> Self {
        Self { key, state, expires, ttl, gone: None, queued: false, wake_up }
    }

    const fn is_pending(&self) -> bool {
        matches!(self.state, State::Pending | State::Sent | State::Refused)
    }
}

impl Ledger {
    /// Enters a key that a command is about to create or extend. It lives for `ttl` from then on.
    pub(super) fn claim(
        &mut self,
        now: Time,
        token: Token,
        key: Key,
        ttl: Duration,
        bounds: &Bounds,
    ) {
        let expires = now.plus(ttl);
        match self.entries.entry(token) {
            Slot::Occupied(mut slot) => {
                let entry = slot.get_mut();
                debug_assert_eq!(entry.state, State::Claimed, "R5: it was given up");
                entry.expires = entry.expires.max(expires);
                entry.ttl = entry.ttl.max(ttl);
            }
            Slot::Vacant(slot) => {
                let entry = Entry::new(key, State::Claimed, expires, ttl, WakeUp::None);
                self.index.add(token, slot.insert(entry));
                self.make_room(bounds);
            }
        }
    }

    /// Drops keys that expire by themselves, while there are too many keys. Those that are left
    /// alone for longest go first, so that the clean-ups of the others still come at their time.
    fn make_room(&mut self, bounds: &Bounds) {
        while (self.entries.len() > bounds.ledger || self.index.bytes > bounds.ledger_bytes)
            && let Some((_, token)) = self.index.settled.last().copied()
        {
            self.clear(token);
        }
    }

    /// Whether a claim wants the key of this token.
    pub(super) fn is_claimed(&self, token: Token) -> bool {
        self.entries.get(&token).is_some_and(|entry| entry.state == State::Claimed)
    }

    pub(super) fn contains(&self, token: Token) -> bool {
        self.entries.contains_key(&token)
    }

    /// Whether the claim is done with the key: the link must write no more command that may create
    /// it.
    pub(super) fn is_given_up(&self, token: Token) -> bool {
        self.entries.get(&token).is_some_and(|entry| entry.state != State::Claimed)
    }

    /// Leaves the key alone until `until`; its clean-up becomes pending then. Does nothing for a
    /// key that was never entered. If it is `settled`, nothing can create the key from now on.
    pub(super) fn leave(&mut self, token: Token, until: Time, settled: bool) {
        if self.is_claimed(token) {
            // Only the key of a lease is left alone, and its deletion wakes the next waiter.
            self.change(token, State::Left { until, settled }, WakeUp::First);
        }
    }

    /// Makes the clean-ups pending whose keys were left alone for long enough. Returns whether
    /// there was any.
    pub(super) fn ripen(&mut self, now: Time) -> bool {
        let mut any = false;
        while let Some((_, token)) = self.index.ripe().filter(|(until, _)| *until <= now) {
            self.change(token, State::Pending, WakeUp::None);
            any = true;
        }
        any
    }

    /// When clean-ups are due next.
    pub(super) fn next(&self) -> Option<Time> {
        self.index.ripe().map(|(until, _)| until).into_iter().chain(self.retry_at).min()
    }

    /// Makes the clean-up of the key pending. No command for it is written yet.
    pub(super) fn enqueue(&mut self, token: Token, wake_up: WakeUp) {
        self.change(token, State::Pending, wake_up);
    }

    /// Notes that the compare-and-delete of the key is being written. Enters a key that was never
    /// entered: the link asks about it all the same.
    pub(super) fn start(&mut self, token: Token, key: Key, now: Time, wake_up: WakeUp) {
        if self.change(token, State::Sent, wake_up).is_none() {
            let entry = Entry::new(key, State::Sent, now, Duration::ZERO, wake_up);
            self.index.add(token, &entry);
            self.entries.insert(token, entry);
        }
    }

    /// Changes the state of a key, if it is there.
    fn change(&mut self, token: Token, state: State, wake_up: WakeUp) -> Option<&mut Entry> {
        let entry = self.entries.get_mut(&token)?;
        debug_assert!(
            !matches!(state, State::Claimed)
                && (!matches!(state, State::Left { .. }) || entry.state == State::Claimed),
            "R5: a key that was given up is never wanted again"
        );
        self.index.remove(token, entry);
        entry.state = state;
        entry.wake_up = entry.wake_up.max(wake_up);
        self.index.add(token, entry);
        Some(entry)
    }

    /// The key of a token, if its deletion wakes or counts waiters.
    pub(super) fn notifying(&self, token: Token) -> Option<&Key> {
        let entry = self.entries.get(&token)?;
        (entry.wake_up != WakeUp::None).then_some(&entry.key)
    }

    /// Starts all pending clean-ups.
    pub(super) fn start_all(&mut self) -> Vec<Command> {
        let pending = core::mem::take(&mut self.index.pending);
        pending.into_iter().filter_map(|token| self.send(token)).collect()
    }

    /// The compare-and-delete of the key, which is written now.
    fn send(&mut self, token: Token) -> Option<Command> {
        let entry = self.change(token, State::Sent, WakeUp::None)?;
        let (key, wake_up) = (entry.key.clone(), entry.wake_up);
        // The queue ledger takes back the position of a waiter whose release did not arrive.
        Some(Command::Delete { key, token, wake_up, leave: None })
    }

    /// Starts the clean-ups on a new connection, without a pause.
    pub(super) fn connected(&mut self, now: Time) -> Vec<Command> {
        self.ripen(now);
        self.retry_at = None;
        let mut all = self.start_all();
        all.extend(self.retry(RETRIES_AT_ONCE));
        all
    }

    /// Whether the pause after an error is over.
    pub(super) fn tries_again(&self, now: Time) -> bool {
        self.retry_at.is_some_and(|time| now >= time)
    }

    /// Starts the clean-ups that are due. `ripe` says whether some have just become pending.
    pub(super) fn due(&mut self, now: Time, ripe: bool) -> Vec<Command> {
        let again = self.retry_at.take_if(|time| now >= *time).is_some();
        let mut due = if ripe || again { self.start_all() } else { Vec::new() };
        if again {
            self.retries = self.retries.saturating_add(1);
            due.extend(self.retry(RETRIES_AT_ONCE));
        }
        due
    }

    /// Takes the master's reply to a compare-and-delete. Each one that is done starts one that was
    /// refused. `pause` is the first pause after an error.
    pub(super) fn answered(
        &mut self,
        now: Time,
        token: Token,
        reply: &Reply,
        reloaded: bool,
        pause: Duration,
    ) -> Vec<Command> {
        let done = match reply {
            // The master itself has confirmed that no key of ours is there. No command of ours
            // behind it could create one: a master answers the commands of one connection in order.
            Reply::Deleted | Reply::Absent | Reply::Taken(_) => {
                self.clear(token);
                self.retries = 0;
                true
            }
            Reply::Unknown(Cause::Error(_)) => self.refuse(now, token),
            Reply::Unknown(Cause::NoScript) if reloaded => self.refuse(now, token),
            // Either the scripts are loaded again first, which then sends the clean-ups, or the
            // connection ends.
            _ => {
                self.enqueue(token, WakeUp::None);
                return Vec::new();
            }
        };
        if done {
            return self.retry(1);
        }
        let factor = 1_u32.checked_shl(self.retries).unwrap_or(MAX_FACTOR).min(MAX_FACTOR);
        self.retry_after(now, pause.saturating_mul(factor));
        Vec::new()
    }

    /// Tries clean-ups again after this pause, unless another pause has begun.
    pub(super) fn retry_after(&mut self, now: Time, pause: Duration) {
        self.retry_at.get_or_insert(now.plus(pause));
    }

    /// Notes that the master replied to the compare-and-delete with an error. The master executed
    /// the command that created the key before that, so the key lives for no longer than its TTL
    /// and drift from now on. The link tries again until then, and gives up if a later try fails as
    /// well. Returns whether nothing is left to do.
    fn refuse(&mut self, now: Time, token: Token) -> bool {
        let Some(entry) = self.entries.get_mut(&token) else { return true };
        let ttl = entry.ttl;
        let lasts = if ttl.is_zero() { ttl } else { ttl + Drift::default().of(ttl) };
        let given_up = *entry.gone.get_or_insert(now.plus(lasts)) <= now;
        if given_up {
            self.clear(token);
        } else {
            if !core::mem::replace(&mut entry.queued, true) {
                self.refused.push_back(token);
            }
            self.change(token, State::Refused, WakeUp::None);
        }
        given_up
    }

    /// Starts up to `count` refused clean-ups again, those first that have waited for longest.
    fn retry(&mut self, count: usize) -> Vec<Command> {
        let mut again = Vec::new();
        while again.len() < count
            && let Some(token) = self.refused.pop_front()
        {
            let Some(entry) = self.entries.get_mut(&token) else { continue };
            entry.queued = false;
            if entry.state == State::Refused {
                again.extend(self.send(token));
            }
        }
        again
    }

    /// The connection is gone, on which the compare-and-delete of the key was under way.
    pub(super) fn restart(&mut self, token: Token) {
        if self.entries.get(&token).is_some_and(|entry| entry.state == State::Sent) {
            self.change(token, State::Pending, WakeUp::None);
        }
    }

    fn clear(&mut self, token: Token) {
        if let Some(entry) = self.entries.remove(&token) {
            debug_assert_ne!(entry.state, State::Claimed, "R5: a lease wants this key");
            self.index.remove(token, &entry);
        }
    }

    /// Whether there is no room for another key, not even in place of one that expires by itself.
    pub(super) fn is_full(&self, bounds: &Bounds) -> bool {
        let Index { bytes, settled, settled_bytes, .. } = &self.index;
        self.entries.len() - settled.len() >= bounds.ledger
            || bytes - settled_bytes >= bounds.ledger_bytes
    }

    pub(super) const fn claimed(&self) -> usize {
        self.index.claimed
    }

    /// Counts the keys whose clean-up is pending, in flight or refused. Keys that are left alone do
    /// not count.
    pub(super) fn pending_cleanups(&self) -> usize {
        let Index { claimed, left, settled, .. } = &self.index;
        self.entries.len() - claimed - left.len() - settled.len()
    }

    /// Counts the pending clean-ups, without keys that have expired by themselves.
    pub(super) fn pending_and_alive(&self, now: Time) -> usize {
        self.pending_alive(now).count()
    }

    /// Whether a clean-up is pending for a key that has not expired by itself.
    pub(super) fn is_any_pending_alive(&self, now: Time) -> bool {
        self.pending_alive(now).next().is_some()
    }

    fn pending_alive(&self, now: Time) -> impl Iterator<Item = &Entry> {
        // With nothing pending there is nothing to look through.
        let any = self.pending_cleanups() > 0;
        let entries = any.then(|| self.entries.values()).into_iter().flatten();
        entries.filter(move |entry| entry.is_pending() && now < entry.expires)
    }

    /// Whether what is kept beside the entries agrees with them. It walks through all of them.
    pub(super) fn is_consistent(&self) -> bool {
        let mut index = Index::default();
        self.entries.iter().for_each(|(token, entry)| index.add(*token, entry));
        let pending = self.entries.values().filter(|entry| entry.is_pending()).count();
        index == self.index && pending == self.pending_cleanups()
    }

    /// Whether a compare-and-delete is under way.
    pub(super) fn is_any_sent(&self) -> bool {
        self.entries.values().any(|entry| entry.state == State::Sent)
    }
}
