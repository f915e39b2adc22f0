//! Waiters in the fair queue get their turn in order, and leave nothing behind.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use redquorum::memory::Masters;
use redquorum::{AcquireError, Lease, Redlock};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::support::*;

async fn locks<const N: usize>(masters: &Masters) -> [Redlock; N] {
    let mut locks = Vec::new();
    for _ in 0..N {
        locks.push(masters.builder().ttl(30 * S).fair(true).build().await.unwrap());
    }
    locks.try_into().unwrap()
}

/// A waiter in the queues of the masters.
async fn stands(lock: &Redlock) -> JoinHandle<Result<Lease, AcquireError>> {
    let waiter = tokio::spawn(lock.acquire("r").wait(60 * S).into_future());
    sleep(100 * MS).await;
    waiter
}

#[tokio::test(start_paused = true)]
async fn processes_come_in_turns_however_many_tasks_each_has() {
    let masters = Masters::new(5);
    let locks: [Redlock; 4] = locks(&masters).await;
    let turns = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for (number, lock) in locks.iter().enumerate() {
        for _ in 0..=number {
            let (lock, turns) = (lock.clone(), turns.clone());
            tasks.push(tokio::spawn(async move {
                for _ in 0..5 {
                    let lease = lock.acquire("r").wait(60 * S).await.unwrap();
                    turns.lock().unwrap().push(number);
                    sleep(2 * MS).await;
                    lease.release().await;
                }
            }));
        }
    }
    for task in tasks {
        task.await.unwrap();
    }
    let turns = turns.lock().unwrap().clone();
    assert_eq!(turns.len(), 50);
    // While all processes compete, any four leases in a row belong to four processes.
    for four in turns[..20].windows(4) {
        let mut four = four.to_vec();
        four.sort_unstable();
        assert_eq!(four, [0, 1, 2, 3], "{turns:?}");
    }
    sleep(5 * S).await;
    let waits: usize = locks.iter().map(|lock| lock.stats().waiting).sum();
    assert_eq!((waits, keys(&masters, 5)), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn who_is_next_is_woken_at_once() {
    let masters = Masters::new(5);
    let [one, two, three] = locks(&masters).await;
    let lease = one.acquire("r").await.unwrap();
    let next = stands(&two).await;
    let last = tokio::spawn(three.acquire("r").wait(60 * S).into_future());
    sleep(7 * S).await;
    for (lease, waiter) in [(Some(lease), next), (None, last)] {
        drop(lease);
        let before = Instant::now();
        let lease = waiter.await.unwrap().unwrap();
        assert!(before.elapsed() <= 5 * MS, "{:?}", before.elapsed());
        assert_eq!(lease.resource(), b"r");
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_passes_by_who_stands_in_line() {
    let masters = Masters::new(5);
    let [one, two, three] = locks(&masters).await;
    let lease = one.acquire("r").await.unwrap();
    let waiter = stands(&two).await;
    // The waiter cannot acquire for a while.
    (3..=5).for_each(|number| masters.stop(number));
    lease.release().await;
    (3..=5).for_each(|number| masters.resume(number));
    assert!(three.try_acquire("r").await.unwrap().is_none());
    let refused = three.acquire("r").wait(Duration::ZERO).await.unwrap_err();
    let AcquireError::Taken { report, attempts: 0 } = &refused else { panic!("{refused}") };
    assert!(report.masters().iter().any(|master| master.answer.is_some()));
    assert!(refused.to_string().starts_with("taken by another (0 attempts; "), "{refused}");
    let lease = waiter.await.unwrap().unwrap();
    let refused = three.acquire("r").wait(Duration::ZERO).await.unwrap_err();
    assert!(refused.report().unwrap().holder().is_some(), "{refused}");
    lease.release().await;
    drop(take(&three, "r").await);
}

#[tokio::test(start_paused = true)]
async fn who_gives_up_while_it_is_first_lets_the_next_one_in() {
    let masters = Masters::new(5);
    let [one, two, three] = locks(&masters).await;
    let lease = one.acquire("r").await.unwrap();
    let first = stands(&two).await;
    let second = stands(&three).await;
    first.abort();
    settle().await;
    let before = Instant::now();
    lease.release().await;
    drop(second.await.unwrap().unwrap());
    assert!(before.elapsed() <= 5 * MS, "{:?}", before.elapsed());
    assert_eq!(two.stats().waiting, 0);
}

#[tokio::test(start_paused = true)]
async fn without_a_line_and_in_it_all_the_same_is_promised() {
    let masters = Masters::new(5);
    let [fair] = locks(&masters).await;
    let other = masters.builder().ttl(30 * S).build().await.unwrap();
    let lease = fair.acquire("r").await.unwrap();
    let waiters = [&fair, &other].map(|lock| {
        let request = lock.acquire("r").wait(60 * S).into_future();
        tokio::spawn(async move {
            let lease = request.await.unwrap();
            sleep(10 * MS).await;
            lease.release().await;
        })
    });
    sleep(S).await;
    lease.release().await;
    for waiter in waiters {
        waiter.await.unwrap();
    }
    sleep(5 * S).await;
    assert_eq!(keys(&masters, 5), 0);
}

#[tokio::test(start_paused = true)]
async fn a_lease_costs_each_master_a_position_and_a_vote_and_one_end_of_both() {
    let masters = Masters::new(5);
    let [lock] = locks(&masters).await;
    let before = answers(&lock);
    let tasks: Vec<_> = (0..50)
        .map(|_| {
            let request = lock.acquire("r").wait(20 * S).into_future();
            tokio::spawn(async move {
                let lease = request.await.unwrap();
                sleep(2 * MS).await;
                lease.release().await;
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    sleep(S).await;
    // In addition, each master gets a HELLO, a SUBSCRIBE and at most one repeated look.
    let asked = answers(&lock) - before;
    assert!((5 * (50 * 3 + 2)..=5 * (50 * 3 + 3)).contains(&asked), "{asked}");
}
