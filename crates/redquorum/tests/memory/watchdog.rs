//! The watchdog keeps a lease for as long as it may, and no longer.

use std::time::Duration;

use redquorum::{AcquireError, Outcome, report::Loss};
use tokio::time::{Instant, sleep, timeout};

use crate::support::{MS, S, TTL, VALIDITY, answers, bed, keys, settle, take};

#[tokio::test(start_paused = true)]
async fn a_watched_lease_lives_until_its_bound() {
    let (_masters, lock) = bed(5).await;
    let lease = lock.acquire("r").await.unwrap();
    let start = Instant::now();
    lease.keep_alive(60 * S);
    let error = lock.acquire("r").wait(50 * S).await.unwrap_err();
    assert!(matches!(error, AcquireError::Taken { .. }), "{error}");
    let lost = lease.lost().await;
    assert_eq!(lost.0, Loss::MaxHold);
    assert_eq!(lost.to_string(), "the lease is lost: it was kept alive for as long as was allowed");
    assert!(start.elapsed() <= 60 * S && start.elapsed() > 58 * S, "{:?}", start.elapsed());
    // The keys are gone from the masters too.
    settle().await;
    drop(take(&lock, "r").await);
}

#[tokio::test(start_paused = true)]
async fn no_deadline_lies_beyond_the_bound_at_any_time() {
    for bound in [0, 1, 99, 105, 5_000, 9_898, 10_000, 12_345, 30_000, 33_333] {
        let (_masters, lock) = bed(3).await;
        let lease = take(&lock, "r").await;
        let (start, first) = (Instant::now(), lease.validity());
        let bound = bound * MS;
        lease.keep_alive(bound);
        while lease.is_lost().is_none() {
            assert!(start.elapsed() + lease.validity() <= bound.max(first), "{bound:?}");
            sleep(13 * MS).await;
        }
        let lived = start.elapsed();
        assert!(lived + S >= bound.max(first), "{bound:?}: given up after {lived:?}");
        assert_eq!(lease.is_lost().unwrap().0, Loss::MaxHold);
    }
}

#[tokio::test(start_paused = true)]
async fn a_renewal_comes_a_third_of_the_ttl_after_the_last() {
    let (_masters, lock) = bed(3).await;
    let lease = take(&lock, "r").await;
    lease.keep_alive(1_000 * S);
    sleep(100 * S).await;
    // Renewals come a little earlier, in a batch with others.
    assert_eq!((lock.stats().extended, lock.stats().not_extended), (30, 0));
    assert!(lease.validity() >= VALIDITY - TTL / 3 - MS);
}

#[tokio::test(start_paused = true)]
async fn it_ends_with_the_release_the_drop_and_the_loss_of_its_lease() {
    let (masters, lock) = bed(3).await;
    for way in 0..3 {
        let lease = take(&lock, "r").await;
        lease.keep_alive(1_000 * S);
        sleep(20 * S).await;
        match way {
            0 => assert_eq!(lease.release().await.outcome, Outcome::Released),
            1 => drop(lease),
            _ => {
                (1..=3).for_each(|number| masters.forget(number));
                lease.lost().await;
            }
        }
        settle().await;
        let before = answers(&lock);
        sleep(100 * S).await;
        assert_eq!((answers(&lock), keys(&masters, 3)), (before, 0), "{way}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_a_quorum_forgot_is_lost_at_the_next_renewal() {
    let (masters, lock) = bed(5).await;
    let lease = take(&lock, "r").await;
    lease.keep_alive(1_000 * S);
    sleep(20 * S).await;
    (3..=5).for_each(|number| masters.forget(number));
    let start = Instant::now();
    let worked = lease.run(std::future::pending::<()>()).await;
    assert_eq!(worked.unwrap_err().0, Loss::QuorumGone);
    assert!(start.elapsed() <= TTL / 3 + MS, "{:?}", start.elapsed());
    assert!(!lease.deadline().has_passed(), "told before the deadline");
    assert_eq!(lease.validity(), Duration::ZERO);
    // A loss is final, and the lock deletes the remaining keys.
    assert!(lease.extend().await.is_err());
    settle().await;
    assert_eq!(keys(&masters, 5), 0);
}

#[tokio::test(start_paused = true)]
async fn a_minority_that_stops_dies_or_forgets_is_survived() {
    let (masters, lock) = bed(5).await;
    let lease = take(&lock, "r").await;
    lease.keep_alive(1_000 * S);
    masters.stop(1);
    sleep(30 * S).await;
    masters.kill(2);
    sleep(30 * S).await;
    masters.resume(1);
    masters.restart(2);
    sleep(30 * S).await;
    masters.forget(3);
    sleep(30 * S).await;
    masters.forget(4);
    sleep(30 * S).await;
    assert!(lease.is_lost().is_none());
    assert_eq!(lock.stats().not_extended, 0);
    assert_eq!(keys(&masters, 5), 5, "all have been given it back");
}

#[tokio::test(start_paused = true)]
async fn a_majority_that_comes_back_before_the_deadline_is_survived() {
    let (masters, lock) = bed(5).await;
    let lease = take(&lock, "r").await;
    lease.keep_alive(1_000 * S);
    (1..=3).for_each(|number| masters.stop(number));
    sleep(VALIDITY - 500 * MS).await;
    assert!(lock.stats().not_extended >= 3, "it tries again, and sooner");
    (1..=3).for_each(|number| masters.resume(number));
    sleep(500 * MS).await;
    assert!(lease.is_lost().is_none(), "it had half a second");
    assert!(lease.validity() > TTL / 2);
    let failed = lock.stats().not_extended;
    assert!(failed <= 40, "{failed} renewals failed: it spins");
}

#[tokio::test(start_paused = true)]
async fn a_majority_that_does_not_come_back_loses_the_lease_at_its_deadline() {
    let (masters, lock) = bed(5).await;
    let lease = take(&lock, "r").await;
    lease.keep_alive(1_000 * S);
    let start = Instant::now();
    (1..=3).for_each(|number| masters.stop(number));
    assert_eq!(lease.lost().await.0, Loss::Expired);
    assert!(start.elapsed() <= VALIDITY + 2 * MS, "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_second_call_sets_a_new_bound() {
    let (_masters, lock) = bed(3).await;
    let lease = take(&lock, "r").await;
    lease.keep_alive(1_000 * S);
    sleep(20 * S).await;
    lease.keep_alive(Duration::ZERO);
    let start = Instant::now();
    assert_eq!(lease.lost().await.0, Loss::MaxHold);
    assert!(start.elapsed() <= VALIDITY + 2 * MS);
}

#[tokio::test(start_paused = true)]
async fn a_lease_kept_too_short_to_work_with_is_not_renewed_in_a_frenzy() {
    let (_masters, lock) = bed(3).await;
    let lease = lock.acquire("r").ttl(104 * MS).await.unwrap();
    lease.keep_alive(10 * S);
    let kept = timeout(11 * S, lease.lost()).await.unwrap();
    assert_eq!(kept.0, Loss::MaxHold);
    let extended = lock.stats().extended;
    assert!((250..=310).contains(&extended), "{extended}");
}

#[tokio::test(start_paused = true)]
async fn a_watchdog_that_starts_after_a_failed_extension_renews_before_the_deadline() {
    for shorter in [false, true] {
        let (masters, lock) = bed(5).await;
        let lease = take(&lock, "r").await;
        sleep(if shorter { S } else { 8 * S }).await;
        (1..=3).for_each(|number| masters.stop(number));
        lease.extend_to(if shorter { 2 * S } else { TTL }).await.unwrap_err();
        (1..=3).for_each(|number| masters.resume(number));
        sleep(500 * MS).await;
        lease.keep_alive(60 * S);
        sleep(30 * S).await;
        assert_eq!(lease.is_lost(), None, "{:?}", lock.stats());
    }
}

#[tokio::test(start_paused = true)]
async fn a_watchdog_that_starts_when_the_quorum_is_gone_loses_the_lease_at_once() {
    let (masters, lock) = bed(5).await;
    let lease = take(&lock, "r").await;
    settle().await;
    (1..=3).for_each(|number| masters.forget(number));
    lease.extend().await.unwrap_err();
    settle().await;
    let start = Instant::now();
    lease.keep_alive(30 * S);
    assert_eq!(lease.lost().await.0, Loss::QuorumGone);
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert!(lock.stats().not_extended <= 2, "it spins");
}

#[tokio::test(start_paused = true)]
async fn a_watchdog_tells_a_gap_that_it_could_have_repaired() {
    let (masters, lock) = bed(5).await;
    (4..=5).for_each(|number| masters.kill(number));
    settle().await;
    let lease = take(&lock, "r").await;
    lease.keep_alive(60 * S);
    (4..=5).for_each(|number| masters.restart(number));
    masters.forget(3);
    // Meanwhile another client may have held the key on the last three.
    assert_eq!(timeout(5 * S, lease.lost()).await.unwrap().0, Loss::QuorumGone);
}
