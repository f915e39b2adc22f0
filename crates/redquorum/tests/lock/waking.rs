//! Waiters: a release wakes them. They leave nothing behind, in the process or on a master.
//! `access.rs` has masters that may not wake a waiter.

use std::future::IntoFuture;

use redquorum::{Outcome, Redlock};
use redquorum_rig::RespValue;
use tokio::time::{Instant, sleep};

use crate::support::*;

tests! {
    both:
        a_release_wakes_the_waiter_at_once;
    real:
        waits_dropped_at_any_time_leave_nothing,
        a_key_that_is_no_queue_is_ignored,
}

/// The number of waiters that the masters are to wake, over all links.
fn subscriptions(lock: &Redlock) -> usize {
    lock.stats().masters.iter().map(|master| master.subscriptions).sum()
}

/// The number of channels with subscribers, over all masters.
pub(crate) fn channels(masters: &Real) -> usize {
    let on = |node| match masters.ask(node, "PUBSUB CHANNELS redquorum:*") {
        Ok(RespValue::Array(channels)) => channels.len(),
        other => panic!("{other:?}"),
    };
    masters.all().map(on).sum()
}

async fn two(masters: &impl Cluster) -> [Redlock; 2] {
    let builder = || masters.builder().ttl(60 * S);
    [built(builder()).await, built(builder()).await]
}

/// Checks that no waiter is left in the process or in a queue, and that each connection is
/// subscribed to at most one channel.
async fn forgotten(masters: &Real, locks: &[&Redlock]) {
    let left = || -> usize {
        let here =
            locks.iter().map(|lock| lock.stats().waiting + subscriptions(lock)).sum::<usize>();
        let there =
            |keys| masters.all().map(|node| masters.matching(node, keys).len()).sum::<usize>();
        here + there("redquorum:queue:*") + there("redquorum:lapse:*")
    };
    eventually("nothing is left of the waiters", || left() == 0).await;
    assert!(channels(masters) <= locks.len() * masters.len());
}

async fn a_release_wakes_the_waiter_at_once<C: Cluster>() {
    let masters = C::start(3);
    let [one, two] = two(&masters).await;
    let mut took = Vec::new();
    for round in 0..11 {
        // Another resource each time: a process that has just released a resource queues for it.
        let lease = one.acquire(format!("r{round}")).await.unwrap();
        let waiter = tokio::spawn(two.acquire(format!("r{round}")).wait(60 * S).into_future());
        eventually("masters will wake it", || subscriptions(&two) == 3).await;
        replied(&two).await;
        sleep(30 * MS).await;
        assert!(!waiter.is_finished());
        let (time, next) = timed(async {
            assert_eq!(lease.release().await.outcome, Outcome::Released);
            waiter.await.unwrap().unwrap()
        })
        .await;
        took.push(time);
        assert!(next.validity() > 50 * S);
        let _ = next.release().await;
    }
    took.sort();
    // With looks alone each hand-over would take half a second on average.
    assert!(took[5] < 100 * MS && took[10] <= 100 * MS + C::LATE, "{took:?}");
    eventually("nothing is left of the waiters", || subscriptions(&two) == 0).await;
    assert_eq!(two.stats().waiting, 0);
    masters.cleaned().await;
}

/// Waits are dropped between their first poll and long after they began to sleep, some with another
/// waiter behind them in the queue.
async fn waits_dropped_at_any_time_leave_nothing() {
    const WAITS: u32 = 200;
    let masters = Real::start(3);
    let [one, two] = two(&masters).await;
    let mut leases = Vec::new();
    for round in 0..WAITS {
        leases.push(one.acquire(format!("held-{round}")).await.unwrap());
    }
    let mut asleep = 0;
    for round in 0..WAITS {
        let after = 20 * MS * round / WAITS;
        let request = || two.acquire(format!("held-{round}")).wait(60 * S).into_future();
        let (mut waiting, mut behind) = (request(), request());
        let start = Instant::now();
        loop {
            assert!(poll_once(&mut waiting).await.is_pending());
            if round % 3 == 0 {
                assert!(poll_once(&mut behind).await.is_pending());
            }
            if start.elapsed() >= after {
                break;
            }
            tokio::task::yield_now().await;
        }
        asleep += u32::from(subscriptions(&two) == 3);
        drop(waiting);
        if round % 6 == 0 {
            // The next waiter gets a poll, and is then dropped too.
            let _ = poll_once(&mut behind).await;
        }
    }
    assert!(asleep > WAITS / 10 && asleep < WAITS, "{asleep} of {WAITS} were asleep");
    forgotten(&masters, &[&two]).await;
    assert_eq!(masters.keys(1..=3).len(), 3 * WAITS as usize, "only what is held");
    for lease in leases {
        let _ = lease.release().await;
    }
    masters.cleaned().await;
    tidied(&two).await;
}

async fn a_key_that_is_no_queue_is_ignored() {
    let masters = Real::start(3);
    let fair = || masters.builder().ttl(60 * S).fair(true);
    let [one, two] = [built(fair()).await, built(fair()).await];
    for queue in ["SET redquorum:queue:r what", "ZADD redquorum:queue:r 9007199254740993 x"] {
        masters.done_on(1..=3, queue);
        let lease = one.acquire("r").await.unwrap();
        let waiter = tokio::spawn(two.acquire("r").wait(60 * S).into_future());
        sleep(100 * MS).await;
        let _ = lease.release().await;
        let _ = waiter.await.unwrap().unwrap().release().await;
        masters.done_on(1..=3, "DEL redquorum:queue:r redquorum:lapse:r");
    }
    masters.cleaned().await;
}
