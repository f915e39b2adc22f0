//! Every reply belongs to its command, even when other connections open and close, and no byte is
//! left over.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use redquorum::memory::Masters;
use redquorum::{
    AcquireError, Outcome, Redlock,
    connect::{Connecting, Connection, Node},
    report::{Holder, MasterOutcome},
    stats::LinkState,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::scripted::{Say, Scripted};

const MS: Duration = Duration::from_millis(1);

#[tokio::test(start_paused = true)]
async fn giving_up_a_second_connection_loses_no_command_of_the_first() {
    let masters = Masters::new(5);
    let lock = masters.builder().build().await.unwrap();
    masters.stop(5);
    let first = lock.acquire("first").await.unwrap();
    let second = lock.acquire("second").await.unwrap();
    // The link is stalled now, and a second connection waits for its handshake.
    sleep(350 * MS).await;
    assert_eq!(lock.stats().masters[4].state, LinkState::Stalled);
    masters.resume(5);
    // The clean-up is queued in the instant in which the replies to the two SETs arrive.
    drop(first);
    sleep(MS).await;
    let stats = lock.stats().masters[4].clone();
    assert_eq!((stats.state, stats.connected), (LinkState::Up, 1));
    assert_eq!((stats.owed, stats.unanswered), (0, 0), "a command was lost");
    assert_eq!(masters.value(5, "first"), None);
    assert!(masters.value(5, "second").is_some());
    // Later replies are not assigned to earlier commands.
    second.extend().await.unwrap();
    second.release().await;
    let (connected, owed) = (lock.stats().masters[4].connected, lock.stats().masters[4].owed);
    assert_eq!((connected, owed), (1, 0));
}

/// A node that records when it is dialled.
struct Noting<N>(N, Arc<Mutex<Vec<Instant>>>);

impl<N: Node> Node for Noting<N> {
    fn name(&self) -> String {
        self.0.name()
    }

    fn connect(&self) -> Connecting<'_> {
        self.1.lock().unwrap().push(Instant::now());
        self.0.connect()
    }
}

#[tokio::test(start_paused = true)]
async fn clients_of_a_master_that_stalls_do_not_dial_in_step() {
    let (masters, dialled) = (Masters::new(1), Arc::new(Mutex::new(Vec::new())));
    let mut locks = Vec::new();
    for _ in 0..20 {
        let node = Noting(masters.node(1), dialled.clone());
        locks.push(Redlock::builder().tokio_clock_for_tests().master(node).build().await.unwrap());
    }
    masters.stop(1);
    dialled.lock().unwrap().clear();
    let stopped = Instant::now();
    let mut tasks = JoinSet::new();
    for lock in locks.clone() {
        tasks.spawn(async move { lock.try_acquire("r").await.is_err() });
    }
    assert!(tasks.join_all().await.into_iter().all(|refused| refused));
    sleep(400 * MS).await;
    let after: Vec<Duration> =
        dialled.lock().unwrap().iter().map(|at| at.duration_since(stopped)).collect();
    assert_eq!(after.len(), 20, "each one connection beside its stalled one");
    // Each client dials at a random moment within a tenth of the connect timeout. All of them fall
    // within a fifth of that tenth once in 10^13 runs.
    let (first, last) = (after.iter().min().unwrap(), after.iter().max().unwrap());
    assert!(*last - *first > 20 * MS, "{after:?}");
}

/// A node whose connections send nothing before a flush, and whose flushes take a millisecond.
struct Holding(Scripted);

impl Node for Holding {
    fn name(&self) -> String {
        self.0.name()
    }

    fn connect(&self) -> Connecting<'_> {
        Box::pin(async {
            let inner = self.0.connect().await?;
            Ok(Box::new(Held { inner, held: Vec::new(), asked: false }) as Box<dyn Connection>)
        })
    }
}

struct Held {
    inner: Box<dyn Connection>,
    held: Vec<u8>,
    asked: bool,
}

impl AsyncWrite for Held {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.held.extend(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { inner, held, asked } = self.get_mut();
        if !*asked && !held.is_empty() {
            *asked = true;
            let waker = cx.waker().clone();
            tokio::spawn(async move {
                sleep(MS).await;
                waker.wake();
            });
            return Poll::Pending;
        }
        while !held.is_empty() {
            let count = ready!(Pin::new(&mut *inner).poll_write(cx, held))?;
            held.drain(..count);
        }
        *asked = false;
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Held {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buffer)
    }
}

impl Connection for Held {}

/// A node whose connections break after the handshake, with an error without text.
struct Wordless(Scripted);

impl Node for Wordless {
    fn name(&self) -> String {
        self.0.name()
    }

    fn connect(&self) -> Connecting<'_> {
        Box::pin(async {
            let inner = self.0.connect().await?;
            Ok(Box::new(Breaking { inner, reads: 0 }) as Box<dyn Connection>)
        })
    }
}

struct Breaking {
    inner: Box<dyn Connection>,
    reads: usize,
}

impl AsyncRead for Breaking {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        match Pin::new(&mut self.inner).poll_read(cx, buffer) {
            Poll::Ready(Ok(())) if buffer.filled().len() > before => Poll::Ready(Ok(())),
            // The handshake is done and the link reads on.
            Poll::Pending if self.reads >= 2 => {
                self.reads += 1;
                assert!(self.reads < 1_000, "it is read again and again");
                Poll::Ready(Err(io::Error::other("")))
            }
            other => {
                self.reads += 1;
                other
            }
        }
    }
}

impl AsyncWrite for Breaking {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Connection for Breaking {}

#[tokio::test(start_paused = true)]
async fn an_error_without_words_is_an_error() {
    let scripted = Scripted::new("wordless", |_| Say::Well);
    let seen = scripted.seen();
    let lock = Masters::new(4).builder().master(Wordless(scripted)).build().await.unwrap();
    for _ in 0..5 {
        let lease = lock.acquire("r").await.unwrap();
        assert_eq!(lease.release().await.outcome, Outcome::Released);
        sleep(1_000 * MS).await;
    }
    assert!(lock.health().await.has_quorum());
    assert!((2..=20).contains(&seen.connects()), "{}", seen.connects());
}

#[tokio::test(start_paused = true)]
async fn what_a_connection_holds_back_is_flushed_in_time() {
    let mut builder = Redlock::builder().tokio_clock_for_tests();
    for number in 1..=3 {
        builder = builder.master(Holding(Scripted::new(&format!("held-{number}"), |_| Say::Well)));
    }
    let lock = builder.build().await.unwrap();
    for _ in 0..20 {
        let start = Instant::now();
        let lease = lock.acquire("r").await.unwrap();
        lease.extend().await.unwrap();
        assert_eq!(lease.release().await.outcome, Outcome::Released);
        assert!(start.elapsed() <= 12 * MS, "{:?}", start.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_master_that_speaks_unasked_is_left_alone_for_a_while() {
    let [.., last] = redquorum_protocol::wire::SCRIPTS;
    let last_script = last.source.as_bytes();
    let bad = Scripted::new("bad", move |args| match args {
        Some([b"SCRIPT", b"LOAD", source]) if *source == last_script => {
            Say::Later(50 * MS, b"+OK\r\n".to_vec())
        }
        _ => Say::Well,
    });
    let seen = bad.seen();
    let lock = Masters::new(4).builder().master(bad).build().await.unwrap();
    assert_eq!(lock.stats().masters[4].state, LinkState::Up);
    sleep(60 * MS).await;
    let down = LinkState::Down("an answer to no command".into());
    assert_eq!(lock.stats().masters[4].state, down);
    sleep(10_000 * MS).await;
    assert!((8..=11).contains(&seen.connects()), "{}", seen.connects());
}

#[tokio::test(start_paused = true)]
async fn masters_that_forget_their_scripts_are_told_them_again_and_nothing_stays() {
    // For each master: whether its scripts are loaded.
    let known: Vec<_> = (0..3).map(|_| Arc::new(AtomicBool::new(true))).collect();
    let mut builder = Redlock::builder().tokio_clock_for_tests();
    for (number, known) in known.iter().cloned().enumerate() {
        builder = builder.master(Scripted::new(&format!("flushed-{number}"), move |args| {
            match args {
                Some([b"SCRIPT", ..]) => known.store(true, Relaxed),
                Some([b"EVALSHA", ..]) if !known.load(Relaxed) => {
                    return Say::line("-NOSCRIPT No matching script. Please use EVAL.");
                }
                _ => {}
            }
            Say::Well
        }));
    }
    let lock = builder.build().await.unwrap();
    for _ in 0..3 {
        let lease = lock.acquire("r").await.unwrap();
        known.iter().for_each(|known| known.store(false, Relaxed));
        // An attempt that met NOSCRIPT is never sent again (R5), and changes nothing.
        let error = lease.extend().await.unwrap_err().to_string();
        assert!(error.contains("scripts were flushed and are being loaded again"), "{error}");
        sleep(MS).await;
        lease.extend().await.unwrap();
        known.iter().for_each(|known| known.store(false, Relaxed));
        let released = lease.release().await;
        assert_eq!(released.outcome, Outcome::Unknown, "{}", released.report);
        // The clean-up stays pending until the scripts are loaded again.
        sleep(MS).await;
        assert!(lock.stats().masters.iter().all(|master| master.owed == 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_of_another_type_is_said_to_be_one() {
    let mut builder = Redlock::builder().tokio_clock_for_tests();
    for number in 1..=3 {
        builder = builder.master(Scripted::new(&format!("list-{number}"), |args| match args {
            Some([b"SET", ..]) => Say::line("$-1"),
            Some([b"EVALSHA", ..]) => Say::line("-WRONGTYPE Operation against a key"),
            _ => Say::Well,
        }));
    }
    let lock = builder.build().await.unwrap();
    let error = lock.acquire("r").wait(Duration::ZERO).await.unwrap_err();
    let AcquireError::Taken { report, .. } = &error else { panic!("{error}") };
    assert_eq!(report.masters()[2].outcome, Some(MasterOutcome::Taken(Holder::WrongType)));
    assert!(error.to_string().contains("the key is of another type, not a lock"), "{error}");
    assert!(lock.stats().masters.iter().all(|master| master.owed == 0), "nothing of ours is there");
}
