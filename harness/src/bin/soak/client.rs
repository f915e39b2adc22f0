//! A client process: some tasks that acquire, extend, keep, release, drop and cancel leases, do not
//! poll their requests for a while, and fork the process. It prints its requests and its critical
//! sections on stdout, and its figures once a second. It ends when its stdin does.

use std::future::{Future as _, IntoFuture as _};
use std::io::{Read, Write};
use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::faults::millis;
use crate::parent::{NODE_TIMEOUT, TTL, WAIT};
use crate::sections::{Line, resident};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use redquorum::{AcquireError, Lease, Redlock};
use redquorum_harness::client::{Neglect, limited};
use redquorum_harness::stamp;
use redquorum_scenario::history::Ns;
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, timeout};

/// The task of a client process.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Task {
    pub(crate) urls: Vec<String>,
    /// The number of clients, each a Tokio task.
    pub(crate) clients: u32,
    pub(crate) resources: u32,
    pub(crate) seed: u64,
    /// Whether processes use the fair queue.
    pub(crate) fair: bool,
    /// Uses one lock per master instead of one over all masters, so that nothing keeps the clients
    /// apart.
    pub(crate) apart: bool,
}

/// A message of a client process. Stamps are of `CLOCK_MONOTONIC`, which all processes share.
#[derive(Serialize, Deserialize)]
pub(crate) struct Message {
    pub(crate) at: Ns,
    pub(crate) event: Event,
}

/// See [`Message`].
#[derive(Serialize, Deserialize)]
pub(crate) enum Event {
    /// The process was started. The parent adds this message.
    Start,
    /// A client asks for a resource.
    Ask { section: u64, resource: String },
    /// The client does not poll its request until this instant. Then it asks again, or leaves.
    Unpolled { section: u64, until: Ns },
    /// The client has got nothing.
    Leave { section: u64 },
    /// The client holds the resource.
    Begin { section: u64 },
    /// A client held its resource until this instant, for certain.
    End { section: u64, held_until: Ns },
    /// Once a second, and at the end.
    Figures(Line),
    /// The process was stopped, without a word to masters. The parent adds this message.
    Stopped,
    /// The process has ended. The parent adds this message.
    Gone,
}

/// Sends a message to the parent, and returns its stamp. Messages are in the order of their stamps.
fn send(event: Event) -> Ns {
    let mut out = std::io::stdout().lock();
    let message = Message { at: stamp::now(), event };
    let text = serde_json::to_string(&message).expect("it is JSON");
    // The parent is gone: then this process ends soon.
    drop(writeln!(out, "{text}"));
    message.at
}

/// The number of contended resources.
const HOT: u32 = 8;

#[derive(Default)]
struct Counts {
    over: AtomicBool,
    given_up: AtomicU64,
    unpolled: AtomicU64,
    forks: AtomicU64,
    bad_forks: AtomicU64,
}

pub(crate) fn main(task: &Task) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(Box::pin(run(task)));
    ExitCode::SUCCESS
}

async fn run(task: &Task) {
    let counts = Arc::new(Counts::default());
    let ends = counts.clone();
    std::thread::spawn(move || {
        // End of input or an error: both end the run.
        drop(std::io::stdin().read_to_end(&mut Vec::new()));
        ends.over.store(true, Relaxed);
    });
    let before = Handle::current().metrics().num_alive_tasks();
    let locks = locks(task).await;
    let clients: Vec<_> = (0..task.clients)
        .map(|number| {
            let lock = locks[number as usize % locks.len()].clone();
            let seed = task.seed ^ u64::from(std::process::id()) << 32 ^ u64::from(number);
            let client = Client {
                lock,
                counts: counts.clone(),
                random: StdRng::seed_from_u64(seed),
                resources: task.resources,
            };
            tokio::spawn(client.run())
        })
        .collect();
    while !counts.over.load(Relaxed) {
        sleep(Duration::from_secs(1)).await;
        send(Event::Figures(line(&locks, &counts)));
    }
    for client in clients {
        client.await.expect("no client panics");
    }
    // The clean-ups of dropped leases and cancelled acquires run in the background.
    let begin = Instant::now();
    while left(&locks) > 0 && begin.elapsed() < 2 * TTL {
        sleep(Duration::from_millis(20)).await;
    }
    let (mut last, mut unfinished) = (line(&locks, &counts), 0);
    for lock in &locks {
        unfinished += u64::from(lock.shutdown(2 * TTL).await.is_err());
    }
    drop(locks);
    let alive = || (Handle::current().metrics().num_alive_tasks() - before) as u64;
    let begin = Instant::now();
    while alive() > 0 && begin.elapsed() < TTL {
        sleep(Duration::from_millis(20)).await;
    }
    (last.last, last.tasks, last.unfinished) = (true, alive(), unfinished);
    send(Event::Figures(last));
}

async fn locks(task: &Task) -> Vec<Redlock> {
    let sets: Vec<&[String]> =
        if task.apart { task.urls.chunks(1).collect() } else { vec![&task.urls] };
    let mut locks = Vec::new();
    for urls in sets {
        let builder = Redlock::builder().masters(urls).ttl(TTL).wait(WAIT).fair(task.fair);
        let builder = builder.node_timeout(NODE_TIMEOUT);
        locks.push(builder.build().await.expect("options that are right"));
    }
    locks
}

fn left(locks: &[Redlock]) -> u64 {
    let of = |lock: &Redlock| {
        let stats = lock.stats();
        let masters: usize =
            stats.masters.iter().map(|it| it.subscriptions + it.pending_cleanups).sum();
        (stats.waiting + masters) as u64
    };
    locks.iter().map(of).sum()
}

fn line(locks: &[Redlock], counts: &Counts) -> Line {
    let mut line = Line {
        given_up: counts.given_up.load(Relaxed),
        unpolled: counts.unpolled.load(Relaxed),
        forks: counts.forks.load(Relaxed),
        bad_forks: counts.bad_forks.load(Relaxed),
        resident: resident(),
        ..Line::default()
    };
    for lock in locks {
        let stats = lock.stats();
        line.acquired += stats.acquired;
        line.taken += stats.taken;
        line.no_quorum += stats.no_quorum;
        line.lost += stats.lost;
        line.waiting += stats.waiting as u64;
        line.subscriptions += stats.masters.iter().map(|it| it.subscriptions as u64).sum::<u64>();
        line.pending_cleanups +=
            stats.masters.iter().map(|it| it.pending_cleanups as u64).sum::<u64>();
    }
    line
}

struct Client {
    lock: Redlock,
    counts: Arc<Counts>,
    random: StdRng,
    resources: u32,
}

impl Client {
    async fn run(mut self) {
        while !self.counts.over.load(Relaxed) {
            let hot: bool = self.random.random();
            let most = if hot { self.resources.min(HOT) } else { self.resources };
            let resource = format!("soak-{}", self.random.random_range(0..most));
            let policy = match self.random.random_range(0..5) {
                0 => millis(&mut self.random, 50),
                _ => 2 * WAIT,
            };
            let section = self.random.random();
            send(Event::Ask { section, resource: resource.clone() });
            let neglect = self.neglect(50);
            let request = self.lock.acquire(&resource).into_future();
            let tell = self.unpolled(section);
            match timeout(policy, limited(neglect, request, tell)).await {
                Ok(Some(Ok(lease))) => self.hold(section, lease).await,
                // Without the pause, the client would mostly retry while masters are down.
                Ok(Some(Err(_))) => {
                    send(Event::Leave { section });
                    sleep(millis(&mut self.random, 20)).await;
                }
                Ok(None) | Err(_) => {
                    send(Event::Leave { section });
                    self.counts.given_up.fetch_add(1, Relaxed);
                }
            }
        }
    }

    /// How a caller neglects its request, if it does: one of so many.
    fn neglect(&mut self, of: u32) -> Option<Neglect> {
        let polls = self.random.random_range(0..6);
        // Half of them for longer than the lock waits for its caller.
        let longest = if self.random.random() { 50 } else { 6_000 };
        let (idle, drops) = (millis(&mut self.random, longest), self.random.random());
        (self.random.random_range(0..of) == 0).then_some(Neglect { polls, idle, drops })
    }

    /// Reports that a request is not polled.
    fn unpolled(&self, section: u64) -> impl FnOnce(Duration) + use<> {
        let counts = self.counts.clone();
        move |idle| {
            counts.unpolled.fetch_add(1, Relaxed);
            let until = stamp::later(stamp::now(), idle);
            send(Event::Unpolled { section, until });
        }
    }

    /// The critical section.
    async fn hold(&mut self, section: u64, mut lease: Lease) {
        let mut held_until = send(Event::Begin { section });
        if lease.validity().is_zero() {
            send(Event::End { section, held_until });
            return;
        }
        let mut look = |lease: &Lease| {
            let now = stamp::now();
            if !lease.validity().is_zero() {
                held_until = now;
            }
        };
        match self.random.random_range(0..1000) {
            0 => {
                lease.keep_alive(TTL + TTL / 3);
                // Sometimes longer than the TTL. The result is an error if the lease is lost.
                drop(lease.run(sleep(millis(&mut self.random, 5_000))).await);
            }
            // A failed or cancelled extension leaves the lease as it is.
            1..100 => {
                sleep(millis(&mut self.random, 8)).await;
                look(&lease);
                drop(lease.extend().await);
            }
            100..150 => drop(timeout(Duration::from_millis(1), lease.extend()).await),
            150..170 => {
                let neglect = self.neglect(1);
                // The section ends with the lease, whether or not the future is polled.
                drop(lease.run(limited(neglect, lease.extend(), |_| ())).await);
            }
            170..172 => lease = self.fork(lease).await,
            _ => sleep(millis(&mut self.random, 8)).await,
        }
        look(&lease);
        send(Event::End { section, held_until });
        match self.random.random_range(0..5) {
            0 => drop(lease),
            1 => drop(timeout(Duration::from_micros(50), lease.release()).await),
            _ => drop(lease.release().await),
        }
    }

    /// Forks the process, while its other threads use the lock. The parent still has the lease.
    async fn fork(&self, lease: Lease) -> Lease {
        let mut lease = Some(lease);
        if let Some(is_well) = fork(&self.lock, &mut lease).await {
            self.counts.forks.fetch_add(1, Relaxed);
            self.counts.bad_forks.fetch_add(u64::from(!is_well), Relaxed);
        }
        lease.expect("only the child drops it")
    }
}

/// A child that takes longer than this hangs: an alarm ends it. In seconds.
const HANGS: u32 = 20;

/// Forks this process, and waits for the child, which uses its copies of the lock and of a lease,
/// drops the lease, and ends. That must take nothing from its parent. Returns whether the child's
/// copies behaved as documented; none: the system refused to fork.
async fn fork(lock: &Redlock, lease: &mut Option<Lease>) -> Option<bool> {
    let child = start(lock, lease)?;
    loop {
        if let Some(is_well) = ended(child) {
            return Some(is_well);
        }
        sleep(Duration::from_millis(5)).await;
    }
}

#[expect(unsafe_code, reason = "fork, alarm and _exit")]
fn start(lock: &Redlock, lease: &mut Option<Lease>) -> Option<libc::pid_t> {
    // SAFETY: the child has its own copy of the memory, and one thread. It locks no mutex that a
    // thread of the parent may hold, but for those of `malloc`, which the C library sees to. It
    // does not print and does not return.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::alarm(HANGS);
            libc::_exit(i32::from(!behaves(lock, lease)));
        }
        (child > 0).then_some(child)
    }
}

/// Whether the child has ended as it should; none: it has not ended.
#[expect(unsafe_code, reason = "waitpid")]
fn ended(child: libc::pid_t) -> Option<bool> {
    let mut status = 0;
    // SAFETY: `child` is a child that was not waited for, and `status` outlives the call.
    let found = unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) };
    (found != 0).then_some(found == child && status == 0)
}

/// In the child: the lease is lost, the lock refuses, and the drop of the lease does nothing.
fn behaves(lock: &Redlock, lease: &mut Option<Lease>) -> bool {
    let is_lost = lease.as_ref().is_some_and(Lease::is_lost);
    let request = pin!(lock.acquire("soak-child").into_future());
    let polled = request.poll(&mut Context::from_waker(Waker::noop()));
    drop(lease.take());
    is_lost && matches!(polled, Poll::Ready(Err(AcquireError::Forked)))
}
