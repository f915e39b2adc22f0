//! Every lease that is returned is valid: its deadline counts from before the first byte was sent,
//! for every TTL, and however slow the replies or the caller are.

use std::future::IntoFuture;
use std::task::Poll;
use std::time::Duration;

use redquorum::{AcquireError, BadOption, Redlock};
use redquorum_rig::trials::Case;
use tokio::time::{Instant, sleep};

use crate::support::*;

pub(crate) fn cases() -> Vec<Case> {
    cases![
        no_ttl_however_short_makes_a_lease_that_has_expired,
        no_ttl_however_long_makes_a_lease_without_an_end,
        a_ttl_that_leaves_nothing_is_refused_before_anything_is_sent,
        time_that_the_votes_took_is_taken_off_the_lease,
        a_lease_that_is_collected_after_its_deadline_is_too_late_and_leaves_no_key,
        attempts_that_failed_do_not_make_the_lease_longer,
        a_lease_publishes_a_deadline_and_not_a_duration_that_rots,
    ]
}

/// The validity of a TTL after the default drift allowance.
fn validity(ttl: Duration) -> Duration {
    ttl - ttl / 100 - 2 * MS
}

async fn no_ttl_however_short_makes_a_lease_that_has_expired() {
    let masters = shared();
    // Slightly longer than the drift plus the node timeout.
    let lock = built(Redlock::builder().urls(masters.urls()).node_timeout(MS).ttl(4 * MS)).await;
    let name = unique("short");
    let mut granted = 0;
    // On a busy machine few attempts are granted in time.
    for round in 0.. {
        if round >= 200 && granted > 0 {
            break;
        }
        let asked = Instant::now();
        match lock.acquire(format!("{name}-{round}")).wait(Duration::ZERO).await {
            Ok(lease) => {
                granted += 1;
                let left = lease.validity();
                assert!(left <= validity(4 * MS), "round {round}: {left:?} are left");
                // The validity counts from the call or later, and ends within a TTL after the
                // reply.
                assert!(lease.is_lost().is_some() || asked.elapsed() + left >= validity(4 * MS));
                lease.lost().await;
                assert_eq!(lease.validity(), Duration::ZERO);
                assert!(asked.elapsed() >= validity(4 * MS), "round {round} was lost too early");
            }
            Err(AcquireError::NoQuorum { .. } | AcquireError::TooLate { .. }) => {}
            Err(error) => panic!("round {round}: {error}"),
        }
    }
    cleaned(masters, &format!("{name}*")).await;
}

async fn no_ttl_however_long_makes_a_lease_without_an_end() {
    let masters = shared();
    let day = Duration::from_secs(24 * 60 * 60);
    let lock = built(calm(masters).ttl(day)).await;
    let r = unique("long");
    let lease = lock.acquire(&r).await.unwrap();
    let left = lease.validity();
    assert!(left <= validity(day) && left > validity(day) - 10 * CALM, "{left:?}");
    eventually("all have it", || holders(masters, &r).len() == 5).await;
    assert!(pttl(masters, 1, &r) <= 24 * 60 * 60 * 1000);
    lease.release().await;
    for ttl in [day + Duration::from_nanos(1), Duration::from_millis(1 << 63), Duration::MAX] {
        let error = lock.acquire(&r).ttl(ttl).await.unwrap_err();
        assert!(matches!(error, AcquireError::Options(BadOption::TtlTooLong { .. })), "{error}");
    }
    cleaned(masters, &r).await;
}

async fn a_ttl_that_leaves_nothing_is_refused_before_anything_is_sent() {
    let masters = own(1);
    let lock = built(calm(&masters)).await;
    for ttl in [Duration::ZERO, MS, CALM, CALM + 12 * MS] {
        let error = lock.acquire("r").ttl(ttl).await.unwrap_err();
        assert!(matches!(error, AcquireError::Options(BadOption::TtlTooShort { .. })), "{error}");
        let error = lock.try_acquire("r").ttl(ttl).await.unwrap_err();
        assert!(error.to_string().contains("ttl of"), "{error}");
    }
    assert_eq!(calls(&masters, 1, "set"), 0);
    drop(lock.acquire("r").ttl(CALM + 13 * MS).await.unwrap());
    assert_eq!(calls(&masters, 1, "set"), 1);
}

async fn time_that_the_votes_took_is_taken_off_the_lease() {
    let masters = own(3);
    let lock = built(calm(&masters).ttl(2 * CALM)).await;
    masters.pause(1).unwrap();
    masters.pause(2).unwrap();
    let mut acquiring = lock.acquire("r").into_future();
    assert!(poll_once(&mut acquiring).await.is_pending());
    let sent = Instant::now();
    sleep(100 * MS).await;
    masters.resume(1).unwrap();
    let lease = acquiring.await.unwrap();
    // No tolerance is needed: the time of the lease began before `sent`.
    let left = lease.validity();
    let ran = sent.elapsed();
    assert!(ran >= 100 * MS);
    assert!(left + ran.min(100 * MS) <= validity(2 * CALM), "{left:?} are left after {ran:?}");
    masters.resume(2).unwrap();
}

async fn a_lease_that_is_collected_after_its_deadline_is_too_late_and_leaves_no_key() {
    let masters = own(3);
    let lock = built(brisk(&masters).ttl(300 * MS)).await;
    masters.pause(1).unwrap();
    masters.pause(2).unwrap();
    let mut acquiring = lock.acquire("r").wait(Duration::ZERO).into_future();
    assert!(poll_once(&mut acquiring).await.is_pending());
    let sent = Instant::now();
    masters.resume(1).unwrap();
    masters.resume(2).unwrap();
    // The caller is stopped: the votes arrive, but the future is not polled.
    eventually("all have granted", || {
        lock.stats().masters.iter().all(|master| master.granted == 1)
    })
    .await;
    // The keys outlive the lease, so the library must delete them.
    all(&masters).for_each(|node| done(&masters, node, "PEXPIRE r 60000"));
    assert_eq!(holders(&masters, "r"), [1, 2, 3]);
    sleep((300 * MS).saturating_sub(sent.elapsed())).await;
    match poll_once(&mut acquiring).await {
        Poll::Ready(Err(AcquireError::TooLate { report, attempts: 1 })) => {
            assert_eq!(report.in_favour(), 3, "{report}");
        }
        other => panic!("{other:?}"),
    }
    cleaned(&masters, "r").await;
}

async fn attempts_that_failed_do_not_make_the_lease_longer() {
    let masters = shared();
    let ttl = Duration::from_secs(60);
    let lock = built(calm(masters).ttl(ttl).wake_ups(false)).await;
    let r = unique("again");
    (1..=3).for_each(|node| put(masters, node, &r, 60_000));
    let acquiring = tokio::spawn(lock.acquire(&r).wait(15 * CALM).into_future());
    eventually("some attempts fail", || lock.stats().masters[0].refused >= 3).await;
    // From here on all keys belong to the lock.
    delete(masters, 1..=3, &r);
    let lease = acquiring.await.unwrap().unwrap();
    assert!(lease.validity() <= validity(ttl));
    let check = || {
        let left: Vec<i64> = all(masters).map(|node| pttl(masters, node, &r)).collect();
        // The clean-up of an earlier attempt may still delete the key on one or two masters.
        let held = left.iter().filter(|left| (1..=60_000).contains(*left)).count();
        let none = left.iter().filter(|left| **left == -2).count();
        assert!(held >= 3 && held + none == left.len(), "{left:?}");
    };
    check();
    lease.extend().await.unwrap();
    assert!(lease.validity() <= validity(ttl));
    check();
    lease.release().await;
}

async fn a_lease_publishes_a_deadline_and_not_a_duration_that_rots() {
    let lock = built(calm(shared())).await;
    let lease = lock.acquire(unique("deadline")).await.unwrap();
    let (deadline, left) = (lease.deadline(), lease.validity());
    sleep(20 * MS).await;
    assert_eq!(lease.deadline(), deadline);
    assert!(lease.validity() <= left - 20 * MS);
    assert!(deadline.remaining() <= left - 20 * MS && !deadline.has_passed());
}
