//! Waiting for a resource that is taken: for how long, how many attempts, and which error.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use redquorum::{
    AcquireError, Backoff, Outcome, Redlock,
    report::{Holder, MasterOutcome},
};
use tokio::time::{Instant, sleep};

use crate::support::{MS, NODE_TIMEOUT, S, TTL, bed, holding, keys, settle, take};

#[tokio::test(start_paused = true)]
async fn whoever_waits_gets_the_resource_after_its_release() {
    let (_masters, lock) = bed(5).await;
    let first = take(&lock, "r").await;
    let waiting = tokio::spawn(lock.acquire("r").into_future());
    sleep(5 * S).await;
    first.release().await;
    let released = Instant::now();
    let second = waiting.await.unwrap().unwrap();
    assert!(released.elapsed() <= 251 * MS, "{:?}", released.elapsed());
    assert_eq!(second.release().await.outcome, Outcome::Released);
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_gets_the_resource_when_its_holder_is_gone_for_good() {
    let (_masters, lock) = bed(5).await;
    let dead = take(&lock, "r").await;
    std::mem::forget(dead);
    let start = Instant::now();
    let _lease = lock.acquire("r").wait(2 * TTL).await.unwrap();
    assert!(start.elapsed() <= TTL + 251 * MS, "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_in_time_whatever_the_masters_do() {
    // All masters are up; a minority, a majority or all of them are silent; all are down.
    for (stopped, dead) in [(0, 0), (2, 0), (3, 0), (5, 0), (0, 5)] {
        let (masters, lock) = bed(5).await;
        let _held = take(&lock, "r").await;
        (1..=stopped).for_each(|number| masters.stop(number));
        (1..=dead).for_each(|number| masters.kill(number));
        for wait in [Duration::ZERO, MS, 77 * MS, S, 3 * S] {
            let start = Instant::now();
            let error = lock.acquire("r").wait(wait).await.unwrap_err();
            let took = start.elapsed();
            let bound = wait + 2 * NODE_TIMEOUT + 2 * MS;
            assert!(took >= wait && took <= bound, "{stopped} {dead} {wait:?}: {took:?}");
            let reachable = stopped.max(dead) < 3;
            assert_eq!(matches!(error, AcquireError::Taken { .. }), reachable, "{error}");
            assert_eq!(matches!(error, AcquireError::NoQuorum { .. }), !reachable, "{error}");
            let start = Instant::now();
            let tried = lock.try_acquire("r").await;
            assert_eq!(tried.is_ok_and(|lease| lease.is_none()), reachable);
            assert!(start.elapsed() <= NODE_TIMEOUT + 2 * MS, "{:?}", start.elapsed());
        }
    }
}

/// The number of attempts of one acquire that waits for a second in vain.
async fn attempts(build: impl FnOnce(redquorum::Builder) -> redquorum::Builder) -> u32 {
    let masters = redquorum::memory::Masters::new(3);
    // The holder is another process and there are no wake-ups, so the policy alone counts.
    let lock = build(masters.builder().wake_ups(false)).build().await.unwrap();
    let _held = take(&masters.builder().build().await.unwrap(), "r").await;
    let start = Instant::now();
    let error = lock.acquire("r").wait(S).await.unwrap_err();
    assert!(start.elapsed() >= S && start.elapsed() <= S + 3 * MS, "{:?}", start.elapsed());
    let AcquireError::Taken { attempts, .. } = error else { panic!("{error}") };
    settle().await;
    assert_eq!(holding(&masters, 3, "r").len(), 3);
    attempts
}

#[tokio::test(start_paused = true)]
async fn pauses_are_as_long_as_the_policy_says() {
    // One at the start, one after each pause, and the last at the end of the wait.
    assert_eq!(attempts(|builder| builder.retry(Backoff::Fixed(100 * MS))).await, 11);
    let exponential =
        Backoff::Exponential { initial: 10 * MS, max: 160 * MS, multiplier_percent: 200 };
    // After 10, 30, 70, 150, 310, 470, 630, 790, 950 and 1000 ms.
    assert_eq!(attempts(|builder| builder.retry(exponential)).await, 11);
    let jittered = Backoff::Jittered { initial: 10 * MS, max: 160 * MS };
    let jittered = attempts(|builder| builder.retry(jittered)).await;
    assert!((9..=60).contains(&jittered), "{jittered}");
    let slower = Backoff::Exponential { initial: 10 * MS, max: S, multiplier_percent: 150 };
    // After 10, 25, 48, 81, 132, 208, 322, 492, 749 and 1000 ms.
    assert_eq!(attempts(|builder| builder.retry(slower)).await, 11);
    let decorrelated = Backoff::Decorrelated { initial: 10 * MS, max: 160 * MS };
    let decorrelated = attempts(|builder| builder.retry(decorrelated)).await;
    assert!((7..=60).contains(&decorrelated), "{decorrelated}");
    let default = attempts(|builder| builder).await;
    assert!((7..=60).contains(&default), "{default}");
}

#[tokio::test(start_paused = true)]
async fn no_policy_makes_a_waiter_spin() {
    for nothing in [
        Backoff::Fixed(MS),
        Backoff::Exponential { initial: MS, max: MS, multiplier_percent: 100 },
        Backoff::Jittered { initial: MS, max: MS },
        Backoff::Decorrelated { initial: MS, max: MS },
    ] {
        let count = attempts(|builder| builder.retry(nothing)).await;
        assert!((400..=1001).contains(&count), "{nothing:?}: {count}");
    }
    let count = attempts(|builder| builder.retry(|_: u32, _: u64| Duration::ZERO)).await;
    assert!((400..=1001).contains(&count), "{count}");
    // A policy cannot prolong the wait either: the last attempt is at its end.
    for builder in [
        |builder: redquorum::Builder| builder.retry(|_: u32, _: u64| Duration::MAX),
        |builder: redquorum::Builder| builder.retry(Backoff::Fixed(Duration::MAX)),
    ] {
        assert_eq!(attempts(builder).await, 2);
    }
}

#[tokio::test(start_paused = true)]
async fn an_own_policy_is_told_the_attempt_and_a_random_number() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let telling = told.clone();
    let policy = move |attempt, random| {
        telling.lock().unwrap().push((attempt, random));
        300 * MS
    };
    assert_eq!(attempts(|builder| builder.retry(policy)).await, 5);
    let told = told.lock().unwrap();
    let numbers: Vec<u32> = told.iter().map(|(attempt, _)| *attempt).collect();
    assert_eq!(numbers, [1, 2, 3, 4]);
    assert!(told.windows(2).all(|two| two[0].1 != two[1].1), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn an_own_policy_that_panics_harms_nobody_else() {
    let masters = redquorum::memory::Masters::new(3);
    let lock = masters
        .builder()
        .retry(|_: u32, _: u64| -> Duration { panic!("in the policy") })
        .build()
        .await
        .unwrap();
    let held = take(&lock, "r").await;
    let error = lock.acquire("r").wait(S).await.unwrap_err();
    assert!(matches!(error, AcquireError::Taken { attempts: 2.., .. }), "{error}");
    assert_eq!(held.release().await.outcome, Outcome::Released);
    assert_eq!(lock.health().await.alive, 3);
}

#[tokio::test(start_paused = true)]
async fn an_own_policy_that_uses_the_lock_ends_in_a_panic_and_not_in_a_deadlock() {
    static LOCK: std::sync::OnceLock<Redlock> = std::sync::OnceLock::new();
    let masters = redquorum::memory::Masters::new(3);
    let policy = |_, _| {
        LOCK.get().unwrap().stats();
        unreachable!("the lock refuses")
    };
    let lock = masters.builder().retry(policy).build().await.unwrap();
    LOCK.set(lock.clone()).unwrap();
    let held = take(&lock, "r").await;
    let error = lock.acquire("r").wait(S).await.unwrap_err();
    assert!(matches!(error, AcquireError::Taken { attempts: 2.., .. }), "{error}");
    assert_eq!(held.release().await.outcome, Outcome::Released);
}

async fn holders(lock: &Redlock) -> Vec<MasterOutcome> {
    let error = lock.acquire("r").wait(Duration::ZERO).await.unwrap_err();
    let AcquireError::Taken { report, .. } = error else { panic!("{error}") };
    report.masters().iter().filter_map(|master| master.outcome.clone()).collect()
}

#[tokio::test(start_paused = true)]
async fn whoever_is_refused_is_told_who_holds_the_resource() {
    let (masters, lock) = bed(5).await;
    let held = take(&lock, "r").await;
    settle().await;
    let first = masters.value(1, "r").unwrap();
    sleep(S).await;
    for answer in holders(&lock).await {
        let MasterOutcome::Taken(Holder::Lease { token, left_ms }) = answer else {
            panic!("{answer:?}")
        };
        assert_eq!((token.as_bytes().as_slice(), left_ms), (first.as_slice(), 9_000));
    }
    held.release().await;
    settle().await;
    for number in 1..=5 {
        masters.set(number, "r", "another program's", Some(TTL));
    }
    let foreign = MasterOutcome::Taken(Holder::Foreign { left_ms: 10_000 });
    assert!(holders(&lock).await.iter().all(|answer| *answer == foreign));
    for number in 1..=5 {
        masters.set(number, "r", "left behind", None);
    }
    let answers = holders(&lock).await;
    assert!(answers.iter().all(|answer| *answer == MasterOutcome::Taken(Holder::NoExpiry)));
    assert!(Holder::NoExpiry.to_string().contains("without TTL, which never expires"));
}

#[tokio::test(start_paused = true)]
async fn a_refused_attempt_leaves_no_key_where_it_was_granted() {
    let (masters, lock) = bed(5).await;
    (1..=3).for_each(|number| masters.set(number, "r", "somebody", None));
    assert!(lock.try_acquire("r").await.unwrap().is_none());
    assert!(lock.acquire("r").wait(S).await.is_err());
    settle().await;
    assert_eq!(holding(&masters, 5, "r"), [1, 2, 3]);
    assert_eq!(lock.stats().taken, 2);
    // A holder on a minority of masters does not hold the resource.
    masters.forget(3);
    let lease = take(&lock, "r").await;
    assert_eq!(lease.release().await.outcome, Outcome::Released);
    settle().await;
    assert_eq!(keys(&masters, 5), 2);
}

#[tokio::test(start_paused = true)]
async fn a_request_can_be_cloned_and_sent_more_than_once() {
    let (_masters, lock) = bed(3).await;
    let request = lock.acquire("r").wait(Duration::ZERO).ttl(5 * S);
    let lease = request.clone().await.unwrap();
    assert!(lease.validity() < 5 * S);
    assert!(request.clone().await.is_err());
    drop(lease);
    settle().await;
    drop(request.await.unwrap());
    let request = lock.try_acquire("s").ttl(5 * S);
    assert!(request.clone().await.unwrap().is_some() && request.await.unwrap().is_some());
}
