//! Lengths of time as numbers, for histories and for the client protocol. Nothing here overflows.

use std::time::Duration;

/// Nanoseconds, saturating.
pub(crate) fn nanos(length: Duration) -> i64 {
    i64::try_from(length.as_nanos()).unwrap_or(i64::MAX)
}

/// Whole milliseconds, rounded up, saturating.
pub(crate) fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
