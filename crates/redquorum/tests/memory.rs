//! The lock against masters in memory, in virtual time.

use std::time::Duration;

use redquorum::memory::Masters;
use redquorum::{AcquireError, Outcome};

const S: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_lease_excludes_others_until_it_is_released() {
    let masters = Masters::new(5);
    let lock = masters.builder().build().await.unwrap();
    let lease = lock.acquire("r").await.unwrap();
    assert!(lease.validity() > 9 * S);
    assert!(lock.try_acquire("r").await.unwrap().is_none());
    let released = lease.release().await;
    assert_eq!(released.outcome, Outcome::Released, "{}", released.report);
    let again = lock.try_acquire("r").await.unwrap();
    assert!(again.is_some());
    drop(again);
    lock.shutdown(S).await.unwrap();
    for number in 1..=5 {
        assert_eq!(masters.keys(number), Vec::<Vec<u8>>::new());
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_not_extended_is_lost_at_its_deadline() {
    let masters = Masters::new(3);
    let lock = masters.builder().build().await.unwrap();
    let start = tokio::time::Instant::now();
    let lease = lock.acquire("r").await.unwrap();
    let lost = lease.lost().await;
    assert!(start.elapsed() <= 10 * S && start.elapsed() > 9 * S);
    assert_eq!(lost.to_string(), "the lease is lost: its deadline passed");
    let released = lease.release().await;
    assert_eq!(released.outcome, Outcome::AlreadyGone, "{}", released.report);
}

#[tokio::test(start_paused = true)]
async fn a_watched_lease_lives_until_its_bound() {
    let masters = Masters::new(5);
    let lock = masters.builder().build().await.unwrap();
    let lease = lock.acquire("r").await.unwrap();
    let start = tokio::time::Instant::now();
    lease.keep_alive(60 * S);
    let error = lock.acquire("r").wait(50 * S).await.unwrap_err();
    assert!(matches!(error, AcquireError::Taken { .. }), "{error}");
    println!("{error}");
    let lost = lease.lost().await;
    assert_eq!(lost.to_string(), "the lease is lost: it was kept alive for as long as was allowed");
    assert!(start.elapsed() <= 60 * S && start.elapsed() > 58 * S, "{:?}", start.elapsed());
}
