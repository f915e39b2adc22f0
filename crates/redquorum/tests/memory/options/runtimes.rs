//! Without a runtime, in a runtime without all drivers, and after the end of a runtime.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use redquorum::memory::Masters;
use redquorum::{BuildError, Outcome, Redlock};
use tokio::runtime::{Builder, Runtime};

use crate::support::MS;

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// A lock whose node timeout and TTL are short enough for a test in real time.
async fn quick_lock() -> Redlock {
    let builder = Masters::new(3).builder().node_timeout(20 * MS).ttl(300 * MS);
    builder.build().await.unwrap()
}

#[test]
fn without_a_runtime_nothing_is_built() {
    let build = pin!(Redlock::builder().master("redis://db1").build());
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
    let built = runtime.block_on(Redlock::builder().master("redis://127.0.0.1:1").build());
    assert_eq!(built.unwrap_err(), BuildError::NoRuntime);
}

#[test]
fn a_runtime_without_sockets_is_named_as_the_cause_and_is_enough_for_other_nodes() {
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let lock = Redlock::builder().master("redis://127.0.0.1:1").build().await.unwrap();
        let error = lock.try_acquire("r").await.unwrap_err().to_string();
        assert!(error.contains("IO is disabled"), "{error}");
        let lease = quick_lock().await.acquire("r").await.unwrap();
        assert_eq!(lease.release().await.outcome, Outcome::Released);
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
