//! Shield: code that may be the caller's own, such as a connection, and whose panics end nothing
//! but itself.
//!
//! Such code runs in the driver of a master. Without its driver, the clean-ups for that master
//! would never complete, and it would never vote again.

use std::any::Any;
use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::node::{Connecting, Connection};
use crate::trace;

/// A value of the caller's, in a master's driver. Also a panic of its drop ends here, with a
/// warning.
pub(crate) struct Shield<T> {
    /// `None` only while it is dropped.
    inner: Option<T>,
    /// The name of the master.
    master: Arc<str>,
}

impl<T> Shield<T> {
    pub(crate) const fn new(master: Arc<str>, inner: T) -> Self {
        Self { inner: Some(inner), master }
    }

    fn poll<R>(&mut self, poll: impl FnOnce(&mut T) -> Poll<io::Result<R>>) -> Poll<io::Result<R>> {
        let Some(inner) = &mut self.inner else { return Poll::Pending };
        shielded(|| poll(inner)).unwrap_or_else(|why| Poll::Ready(Err(io::Error::other(why))))
    }
}

impl<T> Drop for Shield<T> {
    fn drop(&mut self) {
        let inner = self.inner.take();
        if let Err(why) = shielded(|| drop(inner)) {
            trace::node_panicked(&self.master, &why);
        }
    }
}

/// The result of code that may be the caller's own, or the text of its panic.
pub(crate) fn shielded<R>(act: impl FnOnce() -> R) -> Result<R, String> {
    catch_unwind(AssertUnwindSafe(act)).map_err(|panic| {
        let why = format!("the node panicked: {}", text(&*panic));
        // A value that panics when it is dropped cannot be dropped here either.
        std::mem::forget(panic);
        why
    })
}

fn text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no words")
}

impl Shield<Box<dyn Connection>> {
    pub(crate) fn abort(&mut self) {
        let master = self.master.clone();
        if let Some(inner) = &mut self.inner
            && let Err(why) = shielded(|| inner.abort())
        {
            trace::node_panicked(&master, &why);
        }
    }
}

impl Future for Shield<Connecting<'_>> {
    type Output = io::Result<Box<dyn Connection>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Self::poll(&mut self, |connecting| connecting.as_mut().poll(cx))
    }
}

impl AsyncRead for Shield<Box<dyn Connection>> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Self::poll(&mut self, |connection| Pin::new(connection).poll_read(cx, buffer))
    }
}

impl AsyncWrite for Shield<Box<dyn Connection>> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Self::poll(&mut self, |connection| Pin::new(connection).poll_write(cx, bytes))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Self::poll(&mut self, |connection| Pin::new(connection).poll_flush(cx))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Self::poll(&mut self, |connection| Pin::new(connection).poll_shutdown(cx))
    }
}
