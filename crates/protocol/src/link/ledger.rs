//! Ledger: every key that this client may have on the master, until the master confirms that it is
//! gone. It decides when which clean-up is sent; the caller writes the commands that it returns.

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
    /// The size of all keys together.
    bytes: usize,
    /// When the clean-up of each key that is left alone becomes pending.
    ripe: BTreeSet<(Time, Token)>,
    /// Keys whose clean-up met an error, in the order in which the link tries them again.
    refused: VecDeque<Token>,
    /// When the link tries them again.
    retry_at: Option<Time>,
    /// How often the link has tried them again since the master last completed a clean-up.
    retries: u32,
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
    /// The claim is over, and its key must stay until its time.
    Left,
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

    /// The compare-and-delete, which is written now.
    fn start(&mut self, token: Token) -> Command {
        self.state = State::Sent;
        // If the release that removes a waiter does not arrive, the waiter's position expires.
        Command::Delete { key: self.key.clone(), token, wake_up: self.wake_up, leave: None }
    }
}

impl Ledger {
    /// Enters a key that a command is about to create or extend. It lives for `ttl` from then on.
    pub(super) fn claim(&mut self, now: Time, token: Token, key: Key, ttl: Duration) {
        let expires = now.plus(ttl);
        let new = Entry::new(key, State::Claimed, expires, ttl, WakeUp::None);
        let entry = self.enter(token, new);
        entry.expires = entry.expires.max(expires);
        entry.ttl = entry.ttl.max(ttl);
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
    /// key that was never entered.
    pub(super) fn leave(&mut self, token: Token, until: Time) {
        if let Some(entry) = self.entries.get_mut(&token)
            && entry.state == State::Claimed
        {
            entry.state = State::Left;
            // Only the key of a lease is left alone, and its deletion wakes the next waiter.
            entry.wake_up = WakeUp::First;
            self.ripe.insert((until, token));
        }
    }

    /// Makes the clean-ups pending whose keys were left alone for long enough. Returns whether
    /// there was any.
    pub(super) fn ripen(&mut self, now: Time) -> bool {
        let mut any = false;
        while let Some((_, token)) = self.ripe.first().copied().filter(|(until, _)| *until <= now) {
            self.ripe.pop_first();
            if let Some(entry) = self.entries.get_mut(&token)
                && entry.state == State::Left
            {
                entry.state = State::Pending;
                any = true;
            }
        }
        any
    }

    /// When clean-ups are due next.
    pub(super) fn next(&self) -> Option<Time> {
        self.ripe.first().map(|(until, _)| *until).into_iter().chain(self.retry_at).min()
    }

    /// Makes the clean-up of the key pending. No command for it is written yet.
    pub(super) fn enqueue(&mut self, token: Token, wake_up: WakeUp) {
        if let Some(entry) = self.entries.get_mut(&token) {
            entry.state = State::Pending;
            entry.wake_up = entry.wake_up.max(wake_up);
        }
    }

    /// Notes that the compare-and-delete of the key is being written. Enters a key that was never
    /// entered: the link asks about it all the same.
    pub(super) fn start(&mut self, token: Token, key: Key, now: Time, wake_up: WakeUp) {
        let new = Entry::new(key, State::Sent, now, Duration::ZERO, wake_up);
        let entry = self.enter(token, new);
        entry.state = State::Sent;
        entry.wake_up = entry.wake_up.max(wake_up);
    }

    /// The key of a token, if its deletion wakes or counts waiters.
    pub(super) fn notifying(&self, token: Token) -> Option<&Key> {
        let entry = self.entries.get(&token)?;
        (entry.wake_up != WakeUp::None).then_some(&entry.key)
    }

    fn enter(&mut self, token: Token, entry: Entry) -> &mut Entry {
        let bytes = &mut self.bytes;
        self.entries.entry(token).or_insert_with(|| {
            *bytes += entry.key.len();
            entry
        })
    }

    /// Starts all pending clean-ups.
    pub(super) fn start_all(&mut self) -> Vec<Command> {
        let pending = self.entries.iter_mut().filter(|(_, entry)| entry.state == State::Pending);
        pending.map(|(token, entry)| entry.start(*token)).collect()
    }

    /// Starts the clean-ups on a new connection, without a pause.
    pub(super) fn connected(&mut self, now: Time) -> Vec<Command> {
        self.ripen(now);
        self.retry_at = None;
        let mut all = self.start_all();
        all.extend(self.retry(RETRIES_AT_ONCE));
        all
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
            entry.state = State::Refused;
            if !core::mem::replace(&mut entry.queued, true) {
                self.refused.push_back(token);
            }
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
                again.push(entry.start(token));
            }
        }
        again
    }

    /// The connection is gone: clean-ups in flight are pending again.
    pub(super) fn restart_all(&mut self) {
        for entry in self.entries.values_mut().filter(|entry| entry.state == State::Sent) {
            entry.state = State::Pending;
        }
    }

    fn clear(&mut self, token: Token) {
        if let Some(entry) = self.entries.remove(&token) {
            self.bytes -= entry.key.len();
        }
    }

    pub(super) fn is_full(&self, bounds: &Bounds) -> bool {
        self.entries.len() >= bounds.ledger || self.bytes >= bounds.ledger_bytes
    }

    pub(super) fn claimed(&self) -> usize {
        self.entries.values().filter(|entry| entry.state == State::Claimed).count()
    }

    /// Counts the keys whose clean-up is pending, in flight or refused. Keys that are left alone do
    /// not count.
    pub(super) fn pending_cleanups(&self) -> usize {
        self.entries.values().filter(|entry| entry.is_pending()).count()
    }

    /// Counts the pending clean-ups, without keys that have expired by themselves.
    pub(super) fn pending_and_alive(&self, now: Time) -> usize {
        let counts = |entry: &&Entry| entry.is_pending() && now < entry.expires;
        self.entries.values().filter(counts).count()
    }
}
