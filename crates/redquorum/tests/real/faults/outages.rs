//! Masters that die, come back, or never existed.

use std::time::Duration;

use redquorum::{AcquireError, Outcome, Redlock, stats::LinkState};
use redquorum_rig::{Masters, Persistence, trials::Case};

use crate::support::*;

pub(crate) fn cases() -> Vec<Case> {
    cases![
        restarted_masters_are_reconnected_in_the_background,
        a_lock_is_built_while_all_masters_are_down_and_works_when_they_come,
        a_killed_majority_is_no_quorum_and_the_lock_recovers,
        rolling_restarts_of_masters_that_forget_nothing_never_lose_a_lease,
        connections_that_the_masters_close_are_replaced_at_once,
        a_debt_to_a_dead_master_is_paid_when_it_comes_back_with_the_key,
    ]
}

async fn up(lock: &Redlock, count: usize) {
    let is_up = |state: &LinkState| *state == LinkState::Up;
    eventually("masters are connected", || {
        lock.stats().masters.iter().filter(|master| is_up(&master.state)).count() == count
    })
    .await;
}

async fn restarted_masters_are_reconnected_in_the_background() {
    let masters = own(3);
    let lock = built(calm(&masters)).await;
    for node in 1..=3 {
        masters.kill(node).unwrap();
        up(&lock, 2).await;
        assert!(lock.try_acquire("r").await.unwrap().is_some());
        masters.restart(node).unwrap();
        // The link reconnects without a request.
        up(&lock, 3).await;
        assert_eq!(lock.stats().masters[node - 1].connected, 2);
    }
    let lease = lock.acquire("r").await.unwrap();
    answered(&lock).await;
    assert_eq!(holders(&masters, "r"), [1, 2, 3]);
    assert_eq!(lease.release().await.outcome, Outcome::Released);
}

async fn a_lock_is_built_while_all_masters_are_down_and_works_when_they_come() {
    let masters = own(3);
    all(&masters).for_each(|node| masters.kill(node).unwrap());
    let (took, lock) = timed(calm(&masters).build()).await;
    let lock = lock.unwrap();
    assert!(took < AT_ONCE, "{took:?}");
    let error = calm(&masters).require_quorum(true).build().await.unwrap_err().to_string();
    assert!(error.starts_with("no quorum of masters is reachable: master 1 ("), "{error}");
    let (took, result) = timed(lock.try_acquire("r")).await;
    let error = result.unwrap_err();
    assert!(matches!(error, AcquireError::NoQuorum { .. }) && took < AT_ONCE, "{error}");
    assert_eq!(lock.health().await.alive, 0);
    // A waiter gets its lease as soon as there is a quorum.
    let waiting = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire("r").wait(15 * CALM).await.map(drop) }
    });
    [1, 3].into_iter().for_each(|node| masters.restart(node).unwrap());
    waiting.await.unwrap().unwrap();
    masters.restart(2).unwrap();
    up(&lock, 3).await;
    assert!(lock.health().await.has_quorum());
    cleaned(&masters, "r").await;
}

async fn a_killed_majority_is_no_quorum_and_the_lock_recovers() {
    let masters = own(3);
    let lock = built(calm(&masters)).await;
    let lease = lock.acquire("held").await.unwrap();
    [1, 2].into_iter().for_each(|node| masters.kill(node).unwrap());
    for _ in 0..3 {
        let (took, result) = timed(lock.acquire("r").wait(Duration::ZERO)).await;
        let error = result.unwrap_err();
        assert!(matches!(error, AcquireError::NoQuorum { .. }) && took < AT_ONCE, "{error}");
    }
    let (took, released) = timed(lease.release()).await;
    assert_eq!(released.outcome, Outcome::Unknown, "{}", released.report);
    assert!(took < AT_ONCE, "{took:?}");
    [1, 2].into_iter().for_each(|node| masters.restart(node).unwrap());
    up(&lock, 3).await;
    assert!(lock.try_acquire("held").await.unwrap().is_some());
    cleaned(&masters, "*").await;
}

async fn rolling_restarts_of_masters_that_forget_nothing_never_lose_a_lease() {
    let masters = Masters::builder().count(3).persistence(Persistence::AofAlways).start().unwrap();
    let lock = built(calm(&masters)).await;
    let lease = lock.acquire("r").await.unwrap();
    answered(&lock).await;
    for node in 1..=3 {
        masters.kill(node).unwrap();
        lease.extend().await.unwrap();
        masters.restart(node).unwrap();
        up(&lock, 3).await;
        lease.extend().await.unwrap();
        assert!(lock.try_acquire("r").await.unwrap().is_none());
    }
    answered(&lock).await;
    assert_eq!(holders(&masters, "r"), [1, 2, 3]);
    assert_eq!(lease.release().await.outcome, Outcome::Released);
    cleaned(&masters, "r").await;
}

async fn a_debt_to_a_dead_master_is_paid_when_it_comes_back_with_the_key() {
    let masters = Masters::builder().count(3).persistence(Persistence::AofAlways).start().unwrap();
    let lock = built(calm(&masters).ttl(60 * CALM)).await;
    let lease = lock.acquire("r").await.unwrap();
    answered(&lock).await;
    masters.kill(2).unwrap();
    assert_eq!(lease.release().await.outcome, Outcome::Released);
    assert_eq!(lock.stats().masters[1].owed, 1);
    masters.restart(2).unwrap();
    eventually("it is paid", || lock.stats().masters[1].owed == 0).await;
    assert_eq!(keys(&masters, "*"), []);
    assert_eq!(calls(&masters, 2, "del"), 1, "it came back with the key");
}

async fn connections_that_the_masters_close_are_replaced_at_once() {
    let masters = own(3);
    let lock = built(calm(&masters)).await;
    let lease = lock.acquire("held").await.unwrap();
    for round in 1..=5 {
        all(&masters).for_each(|node| done(&masters, node, "CLIENT KILL TYPE normal SKIPME yes"));
        let (took, again) = timed(lock.acquire(format!("r{round}"))).await;
        assert!(took < AT_ONCE, "round {round} took {took:?}");
        assert_eq!(again.unwrap().release().await.outcome, Outcome::Released);
        let again = || lock.stats().masters.iter().all(|master| master.connected == round + 1);
        eventually("every master has one more connection", again).await;
    }
    lease.extend().await.unwrap();
    assert_eq!(lease.release().await.outcome, Outcome::Released);
    cleaned(&masters, "*").await;
}
