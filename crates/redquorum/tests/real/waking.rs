//! Waiters on real masters: a release wakes them, even if their connections broke meanwhile. They
//! leave nothing behind, in the process or on a master.
//!
//! `faults/deaf.rs` has masters that may not wake a waiter, and `queues.rs` the scripts.

use std::future::IntoFuture;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use redquorum::{Lease, Redlock};
use redquorum_rig::trials::{Case, with_masters};
use redquorum_rig::{Masters, Persistence, RespValue};
use tokio::time::{Instant, sleep};

use crate::raw::Raw;
use crate::support::*;

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = cases![
        a_release_wakes_a_waiter_of_another_lock,
        a_connection_that_is_killed_is_subscribed_anew,
        masters_that_restart_are_subscribed_to_anew,
        long_names_are_waited_for_without_harm_to_others,
        waits_dropped_at_any_time_leave_nothing,
        thousands_of_waits_at_once_leave_nothing,
    ];
    let all = || run_within(Duration::from_secs(900), one_after_the_other());
    cases.push(with_masters("many_resources_waited_for_one_after_the_other_leave_nothing", all));
    cases
}

const LONG: Duration = Duration::from_secs(60);

/// The length of a long name in bytes.
const LONG_NAME: usize = 200_000;

/// The number of waiters that the masters are to wake, over all links.
fn listens(lock: &Redlock) -> usize {
    lock.stats().masters.iter().map(|master| master.listens).sum()
}

/// Whether a master has exactly one waiter for a resource, and its connection is subscribed.
fn is_awaited(masters: &Masters, node: usize, resource: &str) -> bool {
    let queue = format!("redquorum:queue:{resource}");
    let waiters = match masters.command(node, &[b"ZRANGE", queue.as_bytes(), b"0", b"-1"]) {
        Ok(RespValue::Array(waiters)) => waiters,
        other => panic!("{other:?}"),
    };
    let [waiter] = waiters.as_slice() else { return false };
    let inbox = waiter.text().expect("a text")[..16].to_owned();
    match masters.ask(node, &format!("PUBSUB NUMSUB redquorum:wake:{inbox}")) {
        Ok(RespValue::Array(said)) => matches!(said.as_slice(), [_, RespValue::Integer(1)]),
        other => panic!("{other:?}"),
    }
}

/// The number of channels with subscribers, over all masters.
pub(crate) fn channels(masters: &Masters) -> usize {
    let on = |node| match masters.ask(node, "PUBSUB CHANNELS redquorum:*") {
        Ok(RespValue::Array(channels)) => channels.len(),
        other => panic!("{other:?}"),
    };
    all(masters).map(on).sum()
}

/// Checks that no waiter is left in the process or in a queue, and that each connection is
/// subscribed to at most one channel.
async fn forgotten(masters: &Masters, locks: &[&Redlock]) {
    let left = || -> usize {
        let here = locks.iter().map(|lock| lock.stats().waiting + listens(lock)).sum::<usize>();
        let there =
            ["redquorum:queue:*", "redquorum:lapse:*"].map(|keys_of| keys(masters, keys_of));
        here + there.concat().len()
    };
    eventually("nothing is left of the waiters", || left() == 0).await;
    assert!(channels(masters) <= locks.len() * masters.len());
}

type Waiter = tokio::task::JoinHandle<Lease>;

/// A waiter that the masters will wake.
async fn waiter(lock: &Redlock, masters: &Masters, resource: &str) -> Waiter {
    let request = lock.acquire(resource).wait(LONG).into_future();
    let waiter = tokio::spawn(async move { request.await.unwrap() });
    awaited(masters, resource).await;
    waiter
}

async fn awaited(masters: &Masters, resource: &str) {
    let awaited = || all(masters).all(|node| is_awaited(masters, node, resource));
    eventually("all masters have the waiter", awaited).await;
}

/// A release wakes the waiter at once, and the waiter releases in turn.
async fn wakes_at_once(lease: Lease, waiter: Waiter) {
    let before = Instant::now();
    lease.release().await;
    let lease = waiter.await.unwrap();
    assert!(before.elapsed() < AT_ONCE, "{:?}", before.elapsed());
    lease.release().await;
}

async fn a_release_wakes_a_waiter_of_another_lock() {
    let masters = own(3);
    let builder = || calm(&masters).ttl(LONG);
    let [one, two] = [built(builder()).await, built(builder()).await];
    let mut took = Vec::new();
    for round in 0..11 {
        // Another resource each time: a process that has just released a resource queues for it.
        let r = format!("r-{round}");
        let lease = one.acquire(&r).await.unwrap();
        let waiter = waiter(&two, &masters, &r).await;
        sleep(30 * MS).await;
        let before = Instant::now();
        lease.release().await;
        let lease = waiter.await.unwrap();
        took.push(before.elapsed());
        lease.release().await;
    }
    took.sort();
    // With looks alone each hand-over would take half a second on average.
    assert!(took[5] < 100 * MS, "{took:?}");
    forgotten(&masters, &[&one, &two]).await;
    cleaned(&masters, "r-*").await;
}

async fn a_connection_that_is_killed_is_subscribed_anew() {
    let masters = own(3);
    let builder = || calm(&masters).ttl(LONG);
    let [one, two] = [built(builder()).await, built(builder()).await];
    let lease = one.acquire("r").await.unwrap();
    let waiter = waiter(&two, &masters, "r").await;
    for round in 0..3 {
        let before: u64 = two.stats().masters.iter().map(|master| master.connected).sum();
        for node in all(&masters) {
            done(&masters, node, "CLIENT KILL TYPE pubsub");
        }
        let connected = || two.stats().masters.iter().map(|master| master.connected).sum::<u64>();
        eventually("all are connected anew", || connected() == before + 3).await;
        awaited(&masters, "r").await;
        assert!(!waiter.is_finished(), "{round}");
    }
    wakes_at_once(lease, waiter).await;
    forgotten(&masters, &[&one, &two]).await;
}

async fn masters_that_restart_are_subscribed_to_anew() {
    let masters = Masters::builder().count(3).persistence(Persistence::AofAlways).start().unwrap();
    let builder = || calm(&masters).ttl(LONG);
    let [one, two] = [built(builder()).await, built(builder()).await];
    let lease = one.acquire("r").await.unwrap();
    let waiter = waiter(&two, &masters, "r").await;
    for node in all(&masters) {
        masters.kill(node).unwrap();
        masters.restart(node).unwrap();
        awaited(&masters, "r").await;
    }
    assert!(!waiter.is_finished());
    let connected = |lock: &Redlock| lock.stats().masters.iter().all(|it| it.owed == 0);
    eventually("the holder is connected, too", || connected(&one)).await;
    wakes_at_once(lease, waiter).await;
    forgotten(&masters, &[&one, &two]).await;
    cleaned(&masters, "r").await;
}

/// A wake-up names the waiter and not the resource, because with a long name the message would
/// exceed the longest reply.
async fn long_names_are_waited_for_without_harm_to_others() {
    let masters = own(3);
    let builder = || calm(&masters).ttl(LONG);
    let [one, two] = [built(builder()).await, built(builder()).await];
    const { assert!(LONG_NAME > redquorum_protocol::wire::MAX_REPLY) };
    let long: Vec<String> = ["a", "b"].map(|letter| letter.repeat(LONG_NAME)).into();
    let short = one.acquire("r").await.unwrap();
    let behind = waiter(&two, &masters, "r").await;
    let mut messages = Raw::connect(masters.port(1));
    messages.send("PSUBSCRIBE redquorum:wake:*");
    assert_eq!([(); 6].map(|()| messages.line()).last().unwrap(), ":1");
    for name in &long {
        let lease = one.acquire(name.as_str()).await.unwrap();
        let waiter = waiter(&two, &masters, name).await;
        wakes_at_once(lease, waiter).await;
    }
    for _ in &long {
        let message = [(); 9].map(|()| messages.line());
        assert!(message[2] == "pmessage" && message.iter().all(|it| it.len() < 40), "{message:?}");
    }
    assert!(!behind.is_finished());
    wakes_at_once(short, behind).await;
    for lock in [&one, &two] {
        let connected = lock.stats().masters.iter().map(|master| master.connected).sum::<u64>();
        assert_eq!(connected, 3, "no connection was lost");
    }
    forgotten(&masters, &[&one, &two]).await;
}

/// Waits are dropped between their first poll and long after they began to sleep, some with another
/// waiter behind them in the queue.
async fn waits_dropped_at_any_time_leave_nothing() {
    const WAITS: u32 = 200;
    let masters = own(3);
    let builder = || calm(&masters).ttl(LONG);
    let [one, two] = [built(builder()).await, built(builder()).await];
    let mut leases = Vec::new();
    for round in 0..WAITS {
        leases.push(one.acquire(format!("held-{round}")).await.unwrap());
    }
    let mut asleep = 0;
    for round in 0..WAITS {
        let after = 20 * MS * round / WAITS;
        let request = || two.acquire(format!("held-{round}")).wait(LONG).into_future();
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
        asleep += u32::from(listens(&two) == 3);
        drop(waiting);
        if round % 6 == 0 {
            // The next waiter gets a poll, and is then dropped too.
            let _ = poll_once(&mut behind).await;
        }
    }
    assert!(asleep > WAITS / 10 && asleep < WAITS, "{asleep} of {WAITS} were asleep");
    forgotten(&masters, &[&two]).await;
    assert_eq!(keys(&masters, "held-*").len(), 3 * WAITS as usize, "only what is held");
    for lease in leases {
        lease.release().await;
    }
    cleaned(&masters, "held-*").await;
    assert_eq!(two.stats().masters.iter().map(|master| master.owed).sum::<usize>(), 0);
}

async fn thousands_of_waits_at_once_leave_nothing() {
    const RESOURCES: usize = 2000;
    let masters = own(3);
    let builder = || calm(&masters).ttl(LONG);
    let [one, two] = [built(builder()).await, built(builder()).await];
    let name = |number: usize| format!("many-{number}");
    let mut leases = Vec::new();
    for number in 0..RESOURCES {
        leases.push(one.acquire(name(number)).await.unwrap());
    }
    let waiters: Vec<_> = (0..RESOURCES)
        .map(|number| {
            let request = two.acquire(name(number)).wait(LONG).into_future();
            tokio::spawn(async move { drop(request.await.unwrap()) })
        })
        .collect();
    eventually("masters are to wake all", || listens(&two) == 3 * RESOURCES).await;
    let queued = || keys(&masters, "redquorum:queue:*").len() == 3 * RESOURCES;
    eventually("and know them", queued).await;
    assert_eq!(channels(&masters), 3, "one of each connection");
    for lease in leases {
        lease.release().await;
    }
    for waiter in waiters {
        waiter.await.unwrap();
    }
    forgotten(&masters, &[&one, &two]).await;
    cleaned(&masters, "many-*").await;
}

/// `REDQUORUM_RESOURCES=100000` sets their number.
async fn one_after_the_other() {
    const TASKS: usize = 200;
    let many = std::env::var("REDQUORUM_RESOURCES").map_or(2000, |text| text.parse().unwrap());
    let masters = own(3);
    let builder = || calm(&masters).ttl(LONG);
    let [one, two] = [built(builder()).await, built(builder()).await];
    let (next, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let start = Instant::now();
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let (one, two, next, most) = (one.clone(), two.clone(), next.clone(), most.clone());
            tokio::spawn(async move {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= many {
                        return;
                    }
                    let name = format!("one-{number}");
                    let held = one.acquire(&name).await.unwrap();
                    let mut waiting = two.acquire(&name).wait(LONG).into_future();
                    while listens(&two) == 0 {
                        assert!(matches!(poll_once(&mut waiting).await, Poll::Pending));
                        tokio::task::yield_now().await;
                    }
                    most.fetch_max(listens(&two), Ordering::Relaxed);
                    let (released, lease) = tokio::join!(held.release(), waiting);
                    drop(released);
                    lease.unwrap().release().await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let most = most.load(Ordering::Relaxed);
    println!("{many} resources, at most {most} waiters at a time, in {:?}", start.elapsed());
    assert!(most > 0 && most <= 3 * TASKS, "{most}");
    assert_eq!(two.stats().acquired, many as u64);
    forgotten(&masters, &[&one, &two]).await;
    cleaned(&masters, "one-*").await;
}
