//! Helpers that the files of this test share.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use redquorum::memory::Masters;
use redquorum::{Lease, Redlock};

pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const S: Duration = Duration::from_secs(1);
pub(crate) const TTL: Duration = Duration::from_secs(10);
/// The validity of the default TTL after the default drift.
pub(crate) const VALIDITY: Duration = Duration::from_millis(10_000 - 102);
pub(crate) const NODE_TIMEOUT: Duration = Duration::from_millis(100);

pub(crate) async fn bed(count: usize) -> (Masters, Redlock) {
    let masters = Masters::new(count);
    let lock = masters.builder().build().await.unwrap();
    (masters, lock)
}

/// The numbers of the masters that have this key.
pub(crate) fn holding(masters: &Masters, count: usize, key: &str) -> Vec<usize> {
    (1..=count).filter(|number| masters.value(*number, key).is_some()).collect()
}

/// The number of keys on all masters together.
pub(crate) fn keys(masters: &Masters, count: usize) -> usize {
    (1..=count).map(|number| masters.keys(number).len()).sum()
}

/// Lets all other tasks run until they wait, in no virtual time.
pub(crate) async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

pub(crate) async fn poll_once<F: Future>(mut future: Pin<&mut F>) -> Poll<F::Output> {
    poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await
}

/// The number of replies so far, of all masters together.
pub(crate) fn answers(lock: &Redlock) -> u64 {
    lock.stats().masters.iter().map(|master| master.latency.count).sum()
}

/// Acquires a resource that must be free.
pub(crate) async fn take(lock: &Redlock, resource: &str) -> Lease {
    let taken = lock.try_acquire(resource).await;
    taken.unwrap_or_else(|error| panic!("{error}")).unwrap_or_else(|| panic!("{resource} is taken"))
}
