//! The clock for leases, and the deadlines that it measures.
//!
//! A slow clock would make a holder keep a lease beyond its TTL. Two things make clocks slow.
//! `std::time::Instant` stops while the machine is suspended, on Linux and macOS. NTP slews Linux's
//! `CLOCK_MONOTONIC` and `CLOCK_BOOTTIME`, chrony by up to 8.3 %. So on Linux this clock adds the
//! suspended time to the raw monotonic clock ([`linux`]).
//!
//! macOS has `CLOCK_MONOTONIC`, which counts suspended time and may be slewed. Other systems have
//! their monotonic clock.
//!
//! A clock can run backwards all the same: a process that is restored from a checkpoint goes on
//! with the clock of another machine. Readings of one lock are compared ([`Watch`]), and a clock
//! that was seen to run backwards ends all leases.
//!
//! Timers are Tokio's. They do not count suspended time and are slewed, so they may fire late. A
//! task that a timer wakes reads this clock before it acts, and no timer of a lease sleeps longer
//! than [`NAP`].

use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use redquorum_protocol::Time;
use tokio::time::Sleep;

#[derive(Clone, Copy)]
pub(crate) enum Clock {
    /// The system's clock, suspended time included. The origin is [`ORIGIN`] before the system's
    /// own.
    System,
    /// Tokio's clock, which tests can pause. The origin is the time at which this clock was made.
    Tokio(tokio::time::Instant),
    /// A clock that a test sets: its nanoseconds, and by how many it has run backwards.
    #[cfg(test)]
    Manual(&'static (AtomicU64, AtomicU64)),
}

/// What the readings of the system's clock are counted from: 146 years before its own origin. In a
/// time namespace a clock can be below zero, by as much as daemons have slewed `CLOCK_MONOTONIC`
/// ahead of the raw clock. Below [`Time::ZERO`] it would stand still.
const ORIGIN: i64 = 1 << 62;

/// By how many nanoseconds the system's clock was seen to run backwards. It is added to all
/// readings, so that no deadline or timer comes later by that. It is a property of the machine, so
/// all locks share it.
static RAN_BACK: AtomicU64 = AtomicU64::new(0);

impl Clock {
    pub(crate) fn tokio() -> Self {
        Self::Tokio(tokio::time::Instant::now())
    }

    pub(crate) fn now(self) -> Time {
        match self {
            Self::System => since_origin(system_nanos(), RAN_BACK.load(Ordering::Relaxed)),
            Self::Tokio(origin) => Time::ZERO.plus(origin.elapsed()),
            #[cfg(test)]
            Self::Manual((nanos, ran_back)) => {
                Time::from_nanos(nanos.load(Ordering::Relaxed) + ran_back.load(Ordering::Relaxed))
            }
        }
    }

    /// By how many nanoseconds it was seen to run backwards. Tokio's clock never is.
    const fn ran_back(&self) -> Option<&'static AtomicU64> {
        match self {
            Self::System => Some(&RAN_BACK),
            Self::Tokio(_) => None,
            #[cfg(test)]
            Self::Manual((_, ran_back)) => Some(ran_back),
        }
    }

    /// The instant of Tokio's clock at which a timer for `time` should fire.
    pub(crate) fn timer(self, time: Time) -> tokio::time::Instant {
        self.read().timer(time)
    }

    /// Reads both clocks. Tokio's is read first: a thread that is preempted in between gets timers
    /// that fire too early, which is harmless.
    pub(crate) fn read(self) -> Reading {
        let tokio = tokio::time::Instant::now();
        Reading { tokio, now: self.now() }
    }
}

/// The readings of Tokio's clock, by which timers fire, and of the lock's.
pub(crate) struct Reading {
    tokio: tokio::time::Instant,
    pub(crate) now: Time,
}

impl Reading {
    /// The instant of Tokio's clock at which a timer for `time` should fire.
    pub(crate) fn timer(&self, time: Time) -> tokio::time::Instant {
        /// Long enough to mean "never", short enough to be added to any instant.
        const LONGEST: Duration = Duration::from_secs(60 * 60 * 24 * 30);
        self.tokio + time.since(self.now).min(LONGEST)
    }
}

/// The instant of a reading, in nanoseconds since the system's own origin, of a clock that has run
/// backwards by `ran_back` nanoseconds.
fn since_origin(nanos: i64, ran_back: u64) -> Time {
    let nanos = ORIGIN.saturating_add(nanos);
    Time::from_nanos(u64::try_from(nanos).unwrap_or(0).saturating_add(ran_back))
}

/// The nanoseconds by which a clock may be behind its own reading before. Where the counters of two
/// processors differ, a thread that moves between them reads such steps. They are below the
/// millisecond that each deadline leaves for clocks at least ([`redquorum_protocol::Drift`]), and
/// end no lease.
const JITTER: u64 = 500_000;

/// The readings of one lock, in the order of its turns.
pub(crate) struct Watch {
    clock: Clock,
    latest: Time,
    ran_back: u64,
}

impl Watch {
    pub(crate) fn new(clock: Clock) -> Self {
        let ran_back = clock.ran_back().map_or(0, |it| it.load(Ordering::Relaxed));
        Self { clock, latest: clock.now(), ran_back }
    }

    /// Reads the clock, and tells whether it has run backwards since the last reading. Another lock
    /// may have seen that. The time that is returned never runs backwards.
    pub(crate) fn read(&mut self) -> (Time, bool) {
        let now = self.clock.now();
        let Some(ran_back) = self.clock.ran_back() else { return (now, false) };
        let back = self.latest.as_nanos().saturating_sub(now.as_nanos());
        if back > JITTER {
            // If two locks add it, leases end too early, which is safe.
            ran_back.fetch_add(back, Ordering::Relaxed);
        }
        self.latest = now.max(self.latest);
        let seen = ran_back.load(Ordering::Relaxed);
        (self.latest, std::mem::replace(&mut self.ran_back, seen) != seen)
    }
}

/// The wall clock, in microseconds since 1970. It is a hint by which the fencing counters of the
/// masters agree. It may be wrong, step, or be before 1970.
#[expect(clippy::disallowed_types, reason = "a hint, on which nothing but a round trip rests")]
pub(crate) fn wall_micros() -> u64 {
    #[cfg(feature = "memory")]
    if let Some(micros) = crate::repeatable::wall_micros() {
        return micros;
    }
    let since = std::time::SystemTime::now().duration_since(std::time::SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}

#[cfg(any(target_os = "linux", target_os = "android"))]
use linux::now as system_nanos;

/// Linux: the sum of the raw monotonic clock, which no daemon slews, and the suspended time, which
/// that clock does not count.
#[cfg(any(target_os = "linux", target_os = "android"))]
mod linux {
    use std::sync::atomic::{AtomicI64, Ordering};

    use rustix::time::ClockId;

    use super::read as nanos;

    /// The three clocks, in nanoseconds since their origins, **read in this order**.
    ///
    /// `boot` is `monotonic` plus the suspended time, so their difference is not slewed.
    #[derive(Clone, Copy, Debug)]
    pub(super) struct Readings {
        pub(super) boot: i64,
        pub(super) monotonic: i64,
        pub(super) raw: i64,
    }

    impl Readings {
        fn take() -> Self {
            let boot = nanos(ClockId::Boottime);
            let monotonic = nanos(ClockId::Monotonic);
            Self { boot, monotonic, raw: nanos(ClockId::MonotonicRaw) }
        }
    }

    /// The time at `readings`, and the largest suspended time so far; `seen` is the largest one
    /// before.
    ///
    /// A thread can be preempted between the reads, by a gap of any length. In that case:
    ///
    /// - The suspended time is never overestimated. `boot` is read before `monotonic`, so the gap
    ///   is subtracted. The largest suspended time seen is therefore a lower bound of the true one.
    /// - The time is never ahead of the true time at the end of the reads. An overestimate that
    ///   later readings take back would make a lease end late.
    /// - The time is not behind the true time at the start of the reads: `raw` is read last, and
    ///   makes up for the gap. It falls short by the slew of the gap (at most a tenth of it), and
    ///   only in the first readings after a suspend. A preemption that is longer by a tenth does
    ///   the same between this call and the use of its result.
    /// - The time never runs backwards while `raw` does not: `seen` never does.
    pub(super) fn compose(readings: Readings, seen: i64) -> (i64, i64) {
        // Signed: in a time namespace the origins of the two clocks can differ by any offset, and
        // `raw` can be below zero.
        let suspended = readings.boot.saturating_sub(readings.monotonic).max(seen);
        (readings.raw.saturating_add(suspended), suspended)
    }

    /// The largest suspended time that this process has seen. It is a property of the machine, so
    /// all locks share it: deadlines of different locks are compared.
    static SUSPENDED: AtomicI64 = AtomicI64::new(i64::MIN);

    pub(super) fn now() -> i64 {
        let readings = Readings::take();
        let seen = SUSPENDED.load(Ordering::Relaxed);
        let (time, suspended) = compose(readings, seen);
        if suspended == seen {
            return time;
        }
        // Another thread may have seen more since.
        let seen = SUSPENDED.fetch_max(suspended, Ordering::Relaxed);
        compose(readings, seen).0
    }
}

#[cfg(all(unix, not(any(target_os = "linux", target_os = "android"))))]
fn system_nanos() -> i64 {
    read(rustix::time::ClockId::Monotonic)
}

/// A clock, in nanoseconds since its origin.
#[cfg(unix)]
fn read(clock: rustix::time::ClockId) -> i64 {
    nanos(rustix::time::clock_gettime(clock))
}

/// Below zero, the seconds are rounded down and the nanoseconds count up from there.
#[cfg(unix)]
fn nanos(time: rustix::time::Timespec) -> i64 {
    let part = u64::try_from(time.tv_nsec).unwrap_or(0).cast_signed();
    time.tv_sec.saturating_mul(1_000_000_000).saturating_add(part)
}

#[cfg(not(unix))]
fn system_nanos() -> i64 {
    // The performance counter on Windows, which does not promise to count suspended time.
    static ORIGIN: std::sync::OnceLock<tokio::time::Instant> = std::sync::OnceLock::new();
    let now = tokio::time::Instant::now().into_std();
    let origin = ORIGIN.get_or_init(tokio::time::Instant::now).into_std();
    i64::try_from(now.saturating_duration_since(origin).as_nanos()).unwrap_or(i64::MAX)
}

/// The instant after which a lease must be taken for lost.
///
/// It is not an [`Instant`](std::time::Instant): that clock stops while the machine is suspended,
/// so a deadline on it would come too late. Deadlines of one lock can be compared.
#[derive(Clone, Copy)]
pub struct Deadline {
    clock: Clock,
    time: Time,
}

impl Deadline {
    pub(crate) const fn new(clock: Clock, time: Time) -> Self {
        Self { clock, time }
    }

    /// The time that is left until the deadline, zero once it has passed. The value is out of date
    /// as soon as you have it: ask again before you rely on it.
    pub fn remaining(self) -> Duration {
        self.time.since(self.clock.now())
    }

    /// Whether the deadline has passed.
    pub fn has_passed(self) -> bool {
        self.clock.now() >= self.time
    }

    /// Ends as soon as the deadline has passed. If the machine was suspended meanwhile, it ends
    /// within 250 ms.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn passed(self) {
        while !self.has_passed() {
            let next = self.clock.now().plus(NAP).min(self.time);
            tokio::time::sleep_until(self.clock.timer(next)).await;
        }
    }
}

/// The longest sleep of a timer. The system's timers do not count suspended time, so this bounds
/// how late a task notices it.
pub(crate) const NAP: Duration = Duration::from_millis(250);

/// The sleeps of a future that looks again and again.
pub(crate) struct Naps {
    timer: Option<Pin<Box<Sleep>>>,
    armed: Time,
}

impl Default for Naps {
    fn default() -> Self {
        Self { timer: None, armed: Time::NEVER }
    }
}

impl Naps {
    /// Sleeps until this time, but at most for a nap. So a long wait ends when the lock is shut
    /// down, and when the machine resumes from a suspend. Waking too early is harmless.
    pub(crate) fn sleep(
        &mut self,
        clock: Clock,
        until: Time,
        nap: Duration,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        if self.armed > until || self.armed == Time::NEVER {
            let reading = clock.read();
            self.armed = until.min(reading.now.plus(nap));
            let fires = reading.timer(self.armed);
            match &mut self.timer {
                Some(timer) => timer.as_mut().reset(fires),
                None => self.timer = Some(Box::pin(tokio::time::sleep_until(fires))),
            }
        }
        if let Some(timer) = &mut self.timer {
            ready!(timer.as_mut().poll(cx));
        }
        // The timer has fired by Tokio's clock; the caller compares with the lock's clock.
        self.armed = Time::NEVER;
        Poll::Ready(())
    }
}

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
            // Each lock of a test has its own origin.
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

#[cfg(all(test, any(target_os = "linux", target_os = "android")))]
mod tests {
    use super::linux::{Readings, compose};
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    /// A machine whose `CLOCK_MONOTONIC` is slewed by `slew_ppm`, and that may be suspended.
    #[derive(Clone, Copy, Default)]
    struct Machine {
        raw: i64,
        monotonic: i64,
        suspended: i64,
        slew_ppm: i64,
    }

    impl Machine {
        fn run(&mut self, nanos: i64) {
            self.raw += nanos;
            self.monotonic += nanos + nanos * self.slew_ppm / 1_000_000;
        }

        /// Reads the clocks. The machine runs for one of the `gaps` between two reads.
        fn readings(&mut self, gaps: [i64; 2]) -> Readings {
            let boot = self.monotonic + self.suspended;
            self.run(gaps[0]);
            let monotonic = self.monotonic;
            self.run(gaps[1]);
            Readings { boot, monotonic, raw: self.raw }
        }

        const fn true_time(&self) -> i64 {
            self.raw + self.suspended
        }
    }

    fn composed(readings: Readings, seen: &mut i64) -> i64 {
        let (nanos, suspended) = compose(readings, *seen);
        *seen = suspended;
        nanos
    }

    #[test]
    fn a_slew_changes_no_length_and_suspended_time_counts() {
        for slew_ppm in [-83_333, 0, 83_333] {
            let (mut machine, mut seen) = (Machine { slew_ppm, ..Machine::default() }, i64::MIN);
            let start = composed(machine.readings([0, 0]), &mut seen);
            machine.run(10 * SECOND);
            machine.suspended += 9 * SECOND;
            assert_eq!(composed(machine.readings([0, 0]), &mut seen) - start, 19 * SECOND);
        }
        // Suspended time before the first reading counts too, with different origins of the clocks.
        let shifted = Readings { boot: SECOND, monotonic: 5 * SECOND, raw: 5 * SECOND };
        assert_eq!(composed(shifted, &mut i64::MIN.clone()), SECOND);
    }

    #[test]
    fn preemption_between_the_reads_makes_no_lease_end_late_and_no_time_go_back() {
        let mut random = 1_u64;
        let mut below = |bound: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            ((random >> 33) % bound).cast_signed()
        };
        for slew_ppm in [-83_333, 0, 83_333] {
            let (mut machine, mut seen) = (Machine { slew_ppm, ..Machine::default() }, i64::MIN);
            let (mut last, mut late) = (0, 0);
            for _ in 0..10_000 {
                machine.run(below(1000));
                if below(8) == 0 {
                    machine.suspended += below(1_000_000);
                }
                let mut gap = || if below(4) == 0 { below(100_000) } else { 0 };
                let (gaps, start) = ([gap(), gap()], machine.true_time());
                let time = composed(machine.readings(gaps), &mut seen);
                assert!(time >= last, "it went back by {}", last - time);
                assert!(time <= machine.true_time(), "it is ahead");
                let slewed = gaps[0] / 10;
                assert!(time >= start - slewed, "{gaps:?}: late by {}", start - time);
                late += i64::from(time < machine.true_time());
                last = time;
            }
            assert!(late > 100, "no suspend came within the reads: {late}");
        }
    }

    #[test]
    fn the_system_clock_is_the_raw_clock_with_suspended_time() {
        use rustix::time::ClockId;
        // At least one of many readings is not preempted, and has the suspended time.
        let mut last = (0..1000).map(|_| Clock::System.now()).max().unwrap();
        for _ in 0..1000 {
            let start = read(ClockId::MonotonicRaw);
            let now = Clock::System.now();
            // The suspended time is between these two, because this thread may be preempted between
            // the reads.
            let (before, boot) = (read(ClockId::Monotonic), read(ClockId::Boottime));
            let most = boot - before;
            let time = now.as_nanos().cast_signed() - ORIGIN;
            assert!(now >= last);
            assert!(time <= read(ClockId::MonotonicRaw) + most, "it is ahead");
            let (boot, after) = (read(ClockId::Boottime), read(ClockId::Monotonic));
            assert!(time >= start + (boot - after) - SECOND / 1000, "it is behind");
            last = now;
        }
    }

    #[test]
    fn below_zero_the_clock_runs_as_fast_as_above() {
        let at = |nanos: i64| {
            let time = rustix::time::Timespec {
                tv_sec: nanos.div_euclid(SECOND),
                tv_nsec: nanos.rem_euclid(SECOND),
            };
            let raw = super::nanos(time);
            let (nanos, _) = compose(Readings { boot: 0, monotonic: 0, raw }, i64::MIN);
            since_origin(nanos, 0)
        };
        for tenths in -35..35 {
            let (time, next) = (tenths * SECOND / 10, (tenths + 1) * SECOND / 10);
            assert_eq!(at(next).since(at(time)), Duration::from_millis(100), "at {time} ns");
        }
        assert!(Time::ZERO < at(-1000 * SECOND));
    }
}

/// What no clock of a test machine can be made to do.
#[cfg(all(test, feature = "memory"))]
mod backwards {
    use std::future::IntoFuture;

    use redquorum_protocol::Loss;

    use super::*;
    use crate::memory::Masters;
    use crate::{Lease, Redlock};

    const SECOND: u64 = 1_000_000_000;

    async fn lock(masters: &Masters, clock: Clock) -> Redlock {
        masters.builder().clock_for_tests(clock).build().await.unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_runs_backwards_ends_every_lease_of_every_lock() {
        let time: &(AtomicU64, AtomicU64) =
            Box::leak(Box::new((AtomicU64::new(100 * SECOND), AtomicU64::new(0))));
        let (masters, clock) = (Masters::new(5), Clock::Manual(time));
        let (lock, other) = (lock(&masters, clock).await, self::lock(&masters, clock).await);
        let lease = lock.acquire("r").await.unwrap();
        let signal = lease.loss_signal();
        let notified = tokio::spawn(async move { signal.lost().await });
        let others = other.acquire("s").await.unwrap();
        tokio::time::sleep(Duration::from_millis(1)).await;

        let deadline = lease.deadline();
        let left = deadline.remaining();
        time.0.fetch_sub(5 * SECOND, Ordering::Relaxed);
        let cause = |lease: &Lease| lease.loss().map(|lost| lost.cause);
        assert_eq!(cause(&others), Some(Loss::ClockRanBack));
        assert_eq!(cause(&lease), Some(Loss::ClockRanBack), "the other lock has seen it");
        assert_eq!(notified.await.unwrap().cause, Loss::ClockRanBack, "it wakes who waits");
        assert!(deadline.remaining() <= left, "no deadline is later than before");
        assert!(masters.keys(1).is_empty(), "lost keys are cleaned up");

        // From here on the clock is relied on again.
        let again = other.acquire("r").await.unwrap();
        time.0.fetch_add(SECOND, Ordering::Relaxed);
        assert_eq!(cause(&again), None);
        time.0.fetch_add(9 * SECOND, Ordering::Relaxed);
        assert_eq!(cause(&again), Some(Loss::Expired));
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_whose_readings_jitter_ends_no_lease() {
        let time: &(AtomicU64, AtomicU64) =
            Box::leak(Box::new((AtomicU64::new(100 * SECOND), AtomicU64::new(0))));
        let masters = Masters::new(3);
        let lock = lock(&masters, Clock::Manual(time)).await;
        let lease = lock.acquire("r").await.unwrap();
        let left = lease.deadline().remaining();
        time.0.fetch_sub(JITTER, Ordering::Relaxed);
        assert!(lease.loss().is_none() && lock.acquire("s").await.is_ok());
        // Steps that add up are no jitter, since the latest reading stays what it was.
        time.0.fetch_sub(1, Ordering::Relaxed);
        assert_eq!(lease.loss().map(|lost| lost.cause), Some(Loss::ClockRanBack));
        assert!(lease.deadline().remaining() <= left);
    }

    #[tokio::test(start_paused = true)]
    async fn an_attempt_that_began_before_the_clock_ran_backwards_wins_nothing() {
        let time: &(AtomicU64, AtomicU64) =
            Box::leak(Box::new((AtomicU64::new(100 * SECOND), AtomicU64::new(0))));
        let masters = Masters::new(3);
        let lock = lock(&masters, Clock::Manual(time)).await;
        masters.stop(2);
        masters.stop(3);
        let attempt = tokio::spawn(lock.try_acquire("r").into_future());
        tokio::time::sleep(Duration::from_millis(10)).await;
        time.0.fetch_sub(5 * SECOND, Ordering::Relaxed);
        masters.resume(2);
        masters.resume(3);
        let error = attempt.await.unwrap().unwrap_err();
        assert!(matches!(error, crate::AcquireError::TooLate { .. }), "{error}");
    }
}
