//! A client process: some tasks that acquire, extend, release, drop and cancel, over one lock. It
//! prints its figures on stdout, one line a second, and ends when its stdin does.

use std::io::Read;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use redquorum::{Lease, Redlock};
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, timeout};

use crate::figures::{Line, resident};
use crate::parent::TTL;
use crate::referee::Referee;
use crate::troubles::Chance;

/// The task of a client process.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Task {
    pub(crate) urls: Vec<String>,
    /// The port of the [`Referee`].
    pub(crate) referee: u16,
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

/// The number of contended resources.
const HOT: u64 = 8;

#[derive(Default)]
struct Counts {
    over: AtomicBool,
    sections: AtomicU64,
    overlaps: AtomicU64,
    given_up: AtomicU64,
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
                chance: Chance::new(seed),
                resources: u64::from(task.resources),
            };
            tokio::spawn(client.run(task.referee))
        })
        .collect();
    while !counts.over.load(Relaxed) {
        sleep(Duration::from_secs(1)).await;
        tell(&locks, &counts, false, 0);
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
    println!("{}", serde_json::to_string(&last).expect("it is JSON"));
}

async fn locks(task: &Task) -> Vec<Redlock> {
    let sets: Vec<&[String]> =
        if task.apart { task.urls.chunks(1).collect() } else { vec![&task.urls] };
    let mut locks = Vec::new();
    for urls in sets {
        let builder = Redlock::builder().urls(urls).ttl(TTL).wait(TTL).fair(task.fair);
        let builder = builder.node_timeout(Duration::from_millis(200));
        locks.push(builder.build().await.expect("options that are right"));
    }
    locks
}

fn left(locks: &[Redlock]) -> u64 {
    let of = |lock: &Redlock| {
        let stats = lock.stats();
        let masters: usize = stats.masters.iter().map(|it| it.listens + it.owed).sum();
        (stats.waiting + masters) as u64
    };
    locks.iter().map(of).sum()
}

fn line(locks: &[Redlock], counts: &Counts) -> Line {
    let mut line = Line {
        sections: counts.sections.load(Relaxed),
        overlaps: counts.overlaps.load(Relaxed),
        given_up: counts.given_up.load(Relaxed),
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
        line.listens += stats.masters.iter().map(|it| it.listens as u64).sum::<u64>();
        line.owed += stats.masters.iter().map(|it| it.owed as u64).sum::<u64>();
    }
    line
}

fn tell(locks: &[Redlock], counts: &Counts, last: bool, tasks: u64) {
    let line = Line { last, tasks, ..line(locks, counts) };
    println!("{}", serde_json::to_string(&line).expect("it is JSON"));
}

struct Client {
    lock: Redlock,
    counts: Arc<Counts>,
    chance: Chance,
    resources: u64,
}

impl Client {
    async fn run(mut self, port: u16) {
        let mut referee = Referee::connect(port).await.expect("the referee is there");
        while !self.counts.over.load(Relaxed) {
            let hot = self.chance.below(2) == 0;
            let most = if hot { self.resources.min(HOT) } else { self.resources };
            let resource = format!("soak-{}", self.chance.below(most));
            let policy = match self.chance.below(5) {
                0 => self.chance.millis(50),
                _ => 2 * TTL,
            };
            match timeout(policy, self.lock.acquire(&resource)).await {
                Ok(Ok(lease)) => self.hold(&mut referee, &resource, lease).await,
                // Without the pause, the client would mostly retry while masters are down.
                Ok(Err(_)) => sleep(self.chance.millis(20)).await,
                Err(_) => {
                    self.counts.given_up.fetch_add(1, Relaxed);
                }
            }
        }
    }

    /// The critical section.
    async fn hold(&mut self, referee: &mut Referee, resource: &str, lease: Lease) {
        let who = self.chance.next();
        let alone = referee.mark(resource, who, lease.validity()).await;
        let alone = alone.expect("the referee answers");
        self.counts.sections.fetch_add(1, Relaxed);
        if !alone && !lease.validity().is_zero() {
            self.counts.overlaps.fetch_add(1, Relaxed);
        }
        sleep(self.chance.millis(8)).await;
        if self.chance.below(10) == 0 {
            // A failed extension leaves the lease as it is.
            drop(lease.extend().await);
        }
        if alone {
            referee.unmark(resource, who).await.expect("the referee answers");
        }
        match self.chance.below(5) {
            0 => drop(lease),
            _ => drop(lease.release().await),
        }
    }
}
