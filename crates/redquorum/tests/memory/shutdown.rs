//! The end of a lock: pending clean-ups complete in time, and no caller is left waiting.

use std::future::IntoFuture;
use std::pin::pin;
use std::time::Duration;

use redquorum::AcquireError;
use redquorum::memory::Masters;
use tokio::time::{Instant, sleep};

use crate::support::{MS, NODE_TIMEOUT, S, TTL, bed, keys, poll_once, settle, take};

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
async fn a_shutdown_ends_once_the_keys_have_expired_on_masters_that_do_not_answer() {
    type Fault = fn(&Masters, usize);
    for fault in [Masters::stop as Fault, Masters::kill] {
        for broken in 1..=5 {
            for is_held in [false, true] {
                let (masters, lock) = bed(5).await;
                let lease = take(&lock, "r").await;
                settle().await;
                let start = Instant::now();
                (1..=broken).for_each(|number| fault(&masters, number));
                if !is_held {
                    drop(lease);
                }
                let early = lock.shutdown(TTL / 2).await.unwrap_err();
                assert!(early.pending_cleanups >= broken || early.held > 0, "{early}");
                lock.shutdown(TTL).await.unwrap();
                assert!(start.elapsed() <= TTL + S, "{:?}", start.elapsed());
            }
        }
    }
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
async fn pending_clean_ups_complete_long_after_the_lock_is_dropped() {
    let masters = Masters::new(5);
    let lock = masters.builder().ttl(3_600 * S).build().await.unwrap();
    let lease = take(&lock, "r").await;
    settle().await;
    masters.kill(1);
    masters.stop(2);
    drop(lock);
    assert!(lease.extend().await.is_ok(), "a lease keeps the lock alive");
    drop(lease);
    sleep(1_800 * S).await;
    assert_eq!(masters.keys(3).len(), 0);
    assert!((1..=2).all(|number| masters.value(number, "r").is_some()), "nothing is left to do");
    masters.revive(1);
    masters.resume(2);
    sleep(2 * S).await;
    assert_eq!(keys(&masters, 5), 0);
}

#[tokio::test(start_paused = true)]
async fn a_master_in_memory_that_was_stopped_runs_after_its_restart() {
    let (masters, lock) = bed(1).await;
    masters.stop(1);
    masters.restart(1);
    sleep(2 * S).await;
    drop(take(&lock, "r").await);
}
