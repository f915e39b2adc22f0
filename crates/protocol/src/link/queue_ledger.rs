//! Queue ledger: every position that this client may have in the master's queues, until the master
//! confirms that the waiter has left. A position that stays there blocks other waiters: the master
//! wakes it, and gives it a turn. So the link treats positions as it treats keys: it enters them
//! before it writes the command, and takes them back on the next connection.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

use crate::effect::Key;
use crate::time::Time;
use crate::waiter::{Waiter, WaiterId};
use crate::wire::{Command, LAPSE_MS};

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct QueueLedger {
    /// By waiter and inbox: the names by which the master may know a waiter. A waiter has another
    /// name once its process is subscribed, and may have both until it has left by the old one.
    entries: BTreeMap<(WaiterId, u64), Entry>,
    /// Names that the master did not let leave, and when it has dropped them in any case.
    refused: VecDeque<(Time, Waiter)>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Entry {
    key: Key,
    /// Whether the waiter has left: its position must go.
    left: bool,
    /// How many commands by which it leaves are under way on the current connection.
    leaving: u32,
}

impl Entry {
    fn leave(&mut self, waiter: Waiter) -> Command {
        (self.left, self.leaving) = (true, self.leaving + 1);
        // Other waiters may have waited for this position in vain.
        Command::Dequeue { key: self.key.clone(), waiter, wake: true }
    }

    /// Whether the position must go, and no command that removes it is under way.
    const fn is_pending(&self) -> bool {
        self.left && self.leaving == 0
    }
}

const fn name(waiter: Waiter) -> (WaiterId, u64) {
    (waiter.waiter_id, waiter.inbox)
}

const fn waiter(&(waiter_id, inbox): &(WaiterId, u64)) -> Waiter {
    Waiter { inbox, waiter_id }
}

impl QueueLedger {
    /// The names of a waiter.
    fn names(&mut self, waiter_id: WaiterId) -> impl Iterator<Item = (Waiter, &mut Entry)> {
        let names = self.entries.range_mut((waiter_id, 0)..=(waiter_id, u64::MAX));
        names.map(|(name, entry)| (waiter(name), entry))
    }

    /// Enters a position for which a command is about to ask. If the master may know the waiter by
    /// another name, that one leaves first, by the command that is returned.
    pub(super) fn enter(&mut self, key: &Key, waiter: Waiter) -> Option<Command> {
        let is_other =
            |(other, entry): &(Waiter, &mut Entry)| *other != waiter && entry.leaving == 0;
        let other = self.names(waiter.waiter_id).find(is_other);
        let old = other.map(|(other, entry)| entry.leave(other));
        let new = || Entry { key: key.clone(), left: false, leaving: 0 };
        self.entries.entry(name(waiter)).or_insert_with(new).left = false;
        debug_assert!(self.names(waiter.waiter_id).count() <= 2, "one inbox, or none");
        old
    }

    /// Notes that the waiter has left. Returns whether the master may have a position of it.
    pub(super) fn leave(&mut self, waiter_id: WaiterId) -> bool {
        self.names(waiter_id).map(|(_, entry)| entry.left = true).count() > 0
    }

    /// Notes that a command by which this waiter leaves is being written. Returns the name by which
    /// the master knows the waiter.
    pub(super) fn start(&mut self, key: &Key, waiter: Waiter) -> Waiter {
        self.leave(waiter.waiter_id);
        let known = self.names(waiter.waiter_id).find(|(_, entry)| entry.leaving == 0);
        let waiter = known.map_or(waiter, |(known, _)| known);
        let new = || Entry { key: key.clone(), left: true, leaving: 0 };
        self.entries.entry(name(waiter)).or_insert_with(new).leaving += 1;
        waiter
    }

    /// The master replied to a command by which this waiter leaves: it is `done`, or was refused.
    pub(super) fn answered(&mut self, now: Time, waiter: Waiter, done: bool) {
        let Some(entry) = self.entries.get_mut(&name(waiter)) else { return };
        debug_assert!(entry.leaving > 0, "a reply to no command");
        entry.leaving = entry.leaving.saturating_sub(1);
        if entry.is_pending() && done {
            self.entries.remove(&name(waiter));
        } else if entry.is_pending() {
            // The master has executed all commands that ask for the position. It drops it soon.
            let lapse = Duration::from_millis(LAPSE_MS);
            self.refused.push_back((now.plus(lapse + lapse / 64), waiter));
        }
        while let Some((_, gone)) = self.refused.front().filter(|(lapsed, _)| *lapsed <= now) {
            if self.entries.get(&name(*gone)).is_some_and(Entry::is_pending) {
                self.entries.remove(&name(*gone));
            }
            self.refused.pop_front();
        }
    }

    /// The command by which a waiter leaves that the master woke, if it has left before and no
    /// such command is under way. The next waiter is woken.
    pub(super) fn woken(&mut self, waiter_id: WaiterId) -> Option<Command> {
        let (waiter, entry) = self.names(waiter_id).find(|(_, entry)| entry.is_pending())?;
        Some(entry.leave(waiter))
    }

    /// The commands for all positions that must go.
    pub(super) fn start_all(&mut self) -> Vec<Command> {
        let pending = self.entries.iter_mut().filter(|(_, entry)| entry.is_pending());
        pending.map(|(name, entry)| entry.leave(waiter(name))).collect()
    }

    /// The connection is gone, and with it the replies to the commands under way.
    pub(super) fn restart_all(&mut self) {
        self.entries.values_mut().for_each(|entry| entry.leaving = 0);
    }

    /// Whether the master may know a waiter by this name.
    pub(super) fn contains(&self, waiter: Waiter) -> bool {
        self.entries.contains_key(&name(waiter))
    }

    /// Counts the positions that must go.
    pub(super) fn pending(&self) -> usize {
        self.entries.values().filter(|entry| entry.left).count()
    }
}
