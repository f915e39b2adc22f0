//! The end of a lock and of its runtime. A shutdown completes all clean-ups. Without a shutdown no
//! key stays for longer than its TTL, and nothing hangs.

use std::array::from_fn;
use std::future::{IntoFuture, pending};
use std::time::Duration;

use redquorum::{AcquireError, Backoff, ExtendError, Lease, Outcome, Redlock};
use redquorum_rig::trials::{Case, plain, with_masters};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{sleep, timeout};

use crate::support::*;

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = cases![
        both:
            a_shutdown_reports_what_it_could_not_clean_up_and_completes_it_later,
            after_a_shutdown_nothing_is_acquired_or_extended,
            a_shutdown_ends_all_waits_at_once;
    ];
    // These tests have runtimes of their own, in real time.
    cases.extend([
        with_masters("real::a_runtime_that_ends_leaves_keys_for_one_ttl", keys_expire),
        plain("memory::nothing_hangs_after_the_runtime_ended", after_the_runtime::<Memory>),
        with_masters("real::nothing_hangs_after_the_runtime_ended", after_the_runtime::<Real>),
        plain("memory::nothing_hangs_while_the_runtime_sleeps", while_it_sleeps::<Memory>),
        with_masters("real::nothing_hangs_while_the_runtime_sleeps", while_it_sleeps::<Real>),
    ]);
    cases
}

async fn a_shutdown_reports_what_it_could_not_clean_up_and_completes_it_later<C: Cluster>() {
    let masters = C::start(5);
    let lock = built(masters.brisk()).await;
    let (held, lease) = (masters.held(&lock, "held").await, masters.held(&lock, "r").await);
    masters.each(Stop, [1]);
    masters.each(Kill, [2]);
    drop(lease);
    let unfinished = C::takes(300 * MS, lock.shutdown(300 * MS)).await.unwrap_err();
    assert_eq!((unfinished.pending_cleanups, unfinished.held, unfinished.waited), (2, 5, 300 * MS));
    let unfinished = lock.shutdown(Duration::ZERO).await.unwrap_err();
    assert_eq!((unfinished.pending_cleanups, unfinished.held), (2, 5), "{unfinished}");
    masters.each(Resume, [1]);
    masters.each(Restart, [2]);
    drop(held);
    lock.shutdown(5 * S).await.unwrap();
    assert_eq!(masters.keys(1..=5), Vec::<String>::new());
}

async fn after_a_shutdown_nothing_is_acquired_or_extended<C: Cluster>() {
    let masters = C::start(5);
    let lock = masters.lock().await;
    let (clone, lease) = (lock.clone(), masters.held(&lock, "r").await);
    let deadline = lease.deadline();
    lock.shutdown(Duration::ZERO).await.unwrap_err();
    assert_eq!(C::at_once(clone.acquire("s")).await.unwrap_err(), AcquireError::ShutDown);
    assert_eq!(clone.try_acquire("s").await.unwrap_err(), AcquireError::ShutDown);
    assert_eq!(C::at_once(lease.extend()).await, Err(ExtendError::ShutDown));
    assert_eq!((lease.deadline(), lease.is_lost()), (deadline, false), "it is ours until then");
    assert_eq!(lock.health().await.alive, 0);
    assert_eq!(lease.release().await.outcome, Outcome::Released);
    lock.shutdown(S).await.unwrap();
    masters.cleaned().await;
}

async fn a_shutdown_ends_all_waits_at_once<C: Cluster>() {
    for policy in [Backoff::default(), Backoff::Fixed(3_600 * S)] {
        let masters = C::start(5);
        let lock = built(masters.builder().retry(policy)).await;
        let lease = lock.acquire("r").await.unwrap();
        let wait = || tokio::spawn(lock.acquire("r").wait(Duration::MAX).into_future());
        let waiting: Vec<_> = (0..10).map(|_| wait()).collect();
        let all = lock.acquire_all(["r", "s"]).wait(Duration::MAX);
        let all = tokio::spawn(all.into_future());
        sleep(50 * MS).await;
        lock.shutdown(Duration::ZERO).await.unwrap_err();
        for waiter in waiting {
            let result = C::takes(Duration::ZERO, waiter).await.unwrap();
            assert_eq!(result.unwrap_err(), AcquireError::ShutDown);
        }
        let result = C::takes(Duration::ZERO, all).await.unwrap();
        assert_eq!(result.unwrap_err(), AcquireError::ShutDown);
        drop(lease);
        masters.cleaned().await;
    }
}

const TTL: Duration = Duration::from_millis(700);

fn keys_expire() {
    let masters = Real::start(5);
    let first = runtime(1);
    first.block_on(async {
        let lock = built(masters.brisk().ttl(TTL)).await;
        for task in 0..20 {
            let lock = lock.clone();
            tokio::spawn(async move {
                loop {
                    let lease = lock.acquire(format!("r{task}")).await.unwrap();
                    lease.keep_alive(60 * S);
                    sleep(task * MS).await;
                }
            });
        }
        eventually("they are at work", || !masters.keys(1..=5).is_empty()).await;
        sleep(50 * MS).await;
    });
    drop(first);
    run(async move {
        sleep(TTL).await;
        assert_eq!(masters.keys(1..=5), Vec::<String>::new());
    });
}

fn leases<const N: usize>(runtime: &Runtime, lock: &Redlock) -> [Lease; N] {
    from_fn(|number| runtime.block_on(async { lock.acquire(format!("r{number}")).await }).unwrap())
}

/// Checks that requests end although no task drives the lock. Returns the error of an acquire.
async fn requests_end(lock: &Redlock, extended: &Lease, released: Lease) -> AcquireError {
    let hangs = 5 * S;
    let request = timeout(hangs, lock.try_acquire("new"));
    let refused = request.await.expect("acquire hangs").unwrap_err();
    assert!(matches!(refused, AcquireError::NoQuorum { .. }), "{refused}");
    let error = timeout(hangs, extended.extend()).await.expect("extend hangs").unwrap_err();
    assert!(matches!(error, ExtendError::NoQuorum { .. }), "{error}");
    let released = timeout(hangs, released.release()).await.expect("release hangs");
    assert_eq!(released.outcome, Outcome::Unknown, "{}", released.report);
    let health = timeout(hangs, lock.health()).await.expect("health hangs");
    assert_eq!(health.alive, 0);
    refused
}

/// R7 has no exception for a runtime that has ended.
async fn losses_are_reported(lost: &Lease, run: &Lease) {
    let work = timeout(5 * S, run.run(pending::<()>()));
    work.await.expect("the work is never stopped").unwrap_err();
    timeout(5 * S, lost.lost()).await.expect("no loss is reported");
}

fn after_the_runtime<C: Cluster>() {
    let masters = C::start(5);
    let first = runtime(1);
    let lock = first.block_on(built(masters.builder().ttl(2 * S)));
    let [lost, extended, released, dropped] = leases(&first, &lock);
    lost.keep_alive(60 * S);
    let second = runtime(1);
    let waiting = second.spawn(lock.acquire("r0").wait(S).into_future());
    drop(first);
    run(async move {
        let error = requests_end(&lock, &extended, released).await;
        let told = "not asked: the runtime that the lock was built in has ended";
        assert!(error.to_string().contains(told), "{error}");
        timeout(5 * S, waiting).await.expect("a waiter hangs").unwrap().unwrap_err();
        drop(dropped);
        let unfinished = lock.shutdown(100 * MS).await.unwrap_err();
        assert!(unfinished.pending_cleanups > 0 && unfinished.held > 0, "{unfinished}");
        losses_are_reported(&lost, &extended).await;
        drop((lost, extended));
        sleep(100 * MS).await;
        lock.shutdown(S).await.expect("the keys have expired");
        masters.cleaned().await;
    });
}

/// Like blocking code, which drives its runtime only during a call.
fn while_it_sleeps<C: Cluster>() {
    let masters = C::start(5);
    let first = Builder::new_current_thread().enable_all().build().unwrap();
    let lock = first.block_on(built(masters.brisk().ttl(S)));
    let [lost, extended, released] = leases(&first, &lock);
    let clone = lock.clone();
    run(async move {
        // No task reads the replies, so the acquire reports that no quorum replied.
        requests_end(&clone, &extended, released).await;
        losses_are_reported(&lost, &extended).await;
    });
    // The lock recovers as soon as its runtime runs again.
    first.block_on(async {
        assert!(lock.acquire("new").await.is_ok());
        masters.cleaned().await;
    });
}
