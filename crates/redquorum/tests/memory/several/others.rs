//! Competition: clients that acquire the same resources in another order, and clients that acquire
//! only one of them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redquorum::memory::Masters;
use redquorum::{Deadline, Lease, Redlock};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::support::{MS, S, bed, keys, settle, take};

/// The holder of each resource, and its deadline.
type Held = HashMap<Vec<u8>, (u64, Deadline)>;

/// The resources that clients believe to hold.
#[derive(Clone, Default)]
struct Believers(Arc<Mutex<Held>>);

impl Believers {
    fn enter(&self, id: u64, lease: &Lease) {
        assert!(lease.is_lost().is_none(), "a lease that is none");
        let resource = lease.resource().to_vec();
        let before = self.0.lock().unwrap().insert(resource, (id, lease.deadline()));
        let other = before.filter(|(_, deadline)| !deadline.has_passed());
        assert!(other.is_none(), "{id} and {other:?} hold {lease:?}");
    }

    fn leave(&self, lease: &Lease) {
        self.0.lock().unwrap().remove(lease.resource());
    }
}

async fn work(
    lock: Redlock,
    id: u64,
    names: Vec<&'static str>,
    rounds: u32,
    seen: Believers,
) -> Duration {
    let mut longest = Duration::ZERO;
    for round in 0..rounds {
        let start = Instant::now();
        let leases = lock
            .acquire_all(&names)
            .wait(120 * S)
            .await
            .unwrap_or_else(|error| panic!("{id} in round {round}: {error}"));
        longest = longest.max(start.elapsed());
        leases.iter().for_each(|lease| seen.enter(id, lease));
        sleep(2 * MS).await;
        leases.iter().for_each(|lease| seen.leave(lease));
        leases.release().await;
    }
    longest
}

#[tokio::test(start_paused = true)]
async fn callers_that_name_them_in_any_order_all_get_through() {
    let (masters, _) = bed(3).await;
    let seen = Believers::default();
    let mut tasks = JoinSet::new();
    let names = [["a", "b", "c"], ["c", "b", "a"], ["b", "c", "d"], ["d", "a", "b"]];
    for (id, names) in names.into_iter().enumerate() {
        // Each task has a lock of its own, like a process.
        let lock = masters.builder().build().await.unwrap();
        tasks.spawn(work(lock, id as u64, names.to_vec(), 10, seen.clone()));
    }
    while let Some(longest) = tasks.join_next().await {
        assert!(longest.unwrap() < 60 * S);
    }
    settle().await;
    assert_eq!(keys(&masters, 3), 0);
}

#[tokio::test(start_paused = true)]
async fn who_wants_one_of_them_and_who_wants_several_keep_each_other_out() {
    let masters = Masters::new(3);
    let seen = Believers::default();
    let mut tasks = JoinSet::new();
    for (id, names) in
        [vec!["a", "b"], vec!["a"], vec!["b"], vec!["b", "a"]].into_iter().enumerate()
    {
        let lock = masters.builder().build().await.unwrap();
        tasks.spawn(work(lock, id as u64, names, 10, seen.clone()));
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    settle().await;
    assert_eq!(keys(&masters, 3), 0);
}

#[tokio::test(start_paused = true)]
async fn two_who_hold_one_resource_would_be_seen() {
    let (masters, lock) = bed(3).await;
    let seen = Believers::default();
    let first = take(&lock, "a").await;
    seen.enter(1, &first);
    (1..=3).for_each(|number| masters.forget(number));
    let second = lock.acquire_all(["a"]).await.unwrap();
    let enters = std::panic::AssertUnwindSafe(|| seen.enter(2, second.get("a").unwrap()));
    assert!(std::panic::catch_unwind(enters).is_err());
}

/// The keys of a dead holder, and of a waiting request for several resources, block no client for
/// longer than a TTL.
#[tokio::test(start_paused = true)]
async fn who_waits_gets_all_when_the_holder_of_one_is_gone_for_good() {
    let (_masters, lock) = bed(3).await;
    std::mem::forget(take(&lock, "b").await);
    let start = Instant::now();
    let leases = lock.acquire_all(["a", "b"]).wait(20 * S).await.unwrap();
    assert!(start.elapsed() <= 10 * S + 300 * MS, "{:?}", start.elapsed());
    drop(leases);
}

#[tokio::test(start_paused = true)]
async fn callers_of_one_process_take_their_turns_in_its_queues() {
    let (masters, lock) = bed(3).await;
    let seen = Believers::default();
    let mut tasks = JoinSet::new();
    let names = [vec!["a", "b"], vec!["b", "a"], vec!["a"], vec!["b"], vec!["c", "b"], vec!["c"]];
    for (id, names) in names.into_iter().enumerate() {
        tasks.spawn(work(lock.clone(), id as u64, names, 10, seen.clone()));
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    settle().await;
    assert_eq!(keys(&masters, 3), 0);
}

#[tokio::test(start_paused = true)]
async fn who_gives_up_in_a_queue_leaves_its_place_to_the_next() {
    let (masters, lock) = bed(3).await;
    // Before it reaches the head of the queue, and after.
    for before in [false, true] {
        let held = take(&lock, "b").await;
        let ahead = lock.acquire("b").wait(60 * S).into_future();
        let ahead = before.then(|| tokio::spawn(ahead));
        sleep(S).await;
        let gone = tokio::spawn(lock.acquire_all(["a", "b"]).wait(60 * S).into_future());
        sleep(S).await;
        let next = tokio::spawn(lock.acquire("b").wait(60 * S).into_future());
        sleep(S).await;
        gone.abort();
        held.release().await;
        if let Some(ahead) = ahead {
            ahead.await.unwrap().unwrap().release().await;
        }
        let start = Instant::now();
        next.await.unwrap().unwrap().release().await;
        assert!(start.elapsed() < S, "{:?}", start.elapsed());
        settle().await;
        assert_eq!(keys(&masters, 3), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_for_one_of_several_is_woken_by_its_release() {
    let (masters, lock) = bed(3).await;
    let other = masters.builder().build().await.unwrap();
    let held = take(&lock, "b").await;
    let waiting = tokio::spawn(other.acquire_all(["a", "b"]).wait(60 * S).into_future());
    sleep(5 * S).await;
    held.release().await;
    let released = Instant::now();
    drop(waiting.await.unwrap().unwrap());
    assert!(released.elapsed() <= 20 * MS, "{:?}", released.elapsed());
}
