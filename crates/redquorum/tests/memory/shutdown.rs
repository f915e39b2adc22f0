//! The end of a lock: pending clean-ups complete in time, and no caller is left waiting.

use std::future::IntoFuture;
use std::pin::pin;
use std::time::Duration;

use redquorum::memory::Masters;
use redquorum::{AcquireError, Backoff, ExtendError};
use tokio::time::{Instant, sleep};

use crate::support::{MS, NODE_TIMEOUT, S, TTL, bed, keys, poll_once, settle, take};

#[tokio::test(start_paused = true)]
async fn an_idle_lock_shuts_down_at_once_and_more_than_once() {
    let (_masters, lock) = bed(5).await;
    let start = Instant::now();
    for timeout in [Duration::ZERO, S, Duration::MAX] {
        lock.shutdown(timeout).await.unwrap();
    }
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_for_leases_and_pays_for_them() {
    let (masters, lock) = bed(5).await;
    let lease = take(&lock, "r").await;
    drop(take(&lock, "s").await);
    let start = Instant::now();
    let shutting_down = tokio::spawn({
        let lock = lock.clone();
        async move { lock.shutdown(TTL).await }
    });
    sleep(S).await;
    assert!(!shutting_down.is_finished());
    drop(lease);
    shutting_down.await.unwrap().unwrap();
    assert_eq!(start.elapsed(), S);
    assert_eq!(keys(&masters, 5), 0);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_lost_meanwhile_does_not_hold_up_a_shutdown() {
    let (masters, lock) = bed(5).await;
    let _held = take(&lock, "r").await;
    let start = Instant::now();
    lock.shutdown(2 * TTL).await.unwrap();
    assert!(start.elapsed() <= TTL, "{:?}", start.elapsed());
    assert_eq!(keys(&masters, 5), 0);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_that_cannot_pay_says_what_is_left_and_pays_later() {
    let (masters, lock) = bed(5).await;
    let held = take(&lock, "held").await;
    let lease = take(&lock, "r").await;
    settle().await;
    masters.stop(1);
    masters.kill(2);
    drop(lease);
    let start = Instant::now();
    let unfinished = lock.shutdown(2 * S).await.unwrap_err();
    assert_eq!(start.elapsed(), 2 * S);
    assert_eq!((unfinished.owed, unfinished.held, unfinished.waited), (2, 5, 2 * S));
    let none = lock.shutdown(Duration::ZERO).await.unwrap_err();
    assert_eq!((none.owed, none.held), (2, 5));
    masters.resume(1);
    masters.restart(2);
    drop(held);
    lock.shutdown(2 * S).await.unwrap();
    assert_eq!(keys(&masters, 5), 0);
}

#[tokio::test(start_paused = true)]
async fn after_a_shutdown_nothing_is_acquired_or_extended() {
    let (masters, lock) = bed(5).await;
    let (clone, lease) = (lock.clone(), take(&lock, "held").await);
    let deadline = lease.deadline();
    assert!(clone.shutdown(Duration::ZERO).await.is_err());
    let start = Instant::now();
    assert_eq!(lock.acquire("r").await.unwrap_err(), AcquireError::ShutDown);
    assert_eq!(lock.try_acquire("r").await.unwrap_err(), AcquireError::ShutDown);
    let error = lease.extend().await.unwrap_err();
    assert!(matches!(error, ExtendError::ShutDown), "{error}");
    assert_eq!((lease.deadline(), lease.is_lost()), (deadline, None), "it is ours until then");
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert_eq!(lock.health().await.alive, 0);
    lease.release().await;
    settle().await;
    assert_eq!(keys(&masters, 5), 0);
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_is_told_of_a_shutdown_promptly() {
    let policies =
        [Backoff::default(), Backoff::Fixed(S), Backoff::Fixed(Duration::from_secs(3600))];
    for policy in policies {
        let masters = Masters::new(5);
        let lock = masters.builder().retry(policy).build().await.unwrap();
        let _held = take(&lock, "r").await;
        let waiting: Vec<_> = (0..10)
            .map(|_| tokio::spawn(lock.acquire("r").wait(Duration::MAX).into_future()))
            .collect();
        sleep(S).await;
        let start = Instant::now();
        assert!(lock.shutdown(Duration::ZERO).await.is_err());
        for waiting in waiting {
            assert_eq!(waiting.await.unwrap().unwrap_err(), AcquireError::ShutDown);
        }
        assert!(
            start.elapsed() <= 250 * MS + 2 * NODE_TIMEOUT,
            "{policy:?}: {:?}",
            start.elapsed()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_acquire_under_way_at_a_shutdown_ends_in_time() {
    for silent in [0, 2, 3, 5] {
        let (masters, lock) = bed(5).await;
        (1..=silent).for_each(|number| masters.stop(number));
        let acquiring = tokio::spawn(lock.acquire("r").into_future());
        tokio::task::yield_now().await;
        let start = Instant::now();
        let unfinished = lock.shutdown(Duration::ZERO).await;
        let result = acquiring.await.unwrap();
        assert!(start.elapsed() <= NODE_TIMEOUT + MS, "{:?}", start.elapsed());
        if silent >= 3 {
            assert_eq!(result.unwrap_err(), AcquireError::ShutDown);
        } else {
            drop(result);
        }
        assert!(unfinished.is_err(), "its keys were claimed");
        (1..=silent).for_each(|number| masters.resume(number));
        lock.shutdown(S).await.unwrap();
        assert_eq!(keys(&masters, 5), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_dropped_pays_in_the_background() {
    let (masters, lock) = bed(5).await;
    let lease = take(&lock, "r").await;
    settle().await;
    masters.stop(1);
    masters.kill(2);
    drop(lock);
    assert!(lease.extend().await.is_ok(), "a lease keeps the lock alive");
    drop(lease);
    sleep(20 * S).await;
    // Within thirty seconds after the drop.
    assert_eq!(masters.keys(3).len(), 0);
    masters.resume(1);
    sleep(MS).await;
    assert_eq!(masters.keys(1).len(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_was_won_but_not_fetched_is_no_lease_after_a_shutdown() {
    let (masters, lock) = bed(5).await;
    let mut acquiring = pin!(lock.acquire("r").into_future());
    assert!(poll_once(acquiring.as_mut()).await.is_pending());
    let shutdown = tokio::spawn({
        let lock = lock.clone();
        async move { lock.shutdown(S).await }
    });
    settle().await;
    assert_eq!(acquiring.await.unwrap_err(), AcquireError::ShutDown);
    shutdown.await.unwrap().unwrap();
    assert_eq!(keys(&masters, 5), 0);
}

#[tokio::test(start_paused = true)]
async fn a_master_that_takes_connections_and_says_nothing_holds_a_shutdown_up_for_one_ttl() {
    let masters = Masters::new(5);
    let lock = masters.builder().ttl(2 * S).connect_timeout(60 * S).build().await.unwrap();
    let lease = take(&lock, "r").await;
    settle().await;
    masters.stop(1);
    masters.kill(1);
    masters.revive(1);
    drop(lease);
    let start = Instant::now();
    lock.shutdown(120 * S).await.unwrap();
    assert!(start.elapsed() > S && start.elapsed() <= 2 * S + 250 * MS, "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn what_is_owed_to_a_master_that_was_cut_off_is_paid_long_after_the_lock_is_gone() {
    let masters = Masters::new(5);
    let lock = masters.builder().ttl(3_600 * S).build().await.unwrap();
    let lease = take(&lock, "r").await;
    settle().await;
    masters.kill(1);
    drop((lease, lock));
    sleep(1_800 * S).await;
    assert!(masters.value(1, "r").is_some(), "there is something to pay");
    masters.revive(1);
    sleep(2 * S).await;
    assert_eq!(keys(&masters, 5), 0);
}
