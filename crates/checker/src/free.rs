//! How long a resource was free while a client waited for it, from events as they come: the soak
//! has no record of commands, and too many events to keep them. [`progress`](super::progress)
//! checks recorded runs.

use std::collections::{BTreeMap, BTreeSet};

use redquorum_protocol::wire::TURN_MS;
use redquorum_scenario::history::Ns;

use super::progress::{LOOKS, RESOLVES, SOON, rounds};
use super::time;

/// How long a resource may be free while a client waits for it, if masters reply at once: the time
/// for the looks, a turn of a silent waiter where the lock is fair, and some rounds
/// (`docs/waiting.md`).
pub fn longest_wait(fair: bool, node_timeout: Ns) -> Ns {
    let turn = if fair { time::of_ms(TURN_MS) + 2 * LOOKS + SOON } else { LOOKS };
    turn.saturating_add(rounds(node_timeout)).saturating_add(RESOLVES)
}

/// The requests for one resource, and its holds. Events come in the order of their times.
#[derive(Clone, Debug)]
pub struct FreeWaits<Id> {
    waiting: BTreeMap<Id, Ns>,
    holds: BTreeSet<Id>,
    /// Since when nothing is in the way but the holds.
    free: Ns,
}

impl<Id> Default for FreeWaits<Id> {
    fn default() -> Self {
        Self { waiting: BTreeMap::new(), holds: BTreeSet::new(), free: Ns::MIN }
    }
}

impl<Id: Ord + Copy> FreeWaits<Id> {
    /// A request begins to wait.
    pub fn asks(&mut self, id: Id, at: Ns) {
        self.waiting.insert(id, at);
    }

    /// A request no longer waits. Returns how long it had waited for the free resource.
    pub fn leaves(&mut self, id: Id, at: Ns) -> Ns {
        let asked = self.waiting.remove(&id).unwrap_or(at);
        if self.holds.is_empty() { at.saturating_sub(asked.max(self.free)).max(0) } else { 0 }
    }

    /// A request is granted. Returns how long any request had waited for the free resource.
    pub fn granted(&mut self, id: Id, at: Ns) -> Ns {
        let first = self.waiting.values().min().copied().unwrap_or(at);
        let waited = at.saturating_sub(first.max(self.free)).max(0);
        self.waiting.remove(&id);
        let is_free = self.holds.is_empty();
        self.holds.insert(id);
        if is_free { waited } else { 0 }
    }

    /// The hold of a request ends.
    pub fn ends(&mut self, id: Id, at: Ns) {
        if self.holds.remove(&id) {
            self.blocked_until(at);
        }
    }

    /// Something may be in the way until an instant, such as the keys of a dead client.
    pub fn blocked_until(&mut self, at: Ns) {
        self.free = self.free.max(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_time_counts_in_which_the_resource_is_free_and_a_request_waits() {
        let mut all = FreeWaits::default();
        all.asks(1, 10);
        assert_eq!(all.granted(1, 15), 5);
        all.asks(2, 20);
        assert_eq!(all.leaves(2, 40), 0, "it is held");
        all.asks(3, 50);
        all.ends(1, 60);
        all.asks(4, 65);
        assert_eq!(all.leaves(4, 70), 5);
        all.asks(5, 75);
        assert_eq!(all.granted(5, 80), 20, "the first request has waited since the end");
        all.ends(5, 90);
        all.blocked_until(120);
        assert_eq!(all.leaves(3, 130), 10);
        assert_eq!(all.leaves(3, 140), 0, "it does not wait");
    }

    #[test]
    fn a_fair_lock_may_take_one_turn_longer() {
        let bounds = [false, true].map(|fair| longest_wait(fair, 200_000_000) / 1_000_000);
        assert_eq!(bounds, [3_100, 7_350]);
    }
}
