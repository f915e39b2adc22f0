//! The end of a lock and of its runtime. A shutdown completes all clean-ups. Without a shutdown no
//! key stays for longer than its TTL, and nothing hangs.

use std::time::Duration;

use redquorum::{AcquireError, ExtendError, Outcome};
use redquorum_rig::trials::{Case, with_masters};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{sleep, timeout};

use crate::support::*;

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = cases![
        shutdown_pays_a_master_that_was_stopped_meanwhile,
        shutdown_says_what_it_could_not_pay,
        shutdown_waits_for_living_leases,
        after_a_shutdown_nothing_is_acquired_or_extended,
        a_waiter_is_told_of_the_shutdown,
    ];
    // These tests have runtimes of their own.
    cases.extend([
        with_masters(
            "a_runtime_that_ends_leaves_keys_for_one_ttl_at_most",
            a_runtime_that_ends_leaves_keys_for_one_ttl_at_most,
        ),
        with_masters(
            "nothing_hangs_or_panics_in_another_runtime_after_the_own_one_ended",
            nothing_hangs_or_panics_in_another_runtime_after_the_own_one_ended,
        ),
        with_masters(
            "nothing_hangs_in_another_runtime_while_the_own_one_sleeps",
            nothing_hangs_in_another_runtime_while_the_own_one_sleeps,
        ),
    ]);
    cases
}

async fn shutdown_pays_a_master_that_was_stopped_meanwhile() {
    let masters = own(5);
    let lock = built(brisk(&masters)).await;
    let released = lock.acquire("r0").await.unwrap();
    let dropped = lock.acquire("r1").await.unwrap();
    masters.pause(2).unwrap();
    for round in 2..20 {
        drop(lock.acquire(format!("r{round}")).await.unwrap());
    }
    released.release().await;
    drop(dropped);
    let ending = {
        let lock = lock.clone();
        tokio::spawn(async move { lock.shutdown(10 * CALM).await })
    };
    sleep(300 * MS).await;
    assert!(!ending.is_finished(), "it has left a debt behind");
    masters.resume(2).unwrap();
    ending.await.unwrap().unwrap();
    // Immediately after the shutdown, not some time later.
    assert_eq!(keys(&masters, "r*"), []);
    assert!(calls(&masters, 2, "set") >= 2, "it had something to clean");
    cleaned(&masters, "r*").await;
}

async fn shutdown_says_what_it_could_not_pay() {
    let masters = own(3);
    let lock = built(brisk(&masters)).await;
    masters.pause(3).unwrap();
    drop(lock.acquire("r").await.unwrap());
    let (took, result) = timed(lock.shutdown(200 * MS)).await;
    let unfinished = result.unwrap_err();
    assert_eq!((unfinished.owed, unfinished.held), (1, 0), "{unfinished}");
    assert!(took >= 200 * MS && took < 200 * MS + AT_ONCE, "{took:?}");
    masters.resume(3).unwrap();
    lock.shutdown(5 * CALM).await.unwrap();
    assert_eq!(keys(&masters, "r"), []);
}

async fn shutdown_waits_for_living_leases() {
    let masters = shared();
    let lock = built(calm(masters)).await;
    let r = unique("living");
    let lease = lock.acquire(&r).await.unwrap();
    let unfinished = lock.shutdown(100 * MS).await.unwrap_err();
    assert!(unfinished.held >= 3 && unfinished.owed == 0, "{unfinished}");
    let ending = tokio::spawn(async move { lock.shutdown(10 * CALM).await });
    sleep(50 * MS).await;
    assert!(!ending.is_finished());
    assert_eq!(lease.release().await.outcome, Outcome::Released);
    ending.await.unwrap().unwrap();
    assert_eq!(keys(masters, &r), []);
}

async fn after_a_shutdown_nothing_is_acquired_or_extended() {
    let masters = shared();
    let lock = built(calm(masters)).await;
    let r = unique("after");
    let lease = lock.acquire(&r).await.unwrap();
    let clone = lock.clone();
    lock.shutdown(MS).await.unwrap_err();
    assert!(matches!(clone.acquire("other").await, Err(AcquireError::ShutDown)));
    assert!(matches!(clone.try_acquire("other").await, Err(AcquireError::ShutDown)));
    let (took, result) = timed(lease.extend()).await;
    assert_eq!(result, Err(ExtendError::ShutDown));
    assert!(took < AT_ONCE, "{took:?}");
    assert_eq!(lease.release().await.outcome, Outcome::Released);
    lock.shutdown(CALM).await.unwrap();
    lock.shutdown(Duration::ZERO).await.unwrap();
}

async fn a_waiter_is_told_of_the_shutdown() {
    let masters = shared();
    let lock = built(calm(masters)).await;
    let r = unique("waiter");
    let lease = lock.acquire(&r).await.unwrap();
    let waiting = {
        let (lock, r) = (lock.clone(), r.clone());
        tokio::spawn(async move { lock.acquire(&r).wait(60 * CALM).await.map(drop) })
    };
    sleep(50 * MS).await;
    lock.shutdown(MS).await.unwrap_err();
    let error = timeout(CALM, waiting).await.unwrap().unwrap().unwrap_err();
    assert!(matches!(error, AcquireError::ShutDown), "{error}");
    drop(lease);
    cleaned(masters, &r).await;
}

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

const TTL: Duration = Duration::from_millis(700);

fn a_runtime_that_ends_leaves_keys_for_one_ttl_at_most() {
    let masters = shared();
    let prefix = unique("ends");
    let pattern = format!("{prefix}-*");
    let first = runtime();
    first.block_on(async {
        let lock = built(brisk(masters).ttl(TTL)).await;
        for task in 0..20 {
            let (lock, prefix) = (lock.clone(), prefix.clone());
            tokio::spawn(async move {
                loop {
                    let lease = lock.acquire(format!("{prefix}-{task}")).await.unwrap();
                    lease.keep_alive(60 * CALM);
                    sleep(task * MS).await;
                }
            });
        }
        eventually("they are at work", || !keys(masters, &pattern).is_empty()).await;
        sleep(50 * MS).await;
    });
    drop(first);
    run(async move {
        sleep(TTL).await;
        assert_eq!(keys(masters, &pattern), []);
        cleaned(masters, &pattern).await;
    });
}

fn nothing_hangs_or_panics_in_another_runtime_after_the_own_one_ended() {
    let masters = shared();
    let prefix = unique("other");
    let name = |what: &str| format!("{prefix}-{what}");
    let pattern = name("*");
    let first = runtime();
    let lock = first.block_on(built(calm(masters).ttl(2 * CALM)));
    let [lost, run_, extended, released, dropped] =
        ["lost", "run", "extended", "released", "dropped"]
            .map(|what| first.block_on(async { lock.acquire(name(what)).await }).unwrap());
    lost.keep_alive(60 * CALM);
    let second = runtime();
    let waiting = {
        let (lock, r) = (lock.clone(), name("lost"));
        second.spawn(async move { lock.acquire(r).wait(CALM).await.map(drop) })
    };
    drop(first);
    let new = name("new");
    run(async move {
        let hangs = 5 * CALM;
        let (took, error) = timed(lock.try_acquire(new)).await;
        let error = error.unwrap_err();
        assert!(matches!(error, AcquireError::NoQuorum { .. }), "{error}");
        assert!(error.to_string().contains("shut down"), "{error}");
        assert!(took < AT_ONCE, "{took:?}");
        timeout(hangs, waiting).await.expect("a waiter hangs").unwrap().unwrap_err();
        let health = timeout(hangs, lock.health()).await.expect("health hangs");
        assert_eq!(health.alive, 0);
        let error = timeout(hangs, extended.extend()).await.expect("extend hangs").unwrap_err();
        assert!(matches!(error, ExtendError::NoQuorum(_)), "{error}");
        let released = timeout(hangs, released.release()).await.expect("release hangs");
        assert_eq!(released.outcome, Outcome::Unknown, "{}", released.report);
        drop(dropped);
        let unfinished = lock.shutdown(100 * MS).await.unwrap_err();
        assert!(unfinished.owed > 0 && unfinished.held > 0, "{unfinished}");
        // R7 has no exception for a runtime that has ended.
        let work = run_.run(std::future::pending::<()>());
        timeout(hangs, work).await.expect("the work is never stopped").unwrap_err();
        timeout(hangs, lost.lost()).await.expect("the loss is never told");
        drop((lost, run_, extended));
        sleep(100 * MS).await;
        lock.shutdown(CALM).await.expect("what is owed has expired");
        cleaned(masters, &pattern).await;
    });
}

/// Like blocking code, which drives its runtime only during a call.
fn nothing_hangs_in_another_runtime_while_the_own_one_sleeps() {
    let masters = shared();
    let prefix = unique("sleeps");
    let name = |what: &str| format!("{prefix}-{what}");
    let first = Builder::new_current_thread().enable_all().build().unwrap();
    let lock = first.block_on(built(brisk(masters).ttl(CALM)));
    let [lost, extended, released] = ["lost", "extended", "released"]
        .map(|what| first.block_on(async { lock.acquire(name(what)).await }).unwrap());
    let new = name("new");
    let (hangs, clone) = (5 * CALM, lock.clone());
    run(async move {
        // No task reads the replies, so the acquire reports that no quorum replied.
        let (took, error) = timed(clone.try_acquire(new)).await;
        let error = error.unwrap_err();
        assert!(matches!(error, AcquireError::NoQuorum { .. }), "{error}");
        assert!(took < 100 * MS + AT_ONCE, "{took:?}");
        let (took, result) = timed(timeout(hangs, extended.extend())).await;
        let error = result.expect("extend hangs").unwrap_err();
        assert!(matches!(error, ExtendError::NoQuorum(_)), "{error}");
        assert!(took < 100 * MS + AT_ONCE, "{took:?}");
        let released = timeout(hangs, released.release()).await.expect("release hangs");
        assert_eq!(released.outcome, Outcome::Unknown, "{}", released.report);
        timeout(hangs, lost.lost()).await.expect("the loss is never told");
        assert_eq!(clone.health().await.alive, 0);
    });
    // The lock recovers as soon as its runtime runs again.
    first.block_on(async {
        assert!(lock.acquire(name("new")).await.is_ok());
        cleaned(masters, &format!("{prefix}-*")).await;
    });
}
