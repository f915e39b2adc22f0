//! Reading: what one answer of a master tells of its clock, against the client's own.
//!
//! The client cannot know when, between sending and receiving, a master looked at its clock, so the
//! offset between the two clocks is known as an interval. Everything that a clock guard concludes
//! ([`Guard::with_clock_bound`](crate::Guard::with_clock_bound)) takes the end that hurts.

use core::time::Duration;

use crate::time::Time;

/// The offset of a master's clock from the client's, in microseconds: it lies between the two.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Reading {
    low: i64,
    high: i64,
    /// How long yet until the master was watched for a window; zero: it was.
    unwatched: Duration,
}

impl Reading {
    /// A master's `TIME`, asked for at `sent` at the earliest, and known at `received`.
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

    /// The same of a master that is to be watched for so long yet.
    #[must_use]
    pub const fn unwatched_for(self, left: Duration) -> Self {
        Self { unwatched: left, ..self }
    }

    /// How long the master is to be watched yet until its clock is judged by itself; zero: it is.
    pub const fn unwatched(self) -> Duration {
        self.unwatched
    }

    /// How uncertain it is.
    pub fn width(self) -> Duration {
        self.lead_at_most(self)
    }

    /// By how much this clock may be ahead of the other, at most.
    pub fn lead_at_most(self, other: Self) -> Duration {
        micros(self.high.saturating_sub(other.low))
    }

    /// By how much this clock is ahead of the other, at least.
    pub fn lead_at_least(self, other: Self) -> Duration {
        micros(self.low.saturating_sub(other.high))
    }

    /// One that says of two moments the lowest that either may have been.
    pub(crate) fn lowest(self, other: Self) -> Self {
        Self { low: self.low.min(other.low), high: self.high.min(other.high), ..self }
    }
}

/// Not ahead is ahead by nothing.
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
        // TIME is from 1000 to 1001 us; sent at 1 us or later, received at 6 us or earlier.
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
}
