//! Reading: the offset between a master's clock and the client's, from one reply.
//!
//! A master reads its clock at an unknown moment between the sending of the command and the receipt
//! of its reply. So the client knows the offset as an interval. A clock guard
//! ([`Guard::with_clock_bound`](crate::Guard::with_clock_bound)) always uses the less favourable
//! end of it.

use core::time::Duration;

use crate::time::Time;

/// The offset of a master's clock from the client's, as an interval in microseconds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Reading {
    low: i64,
    high: i64,
    /// How long the master must still be watched until the watch covers a window; zero if it does.
    unwatched: Duration,
}

impl Reading {
    /// The reading from a master's `TIME`, which was asked for at `sent` at the earliest and was
    /// known at `received`.
    ///
    /// Both ends are rounded outwards: `TIME` counts whole microseconds that have begun.
    pub fn new(sent: Time, received: Time, micros: u64) -> Self {
        let micros = i64::try_from(micros).unwrap_or(i64::MAX);
        let of = |nanos: u64| i64::try_from(nanos).unwrap_or(i64::MAX);
        Self {
            low: micros.saturating_sub(of(received.as_nanos().div_ceil(1000))),
            high: micros.saturating_add(1).saturating_sub(of(sent.as_nanos() / 1000)),
            unwatched: Duration::ZERO,
        }
    }

    /// Returns the reading with `left`: how long the master must still be watched.
    #[must_use]
    pub const fn unwatched_for(self, left: Duration) -> Self {
        Self { unwatched: left, ..self }
    }

    /// How long the master must still be watched until its clock is judged by itself; zero if it is
    /// now.
    pub const fn unwatched(self) -> Duration {
        self.unwatched
    }

    /// How uncertain the reading is.
    pub fn width(self) -> Duration {
        self.lead_at_most(self)
    }

    /// By how much this clock is ahead of the other at most.
    pub fn lead_at_most(self, other: Self) -> Duration {
        micros(self.high.saturating_sub(other.low))
    }

    /// By how much this clock is ahead of the other at least.
    pub fn lead_at_least(self, other: Self) -> Duration {
        micros(self.low.saturating_sub(other.high))
    }

    /// Combines two readings into the interval in which the lower of the two offsets lies.
    pub(crate) fn lowest(self, other: Self) -> Self {
        Self { low: self.low.min(other.low), high: self.high.min(other.high), ..self }
    }
}

/// A clock that is behind is ahead by zero.
fn micros(difference: i64) -> Duration {
    Duration::from_micros(u64::try_from(difference).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Duration = Duration::from_micros(1);

    #[test]
    fn an_offset_lies_between_sending_and_receiving_rounded_outwards() {
        let at = Time::from_nanos;
        let first = Reading::new(at(1_999), at(5_001), 1_000);
        // `TIME` is from 1000 to 1001 µs; sent at 1 µs or later, received at 6 µs or earlier.
        assert_eq!(first.width(), 1_000 * US - 994 * US);
        let second = Reading::new(at(101_999), at(105_001), 1_110);
        assert_eq!(second.lead_at_most(first), 1_010 * US - 994 * US);
        assert_eq!(second.lead_at_least(first), 4 * US);
        assert_eq!(first.lead_at_least(second), Duration::ZERO);
    }

    #[test]
    fn numbers_that_no_clock_shows_do_not_wrap_around() {
        let never = Reading::new(Time::ZERO, Time::ZERO, u64::MAX);
        let old = Reading::new(Time::NEVER, Time::NEVER, 0);
        assert!(never.lead_at_least(old) > Duration::from_secs(1 << 40));
        assert_eq!(old.lead_at_most(never), Duration::ZERO);
    }

    #[test]
    fn the_lower_of_two_offsets_lies_between_the_lower_ends() {
        let reading = |low, high| Reading { low, high, unwatched: Duration::ZERO };
        for (one, other, lowest) in [
            ((1, 5), (2, 6), (1, 5)),
            ((2, 6), (1, 5), (1, 5)),
            ((1, 9), (2, 3), (1, 3)),
            ((2, 3), (1, 9), (1, 3)),
        ] {
            let [one, other, lowest] = [one, other, lowest].map(|(low, high)| reading(low, high));
            assert_eq!(one.lowest(other), lowest);
        }
    }
}
