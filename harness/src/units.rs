//! Conversions of lengths of time to numbers, for histories and for the client protocol. They do
//! not overflow.

use std::time::Duration;

/// Converts to nanoseconds, saturating.
pub(crate) fn nanos(length: Duration) -> i64 {
    i64::try_from(length.as_nanos()).unwrap_or(i64::MAX)
}

/// Converts to whole milliseconds, rounded up, saturating.
pub(crate) fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
