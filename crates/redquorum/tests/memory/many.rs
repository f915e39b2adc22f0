//! Thousands of leases that are kept alive at once: few writes, no late renewal, no loss.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redquorum::memory::Masters;
use redquorum::{Lease, Redlock};
use tokio::time::{Instant, sleep};

use crate::support::{MS, S, Tap, Tapped};

const TTL: Duration = Duration::from_secs(30);
/// The validity after the default drift.
const VALIDITY: Duration = Duration::from_millis(30_000 - 302);

#[derive(Clone, Default)]
struct Writes(Arc<AtomicU64>);

impl Tap for Writes {
    fn write(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

async fn bed() -> (Redlock, Writes) {
    let (masters, writes) = (Masters::new(5), Writes::default());
    let node = |number| Tapped(masters.node(number), writes.clone());
    let builder = Redlock::builder().tokio_clock_for_tests().ttl(TTL).masters((1..=5).map(node));
    (builder.build().await.unwrap(), writes)
}

/// Acquires this many leases in the same instant.
async fn take(lock: &Redlock, count: usize) -> Vec<Lease> {
    let mut leases = Vec::new();
    for number in 0..count {
        leases.push(lock.acquire(format!("r{number}")).await.unwrap());
    }
    leases
}

#[tokio::test(start_paused = true)]
async fn thousands_of_leases_are_renewed_in_time_with_few_writes() {
    let (lock, Writes(writes)) = bed().await;
    let leases = take(&lock, 2_000).await;
    leases.iter().for_each(|lease| lease.keep_alive(Duration::MAX));
    let (start, before) = (Instant::now(), writes.load(Ordering::Relaxed));
    while start.elapsed() < 3 * TTL {
        sleep(250 * MS).await;
        // Every lease always has at least two thirds of its TTL left.
        let least = leases.iter().map(Lease::validity).min().unwrap();
        assert!(least >= VALIDITY - TTL / 3 - MS, "{least:?} are left after {:?}", start.elapsed());
    }
    let (writes, stats) = (writes.load(Ordering::Relaxed) - before, lock.stats());
    // Nine thirds of a TTL. The first interval is shorter: by up to a half for the first leases.
    assert!((16_000..=20_000).contains(&stats.extended), "{}", stats.extended);
    // One write for each of five masters in each of forty batches a second. One write for each
    // renewal would make 90 000.
    assert!(writes <= 5 * 40 * 90 + 100, "{writes} for {} renewals", stats.extended);
    assert_eq!((stats.not_extended, stats.lost), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn writes_are_counted_where_leases_are_extended_one_by_one() {
    let (lock, Writes(writes)) = bed().await;
    let leases = take(&lock, 100).await;
    let before = writes.load(Ordering::Relaxed);
    for lease in &leases {
        lease.extend().await.unwrap();
    }
    assert_eq!(writes.load(Ordering::Relaxed) - before, 500);
}

#[tokio::test(start_paused = true)]
async fn a_loss_is_reported_in_time_while_thousands_renew() {
    let (lock, _) = bed().await;
    let watched = take(&lock, 2_000).await;
    watched.iter().for_each(|lease| lease.keep_alive(Duration::MAX));
    let mut others = Vec::new();
    for number in 0..500_u32 {
        let lease = lock.acquire(format!("other{number}")).ttl(2 * S + 37 * MS * number);
        others.push(lease.await.unwrap());
    }
    // To within the resolution of a timer, which alone reports it: nothing else reads the leases.
    let start = Instant::now();
    let ends: Vec<Instant> = others.iter().map(|lease| start + lease.validity()).collect();
    while start.elapsed() < 25 * S {
        sleep(7 * MS).await;
        let over = |by: Duration| ends.iter().filter(|end| **end + by <= Instant::now()).count();
        let lost = usize::try_from(lock.stats().lost).unwrap();
        let (sure, most) = (over(3 * MS), over(Duration::ZERO));
        assert!((sure..=most).contains(&lost), "{lost} are lost, not {sure} to {most}");
    }
    assert_eq!(lock.stats().lost, 500);
    assert!(watched.iter().all(|lease| !lease.is_lost()));
    assert_eq!(lock.stats().not_extended, 0);
}
