//! Backoff: how long to pause between attempts, as a function of the attempt and a random number.

use core::time::Duration;

/// How long an acquire that waits pauses between its attempts.
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Backoff {
    /// Always the same pause. Several waiters then collide in step: prefer `Jittered`.
    Fixed(Duration),
    /// `initial`, doubled with every attempt up to `max`.
    Exponential {
        /// The first pause.
        initial: Duration,
        /// The longest one.
        max: Duration,
    },
    /// A random pause between nothing and what [`Backoff::Exponential`] would give ("full
    /// jitter"): contenders that collided once do not collide again.
    Jittered {
        /// Upper bound of the first pause.
        initial: Duration,
        /// Upper bound of the longest one.
        max: Duration,
    },
}

impl Default for Backoff {
    /// Jittered, from 10 ms to 250 ms.
    fn default() -> Self {
        Self::Jittered { initial: Duration::from_millis(10), max: Duration::from_millis(250) }
    }
}

impl Backoff {
    /// The pause after attempt `attempt`, counted from 1. At least a millisecond, so that no
    /// policy and no draw makes a waiter spin.
    pub fn pause(self, attempt: u32, random: u64) -> Duration {
        let doubled = |initial: Duration, max: Duration| {
            let factor = 1_u32.checked_shl(attempt.saturating_sub(1)).unwrap_or(u32::MAX);
            initial.saturating_mul(factor).min(max)
        };
        let pause = match self {
            Self::Fixed(pause) => pause,
            Self::Exponential { initial, max } => doubled(initial, max),
            Self::Jittered { initial, max } => {
                let nanos = u64::try_from(doubled(initial, max).as_nanos()).unwrap_or(u64::MAX);
                Duration::from_nanos(random % nanos.saturating_add(1))
            }
        };
        pause.max(Duration::from_millis(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn pauses_grow_up_to_their_maximum_and_never_reach_zero() {
        let policy = Backoff::Exponential { initial: 10 * MS, max: 250 * MS };
        let pauses: [Duration; 6] = [1, 2, 3, 4, 5, 6].map(|attempt| policy.pause(attempt, 0));
        assert_eq!(pauses, [10 * MS, 20 * MS, 40 * MS, 80 * MS, 160 * MS, 250 * MS]);
        assert_eq!(policy.pause(u32::MAX, u64::MAX), 250 * MS);
        assert_eq!(Backoff::Fixed(Duration::ZERO).pause(1, 0), MS);
        let jittered = Backoff::Jittered { initial: Duration::MAX, max: Duration::MAX };
        assert_eq!(jittered.pause(7, 0), MS);
        let max = Duration::from_nanos(u64::MAX);
        assert_eq!(Backoff::Jittered { initial: max, max }.pause(7, 0), MS);
    }

    #[test]
    fn jitter_spreads_over_the_whole_pause() {
        let policy = Backoff::Jittered { initial: 64 * MS, max: 64 * MS };
        let draw = |random| policy.pause(1, random);
        assert_eq!(draw(0), MS);
        assert_eq!(draw(64_000_000), 64 * MS);
        assert_eq!(draw(32_000_000), 32 * MS);
    }
}
