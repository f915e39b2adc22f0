//! Waiters are woken in turn and leave nothing behind.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redquorum::memory::Masters;
use redquorum::{AcquireError, Redlock};
use tokio::time::Instant;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

async fn locks<const N: usize>(masters: &Masters) -> [Redlock; N] {
    let mut locks = Vec::new();
    for _ in 0..N {
        locks.push(masters.builder().ttl(30 * SECOND).build().await.unwrap());
    }
    locks.try_into().unwrap()
}

/// Lets everything in flight arrive.
async fn settle() {
    tokio::time::sleep(20 * MS).await;
}

fn listens(lock: &Redlock) -> usize {
    lock.stats().masters.iter().map(|master| master.listens).sum()
}

#[tokio::test(start_paused = true)]
async fn a_waiter_of_another_process_is_woken_as_soon_as_the_lease_is_given_back() {
    let masters = Masters::new(5);
    let [one, two] = locks(&masters).await;
    let lease = one.acquire("r").await.unwrap();
    let waiter = tokio::spawn(two.acquire("r").wait(20 * SECOND).into_future());
    tokio::time::sleep(5 * SECOND + 123 * MS).await;
    assert_eq!(listens(&two), 5);
    let before = Instant::now();
    lease.release().await;
    let lease = waiter.await.unwrap().unwrap();
    assert!(before.elapsed() <= 5 * MS, "{:?}", before.elapsed());
    assert!(lease.validity() > 29 * SECOND);
    lease.release().await;
    settle().await;
    assert_eq!((listens(&two), two.stats().waiting), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn without_wake_ups_it_is_tried_again_and_again() {
    let masters = Masters::new(5);
    let [one] = locks(&masters).await;
    let two = masters.builder().wake_ups(false).build().await.unwrap();
    let lease = one.acquire("r").await.unwrap();
    let waiter = tokio::spawn(two.acquire("r").wait(20 * SECOND).into_future());
    tokio::time::sleep(5 * SECOND).await;
    let asked: u64 = two.stats().masters.iter().map(|master| master.refused).sum();
    assert!(asked > 20, "{asked}");
    assert_eq!(listens(&two), 0);
    lease.release().await;
    drop(waiter.await.unwrap().unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_waiter_costs_one_look_a_second_while_the_lease_is_held() {
    let masters = Masters::new(5);
    let [one, two] = locks(&masters).await;
    let _lease = one.acquire("r").await.unwrap();
    let waiters: Vec<_> =
        (0..200).map(|_| tokio::spawn(two.acquire("r").wait(20 * SECOND).into_future())).collect();
    settle().await;
    let answered = || two.stats().masters.iter().map(|it| it.latency.count).sum::<u64>();
    let before = answered();
    tokio::time::sleep(10 * SECOND).await;
    let looks = answered() - before;
    assert!((10..=20).contains(&looks), "{looks} commands in ten seconds");
    waiters.iter().for_each(tokio::task::JoinHandle::abort);
    settle().await;
    assert_eq!((listens(&two), two.stats().waiting), (0, 0), "cancelled, and nothing is left");
}

#[tokio::test(start_paused = true)]
async fn tasks_of_one_process_take_turns_in_order_and_ask_no_more_than_one_alone_would() {
    let masters = Masters::new(5);
    let [lock] = locks(&masters).await;
    let turn = Arc::new(AtomicUsize::new(0));
    let answered = || lock.stats().masters.iter().map(|it| it.latency.count).sum::<u64>();
    let before = answered();
    let tasks: Vec<_> = (0..50)
        .map(|number| {
            let (request, turn) = (lock.acquire("r").wait(20 * SECOND).into_future(), turn.clone());
            tokio::spawn(async move {
                let lease = request.await.unwrap();
                assert_eq!(turn.fetch_add(1, Ordering::Relaxed), number);
                tokio::time::sleep(2 * MS).await;
                lease.release().await;
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    settle().await;
    assert_eq!(answered() - before, 50 * 10, "a SET and a clean-up on each of five masters");
    assert_eq!(lock.stats().waiting, 0);
}

#[tokio::test(start_paused = true)]
async fn a_future_that_nobody_polls_holds_up_the_others_for_a_ttl_at_most() {
    let masters = Masters::new(5);
    let [lock] = locks(&masters).await;
    let mut forgotten = by_hand(lock.acquire("r").wait(600 * SECOND).into_future());
    assert!(forgotten.poll_once().is_none());
    let before = Instant::now();
    let lease = lock.acquire("r").wait(600 * SECOND).await.unwrap();
    assert!(before.elapsed() < 31 * SECOND, "{:?}", before.elapsed());
    // The acquire continues where it was when it is polled again.
    assert!(forgotten.poll_once().is_none());
    lease.release().await;
    assert!(forgotten.0.await.unwrap().validity() > 29 * SECOND);
}

/// A future that the test polls by hand.
struct ByHand<F>(std::pin::Pin<Box<F>>);

fn by_hand<F: Future>(future: F) -> ByHand<F> {
    ByHand(Box::pin(future))
}

impl<F: Future> ByHand<F> {
    fn poll_once(&mut self) -> Option<F::Output> {
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        match self.0.as_mut().poll(&mut cx) {
            std::task::Poll::Ready(output) => Some(output),
            std::task::Poll::Pending => None,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_is_over_in_the_queue_asks_no_master_and_says_what_the_one_ahead_knows() {
    let masters = Masters::new(5);
    let [lock] = locks(&masters).await;
    let _lease = lock.acquire("r").wait(SECOND).await.unwrap();
    let (before, asked) = (Instant::now(), lock.stats().masters[0].latency.count);
    let error = lock.acquire("r").wait(SECOND).await.unwrap_err();
    assert!(before.elapsed() < SECOND + 10 * MS, "{:?}", before.elapsed());
    let AcquireError::Taken { report, attempts } = error else { panic!("{error}") };
    assert_eq!((attempts, lock.stats().masters[0].latency.count), (0, asked));
    assert!(report.to_string().contains("held by token"), "{report}");
}

#[tokio::test(start_paused = true)]
async fn processes_that_wait_for_each_other_all_come_to_their_turn() {
    let masters = Masters::new(5);
    let locks: [Redlock; 4] = locks(&masters).await;
    let before = Instant::now();
    let mut tasks = Vec::new();
    for lock in &locks {
        for _ in 0..4 {
            let lock = lock.clone();
            tasks.push(tokio::spawn(async move {
                let mut longest = Duration::ZERO;
                for _ in 0..20 {
                    let asked = Instant::now();
                    let lease = lock.acquire("r").wait(20 * SECOND).await.unwrap();
                    longest = longest.max(asked.elapsed());
                    tokio::time::sleep(2 * MS).await;
                    lease.release().await;
                }
                longest
            }));
        }
    }
    let mut longest = Duration::ZERO;
    for task in tasks {
        longest = longest.max(task.await.unwrap());
    }
    let asked: u64 =
        locks.iter().flat_map(|lock| lock.stats().masters).map(|master| master.latency.count).sum();
    // 320 leases of two milliseconds each.
    assert!(before.elapsed() < 2 * 640 * MS, "{:?}", before.elapsed());
    assert!(asked < 320 * 25, "{asked} commands");
    // Processes take turns of four leases. So each waits for one turn of three others, not for all
    // of their requests.
    assert!(longest < 100 * MS, "{longest:?}");
}
