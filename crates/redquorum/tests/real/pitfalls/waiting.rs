//! Waiting costs little and ends: at its bound, or soon after the resource is free.

use std::time::Duration;

use redquorum::{AcquireError, Backoff, Outcome};
use redquorum_rig::trials::Case;
use tokio::time::Instant;

use crate::support::*;

pub(crate) fn cases() -> Vec<Case> {
    cases![
        waiting_does_not_spin,
        no_policy_however_eager_makes_a_waiter_spin,
        waiting_has_a_bound,
        a_waiter_gets_what_is_released,
        waiters_take_turns_and_none_is_lost,
    ]
}

async fn waiting_does_not_spin() {
    let masters = own(5);
    let lock = built(calm(&masters)).await;
    let lease = lock.acquire("r").await.unwrap();
    answered(&lock).await;
    let before = calls(&masters, 1, "set");
    assert_eq!(before, 1, "the counter sees an attempt");
    // Another process, without wake-ups.
    let other = built(calm(&masters).wake_ups(false)).await;
    let error = other.acquire("r").wait(CALM).await.unwrap_err();
    let AcquireError::Taken { attempts, .. } = error else { panic!("{error}") };
    answered(&other).await;
    let sets = calls(&masters, 1, "set") - before;
    assert_eq!(sets, u64::from(attempts), "one command for each attempt");
    // Pauses of up to 10, 20, … 250 ms, half of that on average: some ten attempts in a second.
    assert!((4..=60).contains(&attempts), "{attempts} attempts in a second");
    lease.release().await;
}

async fn no_policy_however_eager_makes_a_waiter_spin() {
    let masters = shared();
    let r = unique("eager");
    let owner = built(calm(masters)).await;
    let lease = owner.acquire(&r).await.unwrap();
    let eager = |builder: redquorum::Builder, own: bool| match own {
        true => builder.retry_by(|_, _| Duration::ZERO),
        false => builder.retry(Backoff::Fixed(MS)),
    };
    for own in [true, false] {
        let lock = built(eager(calm(masters).wake_ups(false), own)).await;
        let error = lock.acquire(&r).wait(200 * MS).await.unwrap_err();
        let AcquireError::Taken { attempts, .. } = error else { panic!("{error}") };
        // At least a millisecond between two attempts.
        assert!((2..=201).contains(&attempts), "{attempts} attempts in 200 ms");
    }
    lease.release().await;
}

async fn waiting_has_a_bound() {
    let masters = shared();
    let lock = built(brisk(masters).retry(Backoff::Fixed(60 * CALM))).await;
    let r = unique("bound");
    let lease = lock.acquire(&r).await.unwrap();
    for wait in [Duration::ZERO, 50 * MS, 250 * MS] {
        let (took, result) = timed(lock.acquire(&r).wait(wait)).await;
        let error = result.unwrap_err();
        assert!(matches!(error, AcquireError::Taken { .. }), "{error}");
        assert!(took >= wait && took < wait + 200 * MS + AT_ONCE, "{took:?} for {wait:?}");
    }
    lease.release().await;
}

async fn a_waiter_gets_what_is_released() {
    let masters = shared();
    let (lock, other) = (built(calm(masters)).await, built(calm(masters)).await);
    let r = unique("turn");
    let lease = lock.acquire(&r).await.unwrap();
    let waiting = {
        let r = r.clone();
        tokio::spawn(async move { (other.acquire(&r).await, Instant::now(), other) })
    };
    tokio::time::sleep(100 * MS).await;
    assert!(!waiting.is_finished());
    assert_eq!(lease.release().await.outcome, Outcome::Released);
    let released = Instant::now();
    let (lease, got, _lock) = waiting.await.unwrap();
    assert!(got.duration_since(released) < 250 * MS + AT_ONCE);
    assert_eq!(lease.unwrap().release().await.outcome, Outcome::Released);
}

async fn waiters_take_turns_and_none_is_lost() {
    let masters = shared();
    let r = unique("crowd");
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let (lock, r) = (built(calm(masters)).await, r.clone());
        waiting.spawn(async move {
            let lease = lock.acquire(&r).wait(15 * CALM).await.unwrap();
            tokio::time::sleep(2 * MS).await;
            lease.release().await.outcome
        });
    }
    while let Some(outcome) = waiting.join_next().await {
        assert_eq!(outcome.unwrap(), Outcome::Released);
    }
    cleaned(masters, &r).await;
}
