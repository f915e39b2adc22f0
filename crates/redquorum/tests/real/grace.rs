//! A lock with a lock delay on real masters.

use std::time::Duration;

use redquorum::{Outcome, Redlock};
use redquorum_rig::{Masters, trials::Case};
use tokio::time::{Instant, sleep};

use crate::support::*;

pub(crate) fn cases() -> Vec<Case> {
    cases![
        keys_outlive_a_lost_lease_by_the_grace_and_the_deadline_is_as_ever,
        a_released_lease_is_free_at_once_and_a_dropped_one_after_the_grace,
        an_extension_has_the_grace_too,
        a_shut_down_waits_for_no_grace,
    ]
}

const TTL: Duration = Duration::from_millis(400);
const GRACE: Duration = Duration::from_millis(1_500);

async fn graced(masters: &Masters) -> Redlock {
    built(brisk(masters).ttl(TTL).lock_delay(GRACE)).await
}

async fn keys_outlive_a_lost_lease_by_the_grace_and_the_deadline_is_as_ever() {
    let masters = own(3);
    let (lock, rival) = (graced(&masters).await, built(brisk(&masters)).await);
    let start = Instant::now();
    let lease = lock.acquire("r").await.unwrap();
    assert!(lease.validity() < TTL);
    lease.lost().await;
    assert!(start.elapsed() < TTL + GRACE / 2, "{:?}", start.elapsed());
    assert_eq!(lease.release().await.outcome, Outcome::AlreadyGone);
    sleep(100 * MS).await;
    assert_eq!(keys(&masters, "r").len(), 3);
    rival.acquire("r").wait(3 * GRACE).await.unwrap().release().await;
    assert!(start.elapsed() >= TTL + GRACE - 20 * MS, "{:?}", start.elapsed());
}

async fn a_released_lease_is_free_at_once_and_a_dropped_one_after_the_grace() {
    let masters = own(3);
    // The TTL is so long that the test can only see the end of the lock delay.
    let lock = built(brisk(&masters).ttl(Duration::from_secs(60)).lock_delay(GRACE)).await;
    let lease = lock.acquire("r").await.unwrap();
    assert_eq!(lease.release().await.outcome, Outcome::Released);
    eventually("it is free", || keys(&masters, "r").is_empty()).await;
    let start = Instant::now();
    drop(lock.acquire("r").await.unwrap());
    sleep(100 * MS).await;
    assert_eq!(keys(&masters, "r").len(), 3);
    eventually("it is free", || keys(&masters, "r").is_empty()).await;
    assert!(start.elapsed() >= GRACE, "{:?}", start.elapsed());
}

async fn an_extension_has_the_grace_too() {
    let masters = own(3);
    let lock = graced(&masters).await;
    let lease = lock.acquire("r").await.unwrap();
    sleep(200 * MS).await;
    let again = Instant::now();
    lease.extend().await.unwrap();
    lease.lost().await;
    let rival = built(brisk(&masters)).await;
    rival.acquire("r").wait(3 * GRACE).await.unwrap().release().await;
    assert!(again.elapsed() >= TTL + GRACE - 20 * MS, "{:?}", again.elapsed());
}

async fn a_shut_down_waits_for_no_grace() {
    let masters = own(3);
    let lock = graced(&masters).await;
    drop(lock.acquire("r").await.unwrap());
    let start = Instant::now();
    lock.shutdown(10 * GRACE).await.unwrap();
    assert!(start.elapsed() < GRACE / 2, "{:?}", start.elapsed());
    assert_eq!(keys(&masters, "r").len(), 3);
    drop(lock);
    eventually("the keys expire", || keys(&masters, "r").is_empty()).await;
}
