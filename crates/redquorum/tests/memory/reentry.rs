//! Re-entry: an owner that acquires a resource it holds gets another handle of the same lease.

use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use redquorum::{
    AcquireError, BadOption, ExtendError, Lease, Outcome, Owner, Redlock, report::Loss,
};
use tokio::time::{Instant, sleep};

use crate::support::{
    MS, NODE_TIMEOUT, S, TTL, VALIDITY, answers, bed, holding, keys, poll_once, settle, take,
};

async fn again(lock: &Redlock, owner: &Owner) -> Lease {
    lock.try_acquire("r").owner(owner).await.unwrap().expect("the owner holds it, or nobody")
}

#[tokio::test(start_paused = true)]
async fn an_owner_gets_another_handle_in_no_round_trip() {
    let (_masters, lock) = bed(5).await;
    let owner = Owner::new();
    let lease = lock.acquire("r").owner(&owner).await.unwrap();
    sleep(S).await;
    settle().await;
    let (start, before) = (Instant::now(), answers(&lock));
    // Ready at the first poll, without a round trip.
    let request = pin!(lock.acquire("r").owner(&owner).into_future());
    let Poll::Ready(Ok(again)) = poll_once(request).await else { panic!("it waits") };
    settle().await;
    assert_eq!((start.elapsed(), answers(&lock)), (Duration::ZERO, before));
    assert_eq!((lease.deadline(), lease.handles()), (again.deadline(), 2));
    assert_eq!((lease.validity(), again.report()), (VALIDITY - S, lease.report()));
    let stats = lock.stats();
    assert_eq!((stats.acquired, stats.reentered), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn only_the_last_handle_frees_the_resource_in_whatever_order() {
    for first_goes_first in [true, false] {
        let (masters, lock) = bed(5).await;
        let owner = Owner::new();
        let (lease, other) = (again(&lock, &owner).await, again(&lock, &owner).await);
        let (early, last) = if first_goes_first { (lease, other) } else { (other, lease) };
        let released = early.release().await;
        assert_eq!(released.outcome, Outcome::StillHeld, "{released}");
        assert!(released.report.masters().iter().all(|master| master.outcome.is_none()));
        settle().await;
        assert_eq!(holding(&masters, 5, "r").len(), 5);
        assert!(lock.try_acquire("r").await.unwrap().is_none(), "it is free too early");
        assert_eq!((last.is_lost(), last.handles()), (None, 1));
        assert_eq!(last.release().await.outcome, Outcome::Released);
        assert_eq!(lock.stats().released, 1);
        drop(take(&lock, "r").await);
    }
}

#[tokio::test(start_paused = true)]
async fn a_dropped_handle_is_counted_down_once() {
    let (masters, lock) = bed(3).await;
    let owner = Owner::new();
    let lease = again(&lock, &owner).await;
    drop(again(&lock, &owner).await);
    // The releases are dropped before and after their first poll.
    drop(again(&lock, &owner).await.release());
    let mut released = Box::pin(again(&lock, &owner).await.release());
    assert!(poll_once(released.as_mut()).await.is_ready(), "nobody is waited for");
    drop(released);
    settle().await;
    assert_eq!((lease.handles(), holding(&masters, 3, "r").len()), (1, 3));
    drop(lease);
    settle().await;
    assert_eq!(keys(&masters, 3), 0);
}

#[tokio::test(start_paused = true)]
async fn owners_exclude_each_other_and_whoever_has_none() {
    let (masters, lock) = bed(3).await;
    let (one, two) = (Owner::new(), Owner::new());
    let lease = again(&lock, &one).await;
    assert!(lock.try_acquire("r").owner(&two).await.unwrap().is_none());
    assert!(lock.try_acquire("r").await.unwrap().is_none());
    // Another resource is independent, and so is the same resource behind another lock.
    let other = lock.acquire("s").owner(&one).await.unwrap();
    assert_eq!(other.handles(), 1);
    let elsewhere = masters.builder().build().await.unwrap();
    assert!(elsewhere.try_acquire("r").owner(&one).await.unwrap().is_none());
    // A lease that was acquired without an owner has no further handles.
    let plain = take(&lock, "t").await;
    assert!(lock.try_acquire("t").owner(&one).await.unwrap().is_none());
    drop((lease, other, plain));
}

#[tokio::test(start_paused = true)]
async fn a_clone_in_another_task_is_the_same_owner() {
    let (_masters, lock) = bed(3).await;
    let owner = Owner::new();
    let lease = again(&lock, &owner).await;
    let (elsewhere, clone) = (lock.clone(), owner.clone());
    let task = tokio::spawn(async move { again(&elsewhere, &clone).await.handles() });
    assert_eq!((task.await.unwrap(), lease.handles()), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn a_lease_past_its_deadline_lets_nobody_in() {
    let (masters, lock) = bed(3).await;
    let owner = Owner::new();
    let old = again(&lock, &owner).await;
    let second = again(&lock, &owner).await;
    old.deadline().passed().await;
    let new = again(&lock, &owner).await;
    assert_eq!((new.handles(), old.handles()), (1, 2));
    assert!(new.deadline() > old.deadline());
    assert_eq!(old.lost().await.0, Loss::Expired);
    assert_eq!(second.lost().await.0, Loss::Expired);
    // The handles of the lost lease do not affect the new one.
    assert_eq!(old.release().await.outcome, Outcome::AlreadyGone);
    drop(second);
    settle().await;
    assert_eq!((holding(&masters, 3, "r").len(), new.is_lost()), (3, None));
    assert_eq!(again(&lock, &owner).await.handles(), 2);
    assert_eq!(new.release().await.outcome, Outcome::Released);
}

#[tokio::test(start_paused = true)]
async fn a_rival_that_took_over_keeps_the_owner_out() {
    let (_masters, lock) = bed(3).await;
    let owner = Owner::new();
    let (old, second) = (again(&lock, &owner).await, again(&lock, &owner).await);
    sleep(TTL).await;
    let rival = take(&lock, "r").await;
    assert!(lock.try_acquire("r").owner(&owner).await.unwrap().is_none());
    assert!(matches!(
        lock.acquire("r").owner(&owner).wait(S).await,
        Err(AcquireError::Taken { attempts: 1.., .. })
    ));
    drop((old, second, rival));
    again(&lock, &owner).await.release().await;
}

#[tokio::test(start_paused = true)]
async fn after_the_last_release_the_owner_asks_the_masters_again() {
    let (_masters, lock) = bed(3).await;
    let owner = Owner::new();
    let lease = again(&lock, &owner).await;
    let mut releasing = pin!(lease.release());
    assert!(poll_once(releasing.as_mut()).await.is_pending());
    let new = lock.acquire("r").owner(&owner).wait(S).await.unwrap();
    assert_eq!((new.handles(), releasing.await.outcome), (1, Outcome::Released));
    assert_eq!(lock.stats().acquired, 2);
}

#[tokio::test(start_paused = true)]
async fn without_a_ttl_the_deadline_stands_and_with_a_longer_one_it_moves() {
    let (_masters, lock) = bed(5).await;
    let owner = Owner::new();
    let lease = again(&lock, &owner).await;
    sleep(S).await;
    settle().await;
    let (deadline, before) = (lease.deadline(), answers(&lock));
    for ttl in [S, 2 * S, VALIDITY - S] {
        drop(lock.acquire("r").owner(&owner).ttl(ttl).await.unwrap());
    }
    settle().await;
    assert_eq!((lease.deadline(), answers(&lock)), (deadline, before), "never shorter");
    let longer = lock.acquire("r").owner(&owner).ttl(2 * TTL).await.unwrap();
    assert_eq!(lease.deadline(), longer.deadline());
    assert!(lease.validity() > TTL && answers(&lock) > before);
    // A TTL that gains only a moment also extends.
    sleep(S).await;
    let (deadline, extended) = (lease.deadline(), lock.stats().extended);
    drop(lock.try_acquire("r").owner(&owner).ttl(2 * TTL).await.unwrap());
    assert!(lease.deadline() > deadline);
    assert_eq!(lock.stats().extended, extended + 1);
}

#[tokio::test(start_paused = true)]
async fn a_longer_ttl_that_no_quorum_confirms_is_an_error_and_takes_nothing_away() {
    let (masters, lock) = bed(3).await;
    let owner = Owner::new();
    let lease = again(&lock, &owner).await;
    let deadline = lease.deadline();
    (1..=2).for_each(|number| masters.stop(number));
    sleep(MS).await;
    let error = lock.try_acquire("r").owner(&owner).ttl(2 * TTL).await.unwrap_err();
    assert!(matches!(&error, AcquireError::NotExtended(ExtendError::NoQuorum(_))), "{error}");
    assert!(error.report().is_some());
    let said = error.to_string();
    assert!(said.contains("old deadline stands") && said.contains("without a ttl"), "{said}");
    assert_eq!((lease.deadline(), lease.handles(), lease.is_lost()), (deadline, 1, None));
    // Without a longer TTL, the owner still gets a handle.
    assert_eq!(again(&lock, &owner).await.deadline(), deadline);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_ends_while_it_is_extended_is_acquired_anew() {
    let (masters, lock) = bed(3).await;
    let owner = Owner::new();
    let lease = again(&lock, &owner).await;
    sleep(VALIDITY - NODE_TIMEOUT / 2).await;
    (1..=2).for_each(|number| masters.stop(number));
    let request = lock.acquire("r").owner(&owner).ttl(2 * TTL).wait(TTL);
    let request = tokio::spawn(request.into_future());
    lease.lost().await;
    (1..=2).for_each(|number| masters.resume(number));
    let new = request.await.unwrap().unwrap();
    assert_eq!((new.handles(), lease.handles()), (1, 1));
    assert!(new.is_lost().is_none() && new.validity() > TTL);
}

#[tokio::test(start_paused = true)]
async fn tasks_of_one_owner_that_ask_at_once_make_one_claim() {
    let (_masters, lock) = bed(5).await;
    let owner = Owner::new();
    let start = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let (lock, owner) = (lock.clone(), owner.clone());
        tasks.spawn(async move { lock.acquire("r").owner(&owner).await.unwrap() });
    }
    let leases = tasks.join_all().await;
    assert!(start.elapsed() < NODE_TIMEOUT, "{:?}", start.elapsed());
    let stats = lock.stats();
    assert_eq!((stats.acquired, stats.reentered, leases[0].handles()), (1, 19, 20));
    let granted: u64 = stats.masters.iter().map(|master| master.granted).sum();
    assert!(granted <= 5 && stats.masters.iter().all(|master| master.refused == 0));
}

#[tokio::test(start_paused = true)]
async fn when_the_first_gives_up_the_next_of_this_owner_asks() {
    let (_masters, lock) = bed(3).await;
    let owner = Owner::new();
    let rival = take(&lock, "r").await;
    let mut first = Box::pin(lock.acquire("r").owner(&owner).wait(TTL).into_future());
    assert!(poll_once(first.as_mut()).await.is_pending());
    let second = tokio::spawn(lock.acquire("r").owner(&owner).wait(TTL).into_future());
    settle().await;
    drop(first);
    rival.release().await;
    assert_eq!(second.await.unwrap().unwrap().handles(), 1);
}

#[tokio::test(start_paused = true)]
async fn one_attempt_waits_for_another_request_of_its_owner_no_longer_than_a_node_timeout() {
    let (_masters, lock) = bed(3).await;
    let owner = Owner::new();
    let rival = take(&lock, "r").await;
    let first = tokio::spawn(lock.acquire("r").owner(&owner).wait(TTL / 2).into_future());
    settle().await;
    let start = Instant::now();
    assert!(lock.try_acquire("r").owner(&owner).await.unwrap().is_none());
    assert!(start.elapsed() <= NODE_TIMEOUT + 2 * MS, "{:?}", start.elapsed());
    let error = lock.acquire("r").owner(&owner).wait(Duration::ZERO).await.unwrap_err();
    assert!(matches!(error, AcquireError::Taken { attempts: 0, .. }), "{error}");
    assert!(error.to_string().contains("another request of the same owner"), "{error}");
    drop((first, rival));
}

#[tokio::test(start_paused = true)]
async fn the_watchdog_of_any_handle_keeps_the_lease_of_all_and_ends_with_it() {
    let (_masters, lock) = bed(3).await;
    let owner = Owner::new();
    let lease = again(&lock, &owner).await;
    let second = again(&lock, &owner).await;
    second.keep_alive(100 * TTL);
    second.release().await;
    sleep(3 * TTL).await;
    assert_eq!(lease.is_lost(), None);
    assert_eq!(lease.release().await.outcome, Outcome::Released);
    let extended = lock.stats().extended;
    sleep(3 * TTL).await;
    assert_eq!(lock.stats().extended, extended, "a watchdog that outlives its lease");
}

#[tokio::test(start_paused = true)]
async fn all_handles_are_told_of_the_loss_and_run_under_the_same_deadline() {
    let (_masters, lock) = bed(3).await;
    let owner = Owner::new();
    let leases = [again(&lock, &owner).await, again(&lock, &owner).await];
    let start = Instant::now();
    let ran = tokio::join!(
        leases[0].run(std::future::pending::<()>()),
        leases[1].run(std::future::pending::<()>()),
        leases[0].lost(),
        leases[1].lost(),
    );
    assert!(ran.0.is_err() && ran.1.is_err());
    assert!(start.elapsed() >= VALIDITY && start.elapsed() <= VALIDITY + 2 * MS);
    assert_eq!(leases[0].is_lost(), leases[1].is_lost());
}

#[tokio::test(start_paused = true)]
async fn two_handles_that_extend_at_once_do_not_cut_each_other_short() {
    let (_masters, lock) = bed(3).await;
    let owner = Owner::new();
    let leases = [again(&lock, &owner).await, again(&lock, &owner).await];
    let request = lock.acquire("r").owner(&owner).ttl(2 * TTL).into_future();
    let (one, two, third) = tokio::join!(leases[0].extend(), leases[1].extend(), request);
    assert!(one.is_ok() && two.is_ok() && third.is_ok(), "{one:?} {two:?} {third:?}");
}

#[tokio::test(start_paused = true)]
async fn a_fencing_token_stays_the_same_and_a_plain_handle_of_it_is_one_of_the_same_lease() {
    let (_masters, lock) = bed(5).await;
    let owner = Owner::new();
    let fenced = lock.acquire("r").fenced().owner(&owner).await.unwrap();
    let again = lock.try_acquire("r").owner(&owner).fenced().await.unwrap().unwrap();
    assert_eq!(fenced.fencing_token(), again.fencing_token());
    let plain = lock.acquire("r").owner(&owner).await.unwrap();
    assert_eq!((plain.handles(), plain.deadline()), (3, fenced.deadline()));
    drop((fenced, plain));
    let token = again.fencing_token();
    again.release().await;
    let next = lock.acquire("r").fenced().owner(&owner).await.unwrap();
    assert!(next.fencing_token() > token, "a new lease, a new token");
}

#[tokio::test(start_paused = true)]
async fn a_token_is_not_given_to_a_lease_that_has_none() {
    let (_masters, lock) = bed(3).await;
    let owner = Owner::new();
    let lease = lock.acquire("r").owner(&owner).await.unwrap();
    let error = lock.acquire("r").fenced().owner(&owner).await.unwrap_err();
    assert_eq!(error, AcquireError::Options(BadOption::HeldUnfenced));
    assert!(error.to_string().contains("ask for one the first time"), "{error}");
    assert_eq!((lease.handles(), lease.is_lost()), (1, None));
    lease.release().await;
    drop(lock.acquire("r").fenced().owner(&owner).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn bad_options_are_refused_though_the_owner_holds_it() {
    let (_masters, lock) = bed(3).await;
    let owner = Owner::new();
    let lease = again(&lock, &owner).await;
    let error = lock.acquire("r").owner(&owner).ttl(Duration::MAX).await.unwrap_err();
    assert!(matches!(error, AcquireError::Options(BadOption::TtlTooLong { .. })), "{error}");
    drop(lease);
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_was_shut_down_lets_no_owner_in_again() {
    let (_masters, lock) = bed(3).await;
    let owner = Owner::new();
    let lease = Arc::new(again(&lock, &owner).await);
    let _ = lock.shutdown(MS).await;
    let error = lock.acquire("r").owner(&owner).await.unwrap_err();
    assert_eq!((error, lease.handles()), (AcquireError::ShutDown, 1));
}

#[tokio::test(start_paused = true)]
async fn a_dropped_handle_has_its_grace_before_the_resource_is_free() {
    let masters = redquorum::memory::Masters::new(3);
    let lock = masters.builder().lock_delay(5 * S).build().await.unwrap();
    let owner = Owner::new();
    let lease = again(&lock, &owner).await;
    drop(again(&lock, &owner).await);
    assert_eq!(lease.release().await.outcome, Outcome::Left);
    sleep(4 * S).await;
    assert!(lock.try_acquire("r").await.unwrap().is_none(), "what it had under way may arrive");
    sleep(2 * S).await;
    take(&lock, "r").await.release().await;
    // No trace is left of released handles, or of requests that failed or were dropped.
    let lease = again(&lock, &owner).await;
    again(&lock, &owner).await.release().await;
    lock.acquire("r").owner(&owner).fenced().await.unwrap_err();
    let mut given_up = Box::pin(lock.acquire("r").owner(&owner).ttl(2 * TTL).into_future());
    assert!(poll_once(given_up.as_mut()).await.is_pending());
    assert_eq!(lease.handles(), 2);
    drop(given_up);
    assert_eq!(lease.handles(), 1);
    assert_eq!(lease.release().await.outcome, Outcome::Released);
    take(&lock, "r").await.release().await;
}
