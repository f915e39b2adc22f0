//! Stamps: nanoseconds of `CLOCK_MONOTONIC`, by which the processes of one machine talk about time.

use std::time::Duration;

use crate::units::nanos;

/// Now.
pub fn now() -> i64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec.saturating_mul(1_000_000_000).saturating_add(now.tv_nsec)
}

/// So much later; never beyond the last instant.
pub fn later(stamp: i64, by: Duration) -> i64 {
    stamp.saturating_add(nanos(by))
}
