//! Lock config: TTL, drift, node timeout and quorum, checked against each other once.

use core::time::Duration;

use crate::bad_option::{BadOption, MAX_FENCING_COUNTER_TTL, MAX_TTL};
use crate::effect::{Fence, MAX_NUMBER};
use crate::quorum::{MAX_NODES, Quorum};
use crate::time::{Time, millis};
use crate::token::{HolderName, Token};

/// The least drift: the resolution with which Redis expires keys.
const MIN_DRIFT: Duration = Duration::from_millis(1);

/// Allowance for clocks that run at different rates: a share of the TTL, rounded up, plus a fixed
/// part.
///
/// The default is 1 % + 2 ms, as in the reference description of the algorithm; Redis expires keys
/// with a resolution of 1 ms. It covers ntpd, which slews by 0.05 %. It does not cover chrony with
/// its default `maxslewrate` of 8.3 % (`docs/set-up.md`, "Clocks").
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
    quorum: Quorum,
    ttl: Duration,
    /// How much longer masters keep the key than the lease lives.
    lock_delay: Duration,
    drift: Drift,
    /// The drift of the TTL: every deadline needs it.
    ttl_drift: Duration,
    node_timeout: Duration,
    fencing: Option<Duration>,
    shared: bool,
    name: Option<HolderName>,
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
        let ttl = Duration::from_millis(millis(ttl));
        let ttl_drift = drift.of(ttl);
        if ttl_drift < MIN_DRIFT {
            return Err(BadOption::DriftTooSmall { drift: ttl_drift });
        }
        if ttl_drift.saturating_add(node_timeout) >= ttl {
            return Err(BadOption::TtlTooShort { ttl, drift: ttl_drift, node_timeout });
        }
        Ok(Self {
            quorum: Quorum::of(nodes),
            ttl,
            lock_delay: Duration::ZERO,
            drift,
            ttl_drift,
            node_timeout,
            fencing: None,
            shared: false,
            name: None,
            max_ttl: None,
            clock_bound: Duration::ZERO,
        })
    }

    /// This config with another TTL, checked again.
    ///
    /// # Errors
    /// The errors of [`LockConfig::new`], and those of the options that this config has.
    pub fn with_ttl(self, ttl: Duration) -> Result<Self, BadOption> {
        let config = Self::new(self.nodes(), ttl, self.drift, self.node_timeout)?;
        let config = config.with_quorum(self.quorum);
        let config = config.with_lock_delay(self.lock_delay)?;
        let config = self.max_ttl.map_or(Ok(config), |max_ttl| config.with_max_ttl(max_ttl))?;
        Ok(config.with_clock_bound(self.clock_bound)?.of_the_kind_of(self))
    }

    /// This config over these masters, such as those of a move.
    #[must_use]
    pub const fn with_quorum(self, quorum: Quorum) -> Self {
        Self { quorum, ..self }
    }

    /// This config, or one with a TTL that is long enough for a lease to live at least this long.
    ///
    /// # Errors
    /// The errors of [`with_ttl`](Self::with_ttl): such a TTL is out of its range.
    pub fn lasting(self, least: Duration) -> Result<Self, BadOption> {
        let mut config = self;
        while config.validity() < least {
            // A longer TTL also has more drift, so one step may not be enough.
            let missing = least - config.validity();
            config = config
                .with_ttl(config.ttl.saturating_add(missing.max(Duration::from_millis(1))))?;
        }
        Ok(config)
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
        let lock_delay = Duration::from_millis(millis(lock_delay));
        let config = Self { lock_delay, ..self };
        self.max_ttl.map_or(Ok(config), |max_ttl| config.with_max_ttl(max_ttl))
    }

    /// This config with a fencing token: masters remember their counters for `memory` after the
    /// last grant or extension, and forget them then. The shorter the memory is, the more a rarely
    /// locked resource depends on wall clocks.
    ///
    /// # Errors
    /// [`BadOption::FencingCounterTtl`] unless TTL + lock delay ≤ `memory` ≤
    /// [`MAX_FENCING_COUNTER_TTL`]. If the lease asks for a longer TTL later, masters remember the
    /// counter for that long. [`BadOption::SharedFenced`] for a shared lease.
    pub fn with_fencing(self, memory: Duration) -> Result<Self, BadOption> {
        if self.shared {
            return Err(BadOption::SharedFenced);
        }
        if memory < self.key_ttl() || memory > MAX_FENCING_COUNTER_TTL {
            return Err(BadOption::FencingCounterTtl { memory, ttl: self.key_ttl() });
        }
        Ok(Self { fencing: Some(memory), ..self })
    }

    /// This config for a lease that others may share: it excludes exclusive leases only.
    ///
    /// # Errors
    /// [`BadOption::SharedFenced`] for a lease with a fencing token. Holders of a shared lease do
    /// not exclude each other, so their tokens would show no order.
    pub const fn with_sharing(self) -> Result<Self, BadOption> {
        if self.fencing.is_some() {
            return Err(BadOption::SharedFenced);
        }
        Ok(Self { shared: true, ..self })
    }

    /// This config for leases that show this name, as a part of their tokens.
    pub const fn with_name(self, name: HolderName) -> Self {
        Self { name: Some(name), ..self }
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
        let Self { ttl, ttl_drift: drift, node_timeout, .. } = self;
        if drift.saturating_add(node_timeout).saturating_add(bound) >= ttl {
            return Err(BadOption::TtlBelowClockBound { ttl, bound, drift, node_timeout });
        }
        Ok(Self { clock_bound: bound, ..self })
    }

    /// How much a master's clock may gain unnoticed; zero without a clock guard.
    pub const fn clock_bound(self) -> Duration {
        self.clock_bound
    }

    /// This config, fenced, shared and named as another one is.
    pub(crate) const fn of_the_kind_of(self, other: Self) -> Self {
        Self { fencing: other.fencing, shared: other.shared, name: other.name, ..self }
    }

    /// The token of an attempt with these random bytes.
    pub(crate) fn token(self, random: Token) -> Token {
        let token = if self.shared { random.shared() } else { random };
        self.name.map_or(token, |name| token.named(name))
    }

    /// The fence that a master receives for its counter, if the lease has a fencing token.
    pub(crate) fn fence(self, number: u64) -> Option<Fence> {
        // A lease may have been extended for longer than it was granted for.
        let memory = self.fencing?.max(self.key_ttl());
        Some(Fence { number: number.min(MAX_NUMBER), memory_ms: millis(memory) })
    }

    /// Whether the lease has a fencing token.
    pub const fn is_fenced(self) -> bool {
        self.fencing.is_some()
    }

    /// Whether other leases may share the resource with the lease.
    pub const fn is_shared(self) -> bool {
        self.shared
    }

    /// The number of masters.
    pub const fn nodes(self) -> usize {
        self.quorum.nodes()
    }

    /// The sets of masters that are a quorum.
    pub const fn quorum(self) -> Quorum {
        self.quorum
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
        millis(self.key_ttl())
    }

    /// Until when the keys of a lease that ended `now` without a release are left alone; `None`
    /// without a lock delay. Drift is added, as it is deducted before the deadline.
    pub(crate) fn left_until(self, now: Time) -> Option<Time> {
        let left = self.lock_delay.saturating_add(self.drift.of(self.key_ttl()));
        (!self.lock_delay.is_zero()).then(|| now.plus(left))
    }

    /// How long a lease lives, counted from before its first byte is sent: TTL − drift, less what a
    /// clock may gain unnoticed.
    pub const fn validity(self) -> Duration {
        self.ttl.saturating_sub(self.ttl_drift).saturating_sub(self.clock_bound)
    }

    /// How long one round waits for the masters' replies.
    pub const fn node_timeout(self) -> Duration {
        self.node_timeout
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(ttl: Duration) -> Result<LockConfig, BadOption> {
        LockConfig::new(5, ttl, Drift::default(), Duration::from_millis(50))
    }

    #[test]
    fn drift_is_rounded_up_and_validity_down() {
        let drift = Drift::default();
        assert_eq!(drift.of(Duration::from_secs(10)), Duration::from_millis(102));
        assert_eq!(drift.of(Duration::from_nanos(1)), Duration::from_nanos(2_000_001));
        let config = config(Duration::from_micros(1_000_999)).unwrap();
        assert_eq!(config.ttl(), Duration::from_secs(1));
        assert_eq!(config.validity(), Duration::from_millis(988));
    }

    #[test]
    fn what_a_clock_may_gain_is_deducted_and_must_leave_something() {
        let ms = Duration::from_millis;
        let guarded = config(ms(1000)).unwrap().with_clock_bound(ms(300)).unwrap();
        assert_eq!(guarded.validity(), ms(688));
        assert_eq!(guarded.with_ttl(ms(500)).unwrap().validity(), ms(193));
        let short = guarded.with_ttl(ms(355));
        assert!(matches!(short, Err(BadOption::TtlBelowClockBound { .. })), "{short:?}");
        assert!(guarded.with_ttl(ms(356)).is_ok());
        assert!(guarded.with_clock_bound(Duration::MAX).is_err());
    }

    #[test]
    fn each_bound_of_an_option_is_allowed_and_nothing_beyond_it() {
        let ms = Duration::from_millis;
        let one = config(ms(1_000)).unwrap().with_lock_delay(ms(500)).unwrap();
        let most = MAX_TTL.saturating_sub(ms(1_000));
        let memory = MAX_FENCING_COUNTER_TTL;
        for (allowed, is_allowed) in [
            (one.with_lock_delay(most), true),
            (one.with_lock_delay(most + ms(1)), false),
            (one.with_fencing(ms(1_499)), false),
            (one.with_fencing(ms(1_500)), true),
            (one.with_fencing(memory), true),
            (one.with_fencing(memory + ms(1)), false),
            (one.with_max_ttl(ms(1_499)), false),
            (one.with_max_ttl(ms(1_500)), true),
            (one.with_max_ttl(ms(1_501)), true),
            // The guard stays when the TTL changes.
            (one.with_max_ttl(ms(1_501)).unwrap().with_ttl(ms(1_002)), false),
            (one.with_max_ttl(ms(1_501)).unwrap().with_ttl(ms(1_001)), true),
        ] {
            assert_eq!(allowed.is_ok(), is_allowed, "{allowed:?}");
        }
    }
}
