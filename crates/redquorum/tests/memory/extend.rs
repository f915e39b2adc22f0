//! Extending a lease, by its holder or by the watchdog, which keeps a lease for as long as it may.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use redquorum::{Outcome, report::Loss};
use tokio::time::{Instant, sleep, timeout};

use crate::support::{MS, NODE_TIMEOUT, S, TTL, VALIDITY, bed, poll_once, settle, take};

#[tokio::test(start_paused = true)]
async fn extending_moves_the_deadline_by_the_ttl_from_now() {
    let (_masters, lock) = bed(5).await;
    let lease = take(&lock, "r").await;
    sleep(5 * S).await;
    let deadline = lease.extend().await.unwrap();
    assert_eq!((deadline, lease.validity()), (lease.deadline(), VALIDITY));
    sleep(8 * S).await;
    assert!(!lease.is_lost() && lock.try_acquire("r").await.unwrap().is_none());
    assert_eq!(lease.release().await.outcome, Outcome::Released);
    assert_eq!((lock.stats().extended, lock.stats().not_extended), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_longer_ttl_is_used_from_then_on() {
    let (_masters, lock) = bed(5).await;
    let lease = take(&lock, "r").await;
    lease.extend_to(60 * S).await.unwrap();
    assert_eq!(lease.validity(), 60 * S - 602 * MS);
    sleep(30 * S).await;
    lease.extend().await.unwrap();
    assert_eq!(lease.validity(), 60 * S - 602 * MS);
}

#[tokio::test(start_paused = true)]
async fn a_failed_extension_to_a_shorter_ttl_still_binds_the_holder() {
    let (masters, lock) = bed(3).await;
    let lease = take(&lock, "r").await;
    (1..=3).for_each(|number| masters.stop(number));
    assert!(lease.extend_to(2 * S).await.is_err());
    assert!(lease.validity() <= 2 * S - 22 * MS - NODE_TIMEOUT);
    // The next extension uses the old TTL, which was never replaced.
    (1..=3).for_each(|number| masters.resume(number));
    settle().await;
    lease.extend().await.unwrap();
    assert_eq!(lease.validity(), VALIDITY);
}

#[tokio::test(start_paused = true)]
async fn several_tasks_may_extend_one_lease() {
    let (_masters, lock) = bed(5).await;
    let lease = Arc::new(take(&lock, "r").await);
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..50_u32 {
        let lease = lease.clone();
        tasks.spawn(async move {
            sleep(number % 7 * MS).await;
            let extended = lease.extend_to(TTL + number % 3 * S).await;
            assert!(extended.unwrap() <= lease.deadline() || number % 3 > 0);
        });
    }
    let all = timeout(S, tasks.join_all()).await;
    assert_eq!(all.expect("none hangs").len(), 50);
    assert_eq!(lock.stats().extended, 50);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_polls_late_gets_the_result_of_its_extension() {
    let (_masters, lock) = bed(5).await;
    for late in [Duration::ZERO, S, 5 * S, 15 * S, 60 * S] {
        let lease = take(&lock, "r").await;
        lease.keep_alive(1_000 * S);
        let mut extending = pin!(lease.extend());
        assert!(poll_once(extending.as_mut()).await.is_pending());
        // The watchdog renews the lease several times meanwhile.
        sleep(late).await;
        let reply = timeout(S, extending).await;
        reply.unwrap_or_else(|_| panic!("{late:?} late, and left to wait")).unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn no_deadline_lies_beyond_the_bound_at_any_time() {
    for bound in [0, 1, 99, 105, 5_000, 9_898, 10_000, 12_345, 30_000, 33_333] {
        let (_masters, lock) = bed(3).await;
        let lease = take(&lock, "r").await;
        let (start, first) = (Instant::now(), lease.validity());
        let bound = bound * MS;
        lease.keep_alive(bound);
        while !lease.is_lost() {
            assert!(start.elapsed() + lease.validity() <= bound.max(first), "{bound:?}");
            sleep(13 * MS).await;
        }
        let lived = start.elapsed();
        assert!(lived + S >= bound.max(first), "{bound:?}: given up after {lived:?}");
        assert_eq!(lease.loss().unwrap().cause, Loss::MaxHold);
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
async fn a_majority_that_comes_back_before_the_deadline_is_survived() {
    let (masters, lock) = bed(5).await;
    let lease = take(&lock, "r").await;
    lease.keep_alive(1_000 * S);
    (1..=3).for_each(|number| masters.stop(number));
    sleep(VALIDITY - 500 * MS).await;
    assert!(lock.stats().not_extended >= 3, "it tries again, and sooner");
    (1..=3).for_each(|number| masters.resume(number));
    sleep(500 * MS).await;
    assert!(!lease.is_lost(), "it had half a second");
    assert!(lease.validity() > TTL / 2);
    let failed = lock.stats().not_extended;
    assert!(failed <= 40, "{failed} renewals failed: it spins");
}

#[tokio::test(start_paused = true)]
async fn a_second_call_sets_a_new_bound() {
    let (_masters, lock) = bed(3).await;
    let lease = take(&lock, "r").await;
    lease.keep_alive(1_000 * S);
    sleep(20 * S).await;
    lease.keep_alive(Duration::ZERO);
    let start = Instant::now();
    assert_eq!(lease.lost().await.cause, Loss::MaxHold);
    assert!(start.elapsed() <= VALIDITY + 2 * MS);
}

#[tokio::test(start_paused = true)]
async fn a_lease_with_a_tiny_ttl_is_not_renewed_in_a_spin() {
    let (_masters, lock) = bed(3).await;
    let lease = lock.acquire("r").ttl(104 * MS).await.unwrap();
    lease.keep_alive(10 * S);
    let kept = timeout(11 * S, lease.lost()).await.unwrap();
    assert_eq!(kept.cause, Loss::MaxHold);
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
        assert!(!lease.is_lost(), "{:?}", lock.stats());
    }
}
