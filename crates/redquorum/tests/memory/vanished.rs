//! Fair waiters whose machines vanish, without a word to the masters: their connections stay open,
//! and nobody reads from them. The resource is free, and others get it in time.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use redquorum::Redlock;
use redquorum::connect::{Connecting, Connection, Node};
use redquorum::memory::Masters;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, sleep};

use crate::support::*;

/// A machine, with its nodes and connections, and whether it has vanished.
#[derive(Clone, Default)]
pub(crate) struct Machine(Arc<AtomicBool>);

impl Machine {
    pub(crate) async fn lock(&self, masters: &Masters, count: usize) -> Redlock {
        let nodes = (1..=count).map(|number| On(masters.node(number), self.clone()));
        let builder = Redlock::builder().tokio_clock_for_tests().fair(true);
        builder.masters(nodes).build().await.unwrap()
    }

    pub(crate) fn vanish(&self) {
        self.0.store(true, Relaxed);
    }

    fn has_vanished(&self) -> bool {
        self.0.load(Relaxed)
    }

    /// Lets this many processes of it wait for the resource, one after the other.
    async fn wait(&self, masters: &Masters, count: usize, waiters: usize) {
        for _ in 0..waiters {
            let lock = self.lock(masters, count).await;
            tokio::spawn(async move { lock.acquire("r").wait(Duration::MAX).await.map(drop) });
            sleep(10 * MS).await;
        }
    }
}

struct On<T>(T, Machine);

impl<N: Node> Node for On<N> {
    fn name(&self) -> String {
        self.0.name()
    }

    fn connect(&self) -> Connecting<'_> {
        Box::pin(async {
            if self.1.has_vanished() {
                std::future::pending::<()>().await;
            }
            let inner = self.0.connect().await?;
            Ok(Box::new(On(inner, self.1.clone())) as Box<dyn Connection>)
        })
    }
}

impl Connection for On<Box<dyn Connection>> {
    fn abort(&mut self) {
        // The master never sees a reset.
        let inner = std::mem::replace(&mut self.0, Box::new(tokio::io::duplex(1).0));
        std::mem::forget(inner);
    }
}

impl AsyncRead for On<Box<dyn Connection>> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.1.has_vanished() {
            return Poll::Pending;
        }
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl AsyncWrite for On<Box<dyn Connection>> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.1.has_vanished() {
            return Poll::Ready(Ok(bytes.len()));
        }
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

/// One turn of a silent waiter, and the longest time until the next look.
const BOUND: Duration = Duration::from_millis(4_100);

#[tokio::test(start_paused = true)]
async fn vanished_waiters_cost_one_turn_whatever_their_number() {
    for (count, waiters) in [(1, 4), (3, 0), (3, 1), (3, 2), (3, 4), (3, 12), (5, 12), (7, 3)] {
        let (masters, machine) = (Masters::new(count), Machine::default());
        let fair = async || masters.builder().fair(true).build().await.unwrap();
        let held = fair().await.acquire("r").ttl(60 * S).await.unwrap();
        machine.wait(&masters, count, waiters).await;
        let live = fair().await;
        let waiter = tokio::spawn(async move {
            live.acquire("r").wait(60 * S).await.map(|_lease| Instant::now())
        });
        sleep(1_500 * MS).await;
        machine.vanish();
        let free = Instant::now();
        _ = held.release().await;
        let took = waiter.await.unwrap().unwrap() - free;
        let bound = if waiters == 0 { 100 * MS } else { BOUND };
        assert!(took <= bound, "{count} masters, {waiters} vanished: {took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn waiters_between_vanished_ones_keep_their_order() {
    let (masters, machine) = (Masters::new(5), Machine::default());
    let fair = async || masters.builder().fair(true).build().await.unwrap();
    let held = fair().await.acquire("r").ttl(60 * S).await.unwrap();
    let mut waiting = Vec::new();
    for _ in 0..6 {
        machine.wait(&masters, 5, 2).await;
        let live = fair().await;
        waiting.push(tokio::spawn(async move {
            let lease = live.acquire("r").wait(60 * S).await.unwrap();
            let at = Instant::now();
            _ = lease.release().await;
            at
        }));
        sleep(10 * MS).await;
    }
    sleep(3 * S).await;
    machine.vanish();
    let free = Instant::now();
    _ = held.release().await;
    let mut granted = Vec::new();
    for waiter in waiting {
        granted.push(waiter.await.unwrap() - free);
    }
    assert!(granted.is_sorted(), "{granted:?}");
    assert!(granted.iter().all(|took| *took <= BOUND + S), "{granted:?}");
}

#[tokio::test(start_paused = true)]
async fn vanished_waiters_cost_a_newcomer_one_turn_at_most() {
    for since in [Duration::ZERO, S, 4 * S, 9 * S, 16 * S] {
        let (masters, machine) = (Masters::new(5), Machine::default());
        let fair = async || masters.builder().fair(true).build().await.unwrap();
        let held = fair().await.acquire("r").ttl(60 * S).await.unwrap();
        machine.wait(&masters, 5, 8).await;
        machine.vanish();
        _ = held.release().await;
        sleep(since).await;
        let came = Instant::now();
        let lock = fair().await;
        _ = lock.acquire("r").wait(60 * S).await.unwrap();
        assert!(came.elapsed() <= BOUND, "{since:?}: {:?}", came.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn where_the_holder_vanishes_too_a_look_begins_the_turn() {
    let (masters, machine) = (Masters::new(5), Machine::default());
    let lock = machine.lock(&masters, 5).await;
    let _held = lock.acquire("r").ttl(3 * S).await.unwrap();
    let expires = Instant::now() + 3 * S;
    machine.wait(&masters, 5, 8).await;
    let live = masters.builder().fair(true).build().await.unwrap();
    let waiter =
        tokio::spawn(
            async move { live.acquire("r").wait(60 * S).await.map(|_lease| Instant::now()) },
        );
    sleep(S).await;
    machine.vanish();
    let took = waiter.await.unwrap().unwrap() - expires;
    assert!(took <= BOUND + 1_250 * MS, "{took:?}");
}
