//! Many clients want the same resource: never two hold it at a time, and each gets it in the end.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redquorum::memory::Masters;
use redquorum::{Deadline, Lease, Redlock};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::support::{MS, S, TTL, bed, keys, settle, take};

/// The clients that believe to hold a resource: from the return of `acquire` to the call of
/// `release`, the deadline, or the loss.
#[derive(Clone, Default)]
struct Believers(Arc<Mutex<HashMap<&'static str, (u64, Deadline)>>>, Arc<Mutex<Vec<String>>>);

impl Believers {
    fn enter(&self, resource: &'static str, id: u64, lease: &Lease) {
        assert!(lease.is_lost().is_none(), "a lease that is none");
        let before = self.0.lock().unwrap().insert(resource, (id, lease.deadline()));
        if let Some((other, deadline)) = before
            && !deadline.has_passed()
        {
            self.1.lock().unwrap().push(format!("{id} and {other} hold {resource}"));
        }
    }

    fn leave(&self, resource: &'static str, id: u64) {
        let mut held = self.0.lock().unwrap();
        if held.get(resource).is_some_and(|(holder, _)| *holder == id) {
            held.remove(resource);
        }
    }

    fn violations(&self) -> Vec<String> {
        self.1.lock().unwrap().clone()
    }
}

/// Acquires, holds, and releases in one of three ways.
async fn turn(lock: Redlock, resource: &'static str, id: u64, hold: Duration, all: Believers) {
    let lease = lock.acquire(resource).wait(Duration::MAX).await.unwrap();
    all.enter(resource, id, &lease);
    // The deadline ends the work if nothing ends it before.
    let _ = lease.run(sleep(hold)).await;
    all.leave(resource, id);
    match id % 3 {
        0 => drop(lease),
        1 => drop(lease.release()),
        _ => drop(lease.release().await),
    }
}

#[tokio::test(start_paused = true)]
async fn a_thousand_tasks_hold_one_after_the_other() {
    let (masters, lock) = bed(5).await;
    let (all, mut tasks) = (Believers::default(), JoinSet::new());
    for id in 0..1_000 {
        let resource = ["a", "b", "c", "d"][usize::try_from(id % 4).unwrap()];
        tasks.spawn(turn(lock.clone(), resource, id, Duration::from_millis(id % 5), all.clone()));
    }
    tasks.join_all().await;
    assert_eq!(all.violations(), Vec::<String>::new());
    assert_eq!(lock.stats().acquired, 1_000);
    lock.shutdown(S).await.unwrap();
    assert_eq!(keys(&masters, 5), 0);
}

#[tokio::test(start_paused = true)]
async fn several_clients_share_masters_that_sleep_in_turn() {
    let masters = Masters::new(5);
    let (all, mut tasks) = (Believers::default(), JoinSet::new());
    let mut locks = Vec::new();
    for client in 0..4 {
        let lock = masters.builder().ttl(S).build().await.unwrap();
        for task in 0..10 {
            let (id, lock, all) = (client * 10 + task, lock.clone(), all.clone());
            tasks.spawn(async move {
                for round in 0..10 {
                    // Some hold for longer than their lease lasts.
                    let hold =
                        Duration::from_millis(if (id + round) % 20 == 0 { 1_500 } else { 3 });
                    turn(lock.clone(), "r", id, hold, all.clone()).await;
                }
            });
        }
        locks.push(lock);
    }
    // The masters stop in turn, each for most of a TTL.
    let faults = tokio::spawn({
        let masters = masters.clone();
        async move {
            for round in 0_usize.. {
                let asleep = round % 5 + 1;
                masters.stop(asleep);
                sleep(700 * MS).await;
                masters.resume(asleep);
                sleep(500 * MS).await;
            }
        }
    });
    let start = Instant::now();
    while tasks.join_next().await.transpose().unwrap().is_some() {}
    faults.abort();
    (1..=5).for_each(|number| masters.resume(number));
    assert_eq!(all.violations(), Vec::<String>::new());
    assert!(start.elapsed() <= 120 * S, "{:?}", start.elapsed());
    let acquired: u64 = locks.iter().map(|lock| lock.stats().acquired).sum();
    assert_eq!(acquired, 400);
    for lock in locks {
        lock.shutdown(S).await.unwrap();
    }
    assert_eq!(keys(&masters, 5), 0);
}

#[tokio::test(start_paused = true)]
async fn two_holders_at_once_would_be_seen() {
    let (masters, lock) = bed(5).await;
    let all = Believers::default();
    let first = take(&lock, "r").await;
    all.enter("r", 1, &first);
    // The lock does not promise to survive this.
    (1..=3).for_each(|number| masters.forget(number));
    settle().await;
    let second = take(&lock, "r").await;
    all.enter("r", 2, &second);
    assert_eq!(all.violations(), ["2 and 1 hold r"]);
    // Control: a lease that has ended is no violation.
    sleep(TTL).await;
    let third = take(&lock, "r").await;
    all.enter("r", 3, &third);
    assert_eq!(all.violations().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_thousand_resources_are_held_at_the_same_time() {
    let (masters, lock) = bed(5).await;
    let mut leases = Vec::new();
    for number in 0..1_000 {
        leases.push(take(&lock, &format!("r{number}")).await);
    }
    let start = Instant::now();
    leases.iter().for_each(|lease| lease.keep_alive(30 * S));
    let mut lost = JoinSet::new();
    for lease in leases {
        lost.spawn(async move { lease.lost().await });
    }
    assert_eq!(lost.join_all().await.len(), 1_000);
    assert!(start.elapsed() <= 30 * S && start.elapsed() >= 29 * S, "{:?}", start.elapsed());
    assert_eq!(lock.stats().not_extended, 0);
    settle().await;
    assert_eq!(keys(&masters, 5), 0);
}
