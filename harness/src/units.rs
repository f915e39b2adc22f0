//! Conversions of lengths of time to numbers, for histories and for the client protocol, and of
//! numbers to text. They do not overflow.

use std::fmt::Display;
use std::time::Duration;

/// Converts to nanoseconds, saturating.
pub(crate) fn nanos(length: Duration) -> i64 {
    i64::try_from(length.as_nanos()).unwrap_or(i64::MAX)
}

/// A number of things of this name: `1 fault`, `2 faults`.
pub(crate) fn plural(count: impl Display + PartialEq + From<u8>, name: &str) -> String {
    let end = if count == 1.into() { "" } else { "s" };
    format!("{count} {name}{end}")
}

/// Converts to whole milliseconds, rounded up, saturating.
pub(crate) fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
