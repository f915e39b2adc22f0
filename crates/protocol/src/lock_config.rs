//! Lock config: TTL, drift, node timeout and quorum, checked against each other once.

use core::fmt;
use core::time::Duration;

use crate::fence::{Fence, MAX_NUMBER};
use crate::quorum::{MAX_NODES, quorum};
use crate::time::Time;

/// The longest TTL: a day. To hold a lock longer, extend the lease.
pub const MAX_TTL: Duration = Duration::from_secs(24 * 60 * 60);

/// The longest time for which masters keep a fencing counter: ten years.
pub const MAX_FENCING_MEMORY: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// The least drift: the resolution with which Redis expires keys.
const MIN_DRIFT: Duration = Duration::from_millis(1);

/// Allowance for clocks that run at different rates: a share of the TTL, rounded up, plus a fixed
/// part.
///
/// The default is 1 % + 2 ms, as in the reference description of the algorithm; Redis expires keys
/// with a resolution of 1 ms. It covers ntpd, which slews by 0.05 %. It does not cover chrony with
/// its default `maxslewrate` of 8.3 % (`docs/operations.md`, "Clock rates").
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Drift {
    /// Millionths of the TTL.
    pub ppm: u32,
    /// The fixed part.
    pub fixed: Duration,
}

impl Default for Drift {
    fn default() -> Self {
        Self { ppm: 10_000, fixed: Duration::from_millis(2) }
    }
}

impl Drift {
    /// The deduction from a TTL of this length. It is rounded up, which costs the holder time and
    /// not safety.
    pub fn of(self, ttl: Duration) -> Duration {
        let share = ttl.as_nanos().saturating_mul(u128::from(self.ppm)).div_ceil(1_000_000);
        let share = Duration::from_nanos(u64::try_from(share).unwrap_or(u64::MAX));
        share.saturating_add(self.fixed)
    }
}

/// The validated options of one lease. [`LockConfig::new`] checks that they make sense.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LockConfig {
    nodes: usize,
    ttl: Duration,
    /// How much longer masters keep the key than the lease lives.
    lock_delay: Duration,
    drift: Drift,
    node_timeout: Duration,
    fencing: Option<Duration>,
    /// The longest TTL on which a guard relies.
    max_ttl: Option<Duration>,
    /// How much a master's clock may gain unnoticed.
    clock_bound: Duration,
}

impl LockConfig {
    /// Checks the options against each other.
    ///
    /// The TTL is rounded down to whole milliseconds, the unit of `PX`.
    ///
    /// # Errors
    /// The first option that is out of its range or does not fit the others.
    pub fn new(
        nodes: usize,
        ttl: Duration,
        drift: Drift,
        node_timeout: Duration,
    ) -> Result<Self, BadOption> {
        if nodes == 0 {
            return Err(BadOption::NoMasters);
        }
        if nodes > MAX_NODES {
            return Err(BadOption::TooManyMasters { masters: nodes });
        }
        if node_timeout < Duration::from_millis(1) {
            return Err(BadOption::NodeTimeoutTooShort { node_timeout });
        }
        if ttl > MAX_TTL {
            return Err(BadOption::TtlTooLong { ttl });
        }
        // Bounded by MAX_TTL, so whole milliseconds fit.
        let ttl = Duration::from_millis(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX));
        if drift.of(ttl) < MIN_DRIFT {
            return Err(BadOption::DriftTooSmall { drift: drift.of(ttl) });
        }
        let (lock_delay, clock_bound) = (Duration::ZERO, Duration::ZERO);
        let (fencing, max_ttl) = (None, None);
        let terms =
            Self { nodes, ttl, lock_delay, drift, node_timeout, fencing, max_ttl, clock_bound };
        if drift.of(ttl).saturating_add(node_timeout) >= ttl {
            return Err(BadOption::TtlTooShort { ttl, drift: drift.of(ttl), node_timeout });
        }
        Ok(terms)
    }

    /// This config with another TTL, checked again.
    ///
    /// # Errors
    /// The errors of [`LockConfig::new`], and those of the options that this config has.
    pub fn with_ttl(self, ttl: Duration) -> Result<Self, BadOption> {
        let terms = Self::new(self.nodes, ttl, self.drift, self.node_timeout)?;
        let terms = terms.with_lock_delay(self.lock_delay)?;
        let terms = self.max_ttl.map_or(Ok(terms), |max_ttl| terms.with_max_ttl(max_ttl))?;
        Ok(terms.with_clock_bound(self.clock_bound)?.fenced_as(self))
    }

    /// This config, with masters that keep the key for `lock_delay` longer. Writes that are under
    /// way when the lease ends have that long to arrive before any other client can hold the
    /// resource.
    ///
    /// The lock delay is rounded down to whole milliseconds. It moves no deadline. A lease that
    /// ends by a release frees its keys at once. A lease that is lost or dropped leaves its keys
    /// until the lock delay is over.
    ///
    /// # Errors
    /// * [`BadOption::LockDelayTooLong`] if TTL + lock delay is above [`MAX_TTL`].
    /// * [`BadOption::TtlAboveGuard`] if it is above the longest TTL that the guard allows.
    pub fn with_lock_delay(self, lock_delay: Duration) -> Result<Self, BadOption> {
        if self.ttl.saturating_add(lock_delay) > MAX_TTL {
            return Err(BadOption::LockDelayTooLong { ttl: self.ttl, lock_delay });
        }
        let lock_delay =
            Duration::from_millis(u64::try_from(lock_delay.as_millis()).unwrap_or(u64::MAX));
        let terms = Self { lock_delay, ..self };
        self.max_ttl.map_or(Ok(terms), |max_ttl| terms.with_max_ttl(max_ttl))
    }

    /// This config with a fencing token: masters remember their counters for `memory` after the
    /// last grant or extension, and forget them then. The shorter the memory is, the more a rarely
    /// locked resource depends on wall clocks.
    ///
    /// # Errors
    /// [`BadOption::FencingMemory`] unless TTL + lock delay ≤ `memory` ≤ [`MAX_FENCING_MEMORY`]. If
    /// the lease asks for a longer TTL later, masters remember the counter for that long.
    pub fn with_fencing(self, memory: Duration) -> Result<Self, BadOption> {
        if memory < self.key_ttl() || memory > MAX_FENCING_MEMORY {
            return Err(BadOption::FencingMemory { memory, ttl: self.key_ttl() });
        }
        Ok(Self { fencing: Some(memory), ..self })
    }

    /// This config under a guard. The guard is safe only if no key has a longer TTL than `max_ttl`:
    /// see [`Guard`](crate::Guard).
    ///
    /// # Errors
    /// [`BadOption::TtlAboveGuard`] if TTL + lock delay is above `max_ttl`.
    pub fn with_max_ttl(self, max_ttl: Duration) -> Result<Self, BadOption> {
        if self.key_ttl() > max_ttl {
            return Err(BadOption::TtlAboveGuard {
                ttl: self.ttl,
                lock_delay: self.lock_delay,
                max_ttl,
            });
        }
        Ok(Self { max_ttl: Some(max_ttl), ..self })
    }

    /// This config where the clock of a master may gain `bound` unnoticed: every lease is shorter
    /// by this bound, as it is by the drift. See
    /// [`Guard::with_clock_bound`](crate::Guard::with_clock_bound).
    ///
    /// # Errors
    /// [`BadOption::TtlBelowClockBound`] if nothing would be left of the TTL.
    pub fn with_clock_bound(self, bound: Duration) -> Result<Self, BadOption> {
        let (ttl, drift, node_timeout) = (self.ttl, self.drift.of(self.ttl), self.node_timeout);
        if drift.saturating_add(node_timeout).saturating_add(bound) >= ttl {
            return Err(BadOption::TtlBelowClockBound { ttl, bound, drift, node_timeout });
        }
        Ok(Self { clock_bound: bound, ..self })
    }

    /// How much a master's clock may gain unnoticed; zero without a clock guard.
    pub const fn clock_bound(self) -> Duration {
        self.clock_bound
    }

    /// This config with the fencing of `other`.
    pub(crate) const fn fenced_as(self, other: Self) -> Self {
        Self { fencing: other.fencing, ..self }
    }

    /// The fence that a master receives for its counter, if the lease has a fencing token.
    pub(crate) fn fence(self, number: u64) -> Option<Fence> {
        // A lease may have been extended for longer than it was granted for.
        let memory = self.fencing?.max(self.key_ttl());
        let memory_ms = u64::try_from(memory.as_millis()).unwrap_or(u64::MAX);
        Some(Fence { number: number.min(MAX_NUMBER), memory_ms })
    }

    /// Whether the lease has a fencing token.
    pub const fn is_fenced(self) -> bool {
        self.fencing.is_some()
    }

    /// The number of masters.
    pub const fn nodes(self) -> usize {
        self.nodes
    }

    /// The number of masters that are a quorum.
    pub const fn quorum(self) -> usize {
        quorum(self.nodes)
    }

    /// The TTL of the lease, drift included.
    pub const fn ttl(self) -> Duration {
        self.ttl
    }

    /// How much longer masters keep the key than the TTL.
    pub const fn lock_delay(self) -> Duration {
        self.lock_delay
    }

    /// How long a master keeps the key: TTL + lock delay.
    pub const fn key_ttl(self) -> Duration {
        self.ttl.saturating_add(self.lock_delay)
    }

    /// [`key_ttl`](Self::key_ttl) in milliseconds, the unit of `PX`.
    pub fn key_ttl_ms(self) -> u64 {
        u64::try_from(self.key_ttl().as_millis()).unwrap_or(u64::MAX)
    }

    /// Until when the keys of a lease that ended `now` without a release are left alone; `None`
    /// without a lock delay. Drift is added, as it is deducted before the deadline.
    pub(crate) fn left_until(self, now: Time) -> Option<Time> {
        let left = self.lock_delay.saturating_add(self.drift.of(self.key_ttl()));
        (!self.lock_delay.is_zero()).then(|| now.plus(left))
    }

    /// How long a lease lives, counted from before its first byte is sent: TTL − drift, less what a
    /// clock may gain unnoticed.
    pub fn validity(self) -> Duration {
        self.ttl.saturating_sub(self.drift.of(self.ttl)).saturating_sub(self.clock_bound)
    }

    /// How long one round waits for the masters' replies.
    pub const fn node_timeout(self) -> Duration {
        self.node_timeout
    }
}

/// An option that is out of its range, or two options that do not fit together. The message names
/// the option and a correct value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum BadOption {
    /// A lock needs at least one master.
    NoMasters,
    /// More masters than a lock can have.
    TooManyMasters {
        /// How many were given.
        masters: usize,
    },
    /// The resource has no name.
    ResourceEmpty,
    /// The name of the resource, with the prefix, starts with `redquorum:`.
    ResourceReserved,
    /// The name of the resource, with the prefix, is too long for a key.
    ResourceTooLong {
        /// Its length in bytes.
        length: usize,
        /// The longest supported length in bytes.
        longest: usize,
    },
    /// The node timeout is below a millisecond.
    NodeTimeoutTooShort {
        /// The one that was given.
        node_timeout: Duration,
    },
    /// The connect timeout is below the node timeout.
    ConnectTimeoutTooShort {
        /// The one that was given.
        connect_timeout: Duration,
        /// How long a round may take.
        node_timeout: Duration,
    },
    /// The TTL is above [`MAX_TTL`].
    TtlTooLong {
        /// The one that was given.
        ttl: Duration,
    },
    /// TTL and lock delay together are above [`MAX_TTL`].
    LockDelayTooLong {
        /// The TTL.
        ttl: Duration,
        /// The lock delay that was given.
        lock_delay: Duration,
    },
    /// The TTL, with the lock delay, is above the longest TTL on which the guard of this lock
    /// relies.
    TtlAboveGuard {
        /// The one that was given.
        ttl: Duration,
        /// The lock delay.
        lock_delay: Duration,
        /// The longest TTL that the guard allows.
        max_ttl: Duration,
    },
    /// The bound of the clock guard is not in whole milliseconds, or not below the longest TTL.
    ClockBound {
        /// The one that was given.
        bound: Duration,
        /// The longest TTL.
        max_ttl: Duration,
    },
    /// A clock guard without a guard.
    ClockBoundWithoutGuard,
    /// Nothing would be left of the TTL after the drift, one node timeout and what a clock may gain
    /// unnoticed.
    TtlBelowClockBound {
        /// The one that was given, rounded down to milliseconds.
        ttl: Duration,
        /// How much a clock may gain unnoticed.
        bound: Duration,
        /// The drift, which is deducted, too.
        drift: Duration,
        /// How long a round may take.
        node_timeout: Duration,
    },
    /// The drift is below the resolution with which Redis expires keys.
    DriftTooSmall {
        /// The drift that was given, for this TTL.
        drift: Duration,
    },
    /// The memory of fencing counters is shorter than TTL + lock delay, or above
    /// [`MAX_FENCING_MEMORY`].
    FencingMemory {
        /// The one that was given.
        memory: Duration,
        /// The TTL, with the lock delay.
        ttl: Duration,
    },
    /// A pause between attempts is below a millisecond.
    PauseTooShort {
        /// The fixed pause, or the first one.
        pause: Duration,
    },
    /// The longest pause between attempts is shorter than the first one.
    PausesShrink {
        /// The first one.
        initial: Duration,
        /// The longest one.
        max: Duration,
    },
    /// The multiplier of pauses would make them shorter.
    Multiplier {
        /// The one that was given.
        percent: u32,
    },
    /// Nothing would be left of the TTL after the drift and one node timeout.
    TtlTooShort {
        /// The one that was given, rounded down to milliseconds.
        ttl: Duration,
        /// The drift that is deducted from it.
        drift: Duration,
        /// How long a round may take.
        node_timeout: Duration,
    },
    /// An owner asks for a fencing token, but holds the resource without one.
    HeldUnfenced,
}

impl fmt::Display for BadOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoMasters => f.write_str("no masters given: name at least one, better five"),
            Self::TooManyMasters { masters } => {
                write!(f, "{masters} masters given: at most {MAX_NODES} are supported")
            }
            Self::ResourceEmpty => f.write_str("the resource is empty: name what is to be locked"),
            Self::ResourceReserved => f.write_str(
                "the resource starts with `redquorum:`, as the lock's own keys do: choose another name or \
                 set a prefix",
            ),
            Self::ResourceTooLong { length, longest } => write!(
                f,
                "the resource is too long: {length} bytes with the prefix, at most {longest} are \
                 supported; lock a hash of it instead"
            ),
            Self::NodeTimeoutTooShort { node_timeout } => {
                write!(f, "node timeout of {node_timeout:?} is too short: set at least 1ms")
            }
            Self::ConnectTimeoutTooShort { connect_timeout, node_timeout } => write!(
                f,
                "connect timeout of {connect_timeout:?} is too short: set at least the node \
                 timeout ({node_timeout:?})"
            ),
            Self::TtlTooLong { ttl } => write!(
                f,
                "ttl of {ttl:?} is too long: set at most {MAX_TTL:?} and extend the lease instead"
            ),
            Self::LockDelayTooLong { ttl, lock_delay } => write!(
                f,
                "lock delay of {lock_delay:?} is too long: with the ttl ({ttl:?}) it may be {MAX_TTL:?} at most"
            ),
            Self::TtlAboveGuard { ttl, lock_delay, max_ttl } if !lock_delay.is_zero() => write!(
                f,
                "ttl of {ttl:?} and lock delay of {lock_delay:?} are together above the guard of this lock, {max_ttl:?}, \
                 which is how long masters that may have forgotten are distrusted: set a shorter ttl or lock delay, \
                 or raise the guard on all clients"
            ),
            Self::TtlAboveGuard { ttl, max_ttl, .. } => write!(
                f,
                "ttl of {ttl:?} is above the guard of this lock, {max_ttl:?}, which is how long masters that \
                 may have forgotten are distrusted: set a shorter ttl and extend the lease, or raise \
                 the guard on all clients"
            ),
            Self::ClockBound { bound, max_ttl } => write!(
                f,
                "clock guard of {bound:?} is out of bounds: set at least 1ms and less than the longest \
                 ttl ({max_ttl:?}), better 500ms to 1s"
            ),
            Self::ClockBoundWithoutGuard => f.write_str(
                "clock guard without a guard, whose longest ttl says how long a clock is to be \
                 watched: set the guard, too",
            ),
            Self::TtlBelowClockBound { ttl, bound, drift, node_timeout } => write!(
                f,
                "ttl of {ttl:?} is too short: it must be longer than the clock guard ({bound:?}) + \
                 drift ({drift:?}) + node timeout ({node_timeout:?}); raise the ttl, or lower the \
                 clock guard on all clients"
            ),
            Self::DriftTooSmall { drift } => write!(
                f,
                "drift of {drift:?} is too small: redis expires keys to within 1ms, so allow at \
                 least that"
            ),
            Self::FencingMemory { memory, ttl } => write!(
                f,
                "fencing memory of {memory:?} is out of bounds: set at least the ttl ({ttl:?}), better \
                 weeks, and at most {MAX_FENCING_MEMORY:?}"
            ),
            Self::PauseTooShort { pause } => write!(
                f,
                "back-off of {pause:?} is too short: set at least 1ms, or waiters keep the masters busy"
            ),
            Self::PausesShrink { initial, max } => write!(
                f,
                "back-off of at most {max:?} is shorter than its first pause ({initial:?}): set a longer \
                 `max` or a shorter `initial`"
            ),
            Self::Multiplier { percent } => write!(
                f,
                "back-off multiplied by {percent} percent shrinks: set at least 100, or 200 to double it"
            ),
            Self::TtlTooShort { ttl, drift, node_timeout } => write!(
                f,
                "ttl of {ttl:?} is too short: it must be longer than drift ({drift:?}) + node \
                 timeout ({node_timeout:?}); raise the ttl or lower the node timeout"
            ),
            Self::HeldUnfenced => f.write_str(
                "this owner holds the resource without a fencing token, and a lease gets none later: ask \
                 for one the first time, or release it before",
            ),
        }
    }
}

impl core::error::Error for BadOption {}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(ttl: Duration) -> Result<LockConfig, BadOption> {
        LockConfig::new(5, ttl, Drift::default(), Duration::from_millis(50))
    }

    #[test]
    fn drift_is_rounded_up_and_validity_down() {
        let drift = Drift::default();
        assert_eq!(drift.of(Duration::from_secs(10)), Duration::from_millis(102));
        assert_eq!(drift.of(Duration::from_nanos(1)), Duration::from_nanos(2_000_001));
        let terms = terms(Duration::from_micros(1_000_999)).unwrap();
        assert_eq!(terms.ttl(), Duration::from_secs(1));
        assert_eq!(terms.validity(), Duration::from_millis(988));
    }

    #[test]
    fn a_ttl_must_leave_something_after_drift_and_node_timeout() {
        for ttl in [0, 1, 52] {
            let ttl = Duration::from_millis(ttl);
            assert!(matches!(terms(ttl), Err(BadOption::TtlTooShort { .. })), "{ttl:?}");
        }
        assert!(terms(Duration::from_millis(53)).is_ok());
        assert!(terms(MAX_TTL).is_ok());
        for ttl in
            [MAX_TTL + Duration::from_nanos(1), Duration::from_millis(1 << 63), Duration::MAX]
        {
            assert!(matches!(terms(ttl), Err(BadOption::TtlTooLong { .. })), "{ttl:?}");
        }
    }

    #[test]
    fn what_a_clock_may_gain_is_deducted_and_must_leave_something() {
        let ms = Duration::from_millis;
        let guarded = terms(ms(1000)).unwrap().with_clock_bound(ms(300)).unwrap();
        assert_eq!(guarded.validity(), ms(688));
        assert_eq!(guarded.with_ttl(ms(500)).unwrap().validity(), ms(193));
        let short = guarded.with_ttl(ms(355));
        assert!(matches!(short, Err(BadOption::TtlBelowClockBound { .. })), "{short:?}");
        assert!(guarded.with_ttl(ms(356)).is_ok());
        assert!(guarded.with_clock_bound(Duration::MAX).is_err());
    }

    #[test]
    fn no_drift_however_large_wraps_around() {
        let drift = Drift { ppm: u32::MAX, fixed: Duration::MAX };
        assert_eq!(drift.of(Duration::MAX), Duration::MAX);
        assert!(LockConfig::new(5, MAX_TTL, drift, Duration::from_millis(1)).is_err());
    }

    #[test]
    fn messages_name_the_option() {
        let ms = Duration::from_millis;
        let says = |nodes, ttl, timeout| {
            alloc::format!(
                "{}",
                LockConfig::new(nodes, ms(ttl), Drift::default(), ms(timeout)).unwrap_err()
            )
        };
        assert!(says(0, 1000, 50).starts_with("no masters given"));
        assert!(says(65, 1000, 50).starts_with("65 masters given"));
        assert!(says(5, 1000, 0).starts_with("node timeout of 0ns is too short"));
        assert!(says(5, 50, 50).starts_with("ttl of 50ms is too short"));
        let none = Drift { ppm: 0, fixed: Duration::ZERO };
        assert!(LockConfig::new(5, ms(1000), none, ms(50)).is_err_and(|bad| {
            alloc::format!("{bad}").starts_with("drift of 0ns is too small")
        }));
        assert!(says(5, 1 << 40, 50).contains("is too long: set at most 86400s"));
    }
}
