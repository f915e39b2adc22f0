//! What is going to happen, in order of time. Of what happens at the same time the first that was
//! entered is the first.

use super::world::Instant;

/// See the [module](self). The next is the last of a sorted list: there are a few dozen at a time, and
/// most of what is entered happens before most of what is there, so that a heap would be slower.
#[derive(Clone, Debug)]
pub(super) struct Queue<T> {
    all: Vec<Entry<T>>,
}

#[derive(Clone, Debug)]
struct Entry<T> {
    at: Instant,
    thing: T,
}

impl<T> Queue<T> {
    pub(super) const fn new() -> Self {
        Self { all: Vec::new() }
    }

    pub(super) fn enter(&mut self, at: Instant, thing: T) {
        let later = |entry: &Entry<T>| entry.at > at;
        // What was entered before is before it in time, and so behind it here.
        let mut place = self.all.len();
        for _ in 0..NEAR {
            if place == 0 || later(&self.all[place - 1]) {
                break;
            }
            place -= 1;
        }
        if place > 0 && !later(&self.all[place - 1]) {
            place = self.all[..place].partition_point(later);
        }
        self.all.insert(place, Entry { at, thing });
    }

    /// The next thing, and when it happens.
    pub(super) fn next(&mut self) -> Option<(Instant, T)> {
        self.all.pop().map(|entry| (entry.at, entry.thing))
    }
}

/// Among so many of the next things a place is looked for one by one.
const NEAR: usize = 16;

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

    #[test]
    fn much_is_kept_in_order_too() {
        let mut queue = Queue::new();
        for number in 0..1000_u64 {
            queue.enter(number * 7919 % 101, number);
        }
        let mut last = (0, 0);
        while let Some(next) = queue.next() {
            assert!(last.0 < next.0 || last.0 == next.0 && last.1 <= next.1, "{last:?} {next:?}");
            last = next;
        }
    }
}
