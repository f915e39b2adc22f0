//! What is going to happen, in order of time. Of what happens at the same time the first that was
//! entered is the first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::world::Instant;

/// How many bits of a key say where its thing is.
const PLACE: u32 = 24;

/// See the [module](self). Only small keys are moved about; the things stay where they are.
#[derive(Clone, Debug)]
pub(super) struct Queue<T> {
    /// The time, a running number, and the place.
    keys: BinaryHeap<Reverse<u128>>,
    there: Vec<Option<T>>,
    free: Vec<usize>,
    entered: u64,
}

impl<T> Queue<T> {
    pub(super) const fn new() -> Self {
        Self { keys: BinaryHeap::new(), there: Vec::new(), free: Vec::new(), entered: 0 }
    }

    pub(super) fn enter(&mut self, at: Instant, thing: T) {
        let place = match self.free.pop() {
            Some(place) => {
                self.there[place] = Some(thing);
                place
            }
            None => {
                self.there.push(Some(thing));
                self.there.len() - 1
            }
        };
        assert!(place < 1 << PLACE, "so much never happens at once");
        self.entered += 1;
        let key = (u128::from(at) << 64) | (u128::from(self.entered) << PLACE) | place as u128;
        self.keys.push(Reverse(key));
    }

    /// The next thing, and when it happens.
    pub(super) fn next(&mut self) -> Option<(Instant, T)> {
        let Reverse(key) = self.keys.pop()?;
        let place = (key as usize) & ((1 << PLACE) - 1);
        let at = (key >> 64) as u64;
        let thing = self.there[place].take()?;
        self.free.push(place);
        Some((at, thing))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_entered_first_happens_first_at_the_same_time() {
        let mut queue = Queue::new();
        for (at, thing) in [(5, 'c'), (1, 'a'), (5, 'd'), (3, 'b'), (5, 'e')] {
            queue.enter(at, thing);
        }
        let mut order = String::new();
        while let Some((at, thing)) = queue.next() {
            order.push(thing);
            if thing == 'b' {
                queue.enter(at, 'x');
            }
        }
        assert_eq!(order, "abxcde");
    }
}
