//! The pending events in order of time. Of events at the same time, the first that was entered
//! comes first.

use super::world::Instant;

/// See the [module](self). The next event is the last of a sorted list. There are a few dozen
/// events at a time, and most new events come before most of the pending ones. A heap would be
/// slower.
#[derive(Clone, Debug)]
pub(super) struct Queue<T> {
    all: Vec<(Instant, T)>,
}

impl<T> Queue<T> {
    pub(super) const fn new() -> Self {
        Self { all: Vec::new() }
    }

    pub(super) fn enter(&mut self, at: Instant, event: T) {
        // An event that was entered earlier comes first at the same time, so it lies behind in the
        // list.
        let place = self.all.partition_point(|(other, _)| *other > at);
        self.all.insert(place, (at, event));
    }

    /// Takes the next event, with its time.
    pub(super) fn next(&mut self) -> Option<(Instant, T)> {
        self.all.pop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_in_order_of_time_and_at_the_same_time_as_they_were_entered() {
        let mut queue = Queue::new();
        for number in 0..1000_u64 {
            queue.enter(number * 7919 % 101, number);
        }
        let (mut last, mut count) = ((0, 0), 0);
        while let Some(next) = queue.next() {
            assert!(last < next || count == 0, "{last:?} {next:?}");
            // An event that is entered at the present comes behind all others of the present.
            if next.1 == 500 {
                queue.enter(next.0, 1000);
            }
            (last, count) = (next, count + 1);
        }
        assert_eq!(count, 1001);
    }
}
