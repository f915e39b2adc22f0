//! Durations and names: zero, tiny, huge, and both sides of every bound.

use std::time::Duration;

use redquorum::memory::Masters;
use redquorum::{AcquireError, Backoff, BadOption, BuildError, ExtendError, Outcome};
use tokio::time::timeout;

use crate::support::{MS, S, TTL, take};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const LONG: Duration = Duration::from_secs(u64::MAX);

fn is_too_short(bad: BadOption) -> bool {
    matches!(bad, BadOption::TtlTooShort { .. })
}

fn is_too_long(bad: BadOption) -> bool {
    matches!(bad, BadOption::TtlTooLong { .. })
}

type Wrong = fn(BadOption) -> bool;

/// With a node timeout of 100 ms and the default drift of 1 % + 2 ms, a TTL of 103 ms leaves no
/// validity and a TTL of 104 ms leaves some.
fn ttls() -> [(Duration, Option<Wrong>); 11] {
    [
        (Duration::ZERO, Some(is_too_short)),
        (Duration::from_nanos(1), Some(is_too_short)),
        (MS, Some(is_too_short)),
        (103 * MS, Some(is_too_short)),
        (104 * MS - Duration::from_nanos(1), Some(is_too_short)),
        (104 * MS, None),
        (DAY, None),
        (DAY + Duration::from_nanos(1), Some(is_too_long)),
        (Duration::from_millis(1 << 63), Some(is_too_long)),
        (LONG, Some(is_too_long)),
        (Duration::MAX, Some(is_too_long)),
    ]
}

#[tokio::test(start_paused = true)]
async fn a_ttl_is_checked_at_the_build_and_at_every_request_and_a_wrong_one_sends_nothing() {
    let masters = Masters::new(3);
    let lock = masters.builder().build().await.unwrap();
    for (ttl, wrong) in ttls() {
        match (wrong, Masters::new(3).builder().ttl(ttl).build().await) {
            (None, Ok(lock)) => {
                let lease = lock.acquire("r").await.unwrap();
                assert_eq!(lease.validity(), ttl - ttl / 100 - 2 * MS);
            }
            (Some(wrong), Err(BuildError::Options(bad))) => assert!(wrong(bad), "{ttl:?}: {bad}"),
            (_, built) => panic!("{ttl:?}: {built:?}"),
        }
        let held = lock.acquire("held").await.unwrap();
        let (deadline, votes) = (held.deadline(), lock.stats().masters[0].latency.count);
        let acquired = lock.acquire("r").ttl(ttl).await;
        let tried = lock.try_acquire("s").ttl(ttl).await;
        let extended = held.extend_to(ttl).await;
        let Some(wrong) = wrong else {
            assert!(acquired.is_ok() && tried.is_ok() && extended.is_ok(), "{ttl:?}");
            continue;
        };
        let Err(AcquireError::Options { error: bad, .. }) = acquired else {
            panic!("{ttl:?}: {acquired:?}")
        };
        assert!(wrong(bad), "{ttl:?}: {bad}");
        assert!(
            matches!(tried, Err(AcquireError::Options { error: same, .. }) if same == bad),
            "{tried:?}"
        );
        assert!(matches!(extended, Err(ExtendError::Options { error: same, .. }) if same == bad));
        assert_eq!(held.deadline(), deadline, "a refused extension moved the deadline");
        assert_eq!(lock.stats().masters[0].latency.count, votes, "something was sent");
        assert_eq!(held.release().await.outcome, Outcome::Released);
    }
}

#[tokio::test(start_paused = true)]
async fn a_name_for_connections_is_one_word() {
    for (name, fits) in [("billing@host-7", true), ("", false), ("two words", false)] {
        let built = Masters::new(1).builder().client_name(name).build().await;
        let refused = matches!(built, Err(BuildError::Options(BadOption::ClientName)));
        assert_eq!(!refused, fits, "{name:?}: {built:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_name_of_the_holder_is_short_text() {
    let [longest, too_long] = [40, 41].map(|length| "n".repeat(length));
    for (name, fits) in
        [("billing 7", true), (&longest, true), (&too_long, false), ("", false), ("a\tb", false)]
    {
        let built = Masters::new(1).builder().name(name).build().await;
        let refused = matches!(built, Err(BuildError::Options(BadOption::HolderName)));
        assert_eq!(!refused, fits, "{name:?}: {built:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_longest_of_everything_overflows_nowhere() {
    let masters = Masters::new(3);
    let builder = masters.builder().connect_timeout(Duration::MAX).wait(Duration::MAX);
    let huge = Backoff::Jittered { initial: Duration::MAX, max: Duration::MAX };
    let lock = builder.retry(huge).require_quorum(true).build().await.unwrap();
    let lease = lock.acquire("r").await.unwrap();
    lease.keep_alive(Duration::MAX);
    let waiting = timeout(100 * S, lock.acquire("r")).await;
    assert!(waiting.is_err());
    assert!(!lease.is_lost(), "it is kept alive");
    assert!(timeout(S, lock.shutdown(Duration::MAX)).await.is_err(), "a lease is still held");
    assert_eq!(lease.release().await.outcome, Outcome::Released);
    timeout(S, lock.shutdown(Duration::MAX)).await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn no_ttl_of_a_request_is_above_the_guard_or_below_the_clock_guard() {
    let lock =
        Masters::new(3).builder().restart_guard(TTL).clock_guard(500 * MS).build().await.unwrap();
    lock.initialize_masters().await;
    let acquired = lock.acquire("r").ttl(600 * MS).await;
    assert!(matches!(
        acquired,
        Err(AcquireError::Options { error: BadOption::TtlBelowClockBound { .. }, .. })
    ));
    let acquired = lock.acquire("r").ttl(TTL + MS).await;
    assert!(matches!(
        acquired,
        Err(AcquireError::Options { error: BadOption::TtlAboveGuard { .. }, .. })
    ));
    let lock = Masters::new(3)
        .builder()
        .lock_delay(5 * S)
        .restart_guard(TTL + 5 * S)
        .build()
        .await
        .unwrap();
    lock.initialize_masters().await;
    let lease = take(&lock, "r").await;
    let extended = lease.extend_to(TTL + MS).await;
    assert!(matches!(
        extended,
        Err(ExtendError::Options { error: BadOption::TtlAboveGuard { .. }, .. })
    ));
    lease.extend_to(TTL).await.unwrap();
}

const MAX: usize = 1 << 20;

#[tokio::test(start_paused = true)]
async fn a_name_has_one_byte_to_a_mebibyte_with_its_prefix() {
    let masters = Masters::new(3);
    for prefix in ["", "locks:"] {
        let lock = masters.builder().prefix(prefix).build().await.unwrap();
        let longest = MAX - prefix.len();
        for length in [1, longest] {
            let lease = lock.acquire(vec![b'x'; length]).await.unwrap();
            let key = [prefix.as_bytes(), &vec![b'x'; length]].concat();
            assert!(masters.value(1, key).is_some());
            assert_eq!(lease.resource(), vec![b'x'; length], "without the prefix");
            assert_eq!(lease.release().await.outcome, Outcome::Released);
        }
        let empty = AcquireError::Options { resource: Vec::new(), error: BadOption::ResourceEmpty };
        assert_eq!(lock.acquire("").await.unwrap_err(), empty);
        assert_eq!(lock.try_acquire("").await.unwrap_err(), empty);
        let too_long = BadOption::ResourceTooLong { length: MAX + 1, longest: MAX };
        let resource = vec![0; longest + 1];
        let too_long = AcquireError::Options { resource: resource.clone(), error: too_long };
        assert_eq!(lock.acquire(&resource).await.unwrap_err(), too_long);
        assert_eq!(lock.try_acquire(&resource).await.unwrap_err(), too_long);
    }
}

#[tokio::test(start_paused = true)]
async fn the_names_of_the_locks_own_keys_are_refused() {
    let masters = Masters::new(3);
    let lock = masters.builder().build().await.unwrap();
    let refused = lock.try_acquire("redquorum:fence:r").await;
    assert!(
        matches!(refused, Err(AcquireError::Options { error: BadOption::ResourceReserved, .. })),
        "{refused:?}"
    );
    // The prefix can also make a resource's key a reserved one.
    let lock = masters.builder().prefix("red").build().await.unwrap();
    assert!(lock.try_acquire("quorum:r").await.is_err());
    assert!(lock.try_acquire("quorum").await.is_ok());
}
