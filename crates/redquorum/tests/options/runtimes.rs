//! Without a runtime, in a runtime without all drivers, and after the end of a runtime.

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use redquorum::memory::Masters;
use redquorum::{AcquireError, BuildError, Lease, Outcome, Redlock};
use tokio::runtime::{Builder, Runtime};
use tokio::time::Instant;

const MS: Duration = Duration::from_millis(1);

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// A lock whose node timeout and TTL are short enough for a test in real time.
async fn quick_lock() -> Redlock {
    let builder = Masters::new(3).builder().node_timeout(20 * MS).ttl(300 * MS);
    builder.build().await.unwrap()
}

/// A lock and its lease whose runtime has ended.
fn orphans() -> (Redlock, Lease) {
    runtime().block_on(async {
        let lock = quick_lock().await;
        let lease = lock.acquire("r").await.unwrap();
        (lock, lease)
    })
}

#[test]
fn without_a_runtime_nothing_is_built() {
    let build = pin!(Redlock::builder().url("redis://db1").build());
    match build.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Err(error)) => {
            assert_eq!(error, BuildError::NoRuntime);
            assert!(error.to_string().contains("no Tokio runtime with timers"), "{error}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_runtime_without_timers_is_none() {
    let runtime = Builder::new_current_thread().enable_io().build().unwrap();
    let built = runtime.block_on(Redlock::builder().url("redis://127.0.0.1:1").build());
    assert_eq!(built.unwrap_err(), BuildError::NoRuntime);
}

#[test]
fn a_runtime_without_sockets_is_named_as_the_cause_and_is_enough_for_other_nodes() {
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let lock = Redlock::builder().url("redis://127.0.0.1:1").build().await.unwrap();
        let error = lock.try_acquire("r").await.unwrap_err().to_string();
        assert!(error.contains("IO is disabled"), "{error}");
        let lease = quick_lock().await.acquire("r").await.unwrap();
        assert_eq!(lease.release().await.outcome, Outcome::Released);
    });
}

#[test]
fn after_its_runtime_a_lock_answers_in_time_and_acquires_nothing() {
    let (lock, lease) = orphans();
    let start = Instant::now();
    runtime().block_on(async {
        for _ in 0..2 {
            let error = lock.acquire("other").await.unwrap_err();
            assert!(!matches!(error, AcquireError::Taken { .. }), "{error}");
            assert!(lock.try_acquire("other").await.is_err());
        }
        assert_eq!(lock.health().await.alive, 0);
        assert!(lease.extend().await.is_err());
        assert!(lock.shutdown(10 * MS).await.is_err(), "the key of the lease is still there");
        assert_eq!(lease.release().await.outcome, Outcome::Unknown);
    });
    assert!(start.elapsed() < 200 * MS, "{:?}", start.elapsed());
    drop(lock);
}

#[test]
fn after_its_runtime_a_lease_is_still_lost_at_its_deadline() {
    let (_lock, lease) = orphans();
    assert!(lease.is_lost().is_none(), "{lease:?}");
    let deadline = lease.deadline();
    runtime().block_on(async {
        let waited = tokio::time::timeout(Duration::from_secs(2), lease.lost()).await;
        assert!(waited.is_ok(), "not told that it is lost");
        assert!(deadline.has_passed());
        assert_eq!(lease.validity(), Duration::ZERO);
    });
}

#[test]
fn a_runtime_that_nobody_drives_delays_no_loss_and_no_answer() {
    // Like a program that uses the lock by `block_on` now and then.
    let (first, second) = (runtime(), runtime());
    let lock = first.block_on(quick_lock());
    let lease = first.block_on(lock.acquire("r").into_future()).unwrap();
    let start = Instant::now();
    second.block_on(async {
        let waiting = lock.acquire("other").wait(50 * MS).await;
        assert!(matches!(waiting, Err(AcquireError::NoQuorum { .. })), "{waiting:?}");
        assert!(start.elapsed() < 150 * MS, "{:?}", start.elapsed());
        let waited = tokio::time::timeout(Duration::from_secs(2), lease.lost()).await;
        assert!(waited.is_ok(), "not told that it is lost");
    });
}

#[test]
fn everything_can_be_dropped_outside_a_runtime() {
    let first = runtime();
    let lock = first.block_on(quick_lock());
    let lease = first.block_on(lock.acquire("r").into_future()).unwrap();
    let mut acquiring = Box::pin(lock.acquire("s").into_future());
    first.block_on(async {
        std::future::poll_fn(|cx| {
            assert!(acquiring.as_mut().poll(cx).is_pending());
            Poll::Ready(())
        })
        .await;
    });
    drop(acquiring);
    drop(lease);
    assert_eq!(lock.stats().lost, 0);
    drop(lock);
    // Pending clean-ups would complete when the runtime runs again; here it ends instead.
    drop(first);
}
