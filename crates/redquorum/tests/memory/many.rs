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

/// Counts writes.
#[derive(Clone, Default)]
struct Writes(Arc<AtomicU64>);

impl Tap for Writes {
    fn write(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

struct Bed {
    masters: Masters,
    lock: Redlock,
    writes: Writes,
}

impl Bed {
    async fn new() -> Self {
        let (masters, writes) = (Masters::new(5), Writes::default());
        let builder = Redlock::builder().tokio_clock_for_tests().ttl(TTL);
        let builder = (1..=5).fold(builder, |builder, number| {
            builder.master(Tapped(masters.node(number), writes.clone()))
        });
        let lock = builder.build().await.unwrap();
        Self { masters, lock, writes }
    }

    /// Acquires this many leases in the same instant.
    async fn take(&self, count: usize) -> Vec<Lease> {
        let mut leases = Vec::new();
        for number in 0..count {
            leases.push(self.lock.acquire(format!("r{number}")).await.unwrap());
        }
        leases
    }

    /// The writes and successful renewals since this call.
    fn since(&self) -> impl Fn() -> (u64, u64) + '_ {
        let now = || (self.writes.0.load(Ordering::Relaxed), self.lock.stats().extended);
        let before = now();
        move || (now().0 - before.0, now().1 - before.1)
    }
}

fn watch(leases: &[Lease]) {
    leases.iter().for_each(|lease| lease.keep_alive(Duration::MAX));
}

/// Lets time pass, and checks that every lease always has at least two thirds of its TTL left.
async fn no_lease_is_late(leases: &[Lease], length: Duration) {
    let start = Instant::now();
    while start.elapsed() < length {
        sleep(250 * MS).await;
        let least = leases.iter().map(Lease::validity).min().unwrap();
        assert!(least >= VALIDITY - TTL / 3 - MS, "{least:?} are left after {:?}", start.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn thousands_of_leases_are_renewed_in_time_with_few_writes() {
    let bed = Bed::new().await;
    let leases = bed.take(2_000).await;
    watch(&leases);
    let since = bed.since();
    no_lease_is_late(&leases, 3 * TTL).await;
    let (writes, renewals) = since();
    // Nine thirds of a TTL. The first interval is shorter: by up to a half for the first leases.
    assert!((16_000..=20_000).contains(&renewals), "{renewals}");
    // One write for each of five masters in each of forty batches a second. One write for each
    // renewal would make 90 000.
    assert!(writes <= 5 * 40 * 90 + 100, "{writes} for {renewals} renewals");
    assert_eq!((bed.lock.stats().not_extended, bed.lock.stats().lost), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn writes_are_counted_where_leases_are_extended_one_by_one() {
    let bed = Bed::new().await;
    let leases = bed.take(100).await;
    let since = bed.since();
    for lease in &leases {
        lease.extend().await.unwrap();
    }
    assert_eq!(since(), (500, 100));
}

#[tokio::test(start_paused = true)]
async fn a_master_that_hangs_dies_or_forgets_makes_no_lease_late() {
    let bed = Bed::new().await;
    let leases = bed.take(500).await;
    watch(&leases);
    bed.masters.stop(5);
    no_lease_is_late(&leases, TTL).await;
    bed.masters.resume(5);
    bed.masters.restart(4);
    no_lease_is_late(&leases, TTL).await;
    assert_eq!((bed.lock.stats().not_extended, bed.lock.stats().lost), (0, 0));
    assert!((4..=5).all(|number| bed.masters.keys(number).len() == 500), "all have all of them");
}

/// Checks that each lease is reported lost at its deadline, to within the resolution of a timer.
/// The timer alone reports it: nothing else reads the leases.
async fn lost_in_time(lock: &Redlock, leases: &[Lease], length: Duration) {
    let (start, before) = (Instant::now(), lock.stats().lost);
    let ends: Vec<Instant> = leases.iter().map(|lease| start + lease.validity()).collect();
    while start.elapsed() < length {
        sleep(7 * MS).await;
        let over = |by: Duration| ends.iter().filter(|end| **end + by <= Instant::now()).count();
        let lost = usize::try_from(lock.stats().lost - before).unwrap();
        let (sure, most) = (over(3 * MS), over(Duration::ZERO));
        assert!((sure..=most).contains(&lost), "{lost} are lost, not {sure} to {most}");
    }
    assert_eq!(lock.stats().lost - before, leases.len() as u64);
}

#[tokio::test(start_paused = true)]
async fn a_loss_is_reported_in_time_while_thousands_renew() {
    let bed = Bed::new().await;
    let watched = bed.take(2_000).await;
    watch(&watched);
    let mut others = Vec::new();
    for number in 0..500_u32 {
        let lease = bed.lock.acquire(format!("other{number}")).ttl(2 * S + 37 * MS * number);
        others.push(lease.await.unwrap());
    }
    lost_in_time(&bed.lock, &others, 25 * S).await;
    assert!(watched.iter().all(|lease| !lease.is_lost()));
    assert_eq!(bed.lock.stats().not_extended, 0);
}
