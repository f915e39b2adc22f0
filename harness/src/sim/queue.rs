//! The pending events in order of time. Of events at the same time, the first that was entered
//! comes first.

use super::world::Instant;

/// See the [module](self). The next event is the last of a sorted list. There are a few dozen
/// events at a time, and most new events come before most of the pending ones. A heap would be
/// slower.
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
        // An event that was entered earlier comes first at the same time, so it lies behind in the
        // list.
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

    /// Takes the next event, with its time.
    pub(super) fn next(&mut self) -> Option<(Instant, T)> {
        self.all.pop().map(|entry| (entry.at, entry.thing))
    }
}

/// The place is searched linearly among so many of the next events.
const NEAR: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_at_the_same_time_keep_their_order() {
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
