//! Acquiring several resources: which requests are granted or refused, and that a refused request
//! leaves no key.

use std::time::Duration;

use redquorum::memory::Masters;
use redquorum::{AcquireAllError, BadOption, Outcome, Redlock};
use tokio::time::{Instant, sleep};

use crate::support::{
    MS, NODE_TIMEOUT, S, TTL, VALIDITY, answers, bed, holding, keys, settle, take,
};

#[tokio::test(start_paused = true)]
async fn all_are_granted_in_one_round_trip_and_each_has_its_own_key() {
    let (masters, lock) = bed(5).await;
    let before = answers(&lock);
    let leases = lock.acquire_all(["b", "a", "c"]).await.unwrap();
    settle().await;
    assert_eq!(answers(&lock) - before, 3 * 5);
    for resource in ["a", "b", "c"] {
        assert_eq!(holding(&masters, 5, resource).len(), 5);
    }
    // In the order of the request.
    let names: Vec<&[u8]> = leases.iter().map(redquorum::Lease::resource).collect();
    assert_eq!(names, [b"b", b"a", b"c"]);
    let values: Vec<_> = ["a", "b", "c"].map(|resource| masters.value(1, resource)).into();
    assert!(values[0] != values[1] && values[1] != values[2] && values[0] != values[2]);
    assert_eq!(leases.validity(), VALIDITY);
    assert_eq!(leases.release().await.outcome(), Outcome::Released);
    assert_eq!(keys(&masters, 5), 0);
}

#[tokio::test(start_paused = true)]
async fn names_are_kept_apart() {
    let (_masters, lock) = bed(3).await;
    let first = lock.acquire_all(["ab", "c"]).wait(Duration::ZERO).await.unwrap();
    let second = lock.acquire_all(["a", "bc"]).wait(Duration::ZERO).await.unwrap();
    let third = lock.acquire_all([&b"abc"[..], b"ab\0c", b"ab,c"]).wait(Duration::ZERO).await;
    assert!(third.is_ok());
    let error = lock.acquire_all(["x", "c"]).wait(Duration::ZERO).await.unwrap_err();
    assert_eq!(error.resource(), Some(&b"c"[..]));
    drop((first, second));
}

#[tokio::test(start_paused = true)]
async fn if_one_is_taken_nothing_of_the_others_is_kept_and_the_error_says_which_and_who() {
    let (masters, lock) = bed(5).await;
    let held = take(&lock, "b").await;
    settle().await;
    let error = lock.acquire_all(["a", "b", "c"]).wait(Duration::ZERO).await.unwrap_err();
    let AcquireAllError::Taken { resource, report, attempts: 1 } = &error else {
        panic!("{error}")
    };
    assert_eq!(resource, b"b");
    assert!(report.holder().is_some(), "{report}");
    assert!(
        error.to_string().starts_with("none is held, because of b: taken by another"),
        "{error}"
    );
    settle().await;
    assert_eq!(keys(&masters, 5), 5);
    // The other resources are free at once.
    let rest = lock.acquire_all(["a", "c"]).wait(Duration::ZERO).await.unwrap();
    assert_eq!(lock.stats().taken, 1);
    drop((held, rest));
}

#[tokio::test(start_paused = true)]
async fn while_it_waits_it_holds_nothing() {
    let (masters, lock) = bed(5).await;
    let held = take(&lock, "b").await;
    let waiting = tokio::spawn(lock.acquire_all(["a", "b", "c"]).wait(60 * S).into_future());
    sleep(S).await;
    for _ in 0..20 {
        sleep(37 * MS).await;
        assert_eq!((holding(&masters, 5, "a").len(), holding(&masters, 5, "c").len()), (0, 0));
    }
    held.release().await;
    let released = Instant::now();
    let leases = waiting.await.unwrap().unwrap();
    assert!(released.elapsed() <= 251 * MS, "{:?}", released.elapsed());
    // The lease has the usual length: it does not grow with the rounds.
    assert!(leases.validity() <= VALIDITY && leases.validity() > VALIDITY - 5 * MS);
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_in_time_whatever_the_masters_do() {
    for (stopped, dead) in [(0, 0), (2, 0), (3, 0), (5, 0), (0, 5)] {
        let (masters, lock) = bed(5).await;
        let _held = take(&lock, "b").await;
        (1..=stopped).for_each(|number| masters.stop(number));
        (1..=dead).for_each(|number| masters.kill(number));
        for wait in [Duration::ZERO, MS, 77 * MS, S, 3 * S] {
            let start = Instant::now();
            let error = lock.acquire_all(["a", "b", "c"]).wait(wait).await.unwrap_err();
            let took = start.elapsed();
            let bound = wait + 3 * NODE_TIMEOUT + 3 * MS;
            assert!(took >= wait && took <= bound, "{stopped} {dead} {wait:?}: {took:?}");
            let reachable = stopped.max(dead) < 3;
            assert_eq!(matches!(error, AcquireAllError::Taken { .. }), reachable, "{error}");
            assert_eq!(matches!(error, AcquireAllError::NoQuorum { .. }), !reachable, "{error}");
        }
        (1..=5).for_each(|number| masters.resume(number));
        sleep(S).await;
        assert!(dead > 0 || keys(&masters, 5) == 5);
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_is_paused_past_the_deadline_gets_nothing() {
    let (masters, lock) = bed(3).await;
    let mut acquiring =
        std::pin::pin!(lock.acquire_all(["a", "b"]).ttl(S).wait(Duration::ZERO).into_future());
    assert!(crate::support::poll_once(acquiring.as_mut()).await.is_pending());
    settle().await;
    assert_eq!(keys(&masters, 3), 6);
    // The caller does not poll for longer than the leases last.
    tokio::time::advance(2 * S).await;
    let error = acquiring.await.unwrap_err();
    assert!(matches!(error, AcquireAllError::TooLate { .. }), "{error}");
    settle().await;
    assert_eq!(keys(&masters, 3), 0);
}

#[tokio::test(start_paused = true)]
async fn what_makes_no_sense_is_told_and_nothing_is_sent() {
    let (_masters, lock) = bed(3).await;
    let other = lock.clone();
    let before = answers(&lock);
    let none: [&str; 0] = [];
    let error = lock.acquire_all(none).await.unwrap_err();
    assert_eq!(error.to_string(), "no resource was named: name at least one");
    let error = lock.acquire_all(["a", "b", "a"]).await.unwrap_err();
    assert_eq!(error, AcquireAllError::NamedTwice { resource: b"a".to_vec() });
    assert_eq!(error.to_string(), "a was named twice, and would be in its own way: name it once");
    let error = lock.acquire_all(["a"]).and(&other, ["b", "a"]).await.unwrap_err();
    assert_eq!(error, AcquireAllError::NamedTwice { resource: b"a".to_vec() });
    let error = lock.acquire_all(["a", ""]).await.unwrap_err();
    let bad = BadOption::ResourceEmpty;
    assert_eq!(error, AcquireAllError::Options { resource: Vec::new(), bad });
    let error = lock.acquire_all(["a"]).ttl(MS).await.unwrap_err();
    assert!(matches!(error, AcquireAllError::Options { .. }), "{error}");
    let many: Vec<String> = (0..1001).map(|number| number.to_string()).collect();
    let error = lock.acquire_all(&many).await.unwrap_err();
    assert_eq!(error, AcquireAllError::TooMany { resources: 1001, most: 1000 });
    assert_eq!(answers(&lock), before);
    lock.shutdown(S).await.unwrap();
    assert_eq!(lock.acquire_all(["a"]).await.unwrap_err(), AcquireAllError::ShutDown);
}

#[tokio::test(start_paused = true)]
async fn a_thousand_are_granted_and_given_back() {
    let (masters, lock) = bed(3).await;
    let many: Vec<String> = (0..1000).map(|number| number.to_string()).collect();
    let leases = lock.acquire_all(&many).wait(Duration::ZERO).await.unwrap();
    settle().await;
    assert_eq!(keys(&masters, 3), 3000);
    let error = lock.acquire_all(&many).wait(Duration::ZERO).await.unwrap_err();
    assert!(matches!(error, AcquireAllError::Taken { .. }), "{error}");
    leases.extend().await.unwrap();
    assert_eq!(leases.release().await.outcome(), Outcome::Released);
    settle().await;
    assert_eq!(keys(&masters, 3), 0);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_the_wait_and_leaves_nothing() {
    let (masters, lock) = bed(3).await;
    let held = take(&lock, "b").await;
    let waiting = tokio::spawn(lock.acquire_all(["a", "b"]).wait(60 * S).into_future());
    sleep(100 * MS).await;
    let shutdown = tokio::spawn({
        let lock = lock.clone();
        async move { lock.shutdown(TTL).await }
    });
    let start = Instant::now();
    assert_eq!(waiting.await.unwrap().unwrap_err(), AcquireAllError::ShutDown);
    assert!(start.elapsed() <= 251 * MS);
    held.release().await;
    shutdown.await.unwrap().unwrap();
    assert_eq!(keys(&masters, 3), 0);
}

#[tokio::test(start_paused = true)]
async fn a_grace_is_not_due_for_what_was_never_handed_out() {
    let masters = Masters::new(3);
    let lock: Redlock = masters.builder().lock_delay(5 * S).build().await.unwrap();
    let held = take(&lock, "b").await;
    lock.acquire_all(["a", "b", "c"]).wait(Duration::ZERO).await.unwrap_err();
    settle().await;
    assert_eq!(keys(&masters, 3), 3);
    // A request that won the votes but was dropped before it returned leases has no lock delay
    // either.
    held.release().await;
    let mut acquiring = std::pin::pin!(lock.acquire_all(["a", "b"]).into_future());
    assert!(crate::support::poll_once(acquiring.as_mut()).await.is_pending());
    settle().await;
    assert_eq!(keys(&masters, 3), 6);
    acquiring.set(lock.acquire_all(["c"]).into_future());
    settle().await;
    assert_eq!(keys(&masters, 3), 0);
}
