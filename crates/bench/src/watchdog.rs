//! Thousands of leases that are held and extended: the cost of their watchdog for the client.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use redquorum::{Lease, Redlock};

use crate::contender::{PATIENCE, commands, connect};
use crate::cpu_time;
use crate::table::quantile;

/// The first argument of a run of this section alone.
pub(crate) const ARGUMENT: &str = "--watchdog";

/// The number of leases, their TTL, and the duration of the measurement.
pub(crate) struct Plan {
    leases: usize,
    ttl: Duration,
    length: Duration,
}

impl Plan {
    pub(crate) const FULL: Self =
        Self { leases: 10_000, ttl: Duration::from_secs(30), length: Duration::from_secs(30) };

    pub(crate) const QUICK: Self =
        Self { leases: 1_000, ttl: Duration::from_secs(3), length: Duration::from_secs(3) };
}

/// The number of concurrent acquires.
const AT_ONCE: usize = 64;

/// Holds leases for a while, and reports the cost in three cases: leases granted all at once,
/// leases granted one by one, and leases with a waiting task each.
pub(crate) async fn report(urls: &[String], plan: &Plan) -> String {
    let mut text = format!(
        "### Watchdog: {} leases kept alive at a TTL of {:?}, for {:?}\n\n\
         | leases | renewals/s | commands/s | client CPU, % of a core | CPU µs/renewal | failed | lost \
         | an acquire meanwhile: p50 µs | p99 µs | max µs |\n\
         |---|---|---|---|---|---|---|---|---|---|\n",
        plan.leases, plan.ttl, plan.length
    );
    let third = plan.ttl / 3;
    for (name, within, waited_for) in [
        ("granted in one go", Duration::ZERO, false),
        ("granted one by one", third, false),
        ("the same, a task waits for the loss of each", third, true),
    ] {
        let _ = writeln!(text, "| {name} | {} |", row(urls, plan, within, waited_for).await);
    }
    text
}

/// Acquires the leases within the time `within`, and adds a row to the table.
async fn row(urls: &[String], plan: &Plan, within: Duration, waited_for: bool) -> String {
    let lock = connect(urls, plan.ttl).await;
    let start = tokio::time::Instant::now();
    let taking = stream::iter(0..plan.leases).map(|number| {
        let share = number as f64 / plan.leases as f64;
        take(&lock, start + within.mul_f64(share), number)
    });
    let leases: Vec<Lease> = taking.buffer_unordered(AT_ONCE).collect().await;
    let leases: Vec<Arc<Lease>> = leases.into_iter().map(Arc::new).collect();
    let wait = |lease: &Arc<Lease>| {
        let lease = lease.clone();
        tokio::spawn(async move { lease.lost().await })
    };
    let waiting: Vec<_> = leases.iter().filter(|_| waited_for).map(wait).collect();
    let (before, answered, at, cpu) = (lock.stats(), commands(&lock), Instant::now(), cpu_time());
    tokio::time::sleep(plan.length).await;
    let wall = at.elapsed().as_secs_f64();
    let cpu = (cpu_time() - cpu).as_secs_f64();
    let answered = (commands(&lock) - answered) as f64;
    let extended = (lock.stats().extended - before.extended) as f64;
    let [p50, p99, max] = beside(&lock, plan.ttl / 2).await;
    let end = lock.stats();
    let text = format!(
        "{:.0} | {:.0} | {:.2} | {:.1} | {} | {} | {p50:.0} | {p99:.0} | {max:.0}",
        extended / wall,
        answered / wall,
        100.0 * cpu / wall,
        1e6 * cpu / extended,
        end.not_extended - before.not_extended,
        end.lost - before.lost,
    );
    for task in waiting {
        task.abort();
        // The aborted task drops its lease.
        let _ = task.await;
    }
    let releasing = stream::iter(leases.into_iter().filter_map(Arc::into_inner));
    let releasing = releasing.map(Lease::release).buffer_unordered(AT_ONCE);
    releasing.for_each(|_| std::future::ready(())).await;
    text
}

async fn take(lock: &Redlock, at: tokio::time::Instant, number: usize) -> Lease {
    tokio::time::sleep_until(at).await;
    let lease = lock.acquire(format!("bench:watchdog:{number}")).wait(PATIENCE).await;
    let lease = lease.expect("it is free");
    lease.keep_alive(Duration::from_secs(3600));
    lease
}

/// The durations of another caller's acquires at the same time, on the same links.
async fn beside(lock: &Redlock, length: Duration) -> [f64; 3] {
    let (start, mut times) = (Instant::now(), Vec::new());
    while start.elapsed() < length {
        let asked = Instant::now();
        let lease = lock.acquire("bench:beside").wait(PATIENCE).await.expect("it is free");
        times.push(asked.elapsed().as_secs_f64() * 1e6);
        let _ = lease.release().await;
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    times.sort_by(f64::total_cmp);
    [0.5, 0.99, 1.0].map(|share| quantile(&times, share))
}
