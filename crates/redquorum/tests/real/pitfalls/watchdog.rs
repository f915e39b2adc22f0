//! The watchdog renews, reports failures, and ends with its lease. A local timer reports a loss in
//! time, whatever the masters do.

use std::future::pending;
use std::time::Duration;

use redquorum::{ExtendError, Lost, report::Loss};
use redquorum_rig::trials::Case;
use tokio::time::{Instant, sleep, timeout};

use crate::raw::Monitor;
use crate::support::*;

pub(crate) fn cases() -> Vec<Case> {
    cases![
        a_watched_lease_is_renewed,
        a_thousand_watched_leases_are_renewed_though_a_master_hangs,
        a_watchdog_does_not_outlive_the_release,
        a_watchdog_does_not_outlive_the_drop_of_its_lease,
        an_extend_that_the_watchdog_overtakes_does_not_hang,
        a_watchdog_has_a_bound,
        a_watchdog_does_not_swallow_that_the_keys_are_gone,
        a_watchdog_does_not_swallow_that_nobody_answers,
        a_loss_is_noticed_in_time_though_no_master_answers,
        a_loss_is_noticed_in_time_though_all_masters_are_dead,
        a_loss_is_not_taken_back,
        no_work_is_polled_after_the_deadline,
    ]
}

const TTL: Duration = Duration::from_millis(600);

/// How late a local timer may be on a busy machine.
const LATE: Duration = Duration::from_millis(150);

async fn a_watched_lease_is_renewed() {
    let masters = shared();
    // Long enough for a machine that stalls between two renewals.
    let ttl = 3 * TTL;
    let lock = built(brisk(masters).ttl(ttl)).await;
    let r = unique("watched");
    let lease = lock.acquire(&r).await.unwrap();
    let first = lease.deadline();
    lease.keep_alive(10 * CALM);
    assert!(timeout(2 * ttl, lease.lost()).await.is_err(), "it is lost");
    assert!(first.has_passed() && lease.deadline() > first);
    assert_eq!(holders(masters, &r).len(), 5);
    assert!(lock.try_acquire(&r).await.unwrap().is_none());
    assert!(lock.stats().extended >= 3, "{:?}", lock.stats().extended);
    lease.release().await;
}

async fn a_thousand_watched_leases_are_renewed_though_a_master_hangs() {
    let masters = own(5);
    // Long enough for machines that stall; the test checks that no renewal fails.
    let ttl = 6 * CALM;
    let lock = built(calm(&masters).ttl(ttl)).await;
    let mut leases = Vec::new();
    for number in 0..1_000 {
        leases.push(lock.acquire(format!("r{number}")).await.unwrap());
    }
    leases.iter().for_each(|lease| lease.keep_alive(60 * CALM));
    masters.pause(5).unwrap();
    sleep(ttl).await;
    masters.resume(5).unwrap();
    sleep(ttl / 2).await;
    let stats = lock.stats();
    assert_eq!((stats.lost, stats.not_extended), (0, 0), "{stats:?}");
    assert!(stats.extended >= 3_000, "{}", stats.extended);
    assert!(leases.iter().all(|lease| lease.validity() > ttl / 3));
    // The renewals after the hang reach the hung master too, so it has all keys.
    eventually("it has them", || lock.stats().masters[4].unanswered == 0).await;
    assert_eq!(holders(&masters, "r999").len(), 5);
}

async fn a_watchdog_does_not_outlive_the_release() {
    let masters = shared();
    let lock = built(brisk(masters).ttl(TTL)).await;
    let r = unique("released");
    let lease = lock.acquire(&r).await.unwrap();
    lease.keep_alive(10 * CALM);
    let mut monitor = Monitor::start(masters, 2);
    eventually("it renews", || lock.stats().extended > 0).await;
    assert!(!monitor.seen(&r).is_empty(), "the monitor sees a renewal");
    lease.release().await;
    cleaned(masters, &r).await;
    monitor.seen(&r);
    // A watchdog would renew twice in this time.
    sleep(TTL).await;
    assert_eq!(monitor.seen(&r), Vec::<String>::new());
    assert_eq!(keys(masters, &r), []);
}

async fn a_watchdog_does_not_outlive_the_drop_of_its_lease() {
    let masters = shared();
    let lock = built(brisk(masters).ttl(TTL)).await;
    let r = unique("dropped");
    let lease = lock.acquire(&r).await.unwrap();
    lease.keep_alive(10 * CALM);
    // The lock may be dropped before its lease: the watchdog needs no handle of it.
    drop(lock);
    assert!(timeout(TTL + LATE, lease.lost()).await.is_err(), "it is lost");
    assert_eq!(holders(masters, &r).len(), 5);
    drop(lease);
    cleaned(masters, &r).await;
    let mut monitor = Monitor::start(masters, 2);
    sleep(TTL).await;
    assert_eq!(monitor.seen(&r), Vec::<String>::new());
}

async fn an_extend_that_the_watchdog_overtakes_does_not_hang() {
    let lock = built(brisk(shared()).ttl(TTL)).await;
    let lease = lock.acquire(unique("overtaken")).await.unwrap();
    lease.keep_alive(10 * CALM);
    let before = lease.deadline();
    let mut extending = Box::pin(lease.extend());
    if poll_once(&mut extending).await.is_pending() {
        // The task of the extension is stopped while the watchdog renews several times.
        eventually("it renews", || lock.stats().extended >= 4).await;
        let extended = timeout(CALM, extending).await.expect("it hangs").unwrap();
        assert!(extended > before);
    }
    // Later extensions do not hang either.
    timeout(CALM, lease.extend()).await.expect("it hangs").unwrap();
}

async fn a_watchdog_has_a_bound() {
    let masters = shared();
    let lock = built(brisk(masters).ttl(TTL)).await;
    let r = unique("bound");
    let lease = lock.acquire(&r).await.unwrap();
    let start = Instant::now();
    lease.keep_alive(900 * MS);
    assert_eq!(lease.lost().await, Lost(Loss::MaxHold));
    let held = start.elapsed();
    assert!(held > 700 * MS && held < 900 * MS + LATE, "{held:?}");
    cleaned(masters, &r).await;
    assert!(lock.try_acquire(&r).await.unwrap().is_some());
}

async fn a_watchdog_does_not_swallow_that_the_keys_are_gone() {
    let masters = shared();
    let lock = built(calm(masters).ttl(3 * CALM)).await;
    let r = unique("gone");
    let lease = lock.acquire(&r).await.unwrap();
    lease.keep_alive(60 * CALM);
    eventually("all have it", || holders(masters, &r).len() == 5).await;
    delete(masters, 1..=3, &r);
    assert_eq!(lease.lost().await, Lost(Loss::QuorumGone));
    assert!(!lease.deadline().has_passed(), "it is told before the deadline");
    assert_eq!(lease.validity(), Duration::ZERO);
    assert_eq!((lock.stats().lost, lock.stats().not_extended), (1, 1));
    cleaned(masters, &r).await;
}

async fn a_watchdog_does_not_swallow_that_nobody_answers() {
    let masters = own(3);
    let lock = built(brisk(&masters).ttl(TTL)).await;
    let lease = lock.acquire("r").await.unwrap();
    let deadline = lease.deadline();
    lease.keep_alive(10 * CALM);
    masters.pause(1).unwrap();
    masters.pause(2).unwrap();
    assert_eq!(lease.lost().await, Lost(Loss::Expired));
    assert!(deadline.has_passed());
    let stats = lock.stats();
    assert!(stats.not_extended >= 1, "{stats:?}");
    // The watchdog retries, but not as fast as it could.
    assert!(stats.not_extended <= 12, "{stats:?}");
    assert_eq!((stats.extended, stats.lost), (0, 1), "{stats:?}");
    masters.resume(1).unwrap();
    masters.resume(2).unwrap();
    cleaned(&masters, "r").await;
}

async fn a_loss_is_noticed_in_time_though_no_master_answers() {
    let masters = own(5);
    let lock = built(brisk(&masters).ttl(TTL)).await;
    let lease = lock.acquire("r").await.unwrap();
    let asked = Instant::now();
    lease.keep_alive(10 * CALM);
    all(&masters).for_each(|node| masters.pause(node).unwrap());
    let lost = lease.lost().await;
    let late = asked.elapsed();
    assert_eq!(lost, Lost(Loss::Expired));
    assert!(lease.deadline().has_passed(), "not before the deadline");
    assert!(late < TTL + LATE, "{late:?}");
    assert_eq!(lock.stats().lost, 1);
}

async fn a_loss_is_noticed_in_time_though_all_masters_are_dead() {
    let masters = own(3);
    let lock = built(brisk(&masters).ttl(TTL)).await;
    let lease = lock.acquire("r").await.unwrap();
    let asked = Instant::now();
    lease.keep_alive(10 * CALM);
    all(&masters).for_each(|node| masters.kill(node).unwrap());
    let lost = lease.run(pending::<()>()).await.unwrap_err();
    let late = asked.elapsed();
    assert_eq!(lost, Lost(Loss::Expired));
    assert!(lease.deadline().has_passed() && late < TTL + LATE, "{late:?}");
}

async fn a_loss_is_not_taken_back() {
    let masters = own(3);
    let lock = built(brisk(&masters).ttl(TTL)).await;
    let lease = lock.acquire("r").await.unwrap();
    lease.keep_alive(10 * CALM);
    all(&masters).for_each(|node| masters.pause(node).unwrap());
    let lost = lease.lost().await;
    all(&masters).for_each(|node| masters.resume(node).unwrap());
    // The masters now execute the delayed renewals and reply.
    answered(&lock).await;
    assert_eq!((lease.is_lost(), lease.lost().await), (Some(lost), lost));
    let error = lease.extend().await.unwrap_err();
    assert!(matches!(error, ExtendError::Lost(Lost(Loss::Expired))), "{error}");
    cleaned(&masters, "r").await;
}

async fn no_work_is_polled_after_the_deadline() {
    let lock = built(brisk(shared()).ttl(TTL)).await;
    let lease = lock.acquire(unique("work")).await.unwrap();
    let deadline = lease.deadline();
    let mut latest = deadline.remaining();
    let work = async {
        loop {
            latest = deadline.remaining();
            tokio::task::yield_now().await;
        }
    };
    let (took, result) = timed(lease.run(work)).await;
    let lost: Result<(), Lost> = result;
    assert_eq!(lost, Err(Lost(Loss::Expired)));
    assert!(took < TTL + LATE, "{took:?}");
    assert!(latest < 50 * MS, "it was polled to the end, and last {latest:?} before it");
}
