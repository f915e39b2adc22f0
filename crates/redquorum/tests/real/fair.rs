//! Fair processes on real masters: the order of their leases, and waiters that are gone.

use std::future::IntoFuture;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redquorum::{Builder, Redlock};
use redquorum_rig::{Masters, trials::Case};
use tokio::time::{Instant, sleep};

use crate::raw::Raw;
use crate::support::*;

pub(crate) fn cases() -> Vec<Case> {
    cases![
        processes_come_in_turns_and_leave_no_queue,
        a_waiter_without_a_connection_delays_no_other,
        a_waiter_that_does_not_respond_delays_others_for_its_turn,
        a_queue_that_is_no_queue_is_done_without,
    ]
}

const LONG: Duration = Duration::from_secs(60);

fn fair(masters: &Masters) -> Builder {
    calm(masters).ttl(LONG).fair(true)
}

async fn processes_come_in_turns_and_leave_no_queue() {
    const ROUNDS: usize = 20;
    let masters = own(5);
    let turns = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for process in 0..4 {
        let lock = built(fair(&masters)).await;
        for _ in 0..2 {
            let (lock, turns) = (lock.clone(), turns.clone());
            tasks.push(tokio::spawn(async move {
                for _ in 0..ROUNDS {
                    let lease = lock.acquire("r").wait(LONG).await.unwrap();
                    turns.lock().unwrap().push(process);
                    sleep(MS).await;
                    lease.release().await;
                }
            }));
        }
    }
    for task in tasks {
        task.await.unwrap();
    }
    let turns = turns.lock().unwrap().clone();
    assert_eq!(turns.len(), 4 * 2 * ROUNDS);
    // While all processes compete: between two leases of one process, each other process
    // has at most two.
    let busy = &turns[..5 * ROUNDS];
    for process in 0..4 {
        let at: Vec<usize> = (0..busy.len()).filter(|at| busy[*at] == process).collect();
        let gaps = at.windows(2).map(|two| two[1] - two[0]);
        assert!(gaps.clone().max().is_some_and(|gap| gap <= 7), "{turns:?}");
    }
    cleaned(&masters, "redquorum:*").await;
}

/// The inbox of a waiter that belongs to no lock.
const INBOX: u64 = 77;

/// Puts this waiter at the head of the queue; it asked for its position five seconds ago.
fn enqueue(masters: &Masters) {
    let waiter = format!("{INBOX:016x}{:016x}", 1);
    for node in all(masters) {
        let lapses = now_ms(masters, node) + 10_000;
        for (key, score) in [("redquorum:queue:r", 1), ("redquorum:lapse:r", lapses)] {
            done(masters, node, &format!("ZADD {key} {score} {waiter}"));
        }
    }
}

/// A connection to each master that is subscribed for this waiter and does nothing else.
fn subscribe(masters: &Masters) -> Vec<Raw> {
    let subscribed = |node| {
        let mut raw = Raw::connect(masters.port(node));
        raw.send(&format!("SUBSCRIBE redquorum:wake:{INBOX:016x}"));
        assert_eq!([(); 6].map(|()| raw.line()).last().unwrap(), ":1");
        raw
    };
    all(masters).map(subscribed).collect()
}

/// The time from a release until a fair waiter behind this one has its lease.
async fn takes_behind(connected: bool) -> Duration {
    let masters = own(3);
    let _connections = if connected { subscribe(&masters) } else { Vec::new() };
    let [one, two] = [built(fair(&masters)).await, built(fair(&masters)).await];
    let lease = one.acquire("r").await.unwrap();
    enqueue(&masters);
    let waiter = tokio::spawn(two.acquire("r").wait(LONG).into_future());
    // The holder keeps its position until it releases.
    eventually("it waits", || all(&masters).all(|node| queued(&masters, node, "r") == 3)).await;
    sleep(100 * MS).await;
    let before = Instant::now();
    lease.release().await;
    assert!(one.try_acquire("r").await.unwrap().is_none(), "others are before it");
    drop(waiter.await.unwrap().unwrap());
    let took = before.elapsed();
    cleaned(&masters, "r").await;
    took
}

async fn a_waiter_without_a_connection_delays_no_other() {
    let took = takes_behind(false).await;
    assert!(took < AT_ONCE, "{took:?}");
}

async fn a_waiter_that_does_not_respond_delays_others_for_its_turn() {
    let took = takes_behind(true).await;
    let turn = Duration::from_millis(redquorum_protocol::wire::TURN_MS);
    assert!(took > turn / 2 && took < turn + 2 * CALM, "{took:?}");
}

async fn a_queue_that_is_no_queue_is_done_without() {
    let masters = own(3);
    let [one, two]: [Redlock; 2] = [built(fair(&masters)).await, built(fair(&masters)).await];
    for queue in ["SET redquorum:queue:r what", "ZADD redquorum:queue:r 9007199254740993 x"] {
        all(&masters).for_each(|node| done(&masters, node, queue));
        let lease = one.acquire("r").await.unwrap();
        let waiter = tokio::spawn(two.acquire("r").wait(LONG).into_future());
        sleep(100 * MS).await;
        lease.release().await;
        waiter.await.unwrap().unwrap().release().await;
        let delete = "DEL redquorum:queue:r redquorum:lapse:r";
        all(&masters).for_each(|node| done(&masters, node, delete));
    }
    cleaned(&masters, "redquorum:*").await;
}
