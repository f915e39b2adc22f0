//! Helpers that the files of this test share.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use redquorum::connect::{Connecting, Connection, Node};
use redquorum::memory::Masters;
use redquorum::{Builder, Lease, Redlock};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

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

/// As many processes as asked for, on one set of masters.
pub(crate) async fn processes(
    count: usize,
    with: impl Fn(Builder) -> Builder,
) -> (Masters, Vec<Redlock>) {
    let masters = Masters::new(5);
    let mut locks = Vec::new();
    for _ in 0..count {
        locks.push(with(masters.builder()).build().await.unwrap());
    }
    (masters, locks)
}

pub(crate) fn holding(masters: &Masters, count: usize, key: &str) -> Vec<usize> {
    (1..=count).filter(|number| masters.value(*number, key).is_some()).collect()
}

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

pub(crate) fn replies(lock: &Redlock) -> u64 {
    lock.stats().masters.iter().map(|master| master.latency.count).sum()
}

pub(crate) async fn take(lock: &Redlock, resource: &str) -> Lease {
    let taken = lock.try_acquire(resource).await;
    taken.unwrap_or_else(|error| panic!("{error}")).unwrap_or_else(|| panic!("{resource} is taken"))
}

/// Looks at the connections of a node.
pub(crate) trait Tap: Clone + Unpin + Send + Sync + 'static {
    fn dial(&self) {}

    fn write(&self) {}

    fn abort(&self) {}

    /// Before a flush, which waits until this is ready.
    fn flush(&self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }

    /// After a read. Returns its result, or another one.
    fn read(&self, result: Poll<io::Result<()>>) -> Poll<io::Result<()>> {
        result
    }
}

/// A node or a connection with a tap.
pub(crate) struct Tapped<N, T>(pub(crate) N, pub(crate) T);

impl<N: Node, T: Tap> Node for Tapped<N, T> {
    fn name(&self) -> String {
        self.0.name()
    }

    fn connect(&self) -> Connecting<'_> {
        Box::pin(async {
            self.1.dial();
            let inner = self.0.connect().await?;
            Ok(Box::new(Tapped(inner, self.1.clone())) as Box<dyn Connection>)
        })
    }
}

impl<C: AsyncRead + AsyncWrite + Send + Unpin, T: Tap> Connection for Tapped<C, T> {
    fn abort(&mut self) {
        self.1.abort();
    }
}

impl<C: AsyncRead + Unpin, T: Tap> AsyncRead for Tapped<C, T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.0).poll_read(cx, buffer);
        self.1.read(result)
    }
}

impl<C: AsyncWrite + Unpin, T: Tap> AsyncWrite for Tapped<C, T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.1.write();
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.1.flush(cx));
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
