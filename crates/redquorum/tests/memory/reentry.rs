//! Re-entry: an owner that acquires a resource it holds gets another handle of the same lease.

use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use redquorum::{AcquireError, BadOption, Lease, Outcome, Owner, Redlock};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::support::{S, TTL, VALIDITY, bed, holding, keys, poll_once, replies, settle};

async fn again(lock: &Redlock, owner: &Owner) -> Lease {
    lock.try_acquire("r").owner(owner).await.unwrap().expect("the owner holds it, or it is free")
}

#[tokio::test(start_paused = true)]
async fn an_owner_gets_another_handle_in_no_round_trip() {
    let (_masters, lock) = bed(5).await;
    let owner = Owner::new();
    let lease = lock.acquire("r").owner(&owner).await.unwrap();
    sleep(S).await;
    settle().await;
    let (start, before) = (Instant::now(), replies(&lock));
    // Ready at the first poll, without a round trip.
    let request = pin!(lock.acquire("r").owner(&owner).into_future());
    let Poll::Ready(Ok(again)) = poll_once(request).await else { panic!("it waits") };
    settle().await;
    assert_eq!((start.elapsed(), replies(&lock)), (Duration::ZERO, before));
    assert_eq!((lease.deadline(), lease.handles()), (again.deadline(), 2));
    assert_eq!((lease.validity(), again.report()), (VALIDITY - S, lease.report()));
    let stats = lock.stats();
    assert_eq!((stats.acquired, stats.reentered), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn only_the_last_of_many_handles_deletes_the_key() {
    let (masters, lock) = bed(5).await;
    let owner = Owner::new();
    let mut tasks = JoinSet::new();
    for _ in 0..50 {
        let (lock, owner) = (lock.clone(), owner.clone());
        tasks.spawn(async move { lock.acquire("r").owner(&owner).await.unwrap() });
    }
    let mut leases = tasks.join_all().await;
    let stats = lock.stats();
    assert_eq!((stats.acquired, stats.reentered, leases[0].handles()), (1, 49, 50));
    assert!(stats.masters.iter().all(|master| master.granted <= 1 && master.refused == 0));
    let last = leases.pop().unwrap();
    for (number, lease) in leases.into_iter().enumerate() {
        match number % 4 {
            0 => drop(lease),
            // Each release is dropped before its first poll, or after it.
            1 => drop(lease.release()),
            2 => assert!(poll_once(pin!(lease.release())).await.is_ready(), "it asks a master"),
            _ => {
                let released = lease.release().await;
                assert_eq!(released.outcome, Outcome::StillHeld, "{released}");
                let replies = released.report.masters().iter().map(|master| &master.outcome);
                assert!(replies.flatten().next().is_none(), "{released}");
            }
        }
    }
    settle().await;
    assert_eq!((holding(&masters, 5, "r").len(), last.handles()), (5, 1));
    assert!(lock.try_acquire("r").await.unwrap().is_none(), "it is free too early");
    assert_eq!(last.release().await.outcome, Outcome::Released);
    assert_eq!((keys(&masters, 5), lock.stats().released), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn owners_exclude_each_other_and_requests_without_an_owner() {
    let (masters, lock) = bed(3).await;
    let (one, two) = (Owner::new(), Owner::new());
    let lease = again(&lock, &one).await;
    assert!(lock.try_acquire("r").owner(&two).await.unwrap().is_none());
    // Two requests of one owner do not compete, and the second waits only for a moment.
    let waits = tokio::spawn(lock.acquire("r").owner(&two).wait(TTL / 2).into_future());
    settle().await;
    let error = lock.acquire("r").owner(&two).wait(Duration::ZERO).await.unwrap_err();
    assert!(matches!(error, AcquireError::Taken { attempts: 0, .. }), "{error}");
    assert!(error.to_string().contains("another request of the same owner"), "{error}");
    drop(waits);
    assert!(lock.try_acquire("r").await.unwrap().is_none());
    // Another resource is independent, and so is the same resource behind another lock.
    assert_eq!(lock.acquire("s").owner(&one).await.unwrap().handles(), 1);
    let elsewhere = masters.builder().build().await.unwrap();
    assert!(elsewhere.try_acquire("r").owner(&one).await.unwrap().is_none());
    // A lease that was acquired without an owner has no further handles.
    let _plain = lock.acquire("t").await.unwrap();
    assert!(lock.try_acquire("t").owner(&one).await.unwrap().is_none());
    // A clone in another task is the same owner.
    let (lock, clone) = (lock.clone(), one.clone());
    let task = tokio::spawn(async move { again(&lock, &clone).await.handles() });
    assert_eq!((task.await.unwrap(), lease.handles()), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn an_owner_gets_a_handle_without_masters_but_no_longer_ttl() {
    let (masters, lock) = bed(3).await;
    let owner = Owner::new();
    let lease = again(&lock, &owner).await;
    let deadline = lease.deadline();
    (1..=3).for_each(|number| masters.kill(number));
    // The lease is valid until its deadline, even if no master is up.
    let handle = again(&lock, &owner).await;
    assert_eq!((handle.handles(), handle.deadline()), (2, deadline));
    let error = lock.try_acquire("r").owner(&owner).ttl(60 * S).await.unwrap_err();
    assert!(matches!(error, AcquireError::NotExtended(_)) && error.report().is_some(), "{error}");
    let text = error.to_string();
    assert!(text.contains("old deadline stands") && text.contains("without a ttl"), "{text}");
    // Its lease has no fencing token, and gets none later.
    let error = lock.acquire("r").fenced().owner(&owner).await.unwrap_err();
    assert!(matches!(error, AcquireError::Options { error: BadOption::HeldUnfenced, .. }));
    assert!(error.to_string().contains("ask for one the first time"), "{error}");
    assert_eq!((lease.deadline(), lease.handles(), lease.is_lost()), (deadline, 2, false));
}
