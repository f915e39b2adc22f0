//! Stamps: readings of `CLOCK_MONOTONIC` in nanoseconds, which all processes of one machine share.

use std::time::Duration;

use redquorum_scenario::units::nanos;

/// The current time.
pub fn now() -> i64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec.saturating_mul(1_000_000_000).saturating_add(now.tv_nsec)
}

/// The stamp plus a length of time, saturating at the last instant.
pub fn later(stamp: i64, by: Duration) -> i64 {
    stamp.saturating_add(nanos(by))
}
