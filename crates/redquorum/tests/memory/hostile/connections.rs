//! Connections: every reply belongs to its command, even when other connections open and close, no
//! byte is left over, code of the caller that panics breaks nothing but its connection, and what
//! piles up for a silent master has a bound.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use redquorum::memory::Masters;
use redquorum::{
    Outcome, Redlock,
    connect::{Connecting, Connection, Node},
    report::{Cause, MasterOutcome},
    stats::LinkState,
};
use redquorum_protocol::Bounds;
use tokio::io::BufWriter;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::scripted::{Args, Reaction, Scripted, is_greeting};
use crate::support::{MS, S, Tap, Tapped};

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
    assert_eq!((stats.pending_cleanups, stats.unanswered), (0, 0), "a command was lost");
    assert_eq!(masters.value(5, "first"), None);
    assert!(masters.value(5, "second").is_some());
    // Later replies are not assigned to earlier commands.
    second.extend().await.unwrap();
    let _ = second.release().await;
    let (connected, pending) =
        (lock.stats().masters[4].connected, lock.stats().masters[4].pending_cleanups);
    assert_eq!((connected, pending), (1, 0));
}

#[derive(Clone, Default)]
struct Dialled(Arc<Mutex<Vec<Instant>>>);

impl Tap for Dialled {
    fn dial(&self) {
        self.0.lock().unwrap().push(Instant::now());
    }
}

#[tokio::test(start_paused = true)]
async fn clients_of_a_master_that_stalls_do_not_dial_in_step() {
    let (masters, dialled) = (Masters::new(1), Dialled::default());
    let mut locks = Vec::new();
    for _ in 0..20 {
        let node = Tapped(masters.node(1), dialled.clone());
        locks.push(Redlock::builder().tokio_clock_for_tests().master(node).build().await.unwrap());
    }
    masters.stop(1);
    dialled.0.lock().unwrap().clear();
    let stopped = Instant::now();
    let mut tasks = JoinSet::new();
    for lock in locks.clone() {
        tasks.spawn(async move { lock.try_acquire("r").await.is_err() });
    }
    assert!(tasks.join_all().await.into_iter().all(|refused| refused));
    sleep(400 * MS).await;
    let after: Vec<Duration> =
        dialled.0.lock().unwrap().iter().map(|at| at.duration_since(stopped)).collect();
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
            let buffered = BufWriter::new(self.0.connect().await?);
            Ok(Box::new(Tapped(buffered, SlowFlush::default())) as Box<dyn Connection>)
        })
    }
}

/// Every other poll of a flush waits for a millisecond.
#[derive(Clone, Default)]
struct SlowFlush(Arc<AtomicBool>);

impl Tap for SlowFlush {
    fn flush(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.0.fetch_xor(true, Relaxed) {
            return Poll::Ready(());
        }
        let waker = cx.waker().clone();
        tokio::spawn(async move {
            sleep(MS).await;
            waker.wake();
        });
        Poll::Pending
    }
}

#[tokio::test(start_paused = true)]
async fn bytes_that_a_connection_holds_back_are_flushed_in_time() {
    let mut builder = Redlock::builder().tokio_clock_for_tests();
    for number in 1..=3 {
        builder =
            builder.master(Holding(Scripted::new(&format!("held-{number}"), |_| Reaction::Well)));
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

/// Where the code of a caller's own connection can panic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    Dial,
    Read,
    Write,
    Flush,
    Abort,
    Drop,
}

/// Panics once at each place that is armed.
#[derive(Clone, Default)]
struct Panicky {
    lock: Arc<OnceLock<Redlock>>,
    armed: Arc<Mutex<Vec<Place>>>,
}

impl Panicky {
    fn at(&self, place: Place) {
        let armed = {
            let mut armed = self.armed.lock().unwrap();
            let at = armed.iter().position(|armed| *armed == place);
            at.map(|at| armed.swap_remove(at))
        };
        assert!(armed.is_none(), "planted in {place:?}");
    }
}

impl Drop for Panicky {
    fn drop(&mut self) {
        // A connection may report the lock's figures when it ends.
        if let Some(lock) = self.lock.get() {
            lock.stats();
        }
        self.at(Place::Drop);
    }
}

impl Tap for Panicky {
    fn dial(&self) {
        self.at(Place::Dial);
    }

    fn read(&self, result: Poll<io::Result<()>>) -> Poll<io::Result<()>> {
        self.at(Place::Read);
        result
    }

    fn write(&self) {
        self.at(Place::Write);
    }

    fn flush(&self, _: &mut Context<'_>) -> Poll<()> {
        self.at(Place::Flush);
        Poll::Ready(())
    }

    fn abort(&self) {
        self.at(Place::Abort);
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_panics_is_replaced_and_its_clean_ups_complete() {
    let tap = Panicky::default();
    let garbage = Arc::new(AtomicBool::new(false));
    let scripted = Scripted::new("panicky", {
        let garbage = garbage.clone();
        move |args| match args {
            Some(args) if !is_greeting(args) && garbage.swap(false, Relaxed) => Reaction::line("?"),
            _ => Reaction::Well,
        }
    });
    let node = Tapped(scripted, tap.clone());
    let lock = Masters::new(2).builder().master(node).build().await.unwrap();
    tap.lock.set(lock.clone()).unwrap();
    let each = [
        (&[Place::Read][..], false),
        (&[Place::Write], false),
        (&[Place::Flush], false),
        (&[Place::Read, Place::Drop], false),
        (&[Place::Write, Place::Dial, Place::Drop], false),
        // The lock resets the connection.
        (&[Place::Abort], true),
        (&[Place::Abort, Place::Drop], true),
    ];
    for (connects, (places, resets)) in (2..).zip(each) {
        let lease = lock.acquire("r").await.unwrap();
        sleep(MS).await;
        tap.armed.lock().unwrap().extend(places);
        garbage.store(resets, Relaxed);
        drop(lease);
        sleep(3 * S).await;
        assert_eq!(*tap.armed.lock().unwrap(), [], "it never panicked");
        let stats = lock.stats().masters[2].clone();
        assert_eq!((stats.state, stats.pending_cleanups), (LinkState::Up, 0), "{places:?}");
        assert_eq!(stats.connected, connects, "{places:?}");
    }
}

/// A node whose next try to connect hangs, and panics when it is given up.
struct Stuck(Scripted, Panicky, Arc<AtomicBool>);

impl Node for Stuck {
    fn name(&self) -> String {
        self.0.name()
    }

    fn connect(&self) -> Connecting<'_> {
        let tap = self.1.clone();
        Box::pin(async move {
            if self.2.swap(false, Relaxed) {
                tap.armed.lock().unwrap().push(Place::Drop);
                std::future::pending::<()>().await;
            }
            Ok(Box::new(Tapped(self.0.connect().await?, tap)) as Box<dyn Connection>)
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_try_to_connect_that_panics_when_it_is_given_up_is_followed_by_the_next() {
    let (tap, hangs) = (Panicky::default(), Arc::new(AtomicBool::new(true)));
    let node = Stuck(Scripted::new("stuck", |_| Reaction::Well), tap.clone(), hangs.clone());
    let lock = Masters::new(2).builder().master(node).build().await.unwrap();
    for connects in 1..3 {
        if connects > 1 {
            // Once more, beside a connection that breaks.
            hangs.store(true, Relaxed);
            tap.armed.lock().unwrap().push(Place::Read);
            drop(lock.acquire("r").await.unwrap());
        }
        sleep(5 * S).await;
        assert!(tap.armed.lock().unwrap().is_empty() && !hangs.load(Relaxed));
        let stats = lock.stats().masters[2].clone();
        assert_eq!((stats.state, stats.connected), (LinkState::Up, connects));
    }
}

/// Counts how often the node was told that its latest connection led to nothing.
struct Told(Scripted, Arc<AtomicUsize>);

impl Node for Told {
    fn name(&self) -> String {
        self.0.name()
    }

    fn connect(&self) -> Connecting<'_> {
        self.0.connect()
    }

    fn failed(&self) {
        self.1.fetch_add(1, Relaxed);
        panic!("a node of the caller's own that panics");
    }
}

/// A lock over one such master, and how often it was told in the first second.
async fn told(
    script: impl Fn(Option<&Args<'_>>) -> Reaction + Send + Sync + 'static,
) -> (Redlock, Arc<AtomicUsize>) {
    let told = Arc::new(AtomicUsize::new(0));
    let node = Told(Scripted::new("told", script), told.clone());
    let lock = Redlock::builder().tokio_clock_for_tests().master(node).build().await.unwrap();
    (lock, told)
}

#[tokio::test(start_paused = true)]
async fn a_node_is_told_that_its_connection_led_to_nothing_and_not_that_it_broke() {
    let greets = |args: Option<&Args<'_>>, bad: &Reaction| match args {
        Some([b"INFO", ..]) => bad.clone(),
        _ => Reaction::Well,
    };
    for bad in [Reaction::Swallow, Reaction::Last(Vec::new()), Reaction::line("?what")] {
        let (_lock, told) = told(move |args| greets(args, &bad)).await;
        assert_eq!(told.load(Relaxed), 1);
    }
    for bad in [Reaction::Refuse, Reaction::Hang, Reaction::Panic] {
        let (_lock, told) = told(move |args| args.map_or(bad.clone(), |_| Reaction::Well)).await;
        assert_eq!(told.load(Relaxed), 1);
    }
    // A connection that was good breaks: the same address is dialled again.
    let (lock, hung_up) = told(|args| match args {
        Some([b"SET", ..]) => Reaction::Last(Vec::new()),
        _ => Reaction::Well,
    })
    .await;
    lock.try_acquire("r").await.unwrap_err();
    sleep(S).await;
    assert_eq!((hung_up.load(Relaxed), lock.stats().masters[0].connected), (0, 2));
    // It is silent: another connection is opened beside it.
    let (lock, silent) = told(|args| match args {
        Some([b"SET", ..]) => Reaction::Swallow,
        _ => Reaction::Well,
    })
    .await;
    lock.try_acquire("r").await.unwrap_err();
    sleep(S).await;
    assert_eq!((silent.load(Relaxed), lock.stats().masters[0].connected), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn a_master_that_never_answers_is_asked_no_more_than_the_bounds_allow() {
    let masters = Masters::new(5);
    let lock = masters.builder().build().await.unwrap();
    masters.stop(5);
    let start = Instant::now();
    let (bounds, mut most) = (Bounds::for_node_timeout(100 * MS), (0, 0));
    for number in 0..10_000 {
        // All in one instant of virtual time, so the link cannot stall: only its bounds can help.
        let lease = lock.try_acquire(format!("r{number}")).await.unwrap().expect("it is free");
        drop(lease);
        let stats = &lock.stats().masters[4];
        most = (most.0.max(stats.unanswered), most.1.max(stats.pending_cleanups));
    }
    assert!(start.elapsed() < 100 * MS, "{:?}", start.elapsed());
    // Each SET that was sent adds its own clean-up and nothing else.
    assert!(most.0 >= bounds.unanswered, "the bound was not reached: {most:?}");
    assert!(most.0 <= bounds.unanswered + 1 && most.1 <= bounds.unanswered, "{most:?}");
    let last = lock.acquire("r").await.unwrap();
    let reply = last.report().masters()[4].outcome.clone();
    assert_eq!(reply, Some(MasterOutcome::Unknown(Cause::Overloaded)));
    // The master goes on, and all clean-ups complete.
    masters.resume(5);
    sleep(MS).await;
    let stats = &lock.stats().masters[4];
    assert_eq!((stats.unanswered, stats.pending_cleanups, stats.connected), (0, 0, 1));
    assert_eq!(masters.keys(5), Vec::<Vec<u8>>::new());
}
