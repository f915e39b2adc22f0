//! Extending a lease: it succeeds or changes nothing, and never hides a gap.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use redquorum::{ExtendError, Outcome, report::Loss};
use tokio::time::{Instant, sleep, timeout};

use crate::support::{MS, NODE_TIMEOUT, S, TTL, VALIDITY, bed, holding, poll_once, settle, take};

#[tokio::test(start_paused = true)]
async fn extending_moves_the_deadline_by_the_ttl_from_now() {
    let (_masters, lock) = bed(5).await;
    let lease = take(&lock, "r").await;
    sleep(5 * S).await;
    let deadline = lease.extend().await.unwrap();
    assert_eq!((deadline, lease.validity()), (lease.deadline(), VALIDITY));
    sleep(8 * S).await;
    assert!(lease.is_lost().is_none() && lock.try_acquire("r").await.unwrap().is_none());
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
async fn a_shorter_ttl_binds_the_holder_at_once_and_shortens_no_key() {
    let (masters, lock) = bed(5).await;
    let lease = take(&lock, "r").await;
    {
        let mut extending = pin!(lease.extend_to(2 * S));
        assert!(poll_once(extending.as_mut()).await.is_pending());
        // No master has replied yet. The shorter deadline stays even if the future is dropped.
        assert_eq!(lease.validity(), 2 * S - 22 * MS);
    }
    assert_eq!(lease.lost().await.0, Loss::Expired);
    // The key would have lived for ten seconds; the loss deletes it.
    settle().await;
    assert!(holding(&masters, 5, "r").is_empty());

    let lease = take(&lock, "r").await;
    lease.extend_to(2 * S).await.unwrap();
    (1..=5).for_each(|number| masters.stop(number));
    lease.lost().await;
    sleep(4 * S).await;
    assert_eq!(holding(&masters, 5, "r").len(), 5, "a key was shortened");
}

#[tokio::test(start_paused = true)]
async fn a_failed_extension_takes_nothing_away() {
    let (masters, lock) = bed(5).await;
    let lease = take(&lock, "r").await;
    let deadline = lease.deadline();
    (1..=3).for_each(|number| masters.stop(number));
    sleep(S).await;
    for _ in 0..3 {
        let start = Instant::now();
        let error = lease.extend().await.unwrap_err();
        assert!(matches!(error, ExtendError::NoQuorum(_)), "{error}");
        assert!(start.elapsed() <= NODE_TIMEOUT + MS, "{:?}", start.elapsed());
        assert_eq!((lease.deadline(), lease.is_lost()), (deadline, None));
    }
    assert_eq!(holding(&masters, 5, "r").len(), 5);
    assert_eq!(lock.stats().not_extended, 3);
    (1..=3).for_each(|number| masters.resume(number));
    settle().await;
    lease.extend().await.unwrap();
    assert_eq!(lease.validity(), VALIDITY);
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
async fn a_master_that_lost_the_key_gets_it_back_and_counts_from_the_round_after() {
    let (masters, lock) = bed(5).await;
    let lease = take(&lock, "r").await;
    (1..=2).for_each(|number| masters.forget(number));
    // Three masters have held the key all the time. The other two report a gap.
    lease.extend().await.unwrap();
    settle().await;
    assert_eq!(holding(&masters, 5, "r"), [3, 4, 5]);
    masters.forget(3);
    masters.kill(3);
    settle().await;
    // Two masters have held it. Two others get it back, but another client may have held it there.
    let error = lease.extend().await.unwrap_err();
    assert!(matches!(error, ExtendError::NoQuorum(_)), "{error}");
    settle().await;
    assert_eq!(holding(&masters, 5, "r"), [1, 2, 4, 5]);
    // From now on those two have no gap.
    lease.extend().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_repair_takes_no_key_from_another() {
    let (masters, lock) = bed(5).await;
    let lease = take(&lock, "r").await;
    masters.set(1, "r", "somebody", None);
    for _ in 0..3 {
        lease.extend().await.unwrap();
    }
    assert_eq!(masters.value(1, "r").unwrap(), b"somebody");
    assert_eq!(lease.release().await.outcome, Outcome::Released);
    settle().await;
    assert_eq!(masters.value(1, "r").unwrap(), b"somebody");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_a_quorum_forgot_is_told_so() {
    let (masters, lock) = bed(5).await;
    let lease = take(&lock, "r").await;
    let deadline = lease.deadline();
    (1..=3).for_each(|number| masters.forget(number));
    let error = lease.extend().await.unwrap_err();
    assert!(matches!(error, ExtendError::QuorumGone(_)), "{error}");
    assert_eq!((lease.deadline(), lease.is_lost()), (deadline, None), "the holder decides");
}

#[tokio::test(start_paused = true)]
async fn an_extension_that_is_answered_too_late_is_none() {
    let (_masters, lock) = bed(3).await;
    for past in [VALIDITY, TTL, 10 * TTL] {
        let lease = take(&lock, "r").await;
        let mut extending = pin!(lease.extend());
        assert!(poll_once(extending.as_mut()).await.is_pending());
        sleep(2 * past).await;
        let result = extending.await;
        assert!(matches!(result, Err(ExtendError::Lost(_))), "{past:?}: {result:?}");
        assert!(lease.extend().await.is_err() && lease.is_lost().is_some());
    }
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
async fn an_extension_that_nobody_awaits_does_not_stop_the_next() {
    let (masters, lock) = bed(5).await;
    let lease = take(&lock, "r").await;
    (1..=3).for_each(|number| masters.stop(number));
    for _ in 0..3 {
        let mut extending = pin!(lease.extend());
        assert!(poll_once(extending.as_mut()).await.is_pending());
    }
    (1..=3).for_each(|number| masters.resume(number));
    timeout(S, lease.extend()).await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_caller_who_comes_late_for_the_answer_of_an_extension_gets_it() {
    let (_masters, lock) = bed(5).await;
    for late in [Duration::ZERO, S, 5 * S, 15 * S, 60 * S] {
        let lease = take(&lock, "r").await;
        lease.keep_alive(1_000 * S);
        let mut extending = pin!(lease.extend());
        assert!(poll_once(extending.as_mut()).await.is_pending());
        // The watchdog renews the lease several times meanwhile.
        sleep(late).await;
        let answer = timeout(S, extending).await;
        answer.unwrap_or_else(|_| panic!("{late:?} late, and left to wait")).unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_plain_extension_behind_a_longer_one_takes_nothing_away_won_or_failed() {
    for fails in [false, true] {
        let (masters, lock) = bed(5).await;
        let lease = take(&lock, "r").await;
        let longer = async {
            lease.extend_to(60 * S).await.unwrap();
            if fails {
                (1..=3).for_each(|number| masters.stop(number));
            }
        };
        let ((), plain) = tokio::join!(longer, lease.extend());
        assert_eq!(plain.is_err(), fails);
        assert!(lease.validity() > 50 * S, "{:?}", lease.validity());
    }
}
