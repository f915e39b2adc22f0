//! Time: instants on one client's clock, in nanoseconds since an arbitrary origin.
//!
//! Every calculation saturates, so no TTL, however large, can wrap a deadline around.

use core::fmt;
use core::time::Duration;

/// An instant on one client's monotonic clock, in nanoseconds since an arbitrary origin.
///
/// Instants of two clients cannot be compared: each client has its own origin and its own rate.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(u64);

impl Time {
    /// The origin.
    pub const ZERO: Self = Self(0);
    /// Later than any event: stands for "never".
    pub const NEVER: Self = Self(u64::MAX);

    /// The instant `nanos` nanoseconds after the origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// The instant `millis` milliseconds after the origin.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// Nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// This instant plus `length`; [`Time::NEVER`] if the sum does not fit.
    #[must_use]
    pub fn plus(self, length: Duration) -> Self {
        Self(self.0.saturating_add(nanos(length)))
    }

    /// How much later this instant is than `earlier`; zero if it is not later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::NEVER {
            f.write_str("never")
        } else {
            fmt::Debug::fmt(&Duration::from_nanos(self.0), f)
        }
    }
}

/// A length, doubled this many times. Doubled not at all, the usual case, it costs no
/// multiplication, which takes divisions: each reply of a master asks for several lengths.
pub(crate) fn doubled(length: Duration, times: u32) -> Duration {
    if times == 0 {
        return length;
    }
    length.saturating_mul(1_u32.checked_shl(times).unwrap_or(u32::MAX))
}

/// A length in milliseconds, rounded down; the largest number if it does not fit.
pub(crate) fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

/// A length in nanoseconds; the largest number if it does not fit.
pub(crate) fn nanos(length: Duration) -> u64 {
    u64::try_from(length.as_nanos()).unwrap_or(u64::MAX)
}
