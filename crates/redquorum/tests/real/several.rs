//! Several resources at once on real masters: one round trip, dropped requests, a stopped master,
//! and opposite orders.

use std::future::IntoFuture;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use redquorum::{AcquireAllError, Outcome, Redlock};
use redquorum_rig::trials::Case;
use tokio::time::{Instant, sleep};

use crate::support::*;

pub(crate) fn cases() -> Vec<Case> {
    cases![
        many_take_far_less_than_as_many_round_trips,
        acquires_of_several_dropped_at_any_time_leave_no_key,
        a_stopped_minority_is_in_nobodys_way_and_keeps_no_key,
        two_that_name_them_in_opposite_orders_both_get_through,
        tokens_of_each_resource_grow,
    ]
}

fn names(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{prefix}-{number}")).collect()
}

async fn many_take_far_less_than_as_many_round_trips() {
    const MANY: usize = 50;
    let (masters, r) = (shared(), unique("many"));
    let lock = built(calm(masters)).await;
    let (mut one, mut many) = (Duration::MAX, Duration::MAX);
    for _ in 0..20 {
        let (took, lease) = timed(lock.acquire(&r)).await;
        lease.unwrap().release().await;
        one = one.min(took);
        let (took, leases) = timed(lock.acquire_all(names(&r, MANY))).await;
        assert_eq!(leases.unwrap().release().await.outcome(), Outcome::Released);
        many = many.min(took);
    }
    println!("one: {one:?}, {MANY} at once: {many:?}");
    assert!(many < one * 25, "one: {one:?}, {MANY} at once: {many:?}");
    cleaned(masters, &format!("{r}*")).await;
}

async fn acquires_of_several_dropped_at_any_time_leave_no_key() {
    let (masters, r) = (shared(), unique("several-dropped"));
    let lock = built(calm(masters)).await;
    let held = lock.acquire(format!("{r}-taken")).await.unwrap();
    let (mut without, mut with) = (0, 0);
    for round in 0..200_u32 {
        let mut wanted = names(&r, 3);
        if round % 2 == 0 {
            wanted.push(format!("{r}-taken"));
        }
        let mut acquiring = lock.acquire_all(wanted).into_future();
        let start = Instant::now();
        let leases = loop {
            if let Poll::Ready(leases) = poll_once(&mut acquiring).await {
                break Some(leases.unwrap());
            }
            if start.elapsed() >= Duration::from_micros(10) * round {
                break None;
            }
            tokio::task::yield_now().await;
        };
        if leases.is_some() { with += 1 } else { without += 1 }
    }
    assert!(without > 100 && with > 5, "{without} dropped without leases, {with} with");
    held.release().await;
    cleaned(masters, &format!("{r}*")).await;
}

async fn a_stopped_minority_is_in_nobodys_way_and_keeps_no_key() {
    let masters = own(3);
    let lock = built(brisk(&masters)).await;
    masters.pause(1).unwrap();
    let leases = lock.acquire_all(["a", "b", "c"]).wait(Duration::ZERO).await.unwrap();
    let error = lock.acquire_all(["c", "d"]).wait(Duration::ZERO).await.unwrap_err();
    assert!(matches!(error, AcquireAllError::Taken { .. }), "{error}");
    assert_eq!(error.resource(), Some(&b"c"[..]));
    leases.release().await;
    masters.resume(1).unwrap();
    cleaned(&masters, "*").await;
}

/// Acquires all resources, checks that no other task holds them, and releases them.
async fn rounds(lock: Redlock, wanted: Vec<String>, busy: Arc<AtomicBool>) {
    for _ in 0..15 {
        let leases = lock.acquire_all(&wanted).wait(Duration::from_secs(15)).await.unwrap();
        assert!(!busy.swap(true, Ordering::SeqCst), "two hold the same");
        sleep(MS).await;
        busy.store(false, Ordering::SeqCst);
        assert_eq!(leases.release().await.outcome(), Outcome::Released);
    }
}

async fn two_that_name_them_in_opposite_orders_both_get_through() {
    let (masters, r) = (shared(), unique("opposite"));
    let busy = Arc::new(AtomicBool::new(false));
    let wanted = names(&r, 3);
    let other: Vec<String> = wanted.iter().rev().cloned().collect();
    let one = tokio::spawn(rounds(built(calm(masters)).await, wanted, busy.clone()));
    let two = tokio::spawn(rounds(built(calm(masters)).await, other, busy));
    one.await.unwrap();
    two.await.unwrap();
    cleaned(masters, &format!("{r}*")).await;
}

async fn tokens_of_each_resource_grow() {
    let (masters, r) = (shared(), unique("several-fenced"));
    let locks = [built(calm(masters)).await, built(calm(masters)).await];
    let mut last = vec![0; 3];
    for round in 0..6 {
        let leases = locks[round % 2].acquire_all(names(&r, 3)).fenced().await.unwrap();
        let tokens: Vec<u64> = leases.iter().map(redquorum::FencedLease::fencing_token).collect();
        assert!(tokens.iter().zip(&last).all(|(now, before)| now > before), "{last:?} {tokens:?}");
        last = tokens;
        leases.release().await;
    }
}
