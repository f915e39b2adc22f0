//! Time and options: every calculation, over the whole range.

use std::time::Duration;

use proptest::prelude::*;
use redquorum_protocol::{Backoff, Drift, LockConfig, MAX_FENCING_COUNTER_TTL, MAX_TTL, Time};

use crate::support::MS;

// Lock configs and times.

pub(crate) fn any_time() -> impl Strategy<Value = Time> {
    prop_oneof![
        2 => any::<u64>().prop_map(Time::from_nanos),
        2 => (0..5_000_u64).prop_map(Time::from_millis),
        1 => Just(Time::ZERO),
        1 => Just(Time::NEVER),
        1 => (0..5_000_000_000_u64).prop_map(|below| Time::from_nanos(u64::MAX - below)),
    ]
}

pub(crate) fn any_duration() -> impl Strategy<Value = Duration> {
    prop_oneof![
        3 => (0..5_000_000_000_u64).prop_map(Duration::from_nanos),
        1 => any::<u64>().prop_map(Duration::from_nanos),
        1 => (any::<u64>(), 0..1_000_000_000_u32).prop_map(|(secs, nanos)| Duration::new(secs, nanos)),
        1 => Just(Duration::ZERO),
        1 => Just(Duration::MAX),
    ]
}

pub(crate) fn any_drift() -> impl Strategy<Value = Drift> {
    let any = (any::<u32>(), any_duration()).prop_map(|(ppm, fixed)| Drift { ppm, fixed });
    let usual = (0..100_000_u32, 0..5_u32).prop_map(|(ppm, ms)| Drift { ppm, fixed: MS * ms });
    prop_oneof![any, usual, Just(Drift::default())]
}

/// A lock config for five masters: any valid one, or else the usual one.
pub(crate) fn valid_config() -> impl Strategy<Value = LockConfig> {
    let ttl = prop_oneof![(0..5_000_000_000_u64).prop_map(Duration::from_nanos), Just(MAX_TTL)];
    let lock_delay = prop_oneof![Just(Duration::ZERO), any_duration()];
    (ttl, any_drift(), 1..100_u32, any::<bool>(), lock_delay).prop_map(
        |(ttl, drift, ms, fenced, lock_delay)| {
            let usual =
                || LockConfig::new(5, MS * 1_000, Drift::default(), MS * 50).expect("they fit");
            let config = LockConfig::new(5, ttl, drift, MS * ms).unwrap_or_else(|_| usual());
            let config = config.with_lock_delay(lock_delay).unwrap_or(config);
            if fenced {
                config.with_fencing(MAX_FENCING_COUNTER_TTL).expect("it fits")
            } else {
                config
            }
        },
    )
}

proptest! {
    #[test]
    fn options_out_of_any_range_are_errors_and_no_panic(
        nodes in any::<usize>(), ttl in any_duration(), drift in any_drift(), timeout in any_duration(),
    ) {
        if let Err(why) = LockConfig::new(nodes, ttl, drift, timeout) {
            prop_assert!(!why.to_string().is_empty());
        }
    }

    #[test]
    fn a_deadline_lies_before_the_end_of_the_key(
        start in any_time(), config in valid_config(), ttl in any_duration(), drift in any_drift(),
    ) {
        let end = start.plus(config.ttl());
        let deadline = start.plus(config.validity());
        // The deadline is strictly earlier where there is drift. Time ends at "never".
        prop_assert!(deadline < end || drift_free(config) || end == Time::NEVER);
        prop_assert!(deadline <= end);
        prop_assert!(config.validity() > config.node_timeout());
        prop_assert!(config.key_ttl_ms() >= 1 && config.ttl() <= MAX_TTL);
        prop_assert!(drift.of(ttl) >= drift.fixed);
        if let Ok(other) = config.with_ttl(ttl) {
            prop_assert!(other.ttl() <= ttl && ttl < other.ttl().saturating_add(MS));
        }
    }

    #[test]
    fn a_pause_is_at_least_a_millisecond_and_at_most_the_longest(
        initial in any_duration(), max in any_duration(), attempt in any::<u32>(), random in any::<u64>(),
        multiplier_percent in prop_oneof![0..300_u32, any::<u32>()],
    ) {
        for backoff in [
            Backoff::Exponential { initial, max, multiplier_percent },
            Backoff::Jittered { initial, max },
            Backoff::Decorrelated { initial, max },
        ] {
            let pause = backoff.pause(attempt, random);
            prop_assert!(pause >= MS && pause <= max.max(MS), "{backoff:?}: {pause:?}");
            if backoff.check().is_ok() && !matches!(backoff, Backoff::Jittered { .. }) {
                // Pauses beyond 64 bits of nanoseconds are cut there.
                prop_assert!(pause >= initial.min(Duration::from_nanos(u64::MAX)), "{backoff:?}: {pause:?}");
            }
        }
        prop_assert!(Backoff::Fixed(initial).pause(attempt, random) >= initial);
    }
}

fn drift_free(config: LockConfig) -> bool {
    config.validity() == config.ttl()
}
