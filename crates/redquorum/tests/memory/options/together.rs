//! Options that must fit each other: TTLs, lock delay, guards, the lifetime of fencing counters.

use std::time::Duration;

use redquorum::memory::Masters;
use redquorum::{AcquireError, BadOption, Builder, ExtendError};

use crate::support::{MS, S, TTL, take};

const BOUND: Duration = Duration::from_millis(500);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn builder() -> Builder {
    Masters::new(3).builder()
}

fn guarded() -> Builder {
    builder().restart_guard(TTL)
}

fn delayed(delay: Duration) -> Builder {
    builder().lock_delay(delay)
}

#[tokio::test(start_paused = true)]
async fn options_that_do_not_fit_together_are_refused_with_the_fix() {
    let bounds = "out of bounds: set at least 1ms";
    let at_most = "with the ttl (10s) it may be 86400s at most";
    for (builder, words) in [
        (builder().clock_guard(BOUND), "set the guard, too"),
        (guarded().clock_guard(Duration::ZERO), bounds),
        (guarded().clock_guard(TTL), bounds),
        (guarded().clock_guard(Duration::MAX), bounds),
        (guarded().clock_guard(TTL - 202 * MS), "lower the clock guard on all clients"),
        (guarded().ttl(TTL + MS), "ttl of 10.001s is above the guard of this lock, 10s"),
        (builder().restart_guard(Duration::MAX), "86400s"),
        (delayed(DAY - TTL + Duration::from_nanos(1)), at_most),
        (delayed(DAY), at_most),
        (delayed(Duration::MAX), at_most),
        (
            delayed(5 * S + MS).restart_guard(TTL + 5 * S),
            "ttl of 10s and lock delay of 5.001s are together above the guard",
        ),
        (delayed(5 * S).fencing_counter_ttl(TTL), "fencing"),
    ] {
        let error = builder.build().await.unwrap_err().to_string();
        assert!(error.contains(words), "{words}: {error}");
    }
    for builder in [
        guarded().clock_guard(BOUND),
        delayed(DAY - TTL),
        delayed(5 * S).restart_guard(TTL + 5 * S),
    ] {
        builder.build().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn no_ttl_of_a_request_is_above_the_guard_or_below_the_clock_guard() {
    let lock = guarded().clock_guard(BOUND).build().await.unwrap();
    lock.initialize_masters().await;
    let acquired = lock.acquire("r").ttl(BOUND + 100 * MS).await;
    assert!(matches!(
        acquired,
        Err(AcquireError::Options { error: BadOption::TtlBelowClockBound { .. }, .. })
    ));
    let acquired = lock.acquire("r").ttl(TTL + MS).await;
    assert!(matches!(
        acquired,
        Err(AcquireError::Options { error: BadOption::TtlAboveGuard { .. }, .. })
    ));
    let lock = delayed(5 * S).restart_guard(TTL + 5 * S).build().await.unwrap();
    lock.initialize_masters().await;
    let lease = take(&lock, "r").await;
    let extended = lease.extend_to(TTL + MS).await;
    assert!(matches!(
        extended,
        Err(ExtendError::Options { error: BadOption::TtlAboveGuard { .. }, .. })
    ));
    lease.extend_to(TTL).await.unwrap();
}
