//! Waiting for a resource that is taken: for how long, how many attempts, and which error. Waiters
//! are woken in turn and leave nothing behind.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redquorum::memory::Masters;
use redquorum::{AcquireError, Backoff, Outcome, Redlock};
use tokio::time::{Instant, sleep};

use crate::support::*;

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
    let masters = Masters::new(3);
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
async fn pauses_are_as_long_as_the_policy_has_them_and_no_waiter_spins() {
    use Backoff::{Decorrelated, Exponential, Fixed, Jittered};
    let exponential = |initial, max, multiplier_percent| Exponential {
        initial: initial * MS,
        max: max * MS,
        multiplier_percent,
    };
    for (policy, least, most) in [
        // One at the start, one after each pause, and the last at the end of the wait.
        (Fixed(100 * MS), 11, 11),
        // After 10, 30, 70, 150, 310, 470, 630, 790, 950 and 1000 ms.
        (exponential(10, 160, 200), 11, 11),
        // After 10, 25, 48, 81, 132, 208, 322, 492, 749 and 1000 ms.
        (exponential(10, 1_000, 150), 11, 11),
        (Jittered { initial: 10 * MS, max: 160 * MS }, 9, 60),
        (Decorrelated { initial: 10 * MS, max: 160 * MS }, 7, 60),
        (Backoff::default(), 7, 60),
        (Fixed(MS), 400, 1001),
        (exponential(1, 1, 100), 400, 1001),
        (Jittered { initial: MS, max: MS }, 400, 1001),
        (Decorrelated { initial: MS, max: MS }, 400, 1001),
        // A policy cannot prolong the wait either: the last attempt is at its end.
        (Fixed(Duration::MAX), 2, 2),
    ] {
        let count = attempts(|builder| builder.retry(policy)).await;
        assert!((least..=most).contains(&count), "{policy:?}: {count}");
    }
    for (pause, least, most) in [(Duration::ZERO, 400, 1001), (Duration::MAX, 2, 2)] {
        let count = attempts(|builder| builder.retry(move |_: u32, _: u64| pause)).await;
        assert!((least..=most).contains(&count), "{pause:?}: {count}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_own_policy_gets_the_attempt_and_a_random_number() {
    let calls = Arc::new(Mutex::new(Vec::new()));
    let record = calls.clone();
    let policy = move |attempt, random| {
        record.lock().unwrap().push((attempt, random));
        300 * MS
    };
    assert_eq!(attempts(|builder| builder.retry(policy)).await, 5);
    let calls = calls.lock().unwrap();
    let numbers: Vec<u32> = calls.iter().map(|(attempt, _)| *attempt).collect();
    assert_eq!(numbers, [1, 2, 3, 4]);
    assert!(calls.windows(2).all(|two| two[0].1 != two[1].1), "{calls:?}");
}

#[tokio::test(start_paused = true)]
async fn an_own_policy_that_panics_harms_no_other_request() {
    let masters = Masters::new(3);
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
    let masters = Masters::new(3);
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

#[tokio::test(start_paused = true)]
async fn a_waiter_costs_one_look_a_second_while_the_lease_is_held() {
    let masters = Masters::new(5);
    let [one, two] = locks(&masters, false).await;
    let _lease = one.acquire("r").await.unwrap();
    let waiters: Vec<_> =
        (0..200).map(|_| tokio::spawn(two.acquire("r").wait(20 * S).into_future())).collect();
    sleep(20 * MS).await;
    let before = replies(&two);
    sleep(10 * S).await;
    let looks = replies(&two) - before;
    assert!((10..=20).contains(&looks), "{looks} commands in ten seconds");
    waiters.iter().for_each(tokio::task::JoinHandle::abort);
    sleep(20 * MS).await;
    assert_eq!((listens(&two), two.stats().waiting), (0, 0), "cancelled, and nothing is left");
}

#[tokio::test(start_paused = true)]
async fn tasks_of_one_process_take_turns_in_order_at_a_constant_cost() {
    for fair in [false, true] {
        let masters = Masters::new(5);
        let [lock] = locks(&masters, fair).await;
        let turn = Arc::new(AtomicUsize::new(0));
        let before = replies(&lock);
        let tasks: Vec<_> = (0..50)
            .map(|number| {
                let (request, turn) = (lock.acquire("r").wait(20 * S).into_future(), turn.clone());
                tokio::spawn(async move {
                    let lease = request.await.unwrap();
                    assert_eq!(turn.fetch_add(1, Ordering::Relaxed), number);
                    sleep(2 * MS).await;
                    let _ = lease.release().await;
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        sleep(S).await;
        let asked = replies(&lock) - before;
        assert_eq!(asked, 5 * 50 * 2, "{fair}: a SET and a release of each lease, to each master");
        assert_eq!(lock.stats().waiting, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn an_unpolled_future_holds_up_the_others_for_a_ttl_at_most() {
    let masters = Masters::new(5);
    let [lock] = locks(&masters, false).await;
    let mut forgotten = Box::pin(lock.acquire("r").wait(600 * S).into_future());
    assert!(poll_once(forgotten.as_mut()).await.is_pending());
    let before = Instant::now();
    let lease = lock.acquire("r").wait(600 * S).await.unwrap();
    assert!(before.elapsed() < 31 * S, "{:?}", before.elapsed());
    // The acquire continues where it was when it is polled again.
    assert!(poll_once(forgotten.as_mut()).await.is_pending());
    let _ = lease.release().await;
    assert!(forgotten.await.unwrap().validity() > 29 * S);
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_is_over_in_the_queue_asks_no_master_and_reports_what_the_head_knows() {
    let masters = Masters::new(5);
    let [lock] = locks(&masters, false).await;
    let _lease = lock.acquire("r").wait(S).await.unwrap();
    let (before, asked) = (Instant::now(), lock.stats().masters[0].latency.count);
    let error = lock.acquire("r").wait(S).await.unwrap_err();
    assert!(before.elapsed() < S + 10 * MS, "{:?}", before.elapsed());
    let AcquireError::Taken { report, attempts, .. } = error else { panic!("{error}") };
    assert_eq!((attempts, lock.stats().masters[0].latency.count), (0, asked));
    assert!(report.to_string().contains("held by token"), "{report}");
}

#[tokio::test(start_paused = true)]
async fn processes_that_compete_all_get_their_turn() {
    let masters = Masters::new(5);
    let locks: [Redlock; 4] = locks(&masters, false).await;
    let before = Instant::now();
    let mut tasks = Vec::new();
    for lock in &locks {
        for _ in 0..4 {
            let lock = lock.clone();
            tasks.push(tokio::spawn(async move {
                let mut longest = Duration::ZERO;
                for _ in 0..20 {
                    let asked = Instant::now();
                    let lease = lock.acquire("r").wait(20 * S).await.unwrap();
                    longest = longest.max(asked.elapsed());
                    sleep(2 * MS).await;
                    let _ = lease.release().await;
                }
                longest
            }));
        }
    }
    let mut longest = Duration::ZERO;
    for task in tasks {
        longest = longest.max(task.await.unwrap());
    }
    let asked: u64 = locks.iter().map(replies).sum();
    // 320 leases of two milliseconds each.
    assert!(before.elapsed() < 2 * 640 * MS, "{:?}", before.elapsed());
    assert!(asked < 320 * 25, "{asked} commands");
    // Processes take turns of four leases. So each waits for one turn of three others, not for all
    // of their requests.
    assert!(longest < 100 * MS, "{longest:?}");
}

#[tokio::test(start_paused = true)]
async fn no_client_passes_a_waiter_in_the_fair_queue() {
    let masters = Masters::new(5);
    let [one, two, three] = locks(&masters, true).await;
    let lease = one.acquire("r").await.unwrap();
    let waiter = tokio::spawn(two.acquire("r").wait(60 * S).into_future());
    sleep(100 * MS).await;
    // The waiter cannot acquire for a while.
    (3..=5).for_each(|number| masters.stop(number));
    let _ = lease.release().await;
    (3..=5).for_each(|number| masters.resume(number));
    assert!(three.try_acquire("r").await.unwrap().is_none());
    let refused = three.acquire("r").wait(Duration::ZERO).await.unwrap_err();
    let AcquireError::Taken { report, attempts: 1, .. } = &refused else { panic!("{refused}") };
    assert!(report.masters().iter().any(|master| master.outcome.is_some()));
    assert!(refused.to_string().starts_with("r: taken by another (1 attempt; "), "{refused}");
    let lease = waiter.await.unwrap().unwrap();
    let refused = three.acquire("r").wait(Duration::ZERO).await.unwrap_err();
    assert!(refused.report().unwrap().holder().is_some(), "{refused}");
    let _ = lease.release().await;
    drop(take(&three, "r").await);
}
