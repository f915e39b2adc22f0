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
    entries: BTreeMap<WaiterId, Entry>,
    /// Waiters that the master did not let leave, and when it has dropped them in any case.
    refused: VecDeque<(Time, WaiterId)>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Entry {
    key: Key,
    /// The inbox in the name by which the master knows the waiter.
    inbox: u64,
    /// Whether the waiter has left: its position must go.
    left: bool,
    /// How many commands by which it leaves are under way on the current connection.
    leaving: u32,
}

impl Entry {
    fn leave(&mut self, waiter_id: WaiterId) -> Command {
        self.leaving += 1;
        let waiter = Waiter { inbox: self.inbox, waiter_id };
        // Other waiters may have waited for this position in vain.
        Command::Dequeue { key: self.key.clone(), waiter, wake: true }
    }

    /// Whether the position must go, and no command that removes it is under way.
    const fn is_pending(&self) -> bool {
        self.left && self.leaving == 0
    }
}

impl QueueLedger {
    /// Enters a position for which a command is about to ask. If the master may know the waiter by
    /// another name, that one leaves first, by the command that is returned.
    pub(super) fn enter(&mut self, key: &Key, waiter: Waiter) -> Option<Command> {
        let Waiter { inbox, waiter_id } = waiter;
        let new = || Entry { key: key.clone(), inbox, left: false, leaving: 0 };
        let entry = self.entries.entry(waiter_id).or_insert_with(new);
        let is_leaving = entry.left && entry.leaving > 0;
        let renamed = entry.inbox != inbox && !is_leaving;
        let old = renamed.then(|| entry.leave(waiter_id));
        (entry.inbox, entry.left) = (inbox, false);
        old
    }

    /// Notes that the waiter has left. Returns whether the master may have a position of it.
    pub(super) fn leave(&mut self, waiter_id: WaiterId) -> bool {
        let entry = self.entries.get_mut(&waiter_id);
        entry.map(|entry| entry.left = true).is_some()
    }

    /// Notes that a command by which this waiter leaves is being written. Returns the name by which
    /// the master knows the waiter.
    pub(super) fn start(&mut self, key: &Key, waiter: Waiter) -> Waiter {
        let Waiter { inbox, waiter_id } = waiter;
        let new = || Entry { key: key.clone(), inbox, left: true, leaving: 0 };
        let entry = self.entries.entry(waiter_id).or_insert_with(new);
        entry.left = true;
        entry.leaving += 1;
        Waiter { inbox: entry.inbox, ..waiter }
    }

    /// The master replied to a command by which this waiter leaves: it is `done`, or was refused.
    pub(super) fn answered(&mut self, now: Time, waiter_id: WaiterId, done: bool) {
        let Some(entry) = self.entries.get_mut(&waiter_id) else { return };
        debug_assert!(entry.leaving > 0, "a reply to no command");
        entry.leaving = entry.leaving.saturating_sub(1);
        if entry.is_pending() && done {
            self.entries.remove(&waiter_id);
        } else if entry.is_pending() {
            // The master has executed all commands that ask for the position. It drops it soon.
            let lapse = Duration::from_millis(LAPSE_MS);
            self.refused.push_back((now.plus(lapse + lapse / 64), waiter_id));
        }
        while let Some((_, gone)) = self.refused.front().filter(|(lapsed, _)| *lapsed <= now) {
            if self.entries.get(gone).is_some_and(Entry::is_pending) {
                self.entries.remove(gone);
            }
            self.refused.pop_front();
        }
    }

    /// The command by which a waiter leaves that the master woke, if it has left before and no
    /// such command is under way. The next waiter is woken.
    pub(super) fn woken(&mut self, waiter_id: WaiterId) -> Option<Command> {
        let entry = self.entries.get_mut(&waiter_id).filter(|entry| entry.is_pending())?;
        Some(entry.leave(waiter_id))
    }

    /// The commands for all positions that must go.
    pub(super) fn start_all(&mut self) -> Vec<Command> {
        let pending = self.entries.iter_mut().filter(|(_, entry)| entry.is_pending());
        pending.map(|(waiter_id, entry)| entry.leave(*waiter_id)).collect()
    }

    /// The connection is gone, and with it the replies to the commands under way.
    pub(super) fn restart_all(&mut self) {
        self.entries.values_mut().for_each(|entry| entry.leaving = 0);
    }

    /// Counts the positions that must go.
    pub(super) fn pending(&self) -> usize {
        self.entries.values().filter(|entry| entry.left).count()
    }
}
