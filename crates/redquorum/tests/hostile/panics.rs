//! A connection of the caller that panics, or that uses the lock while it is dropped, breaks
//! nothing but itself.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use redquorum::memory::Masters;
use redquorum::{
    Redlock,
    connect::{Connecting, Connection, Node},
    stats::LinkState,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::sleep;

use crate::scripted::{Say, Scripted};

/// A node whose connections panic once, on request.
struct Panicky {
    master: Scripted,
    lock: Arc<OnceLock<Redlock>>,
    on_read: Arc<AtomicBool>,
    on_write: Arc<AtomicBool>,
}

struct Fragile {
    inner: Box<dyn Connection>,
    lock: Arc<OnceLock<Redlock>>,
    on_read: Arc<AtomicBool>,
    on_write: Arc<AtomicBool>,
}

impl Node for Panicky {
    fn name(&self) -> String {
        self.master.name()
    }

    fn connect(&self) -> Connecting<'_> {
        Box::pin(async {
            let inner = self.master.connect().await?;
            let (on_read, on_write) = (self.on_read.clone(), self.on_write.clone());
            let lock = self.lock.clone();
            Ok(Box::new(Fragile { inner, lock, on_read, on_write }) as Box<dyn Connection>)
        })
    }
}

impl Connection for Fragile {}

impl Drop for Fragile {
    fn drop(&mut self) {
        // A connection may report the lock's figures when it ends.
        if let Some(lock) = self.lock.get() {
            lock.stats();
        }
    }
}

impl AsyncRead for Fragile {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        assert!(!self.on_read.swap(false, Relaxed), "planted in poll_read");
        Pin::new(&mut self.inner).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Fragile {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        assert!(!self.on_write.swap(false, Relaxed), "planted in poll_write");
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_panics_is_replaced_and_what_is_owed_there_is_paid() {
    let (on_read, on_write) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let master = Scripted::new("panicky", |_| Say::Well);
    let used = Arc::new(OnceLock::new());
    let (lock, on) = (used.clone(), (on_read.clone(), on_write.clone()));
    let node = Panicky { master, lock, on_read: on.0, on_write: on.1 };
    let masters = Masters::new(2);
    let lock = masters.builder().master(node).build().await.unwrap();
    used.set(lock.clone()).unwrap();
    for panicked in [&on_read, &on_write] {
        let lease = lock.acquire("r").await.unwrap();
        sleep(Duration::from_millis(1)).await;
        panicked.store(true, Relaxed);
        drop(lease);
        sleep(Duration::from_secs(3)).await;
        assert!(!panicked.load(Relaxed), "it never panicked");
        let stats = lock.stats().masters[2].clone();
        assert_eq!((stats.state, stats.owed), (LinkState::Up, 0));
    }
    assert_eq!(lock.stats().masters[2].connected, 3);
}
