//! Futures that are dropped at every moment of an acquire: 100 ms later none of their keys is left.
//! `ends.rs` has the other ways in which leases end.

use std::future::IntoFuture;
use std::task::Poll;
use std::time::Duration;

use redquorum::{Outcome, Redlock};
use redquorum_rig::{Masters, trials::Case};
use tokio::time::{Instant, sleep};

use crate::support::*;

pub(crate) fn cases() -> Vec<Case> {
    cases![
        acquires_dropped_at_any_time_leave_no_key,
        acquires_dropped_while_a_master_is_stopped_leave_no_key_on_it,
        an_acquire_dropped_while_it_waits_leaves_no_key,
        an_acquire_that_is_never_polled_sends_nothing,
        a_dropped_release_gives_back_all_the_same,
        a_dropped_extend_leaves_the_lease_as_good_as_before,
        dropped_leases_leave_no_key,
        leases_outlive_the_lock_and_leave_no_key_after_it,
    ]
}

const ACQUIRES: u32 = 300;

/// All keys must be gone within this time.
const SOON: Duration = Duration::from_millis(100);

/// The median latency of a few acquires.
async fn usual_latency(lock: &Redlock) -> Duration {
    let mut latencies = Vec::new();
    for _ in 0..30 {
        let (took, lease) = timed(lock.acquire(unique("usual"))).await;
        latencies.push(took);
        lease.unwrap().release().await;
    }
    latencies.sort();
    latencies[latencies.len() / 2]
}

/// Drops acquires between 0 and 1.5 × the usual latency after they were sent. Returns how many were
/// dropped before they had their lease, and how many with it.
async fn drop_acquires(lock: &Redlock, usual: Duration, prefix: &str) -> (u32, u32) {
    let (mut without, mut with) = (0, 0);
    for round in 0..ACQUIRES {
        let after = usual * 3 * round / (2 * ACQUIRES);
        let mut acquiring = lock.acquire(format!("{prefix}{round}")).into_future();
        let start = Instant::now();
        // Polls in a loop, because timers are too coarse.
        let lease = loop {
            if let Poll::Ready(lease) = poll_once(&mut acquiring).await {
                break Some(lease.unwrap());
            }
            if start.elapsed() >= after {
                break None;
            }
            tokio::task::yield_now().await;
        };
        match lease {
            Some(lease) => {
                with += 1;
                drop(lease);
            }
            None => {
                without += 1;
                drop(acquiring);
            }
        }
    }
    (without, with)
}

/// The check must see a key that is left.
fn the_check_sees_a_key(masters: &Masters, prefix: &str) {
    let planted = format!("{prefix}planted");
    put(masters, 3, &planted, 60_000);
    assert_eq!(keys(masters, &format!("{prefix}*")), [(3, planted.clone())]);
    delete(masters, [3], &planted);
}

async fn acquires_dropped_at_any_time_leave_no_key() {
    let masters = own(5);
    let lock = built(calm(&masters)).await;
    let usual = usual_latency(&lock).await;
    the_check_sees_a_key(&masters, "dropped-");
    let before = calls(&masters, 1, "set");
    let (without, with) = drop_acquires(&lock, usual, "dropped-").await;
    sleep(SOON).await;
    assert_eq!(keys(&masters, "*"), []);
    // The test is meaningful only if keys were set. How many acquires got their lease in time
    // depends on the load of the machine, and leases have a test of their own.
    assert!(without >= 30, "{without} without, {with} with their lease");
    assert!(calls(&masters, 1, "set") - before >= 290);
    assert_eq!(lock.stats().masters.iter().map(|master| master.owed).sum::<usize>(), 0);
}

async fn acquires_dropped_while_a_master_is_stopped_leave_no_key_on_it() {
    let masters = own(5);
    let lock = built(calm(&masters)).await;
    let usual = usual_latency(&lock).await;
    the_check_sees_a_key(&masters, "dropped-");
    let before = calls(&masters, 4, "set");
    masters.pause(4).unwrap();
    let (without, with) = drop_acquires(&lock, usual, "dropped-").await;
    assert!(lock.stats().masters[3].owed >= 200, "{:?}", lock.stats().masters[3]);
    masters.resume(4).unwrap();
    sleep(SOON).await;
    assert_eq!(keys(&masters, "*"), []);
    assert!(without >= 30, "{without} without, {with} with their lease");
    assert!(calls(&masters, 4, "set") - before >= 200, "what it had in its socket was executed");
    assert_eq!(lock.stats().masters[3].owed, 0);
}

async fn an_acquire_dropped_while_it_waits_leaves_no_key() {
    let masters = shared();
    let lock = built(calm(masters)).await;
    let r = unique("waits");
    (1..=3).for_each(|node| put(masters, node, &r, 60_000));
    for wait in [1, 5, 20, 60] {
        let waiting = tokio::time::timeout(wait * MS, lock.acquire(&r)).await;
        assert!(waiting.is_err(), "it did not wait");
    }
    sleep(SOON).await;
    assert_eq!(holders(masters, &r), [1, 2, 3], "only what was planted");
    delete(masters, 1..=3, &r);
    assert!(lock.try_acquire(&r).await.unwrap().is_some());
}

async fn an_acquire_that_is_never_polled_sends_nothing() {
    let masters = own(1);
    let lock = built(calm(&masters)).await;
    drop(lock.acquire("r"));
    drop(lock.acquire("r").into_future());
    drop(lock.try_acquire("r").into_future());
    assert!(lock.health().await.has_quorum());
    assert_eq!(calls(&masters, 1, "set"), 1, "the probe of health alone");
}

async fn a_dropped_release_gives_back_all_the_same() {
    let masters = shared();
    let lock = built(calm(masters)).await;
    let prefix = unique("release");
    for round in 0..50 {
        let lease = lock.acquire(format!("{prefix}-{round}")).await.unwrap();
        let mut releasing = Box::pin(lease.release());
        if round % 2 == 0 {
            // Usually dropped before the replies. The other half is not even polled.
            let _ = poll_once(&mut releasing).await;
        }
        drop(releasing);
    }
    sleep(SOON).await;
    assert_eq!(keys(masters, &format!("{prefix}-*")), []);
    cleaned(masters, &format!("{prefix}-*")).await;
}

async fn a_dropped_extend_leaves_the_lease_as_good_as_before() {
    let masters = shared();
    let lock = built(calm(masters)).await;
    let r = unique("extend");
    let lease = lock.acquire(&r).await.unwrap();
    let deadline = lease.deadline();
    for round in 0..50 {
        let mut extending = Box::pin(lease.extend());
        if round % 2 == 0 {
            let _ = poll_once(&mut extending).await;
        }
        drop(extending);
    }
    // Some masters may have extended, so the deadline may move, but never back.
    assert!(lease.deadline() >= deadline && lease.is_lost().is_none());
    assert!(lease.extend().await.unwrap() > deadline);
    answered(&lock).await;
    let mut extending = Box::pin(lease.extend());
    let _ = poll_once(&mut extending).await;
    drop(extending);
    assert_eq!(lease.release().await.outcome, Outcome::Released);
    sleep(SOON).await;
    assert_eq!(keys(masters, &r), []);
    cleaned(masters, &r).await;
}

async fn dropped_leases_leave_no_key() {
    let masters = shared();
    let lock = built(calm(masters)).await;
    let prefix = unique("lease");
    let mut leases = Vec::new();
    for round in 0..100 {
        leases.push(lock.acquire(format!("{prefix}-{round}")).await.unwrap());
    }
    eventually("all have all", || keys(masters, &format!("{prefix}-*")).len() == 500).await;
    drop(leases);
    sleep(SOON).await;
    assert_eq!(keys(masters, &format!("{prefix}-*")), []);
    assert_eq!(lock.stats().released, 0, "a drop is counted for no release");
}

async fn leases_outlive_the_lock_and_leave_no_key_after_it() {
    let masters = shared();
    let prefix = unique("orphans");
    let pattern = format!("{prefix}-*");
    let lock = built(calm(masters)).await;
    let mut leases = Vec::new();
    for round in 0..20 {
        leases.push(lock.acquire(format!("{prefix}-{round}")).await.unwrap());
    }
    drop(lock);
    eventually("all have all", || keys(masters, &pattern).len() == 100).await;
    // The leases work without the lock.
    let last = leases.pop().unwrap();
    last.extend().await.unwrap();
    assert_eq!(last.release().await.outcome, Outcome::Released);
    drop(leases);
    sleep(SOON).await;
    assert_eq!(keys(masters, &pattern), []);
}
