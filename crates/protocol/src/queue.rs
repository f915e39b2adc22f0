//! Queue: the claims of one process on one resource wait for each other, so that only one of them
//! asks the masters, or a run of those for a shared lease.
//!
//! When a claim gives its lease back, the next one begins in the same instant. Its commands are
//! written behind the compare-and-delete on the same connections. So the change costs one round
//! trip, and no other waiter is woken. The next claim still makes a new attempt, with a fresh token
//! (R4), the whole TTL and, with fencing, a number of its own. A lease that passed from claim to
//! claim would save that round trip, but the claims would share all of these.
//!
//! **Bound.** After [`IN_A_ROW`] leases, if others wait in the masters' queues, one of them is
//! woken, and the next claim of this process comes after it. With a fair lock, that is so after
//! each lease, and masters refuse the next claim if a waiter that this process does not know of yet
//! is in their queues.

use alloc::collections::BTreeMap;
use core::time::Duration;

use crate::acquire::Turn;
use crate::effect::Key;
use crate::fingerprint::{FNV_1A, fnv_1a};
use crate::time::Time;

/// How many leases in a row one process may have while others wait.
pub(crate) const IN_A_ROW: u32 = 4;

/// The claims of one process on one resource. `T` names a claim.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Queue<T> {
    /// The claims in the order in which they came, each with whether it is for a shared lease. The
    /// first one asks the masters, or holds the lease. If that one is for a shared lease, so do
    /// those behind it that are for one, up to the first that is not.
    claims: BTreeMap<u64, (T, bool)>,
    numbers: BTreeMap<T, u64>,
    last: u64,
    /// The number of the last claim whose turn has come.
    started: u64,
    in_a_row: u32,
    /// How many waiters were in a master's queue when the last lease was given back.
    others: u32,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        let (claims, numbers) = (BTreeMap::new(), BTreeMap::new());
        Self { claims, numbers, last: 0, started: 0, in_a_row: 0, others: 0 }
    }
}

impl<T: Clone + Ord> Queue<T> {
    /// Adds a claim. Returns whether its turn is now.
    pub(crate) fn join(&mut self, claim: T, shared: bool) -> bool {
        debug_assert!(!self.numbers.contains_key(&claim), "a claim waits in one place");
        self.last += 1;
        self.claims.insert(self.last, (claim.clone(), shared));
        self.numbers.insert(claim, self.last);
        self.start().is_some()
    }

    /// The next claim whose turn has come: the first one, or another one for a shared lease behind
    /// others that are.
    pub(crate) fn start(&mut self) -> Option<T> {
        let (first, (_, is_shared)) = self.claims.first_key_value()?;
        let (number, (next, shared)) = self.claims.range(self.started + 1..).next()?;
        if number != first && !(*is_shared && *shared) {
            return None;
        }
        self.started = *number;
        Some(next.clone())
    }

    /// A claim whose turn has come is about to give back a lease that it holds. Returns the next
    /// claim and its turn, unless others share the resource. For a [handed-off](Turn::HandedOff)
    /// turn, no other waiter is to be woken ([`Input::HandOn`](crate::Input::HandOn)).
    ///
    /// If the lock is `fair`, no process has two leases in a row while others wait: the next claim
    /// enqueues on the masters, too.
    pub(crate) fn hand_on(&mut self, claim: &T, fair: bool) -> Option<(T, Turn)> {
        if !self.is_started(claim) {
            return None;
        }
        if self.started().nth(1).is_some() {
            return self.leave(claim, Turn::First);
        }
        let others = core::mem::take(&mut self.others) > 0;
        let turn = match self.in_a_row + 1 {
            in_a_row if others && (fair || in_a_row >= IN_A_ROW) => Turn::Yielded,
            _ => Turn::HandedOff,
        };
        self.leave(claim, turn)
    }

    /// The claim holds no lease, or does not take its turn. Returns the next claim. It has this
    /// turn if no other claim has one.
    pub(crate) fn leave(&mut self, claim: &T, turn: Turn) -> Option<(T, Turn)> {
        let had_turn = self.is_started(claim);
        self.claims.remove(&self.numbers.remove(claim)?);
        debug_assert_eq!(self.claims.len(), self.numbers.len());
        if !had_turn || self.started().next().is_some() {
            // A claim for an exclusive lease stood between others for a shared one.
            return self.start().map(|next| (next, Turn::First));
        }
        self.in_a_row = if turn == Turn::HandedOff { self.in_a_row.saturating_add(1) } else { 0 };
        self.start().map(|next| (next, turn))
    }

    /// Notes how many waiters a master reported when a key was deleted.
    pub(crate) fn note_others(&mut self, others: u32) {
        self.others = self.others.max(others);
    }

    /// The claims whose turn has come.
    pub(crate) fn started(&self) -> impl Iterator<Item = &T> {
        self.claims.range(..=self.started).map(|(_, (claim, _))| claim)
    }

    /// Whether the turn of a claim has come.
    pub(crate) fn is_started(&self, claim: &T) -> bool {
        self.numbers.get(claim).is_some_and(|number| *number <= self.started)
    }

    /// Whether claims wait for their turn.
    pub(crate) fn has_waiting(&self) -> bool {
        self.claims.last_key_value().is_some_and(|(number, _)| *number > self.started)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.claims.is_empty()
    }
}

/// Resources that this process has just given back while others waited. Its next claim on one of
/// them enqueues before it attempts. Otherwise it would be faster than the woken waiter, again and
/// again.
///
/// The resources are known by a hash of their names, which may have a mebibyte each. Two names with
/// one hash do no harm: at worst a claim enqueues without need.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct RecentReleases(BTreeMap<u64, Time>);

fn hash(key: &Key) -> u64 {
    fnv_1a(FNV_1A, key)
}

/// How long a resource counts as just given back.
const JUST: Duration = Duration::from_secs(1);

const MOST: usize = 1_024;

impl RecentReleases {
    pub(crate) fn note(&mut self, now: Time, key: &Key, others: u32) {
        if others == 0 {
            if !self.0.is_empty() {
                self.0.remove(&hash(key));
            }
            return;
        }
        if self.0.len() >= MOST {
            self.0.retain(|_, at| now.since(*at) < JUST);
        }
        if self.0.len() < MOST {
            self.0.insert(hash(key), now);
        }
    }

    /// Whether the resource counts as just given back.
    pub(crate) fn contains(&self, now: Time, key: &Key) -> bool {
        // Most of the time nothing was given back while others waited.
        !self.0.is_empty() && self.0.get(&hash(key)).is_some_and(|at| now.since(*at) < JUST)
    }

    pub(crate) fn turn(&mut self, now: Time, key: &Key) -> Turn {
        let just = self.contains(now, key);
        if !self.0.is_empty() {
            self.0.remove(&hash(key));
        }
        if just { Turn::Yielded } else { Turn::First }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn claims_come_to_their_turn_in_the_order_in_which_they_came() {
        let mut queue = Queue::default();
        assert!(queue.join(1, false));
        assert!(!queue.join(2, false) && !queue.join(3, false) && !queue.join(4, false));
        assert_eq!(queue.hand_on(&1, false), Some((2, Turn::HandedOff)));
        assert_eq!(queue.leave(&3, Turn::First), None, "it gave up while it waited");
        assert_eq!(queue.leave(&2, Turn::First), Some((4, Turn::First)));
        assert_eq!(queue.leave(&4, Turn::First), None);
        assert!(queue.is_empty() && queue.join(5, false));
    }

    #[test]
    fn claims_for_a_shared_lease_have_their_turns_together() {
        let mut queue = Queue::default();
        let shared = |claim: u32| claim != 3 && claim != 6;
        let turns: Vec<u32> = (1..=7).filter(|claim| queue.join(*claim, shared(*claim))).collect();
        assert_eq!(turns, [1, 2], "the others are behind one for an exclusive lease");
        assert_eq!(queue.hand_on(&1, false), None, "another one shares the resource");
        assert!(queue.has_waiting() && queue.is_started(&2) && !queue.is_started(&3));
        assert_eq!(queue.hand_on(&2, false), Some((3, Turn::HandedOff)));
        assert_eq!(queue.start(), None);
        assert_eq!(queue.hand_on(&3, false), Some((4, Turn::HandedOff)));
        assert_eq!((queue.start(), queue.start()), (Some(5), None));
        assert_eq!(queue.leave(&6, Turn::First), Some((7, Turn::First)), "it stood in between");
        assert!(!queue.has_waiting());
        for (claim, next) in [(5, None), (7, None), (4, None)] {
            assert_eq!(queue.leave(&claim, Turn::First), next);
        }
        assert!(queue.is_empty() && queue.join(8, false) && !queue.join(9, true));
    }

    #[test]
    fn a_claim_behind_a_lease_that_others_waited_for_enqueues_first() {
        let at = |ms| Time::from_millis(ms);
        let key = |number: u32| Key::from(number.to_le_bytes().as_slice());
        let mut recent_releases = RecentReleases::default();
        recent_releases.note(at(0), &key(1), 2);
        assert_eq!(recent_releases.turn(at(999), &key(2)), Turn::First);
        assert_eq!(recent_releases.turn(at(999), &key(1)), Turn::Yielded);
        assert_eq!(recent_releases.turn(at(999), &key(1)), Turn::First, "once");
        recent_releases.note(at(1_000), &key(1), 2);
        assert_eq!(recent_releases.turn(at(2_000), &key(1)), Turn::First, "long ago");
        recent_releases.note(at(2_000), &key(1), 2);
        recent_releases.note(at(2_001), &key(1), 0);
        assert_eq!(recent_releases.turn(at(2_002), &key(1)), Turn::First, "none waits any more");
        (0..5_000).for_each(|number| recent_releases.note(at(3_000), &key(number), 1));
        assert_eq!(recent_releases.0.len(), MOST);
        recent_releases.note(at(4_000), &key(9_999), 1);
        assert_eq!(recent_releases.0.len(), 1);
    }

    #[test]
    fn no_name_is_kept() {
        let key = Key::from([7; 1 << 20].as_slice());
        let mut recent_releases = RecentReleases::default();
        recent_releases.note(Time::ZERO, &key, 1);
        assert_eq!(alloc::sync::Arc::strong_count(&key), 1);
        assert_eq!(recent_releases.turn(Time::ZERO, &key), Turn::Yielded);
    }

    #[test]
    fn other_waiters_are_woken_after_a_bounded_number_of_leases() {
        for (others, yielded) in [(0, 0), (1, 3)] {
            let mut queue = Queue::default();
            assert!((0..=3 * IN_A_ROW).all(|claim| queue.join(claim, false) == (claim == 0)));
            let mut seen = 0;
            for claim in 0..3 * IN_A_ROW {
                let (next, turn) = queue.hand_on(&claim, false).unwrap();
                assert_eq!(next, claim + 1);
                // The lease is dropped, too, some time after it was given back.
                queue.note_others(others);
                assert_eq!(queue.hand_on(&claim, false), None);
                seen += u32::from(turn == Turn::Yielded);
            }
            assert_eq!(seen, yielded);
        }
    }

    #[test]
    fn in_a_fair_queue_no_turn_is_handed_off_while_others_wait() {
        let mut queue = Queue::default();
        assert!((1..=4).all(|claim| queue.join(claim, false) == (claim == 1)));
        assert_eq!(queue.hand_on(&1, true), Some((2, Turn::HandedOff)));
        queue.note_others(1);
        assert_eq!(queue.hand_on(&2, true), Some((3, Turn::Yielded)));
        assert_eq!(queue.hand_on(&3, true), Some((4, Turn::HandedOff)), "none waits any more");
    }

    #[test]
    fn a_claim_waits_only_behind_another_one() {
        let mut queue = Queue::default();
        queue.join(1, false);
        assert!(!queue.has_waiting());
        queue.join(2, false);
        assert!(queue.has_waiting());
        queue.leave(&1, Turn::First);
        assert!(!queue.has_waiting());
    }
}
