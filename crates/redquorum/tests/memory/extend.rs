//! Extending a lease, by its holder or by the watchdog, which keeps a lease for as long as it may.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use redquorum::report::Loss;
use tokio::time::{Instant, sleep, timeout};

use crate::support::{MS, S, TTL, VALIDITY, bed, poll_once, take};

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
