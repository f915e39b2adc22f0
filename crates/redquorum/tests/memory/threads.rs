//! Many threads at once, in real time: races that virtual time on one thread cannot show.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redquorum::{Backoff, Lease};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::support::{MS, S, keys};

const RESOURCES: [&str; 4] = ["a", "b", "c", "d"];

/// The number of leases that makes the test meaningful.
const ENOUGH: usize = 100;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn threads_that_race_and_give_up_leave_nothing_and_never_hold_together() {
    let masters = redquorum::memory::Masters::new(5);
    let pause = Backoff::Jittered { initial: MS, max: 4 * MS };
    // Long timeouts, because the result must not depend on the speed of the machine.
    let builder = masters.builder().node_timeout(2 * S).connect_timeout(5 * S);
    let lock = builder.retry(pause).build().await.unwrap();
    let held: Arc<[AtomicUsize; 4]> = Arc::default();
    let won = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    for task in 0..32 {
        let (lock, held, won) = (lock.clone(), held.clone(), won.clone());
        tasks.spawn(async move {
            for round in 0..6_000_usize {
                if round >= 60 && won.load(Ordering::Relaxed) >= ENOUGH {
                    break;
                }
                let which = (task + round) % 4;
                // The caller gives up before, while or after the masters reply. Each round waits
                // longer, so that some callers get their lease on a busy machine, too.
                let policy = Duration::from_micros((task * 61 + round * 37) as u64 % 5_000);
                let policy = policy * u32::try_from(round / 60 + 1).unwrap();
                let acquiring = lock.acquire(RESOURCES[which]);
                let Ok(Ok(lease)) = timeout(policy, acquiring).await else { continue };
                assert_eq!(held[which].fetch_add(1, Ordering::SeqCst), 0, "two hold it");
                won.fetch_add(1, Ordering::Relaxed);
                if round % 3 == 0 {
                    lease.extend().await.unwrap();
                }
                tokio::task::yield_now().await;
                held[which].fetch_sub(1, Ordering::SeqCst);
                give_back(lease, round).await;
            }
        });
    }
    while let Some(joined) = timeout(60 * S, tasks.join_next()).await.expect("none hangs") {
        joined.unwrap();
    }
    assert!(won.load(Ordering::Relaxed) >= ENOUGH, "{won:?} leases: too few to show anything");
    lock.shutdown(5 * S).await.unwrap();
    assert_eq!(keys(&masters, 5), 0);
    for master in lock.stats().masters {
        assert_eq!((master.connected, master.pending_cleanups, master.unanswered), (1, 0, 0));
    }
}

async fn give_back(lease: Lease, round: usize) {
    match round % 4 {
        0 => drop(lease),
        1 => drop(lease.release()),
        2 => drop(timeout(Duration::from_micros(50), lease.release()).await),
        _ => drop(lease.release().await),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn masters_that_come_and_go_under_load_leave_nothing() {
    let masters = redquorum::memory::Masters::new(5);
    let lock = masters.builder().node_timeout(20 * MS).build().await.unwrap();
    let mut tasks = JoinSet::new();
    for task in 0..16_usize {
        let lock = lock.clone();
        tasks.spawn(async move {
            for round in 0..100_usize {
                let own = format!("r{task}");
                let lease = timeout(5 * S, lock.acquire(own).wait(S)).await.expect("in time");
                if let Ok(lease) = lease {
                    give_back(lease, round).await;
                }
                tokio::time::sleep(MS).await;
            }
        });
    }
    let faults = tokio::spawn({
        let masters = masters.clone();
        async move {
            for round in 0_usize.. {
                let number = round % 5 + 1;
                match round % 3 {
                    0 => masters.stop(number),
                    1 => masters.restart(number),
                    _ => masters.forget(number),
                }
                tokio::time::sleep(7 * MS).await;
                masters.resume(number);
            }
        }
    });
    while let Some(joined) = timeout(60 * S, tasks.join_next()).await.expect("none hangs") {
        joined.unwrap();
    }
    faults.abort();
    let _ = faults.await;
    (1..=5).for_each(|number| masters.resume(number));
    // Otherwise there was no load, or no master went.
    let stats = lock.stats();
    assert!(stats.acquired >= ENOUGH as u64, "{} leases", stats.acquired);
    assert!(stats.masters.iter().any(|master| master.connected > 1), "no connection broke");
    lock.shutdown(5 * S).await.unwrap();
    assert_eq!(keys(&masters, 5), 0);
}

#[tokio::test(start_paused = true)]
async fn nothing_of_a_lock_outlives_its_last_handle() {
    let masters = redquorum::memory::Masters::new(3);
    let policy = Arc::new(());
    let witness = Arc::downgrade(&policy);
    let lock = masters.builder().retry(move |_: u32, _: u64| {
        let _ = &policy;
        MS
    });
    let lock = lock.build().await.unwrap();
    let (clone, lease) = (lock.clone(), lock.acquire("r").await.unwrap());
    let request = lock.acquire("s");
    masters.stop(1);
    let waiting = tokio::spawn(lock.acquire("r").into_future());
    let probe = tokio::spawn(async move { clone.health().await });
    tokio::time::sleep(S).await;
    assert!(probe.await.unwrap().has_quorum());
    waiting.abort();
    let _ = waiting.await;
    drop(lock);
    drop(request);
    assert!(witness.upgrade().is_some(), "the lease keeps it");
    drop(lease);
    tokio::time::sleep(MS).await;
    assert!(witness.upgrade().is_none(), "something keeps the lock alive");
}

#[test]
fn a_nearer_deadline_is_reported_in_time_though_the_runtime_of_the_lock_stands_still() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (own, other) = (runtime(), runtime());
    let (_masters, _lock, lease) = own.block_on(async {
        let masters = redquorum::memory::Masters::new(3);
        let lock = masters.builder().ttl(60 * S).build().await.unwrap();
        let lease = lock.acquire("r").await.unwrap();
        (masters, lock, lease)
    });
    other.block_on(async {
        let (lost, extended) =
            tokio::join!(timeout(30 * S, lease.lost()), timeout(30 * S, lease.extend_to(500 * MS)));
        lost.expect("reported in time");
        extended.unwrap().expect_err("no task asks the masters");
    });
}
