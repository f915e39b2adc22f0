//! The queue of the waiters for a resource, as a master keeps it.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::{Frame, RESERVED, counted, holder};
use crate::vote::{Cause, Holder, Reply};
use crate::waiter::{Position, Waiter};

/// The two keys of a resource's queue: a sorted set of waiters by position, and one by the time at
/// which each waiter lapses, in milliseconds of the master's clock.
pub fn queue_of(key: &[u8]) -> [Vec<u8>; 2] {
    [[RESERVED, b"queue:", key].concat(), [RESERVED, b"lapse:", key].concat()]
}

/// How long masters keep the position of a waiter that does not ask again, in milliseconds.
pub const LAPSE_MS: u64 = 15_000;

/// How long a waiter that was woken keeps its position unless it asks again, in milliseconds.
pub const TURN_MS: u64 = 3_000;

/// A look writes nothing if the waiter has at least this much time left, in milliseconds.
const FRESH_MS: u64 = 10_000;

/// In milliseconds: a waiter with more time left than this has just asked, and may be about to
/// subscribe.
const NEW_MS: u64 = 14_000;

/// How many lapsed waiters of each kind a script drops at a time; and how many without a
/// connection.
const SWEEP: usize = 100;

/// Reads a master's reply about a position.
pub(super) fn place(parts: &[Frame<'_>]) -> Reply {
    read(parts).unwrap_or(Reply::Unknown(Cause::Garbage))
}

fn read(parts: &[Frame<'_>]) -> Option<Reply> {
    let [Frame::Integer(number), Frame::Integer(ahead), held @ ..] = parts else { return None };
    let holder = match held {
        [] => None,
        [Frame::Integer(_)] => Some(Holder::WrongType),
        [Frame::Integer(left), Frame::Bulk(value)] => Some(holder(*left, value)),
        _ => return None,
    };
    let ahead = u64::try_from(*ahead).ok()?;
    Some(match counted(*number) {
        Some(number) => Reply::Place { number, ahead, holder },
        // Another program wrote into the queue.
        None => Reply::NoQueue,
    })
}

/// A queue as the scripts keep it, for models of masters.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct WaitQueue {
    positions: BTreeMap<Waiter, u64>,
    /// A separate map: a master may have noticed that one key has expired, and not yet that the
    /// other has.
    lapses: BTreeMap<Waiter, u64>,
    /// The last millisecond at which the keys exist, whether or not their waiters have lapsed.
    until: u64,
}

impl WaitQueue {
    /// Drops waiters that have lapsed. Returns whether there were any.
    pub fn sweep(&mut self, now: u64) -> bool {
        self.expire(now);
        let lapsed = |from: fn(u64, u64) -> bool| {
            let of = self.lapses.iter().filter(|(_, lapses)| from(**lapses, now));
            let mut of: Vec<_> = of.map(|(waiter, lapses)| (*lapses, *waiter)).collect();
            of.sort_unstable();
            of.truncate(SWEEP);
            of
        };
        let late = lapsed(|lapses, now| lapses <= now);
        let early = lapsed(|lapses, now| lapses > now + LAPSE_MS);
        let any = !late.is_empty() || !early.is_empty();
        for (_, waiter) in late.into_iter().chain(early) {
            self.leave(waiter);
        }
        any
    }

    /// Gives a waiter its position, or keeps it. Returns the position's number and how many waiters
    /// are before it.
    ///
    /// `now` is the master's clock in milliseconds. Call it after [`sweep`](Self::sweep).
    pub fn enqueue(&mut self, now: u64, waiter: Waiter, position: Position) -> (u64, u64) {
        let number = self.number_at(waiter, position);
        if self.writes(now, waiter, position) {
            self.positions.insert(waiter, number);
            self.lapses.insert(waiter, now + LAPSE_MS);
            self.until = now + LAPSE_MS;
        }
        (number, self.before(waiter))
    }

    fn number_at(&self, waiter: Waiter, position: Position) -> u64 {
        match position {
            Position::At(number) => number,
            position => {
                let last = || self.positions.values().copied().max().unwrap_or(0);
                position.number().max(self.number(waiter).unwrap_or_else(|| last() + 1))
            }
        }
    }

    /// Whether a look of this waiter writes anything.
    pub fn writes(&self, now: u64, waiter: Waiter, position: Position) -> bool {
        let keeps = self.number(waiter) == Some(self.number_at(waiter, position));
        let fresh = self.lapses.get(&waiter).is_some_and(|lapses| *lapses >= now + FRESH_MS);
        !(keeps && fresh)
    }

    /// How many waiters are before one that is in the queue.
    pub fn before(&self, waiter: Waiter) -> u64 {
        let Some(ours) = self.number(waiter) else { return 0 };
        let is_before = |(other, number): &(&Waiter, &u64)| (**number, **other) < (ours, waiter);
        let before = self.positions.iter().filter(is_before).count();
        u64::try_from(before).unwrap_or(u64::MAX)
    }

    /// Removes a waiter. Returns whether it was there.
    pub fn leave(&mut self, waiter: Waiter) -> bool {
        let had_position = self.positions.remove(&waiter).is_some();
        self.lapses.remove(&waiter).is_some() || had_position
    }

    /// Wakes the first waiter that `publish` reaches, and drops those before it whose connection is
    /// gone. Returns whether anything was written.
    ///
    /// The woken waiter keeps its position for three seconds only, unless the master has no memory
    /// to write with. The waiter `asker` needs no wake-up, and no waiter behind it does.
    pub fn wake(
        &mut self,
        now: u64,
        asker: Option<Waiter>,
        mut can_write: bool,
        mut publish: impl FnMut(Waiter) -> bool,
    ) -> bool {
        let mut wrote = self.sweep(now);
        can_write |= wrote;
        let mut at = 0;
        for _ in 0..SWEEP {
            let Some(first) = self.nth(at).filter(|first| Some(*first) != asker) else { break };
            let lapses = self.lapses.get(&first).copied().unwrap_or(0);
            let is_new = lapses > now + NEW_MS;
            let woken = first.inbox != 0 && publish(first);
            if woken || first.inbox == 0 || is_new {
                if can_write && lapses > now + TURN_MS {
                    self.lapses.insert(first, now + TURN_MS);
                    wrote = true;
                }
                if woken || first.inbox == 0 {
                    break;
                }
                at += 1;
            } else {
                self.leave(first);
                (wrote, can_write) = (true, true);
            }
        }
        wrote
    }

    /// The waiter that has `at` waiters before it.
    fn nth(&self, at: usize) -> Option<Waiter> {
        let mut all: Vec<_> = self.positions.iter().map(|(waiter, it)| (*it, *waiter)).collect();
        all.sort_unstable();
        all.get(at).map(|(_, waiter)| *waiter)
    }

    /// How many waiters there are, lapsed or not.
    pub fn len(&self, now: u64) -> usize {
        if self.is_there(now) { self.positions.len() } else { 0 }
    }

    /// Whether there are no waiters: then there are no keys.
    pub fn is_empty(&self) -> bool {
        self.keys() == 0
    }

    /// How many keys the queue has, 2 at most, with those that have expired unnoticed.
    pub fn keys(&self) -> usize {
        usize::from(!self.positions.is_empty()) + usize::from(!self.lapses.is_empty())
    }

    /// The position of a waiter, if it has one.
    pub fn number(&self, waiter: Waiter) -> Option<u64> {
        self.positions.get(&waiter).copied()
    }

    /// Whether the keys have not expired.
    pub const fn is_there(&self, now: u64) -> bool {
        now <= self.until
    }

    /// Removes both keys if they have expired, as a command does that looks at both. Returns
    /// whether it did.
    pub fn expire(&mut self, now: u64) -> bool {
        let goes = !self.is_there(now) && !self.is_empty();
        if goes {
            self.positions.clear();
            self.lapses.clear();
        }
        goes
    }

    /// Counts the waiters as a master does, which looks only at the key of the positions. Also
    /// returns whether that key goes because it has expired.
    pub fn count(&mut self, now: u64) -> (usize, bool) {
        let goes = !self.is_there(now) && !self.positions.is_empty();
        if goes {
            self.positions.clear();
        }
        (self.positions.len(), goes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::waiter::WaiterId;

    fn waiter(number: u64) -> Waiter {
        Waiter { inbox: number, waiter_id: WaiterId::new(number) }
    }

    fn look(queue: &mut WaitQueue, now: u64, number: u64, position: Position) -> (u64, u64) {
        queue.sweep(now);
        queue.enqueue(now, waiter(number), position)
    }

    #[test]
    fn positions_are_in_the_order_of_their_numbers_and_of_waiters_where_those_are_equal() {
        let mut queue = WaitQueue::default();
        assert_eq!(look(&mut queue, 0, 7, Position::Last), (1, 0));
        assert_eq!(look(&mut queue, 0, 5, Position::Last), (2, 1));
        assert_eq!(look(&mut queue, 0, 7, Position::NotBefore(2)), (2, 1));
        assert_eq!(look(&mut queue, 0, 7, Position::NotBefore(1)), (2, 1), "it keeps its position");
        assert_eq!(look(&mut queue, 0, 7, Position::At(1)), (1, 0));
        assert_eq!(look(&mut queue, 0, 7, Position::At(4)), (4, 1));
        assert_eq!(look(&mut queue, 0, 7, Position::Last), (4, 1));
    }

    #[test]
    fn a_waiter_without_a_position_comes_behind_all_others_whatever_another_master_gave_it() {
        let mut queue = WaitQueue::default();
        assert_eq!(look(&mut queue, 0, 1, Position::At(5)), (5, 0));
        assert_eq!(look(&mut queue, 0, 2, Position::NotBefore(1)), (6, 1));
        assert_eq!(look(&mut queue, 0, 3, Position::NotBefore(9)), (9, 2));
    }

    #[test]
    fn a_position_lapses_unless_it_is_asked_for_again() {
        let mut queue = WaitQueue::default();
        look(&mut queue, 0, 1, Position::Last);
        look(&mut queue, 4_000, 2, Position::Last);
        assert!(!queue.writes(4_000, waiter(1), Position::Last), "a look is no write");
        assert!(queue.writes(6_000, waiter(1), Position::Last));
        assert_eq!(look(&mut queue, LAPSE_MS - 1, 2, Position::Last), (2, 1));
        assert_eq!(look(&mut queue, LAPSE_MS, 2, Position::Last), (2, 0));
        // The keys go with the last waiter.
        assert!(queue.is_there(2 * LAPSE_MS - 1) && !queue.is_there(2 * LAPSE_MS));
    }

    #[test]
    fn where_the_clock_is_set_back_positions_are_asked_for_anew() {
        let mut queue = WaitQueue::default();
        look(&mut queue, 100_000, 1, Position::Last);
        look(&mut queue, 100_000, 2, Position::Last);
        assert_eq!(look(&mut queue, 10, 2, Position::NotBefore(2)), (2, 0));
        assert_eq!(look(&mut queue, 10, 1, Position::At(1)), (1, 0));
    }

    #[test]
    fn a_waiter_whose_connection_is_gone_is_passed_over_and_one_that_hangs_lapses_soon() {
        let mut queue = WaitQueue::default();
        (1..=3).for_each(|number| _ = look(&mut queue, 0, number, Position::Last));
        let mut woken = Vec::new();
        queue.wake(2_000, None, true, |first| {
            woken.push(first.inbox);
            first.inbox > 1
        });
        assert_eq!((woken, queue.len(2_000)), (Vec::from([1, 2]), 2));
        assert_eq!(look(&mut queue, 2_000 + TURN_MS - 1, 3, Position::Last), (3, 1));
        assert_eq!(look(&mut queue, 2_000 + TURN_MS, 3, Position::Last), (3, 0));
    }
}
