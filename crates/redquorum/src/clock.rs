//! The clock that leases are judged by, and the deadlines read from it.
//!
//! `std::time::Instant` stops while a machine is suspended on Linux and macOS, and a lease that
//! outlives its TTL in its holder's eyes is the very thing a lock must not hand out. So this
//! reads the clock that goes on, on Linux and macOS; elsewhere the monotonic clock. Timers are Tokio's, which may fire late after a suspend;
//! whatever they wake looks at this clock before it acts.

use std::fmt;
use std::time::Duration;

use redquorum_protocol::Time;

/// Where time comes from.
#[derive(Clone, Copy)]
pub(crate) enum Clock {
    /// The system's, suspended time included; the origin is the system's own.
    System,
    /// Tokio's, which tests can pause; the origin is when the clock was made.
    Tokio(tokio::time::Instant),
}

impl Clock {
    pub(crate) fn tokio() -> Self {
        Self::Tokio(tokio::time::Instant::now())
    }

    pub(crate) fn now(self) -> Time {
        match self {
            Self::System => system_now(),
            Self::Tokio(origin) => Time::ZERO.plus(origin.elapsed()),
        }
    }

    /// The instant of Tokio's clock at which a timer for `time` should fire.
    pub(crate) fn timer(self, time: Time) -> tokio::time::Instant {
        /// Far enough to be "never", near enough to be added to any instant.
        const LONGEST: Duration = Duration::from_secs(60 * 60 * 24 * 30);
        tokio::time::Instant::now() + time.since(self.now()).min(LONGEST)
    }
}

/// The wall clock, in microseconds since 1970: a hint by which the fencing counters of the masters
/// come to agree. It may be wrong, step, or stand before 1970.
#[expect(clippy::disallowed_types, reason = "a hint, on which nothing but a round trip rests")]
pub(crate) fn wall_micros() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}

#[cfg(unix)]
fn system_now() -> Time {
    // Linux has a clock of its own for suspended time; on macOS CLOCK_MONOTONIC counts it.
    // Elsewhere the monotonic clock is the best there is.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    const ID: rustix::time::ClockId = rustix::time::ClockId::Boottime;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    const ID: rustix::time::ClockId = rustix::time::ClockId::Monotonic;
    let now = rustix::time::clock_gettime(ID);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    Time::ZERO
        .plus(Duration::from_secs(seconds))
        .plus(Duration::from_nanos(u64::try_from(now.tv_nsec).unwrap_or(0)))
}

#[cfg(not(unix))]
fn system_now() -> Time {
    // The performance counter on Windows. Whether it counts suspended time is not promised there.
    static ORIGIN: std::sync::OnceLock<tokio::time::Instant> = std::sync::OnceLock::new();
    let now = tokio::time::Instant::now().into_std();
    let origin = ORIGIN.get_or_init(tokio::time::Instant::now).into_std();
    Time::ZERO.plus(now.saturating_duration_since(origin))
}

/// The instant after which a lease must be taken for lost.
///
/// It is not an [`Instant`](std::time::Instant): that clock stops while the machine is
/// suspended, and a deadline on it would come too late. Deadlines of one lock can be compared.
#[derive(Clone, Copy)]
pub struct Deadline {
    clock: Clock,
    time: Time,
}

impl Deadline {
    pub(crate) const fn new(clock: Clock, time: Time) -> Self {
        Self { clock, time }
    }

    /// What is left until it, zero once it has passed. The value rots as soon as it is read:
    /// ask again before you rely on it.
    pub fn remaining(self) -> Duration {
        self.time.since(self.clock.now())
    }

    /// Whether it has passed.
    pub fn has_passed(self) -> bool {
        self.clock.now() >= self.time
    }

    /// Ends as soon as it has passed; within 250 ms if the machine was suspended meanwhile.
    ///
    /// # Cancel safety
    /// Nothing is lost by dropping the future.
    pub async fn passed(self) {
        while !self.has_passed() {
            let next = self.clock.now().plus(NAP).min(self.time);
            tokio::time::sleep_until(self.clock.timer(next)).await;
        }
    }
}

/// How long a timer sleeps at a stretch: the system's timers do not count suspended time, so
/// this bounds how late it notices.
pub(crate) const NAP: Duration = Duration::from_millis(250);

impl PartialEq for Deadline {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Deadline {}

impl PartialOrd for Deadline {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Deadline {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let (mut left, mut right) = (self.time, other.time);
        if let (Clock::Tokio(one), Clock::Tokio(two)) = (self.clock, other.clock) {
            // Each lock of a test has an origin of its own.
            left = left.plus(one.saturating_duration_since(two));
            right = right.plus(two.saturating_duration_since(one));
        }
        left.cmp(&right)
    }
}

impl fmt::Debug for Deadline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Deadline(in {:?})", self.remaining())
    }
}
