//! Queue: claims of one process on one resource wait for each other, so that one of them asks the masters.
//!
//! Who gives the lease back lets the next one begin in the same instant: what it asks is written behind the
//! compare-and-delete on the same connections, so that it costs one round trip, and nobody else is called.
//! A new attempt it is all the same, with a fresh token (R4), the whole TTL and, with fencing, a number of its
//! own: a lease that went from hand to hand would save that round trip and share all of this.
//!
//! **Bounded.** After [`IN_A_ROW`] leases, and if others listen for the resource, they are called, and the
//! next one of this process comes after them. Where processes stand in line, that is so after each lease, whoever
//! listens.

use alloc::collections::VecDeque;

use crate::acquire::Turn;

/// So many leases of one process in a row, while others wait.
pub const IN_A_ROW: u32 = 4;

/// The claims of one process on one resource, by whatever names them.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Queue<T> {
    /// The one that asks the masters, or holds the lease.
    ahead: Option<T>,
    waiting: VecDeque<T>,
    in_a_row: u32,
    /// How many listened elsewhere when the last lease was given back.
    others: u32,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { ahead: None, waiting: VecDeque::new(), in_a_row: 0, others: 0 }
    }
}

impl<T: Clone + PartialEq> Queue<T> {
    /// Another one comes. Whether its turn is now.
    pub fn join(&mut self, claim: T) -> bool {
        let first = self.is_empty();
        if first {
            self.ahead = Some(claim);
        } else {
            self.waiting.push_back(claim);
        }
        first
    }

    /// The one ahead is about to give back a lease that it holds. Who comes next, and how: if it is an
    /// [heir](Turn::Heir), nobody else is to be called ([`Input::HandOn`](crate::Input::HandOn)).
    ///
    /// If it is `fair`, no process comes twice in a row while others stand in line: the next one stands there, too.
    pub fn hand_on(&mut self, claim: &T, fair: bool) -> Option<(T, Turn)> {
        if self.ahead.as_ref() != Some(claim) {
            return None;
        }
        let others = core::mem::take(&mut self.others) > 0;
        let turn = match self.in_a_row + 1 {
            _ if fair => Turn::Guest,
            IN_A_ROW.. if others => Turn::Guest,
            _ => Turn::Heir,
        };
        self.next(claim, turn)
    }

    /// This one is done, and held no lease, or has lost it. Who comes next, and how.
    pub fn leave(&mut self, claim: &T) -> Option<(T, Turn)> {
        self.next(claim, Turn::First)
    }

    /// The turn that this one was given is not taken: it is gone. Who takes it.
    pub fn pass(&mut self, claim: &T, turn: Turn) -> Option<(T, Turn)> {
        self.next(claim, turn)
    }

    fn next(&mut self, claim: &T, turn: Turn) -> Option<(T, Turn)> {
        if self.ahead.as_ref() != Some(claim) {
            self.waiting.retain(|waiting| waiting != claim);
            return None;
        }
        self.ahead = self.waiting.pop_front();
        self.in_a_row = if turn == Turn::Heir { self.in_a_row.saturating_add(1) } else { 0 };
        self.ahead.clone().map(|next| (next, turn))
    }

    /// As a key was deleted, so many others listened.
    pub fn heard(&mut self, others: u32) {
        self.others = self.others.max(others);
    }

    /// Whether nobody is there.
    pub fn is_empty(&self) -> bool {
        self.ahead.is_none() && self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_come_to_their_turn_in_the_order_in_which_they_came() {
        let mut queue = Queue::default();
        assert!(queue.join(1));
        assert!(!queue.join(2) && !queue.join(3) && !queue.join(4));
        assert_eq!(queue.hand_on(&1, false), Some((2, Turn::Heir)));
        assert_eq!(queue.leave(&3), None, "it gave up while it waited");
        assert_eq!(queue.leave(&2), Some((4, Turn::First)));
        assert_eq!(queue.leave(&4), None);
        assert!(queue.is_empty() && queue.join(5));
    }

    #[test]
    fn a_turn_that_nobody_takes_passes_to_the_next() {
        let mut queue = Queue::default();
        assert!((1..=3).all(|claim| queue.join(claim) == (claim == 1)));
        assert_eq!(queue.hand_on(&1, false), Some((2, Turn::Heir)));
        assert_eq!(queue.pass(&2, Turn::Heir), Some((3, Turn::Heir)));
    }

    #[test]
    fn others_who_listen_are_called_after_a_bounded_number_of_leases_and_nobody_else_is() {
        for (others, guests) in [(0, 0), (1, 3)] {
            let mut queue = Queue::default();
            assert!((0..=3 * IN_A_ROW).all(|claim| queue.join(claim) == (claim == 0)));
            let mut seen = 0;
            for claim in 0..3 * IN_A_ROW {
                let (next, turn) = queue.hand_on(&claim, false).unwrap();
                assert_eq!(next, claim + 1);
                // The lease is dropped, too, some time after it was given back.
                queue.heard(others);
                assert_eq!(queue.hand_on(&claim, false), None);
                seen += u32::from(turn == Turn::Guest);
            }
            assert_eq!(seen, guests);
        }
    }

    #[test]
    fn who_stands_in_line_is_nobodys_heir() {
        let mut queue = Queue::default();
        assert!((1..=3).all(|claim| queue.join(claim) == (claim == 1)));
        assert_eq!(queue.hand_on(&1, true), Some((2, Turn::Guest)));
        assert_eq!(queue.hand_on(&2, true), Some((3, Turn::Guest)));
    }
}
