//! Waiting for a resource that is taken: for how long, how many attempts, and which error. Waiters
//! are woken in turn and leave nothing behind.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use redquorum::memory::Masters;
use redquorum::{AcquireError, Backoff, Outcome, Redlock};
use tokio::time::{Instant, sleep};

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn a_wait_ends_in_time_whatever_the_masters_do() {
    // All masters are up; a minority, a majority or all of them are silent; all are down.
    let states = [(0, 0), (2, 0), (3, 0), (5, 0), (0, 5)];
    for (fair, (stopped, dead)) in [false, true].into_iter().flat_map(|it| states.map(|s| (it, s)))
    {
        let masters = Masters::new(5);
        let lock = masters.builder().fair(fair).build().await.unwrap();
        let _held = take(&lock, "r").await;
        (1..=stopped).for_each(|number| masters.stop(number));
        (1..=dead).for_each(|number| masters.kill(number));
        for wait in [Duration::ZERO, MS, 77 * MS, S, 3 * S] {
            // The node timeouts of docs/waiting.md: `acquire`, `acquire_all` and `try_acquire`.
            let [one, all, once] = if fair { [3, 5, 3] } else { [2, 3, 1] };
            let one = one + u32::from(fair && wait < NODE_TIMEOUT);
            let reachable = stopped.max(dead) < 3;
            let check = |start: Instant, rounds, error: AcquireError| {
                let (took, bound) = (start.elapsed(), wait + rounds * NODE_TIMEOUT + 2 * MS);
                let of = format!("fair {fair}, {stopped} stopped, {dead} dead, {wait:?}: {took:?}");
                assert!(took >= wait && took <= bound, "{of}");
                assert_eq!(matches!(error, AcquireError::Taken { .. }), reachable, "{error}");
                assert_eq!(matches!(error, AcquireError::NoQuorum { .. }), !reachable, "{error}");
            };
            let start = Instant::now();
            check(start, one, lock.acquire("r").wait(wait).await.unwrap_err());
            let start = Instant::now();
            check(start, all, lock.acquire_all(["r", "s"]).wait(wait).await.unwrap_err());
            let start = Instant::now();
            let tried = lock.try_acquire("r").await;
            assert_eq!(tried.is_ok_and(|lease| lease.is_none()), reachable);
            assert!(start.elapsed() <= once * NODE_TIMEOUT + 2 * MS, "{:?}", start.elapsed());
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

static LOCK: OnceLock<Redlock> = OnceLock::new();

static USED: AtomicUsize = AtomicUsize::new(0);

#[tokio::test(start_paused = true)]
async fn an_own_policy_that_panics_or_uses_a_lock_harms_no_other_request() {
    let panics: fn(u32, u64) -> Duration = |_, _| panic!("in the policy");
    let uses_a_lock: fn(u32, u64) -> Duration = |_, _| {
        LOCK.get().unwrap().stats();
        USED.fetch_add(1, Ordering::Relaxed);
        MS
    };
    for policy in [uses_a_lock, panics] {
        let masters = Masters::new(3);
        let lock = masters.builder().retry(policy).build().await.unwrap();
        LOCK.get_or_init(|| lock.clone());
        let held = take(&lock, "r").await;
        let error = lock.acquire("r").wait(S).await.unwrap_err();
        assert!(matches!(error, AcquireError::Taken { attempts: 2.., .. }), "{error}");
        assert_eq!(held.release().await.outcome, Outcome::Released);
        assert_eq!(lock.health().await.alive, 3);
    }
    assert_eq!(USED.load(Ordering::Relaxed), 0, "the lock did not refuse");
}

#[tokio::test(start_paused = true)]
async fn the_attempts_of_a_refused_request_show_what_was_before_it() {
    for (fair, expected) in [(false, 2), (true, 1)] {
        let masters = Masters::new(3);
        let builder = || masters.builder().ttl(60 * S).fair(fair);
        let (one, two) = (builder().build().await.unwrap(), builder().build().await.unwrap());
        let _held = one.acquire("r").await.unwrap();
        let attempts = async |lock: &Redlock| match lock.acquire("r").wait(S).await {
            Err(AcquireError::Taken { attempts, .. }) => attempts,
            other => panic!("{other:?}"),
        };
        // Another process holds the resource, or another task of this one.
        assert_eq!((attempts(&two).await, attempts(&one).await), (expected, 0), "{fair}");
        assert_eq!((one.stats().waiting, two.stats().waiting), (1, 0), "a lease keeps its place");
    }
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
async fn tasks_of_one_process_take_turns_in_order_at_a_constant_cost() {
    for fair in [false, true] {
        let masters = Masters::new(5);
        let lock = masters.builder().ttl(30 * S).fair(fair).build().await.unwrap();
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
