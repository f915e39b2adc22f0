//! Leases that keep others out for some time, also if they are given back before.

use std::time::Duration;

use redquorum::memory::Masters;
use redquorum::{AcquireError, ExtendError, Lease, Outcome, Owner, Redlock, RunError};
use tokio::time::{Instant, sleep};

use crate::support::{MS, NODE_TIMEOUT, S, TTL, VALIDITY, bed, keys, replies, settle, take};

/// Two processes.
async fn rivals() -> (Masters, Redlock, Redlock) {
    let (masters, one) = bed(5).await;
    let two = masters.builder().build().await.unwrap();
    (masters, one, two)
}

/// How long it takes until the other one gets the resource.
async fn until_free(lock: &Redlock) -> Duration {
    let start = Instant::now();
    let lease = lock.acquire("r").wait(10_000 * S).await.unwrap();
    let waited = start.elapsed();
    drop(lease);
    waited
}

#[tokio::test(start_paused = true)]
async fn others_are_kept_out_after_a_release_and_after_a_drop() {
    for drops in [false, true] {
        let (masters, one, two) = rivals().await;
        let lease = one.acquire("r").at_least(3 * S).await.unwrap();
        assert_eq!(lease.validity(), VALIDITY, "the ttl is long enough");
        sleep(S).await;
        if drops {
            drop(lease);
        } else {
            let asked = replies(&one);
            assert_eq!(lease.release().await.outcome, Outcome::Left);
            assert_eq!(replies(&one), asked, "no master is asked");
        }
        let waited = until_free(&two).await;
        assert!((2 * S..3 * S + 500 * MS).contains(&waited), "{waited:?}");
        one.shutdown(S).await.unwrap();
        two.shutdown(S).await.unwrap();
        assert_eq!(keys(&masters, 5), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn the_ttl_is_raised_so_that_the_end_of_the_process_changes_nothing() {
    for at_least in [S, VALIDITY, VALIDITY + MS, 60 * S, 3_600 * S] {
        let (_masters, one, two) = rivals().await;
        let lease = one.try_acquire("r").at_least(at_least).await.unwrap().unwrap();
        let validity = lease.validity();
        assert!(validity >= at_least.max(VALIDITY), "{validity:?}");
        assert!(validity <= at_least.max(VALIDITY) + 10 * MS, "{validity:?}");
        // What a process that ends sends no more: its keys expire by themselves.
        std::mem::forget(lease);
        let waited = until_free(&two).await;
        assert!(waited >= at_least, "{waited:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_in_one_call_runs_once_for_each_tick() {
    let (_masters, one, two) = rivals().await;
    let job = async |_: &Lease| sleep(100 * MS).await;
    let tick = |lock: &Redlock| lock.acquire("r").at_least(8 * S).wait(S).run(9 * S, job);
    assert_eq!(tick(&one).await, Ok(()));
    sleep(2 * S).await;
    let late = tick(&two).await;
    assert!(matches!(late, Err(RunError::NotAcquired(AcquireError::Taken { .. }))), "{late:?}");
    sleep(7 * S).await;
    assert_eq!(tick(&two).await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_extended_only_if_it_is_over_sooner() {
    let (_masters, one, two) = rivals().await;
    let lease = take(&one, "r").await;
    let (deadline, asked) = (lease.deadline(), replies(&one));
    assert_eq!(lease.at_least(5 * S).await.unwrap(), deadline);
    assert_eq!(replies(&one), asked);
    let later = lease.at_least(2 * TTL).await.unwrap();
    assert!(later.remaining() >= 2 * TTL && later == lease.deadline());
    assert_eq!(lease.release().await.outcome, Outcome::Left);
    assert!(until_free(&two).await >= 2 * TTL - NODE_TIMEOUT);
}

#[tokio::test(start_paused = true)]
async fn without_a_quorum_nothing_changes_and_a_lost_lease_keeps_nobody_out() {
    let (masters, one, two) = rivals().await;
    let lease = take(&one, "r").await;
    (1..=3).for_each(|number| masters.stop(number));
    let error = lease.at_least(2 * TTL).await.unwrap_err();
    assert!(matches!(error, ExtendError::NoQuorum { .. }), "{error}");
    (1..=3).for_each(|number| masters.resume(number));
    settle().await;
    assert_eq!(lease.release().await.outcome, Outcome::Released);
    assert!(until_free(&two).await < S);

    let lease = take(&one, "r").await;
    lease.lost().await;
    assert!(matches!(lease.at_least(S).await, Err(ExtendError::Lost(_))));
}

#[tokio::test(start_paused = true)]
async fn a_time_that_no_ttl_allows_is_an_error_before_anything_is_sent() {
    let (_masters, lock) = bed(3).await;
    let asked = replies(&lock);
    let error = lock.acquire("r").at_least(Duration::MAX).await.unwrap_err();
    assert!(matches!(error, AcquireError::Options { .. }), "{error}");
    assert_eq!(replies(&lock), asked);
    let lease = take(&lock, "r").await;
    let error = lease.at_least(Duration::MAX).await.unwrap_err();
    assert!(matches!(error, ExtendError::Options { .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn another_handle_of_an_owner_keeps_others_out_for_its_own_time() {
    let (_masters, one, two) = rivals().await;
    let owner = Owner::new();
    let first = one.acquire("r").owner(&owner).await.unwrap();
    let again = one.acquire("r").owner(&owner).at_least(2 * TTL).await.unwrap();
    assert!(first.validity() >= 2 * TTL);
    assert_eq!(again.release().await.outcome, Outcome::StillHeld);
    assert_eq!(first.release().await.outcome, Outcome::Left);
    assert!(until_free(&two).await >= 2 * TTL - S);
}
