//! One of several resources, and semaphores.

use std::collections::BTreeSet;
use std::future::IntoFuture;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use redquorum::AcquireError;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::support::{
    MS, NODE_TIMEOUT, S, TTL, bed, keys, poll_once, processes, replies, settle, take,
};

const PRINTERS: [&str; 3] = ["printer:1", "printer:2", "printer:3"];

#[tokio::test(start_paused = true)]
async fn a_free_one_costs_what_a_lease_of_it_costs() {
    let (masters, lock) = bed(5).await;
    let before = replies(&lock);
    let lease = lock.acquire_any(PRINTERS).await.unwrap();
    settle().await;
    assert_eq!(replies(&lock) - before, 5);
    assert!(PRINTERS.iter().any(|name| name.as_bytes() == lease.resource()));
    assert_eq!(keys(&masters, 5), 5);
}

#[tokio::test(start_paused = true)]
async fn the_one_that_is_free_is_found_at_once_wherever_it_begins() {
    for free in PRINTERS {
        for _ in 0..10 {
            let (masters, locks) = processes(2, |lock| lock).await;
            let mut held = Vec::new();
            for name in PRINTERS.iter().filter(|name| **name != free) {
                held.push(take(&locks[0], name).await);
            }
            settle().await;
            let start = Instant::now();
            let lease = locks[1].acquire_any(PRINTERS).fenced().await.unwrap();
            assert!(start.elapsed() < NODE_TIMEOUT, "{:?}", start.elapsed());
            assert_eq!(lease.resource(), free.as_bytes());
            assert!(lease.fencing_token().is_some());
            // Nothing is left on those that it asked in vain.
            settle().await;
            assert!(held.iter().all(|lease| !lease.is_lost()));
            let _ = lease.release().await;
            settle().await;
            assert_eq!(keys(&masters, 5), 10 + 5, "and the counter of the fenced one");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn if_all_are_taken_the_first_that_is_given_back_ends_the_wait() {
    for (first, name) in PRINTERS.into_iter().enumerate() {
        let (masters, locks) = processes(2, |lock| lock).await;
        let mut held = Vec::new();
        for name in PRINTERS {
            held.push(locks[0].acquire(name).ttl(600 * S).await.unwrap());
        }
        let mut waiting = pin!(locks[1].acquire_any(PRINTERS).wait(300 * S).into_future());
        assert!(poll_once(waiting.as_mut()).await.is_pending());
        let waited = tokio::time::timeout(20 * S, waiting.as_mut()).await;
        assert!(waited.is_err(), "it waits");
        let start = Instant::now();
        let _ = held.remove(first).release().await;
        let lease = waiting.await.unwrap();
        assert!(start.elapsed() <= S, "{:?}", start.elapsed());
        assert_eq!(lease.resource(), name.as_bytes());
        // It waits for the others no more.
        drop(held);
        drop(lease);
        sleep(S).await;
        assert_eq!(keys(&masters, 5), 0);
        for lock in locks {
            lock.shutdown(S).await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_semaphore_lets_so_many_in_and_no_more_and_all_get_their_turn() {
    const PERMITS: usize = 3;
    let (masters, locks) = processes(4, |lock| lock).await;
    let (inside, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for number in 0..24 {
        let semaphore = locks[number % 4].semaphore("gpu", PERMITS);
        let (inside, most) = (inside.clone(), most.clone());
        tasks.spawn(async move {
            let permit = semaphore.acquire().wait(300 * S).await.unwrap();
            most.fetch_max(inside.fetch_add(1, Relaxed) + 1, Relaxed);
            sleep(S).await;
            inside.fetch_sub(1, Relaxed);
            let slot = semaphore.slot(&permit).unwrap();
            assert!((1..=PERMITS).contains(&slot) && !permit.is_lost());
            let _ = permit.release().await;
            slot
        });
    }
    sleep(3 * S).await;
    // Two masters of five are gone from now on.
    [1, 4].into_iter().for_each(|number| masters.kill(number));
    let slots: BTreeSet<usize> = tasks.join_all().await.into_iter().collect();
    assert_eq!(slots, BTreeSet::from([1, 2, 3]));
    assert_eq!(most.load(Relaxed), PERMITS);
    // 24 tasks, 3 at a time, one second each.
    assert!(start.elapsed() <= 12 * S, "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_lease_of_a_slot_alone_counts_as_a_permit() {
    let (_masters, locks) = processes(2, |lock| lock).await;
    let _slot = take(&locks[0], "gpu:permit:1").await;
    let semaphore = locks[1].semaphore("gpu", 2);
    let permit = semaphore.acquire().await.unwrap();
    assert_eq!((semaphore.slot(&permit), semaphore.permits()), (Some(2), 2));
    let error = semaphore.acquire().wait(Duration::ZERO).await.unwrap_err();
    assert!(error.is_taken(), "{error}");
    assert_eq!(semaphore.slot(&take(&locks[0], "gpu").await), None);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_dropped_leaves_nothing() {
    for polls in 0..12 {
        let (masters, locks) = processes(2, |lock| lock).await;
        let mut held = Vec::new();
        for name in &PRINTERS[..2] {
            held.push(take(&locks[0], name).await);
        }
        {
            let mut asking = pin!(locks[1].acquire_any(PRINTERS).into_future());
            for _ in 0..polls {
                if poll_once(asking.as_mut()).await.is_ready() {
                    break;
                }
                sleep(MS).await;
            }
        }
        drop(held);
        sleep(S).await;
        assert_eq!(keys(&masters, 5), 0, "{polls}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_quorum_it_waits_for_one() {
    let (masters, lock) = bed(5).await;
    (1..=3).for_each(|number| masters.kill(number));
    sleep(S).await;
    let error = lock.acquire_any(PRINTERS).wait(S).await.unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    let waiting = tokio::spawn(lock.acquire_any(PRINTERS).wait(100 * TTL).into_future());
    sleep(TTL).await;
    (1..=3).for_each(|number| masters.restart(number));
    assert!(waiting.await.unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_asked_for_is_an_error_before_anything_is_sent() {
    let (_masters, lock) = bed(3).await;
    let before = replies(&lock);
    let none: [&str; 0] = [];
    assert_eq!(lock.acquire_any(none).await.unwrap_err(), AcquireError::NoResources);
    assert_eq!(lock.semaphore("gpu", 0).acquire().await.unwrap_err(), AcquireError::NoResources);
    let many = lock.semaphore("gpu", usize::MAX).acquire().await.unwrap_err();
    assert!(matches!(many, AcquireError::TooManyResources { most: 100, .. }), "{many}");
    let bad = lock.acquire_any(["", "a"]).await.unwrap_err();
    assert!(matches!(bad, AcquireError::Options { .. }), "{bad}");
    let twice = lock.acquire_any(["a", "b", "a"]).await.unwrap_err();
    assert_eq!(twice, AcquireError::NamedTwice { resource: b"a".to_vec() });
    assert_eq!(replies(&lock), before);
}
