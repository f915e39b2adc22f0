//! Backoff: the pause between attempts, as a function of the attempt and a random number.

use core::time::Duration;

use crate::bad_option::BadOption;
use crate::time::nanos;

/// The pauses of a waiting acquire between its attempts. No pause is shorter than a millisecond.
///
/// A pause depends only on the number of the attempt and on a random number: nothing is remembered
/// from one to the next.
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Backoff {
    /// The same pause each time. Several waiters then collide in step: prefer `Jittered`.
    Fixed(Duration),
    /// `initial`, multiplied with every attempt up to `max`. Several waiters that began together
    /// then collide in step, too.
    Exponential {
        /// The first pause.
        initial: Duration,
        /// The longest pause.
        max: Duration,
        /// The length of each pause relative to the one before, in percent: 200 doubles it, 150
        /// makes it half as long again. At least 100.
        multiplier_percent: u32,
    },
    /// A random pause between zero and `initial`, which doubles with every attempt up to `max`
    /// ("full jitter"). Contenders that collided once are unlikely to collide again.
    Jittered {
        /// Upper bound of the first pause.
        initial: Duration,
        /// Upper bound of the longest pause.
        max: Duration,
    },
    /// A random pause between `initial` and three times the one before, up to `max` ("decorrelated
    /// jitter"). The first pause lies between `initial` and three times `initial`. Pauses grow more
    /// slowly than with `Jittered`, and are never close to zero.
    ///
    /// Each pause draws the ones before it anew. So every pause has the same distribution as with
    /// remembered pauses, and does not depend on the pause before.
    Decorrelated {
        /// The shortest pause.
        initial: Duration,
        /// The longest pause.
        max: Duration,
    },
}

/// The shortest pause: no policy and no draw makes a waiter spin.
const SHORTEST: Duration = Duration::from_millis(1);

/// The most pauses that are drawn before one. By then, pauses have long reached their maximum.
const MAX_DRAWN: u32 = 256;

impl Default for Backoff {
    /// Jittered, from 10 ms to 250 ms.
    fn default() -> Self {
        Self::Jittered { initial: Duration::from_millis(10), max: Duration::from_millis(250) }
    }
}

impl Backoff {
    /// Checks the policy. A lock does so when it is built. An unchecked policy never panics either.
    ///
    /// # Errors
    /// * [`BadOption::PauseTooShort`]: a fixed, first or longest pause is below a millisecond.
    /// * [`BadOption::PausesShrink`]: the longest pause is shorter than the first one.
    /// * [`BadOption::Multiplier`]: it is below 100 percent.
    pub fn check(self) -> Result<(), BadOption> {
        let (initial, max) = match self {
            Self::Fixed(pause) => (pause, pause),
            Self::Exponential { multiplier_percent: percent @ ..100, .. } => {
                return Err(BadOption::Multiplier { percent });
            }
            Self::Exponential { initial, max, .. }
            | Self::Jittered { initial, max }
            | Self::Decorrelated { initial, max } => (initial, max),
        };
        if initial < SHORTEST {
            Err(BadOption::PauseTooShort { pause: initial })
        } else if max < initial {
            Err(BadOption::PausesShrink { initial, max })
        } else {
            Ok(())
        }
    }

    /// The pause after attempt `attempt`, counted from 1. It is at least a millisecond, so that no
    /// policy and no draw makes a waiter spin.
    pub fn pause(self, attempt: u32, random: u64) -> Duration {
        let pause = match self {
            Self::Fixed(pause) => pause,
            Self::Exponential { initial, max, multiplier_percent } => {
                grown(initial, max, multiplier_percent, attempt)
            }
            Self::Jittered { initial, max } => {
                let longest = nanos(grown(initial, max, 200, attempt));
                Duration::from_nanos(random % longest.saturating_add(1))
            }
            Self::Decorrelated { initial, max } => decorrelated(initial, max, attempt, random),
        };
        pause.max(SHORTEST)
    }
}

/// `initial`, multiplied with every attempt after the first, up to `max`.
fn grown(initial: Duration, max: Duration, percent: u32, attempt: u32) -> Duration {
    let (mut pause, max) = (nanos(initial), nanos(max));
    for _ in 1..attempt {
        let longer = u128::from(pause) * u128::from(percent) / 100;
        let longer = u64::try_from(longer).unwrap_or(u64::MAX);
        // The pause is at its maximum, or does not grow.
        if pause >= max || longer <= pause {
            break;
        }
        pause = longer;
    }
    Duration::from_nanos(pause.min(max))
}

fn decorrelated(initial: Duration, max: Duration, attempt: u32, random: u64) -> Duration {
    let (initial, max) = (nanos(initial), nanos(max));
    let (mut pause, mut seed) = (initial, random);
    for _ in 0..attempt.clamp(1, MAX_DRAWN) {
        let room = pause.saturating_mul(3).saturating_sub(initial);
        pause = initial.saturating_add(splitmix64(&mut seed) % room.saturating_add(1)).min(max);
    }
    Duration::from_nanos(pause)
}

/// The next number in the sequence of a random one (SplitMix64).
pub const fn splitmix64(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut number = *seed;
    number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn pauses_grow_up_to_their_maximum_and_never_reach_zero() {
        let exponential = |multiplier_percent| {
            let (initial, max) = (10 * MS, 250 * MS);
            Backoff::Exponential { initial, max, multiplier_percent }
        };
        let pauses = |percent| {
            [1, 2, 3, 4, 5, 6].map(|attempt| exponential(percent).pause(attempt, 0).as_micros())
        };
        assert_eq!(pauses(200), [10_000, 20_000, 40_000, 80_000, 160_000, 250_000]);
        assert_eq!(pauses(150), [10_000, 15_000, 22_500, 33_750, 50_625, 75_937]);
        assert_eq!(pauses(100), [10_000; 6]);
        assert_eq!(pauses(u32::MAX), [10_000, 250_000, 250_000, 250_000, 250_000, 250_000]);
        for percent in [101, 150, 200, u32::MAX] {
            assert_eq!(exponential(percent).pause(u32::MAX, u64::MAX), 250 * MS, "{percent}");
        }
        assert_eq!(Backoff::Fixed(Duration::ZERO).pause(1, 0), MS);
        let jittered = Backoff::Jittered { initial: Duration::MAX, max: Duration::MAX };
        assert_eq!(jittered.pause(7, 0), MS);
        let max = Duration::from_nanos(u64::MAX);
        assert_eq!(Backoff::Jittered { initial: max, max }.pause(7, 0), MS);
    }

    /// The pauses after one attempt, from the shortest to the longest: with the pauses before it
    /// remembered, or as they are drawn here.
    fn drawn(attempt: u32, remembered: bool) -> Vec<Duration> {
        let (initial, max) = (10 * MS, 1_000 * MS);
        let (mut seed, mut all) = (u64::from(attempt), Vec::new());
        for _ in 0..20_000 {
            if !remembered {
                let pause =
                    Backoff::Decorrelated { initial, max }.pause(attempt, splitmix64(&mut seed));
                all.push(pause);
                continue;
            }
            let mut pause = initial;
            for _ in 0..attempt {
                let micros = splitmix64(&mut seed) % 1_000_000;
                let share = u32::try_from(micros).expect("it is small");
                pause = (initial + (3 * pause - initial) * share / 1_000_000).min(max);
            }
            all.push(pause);
        }
        all.sort_unstable();
        all
    }

    #[test]
    fn decorrelated_pauses_are_distributed_as_where_the_ones_before_are_remembered() {
        for attempt in [1, 2, 3, 5, 10, 50] {
            let (ours, theirs) = (drawn(attempt, false), drawn(attempt, true));
            for share in [1, 10, 25, 50, 75, 90, 99] {
                let at = |all: &[Duration]| all[all.len() * share / 100].as_secs_f64();
                let ratio = at(&ours) / at(&theirs);
                assert!((0.9..1.1).contains(&ratio), "{attempt}, {share} %: {ratio}");
            }
            assert!(
                ours[0] >= 10 * MS
                    && ours[19_999] <= (30 * MS * 3_u32.pow(attempt.min(5) - 1)).min(1_000 * MS)
            );
        }
    }

    #[test]
    fn jitter_spreads_over_the_whole_pause() {
        let policy = Backoff::Jittered { initial: 64 * MS, max: 64 * MS };
        let draw = |random| policy.pause(1, random);
        assert_eq!(draw(0), MS);
        assert_eq!(draw(64_000_000), 64 * MS);
        assert_eq!(draw(32_000_000), 32 * MS);
    }

    #[test]
    fn each_bound_of_a_pause_is_allowed_and_nothing_below_it() {
        let jittered = |initial, max| Backoff::Jittered { initial, max };
        let ns = Duration::from_nanos(1);
        for (policy, is_allowed) in [
            (Backoff::Fixed(MS), true),
            (Backoff::Fixed(MS - ns), false),
            (jittered(MS, MS), true),
            (jittered(MS - ns, MS), false),
            (jittered(2 * MS, 2 * MS - ns), false),
        ] {
            assert_eq!(policy.check().is_ok(), is_allowed, "{policy:?}");
        }
    }

    /// The first numbers of the generator's authors for this seed.
    #[test]
    fn random_numbers_are_those_of_splitmix64() {
        let mut seed = 1_234_567;
        let first = [(); 5].map(|()| splitmix64(&mut seed));
        let published = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        assert_eq!(first, published);
    }
}
