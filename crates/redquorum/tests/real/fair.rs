//! Processes that stand in line on real masters, by the script that keeps the line.

use std::future::IntoFuture;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redquorum::{Builder, Redlock};
use redquorum_rig::{Masters, Reply, trials::Case};
use tokio::time::{Instant, sleep};

use crate::support::*;

pub(crate) fn cases() -> Vec<Case> {
    cases![
        processes_come_in_turns_and_leave_no_line,
        who_is_dead_is_passed_over,
        a_line_that_is_no_line_is_done_without,
    ]
}

const LONG: Duration = Duration::from_secs(60);

fn fair(masters: &Masters) -> Builder {
    calm(masters).ttl(LONG).fair(true)
}

async fn processes_come_in_turns_and_leave_no_line() {
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
    // While all want it: at most one lease of each other process lies between two of one, or two where it
    // asked again only after one of them.
    let busy = &turns[..5 * ROUNDS];
    for process in 0..4 {
        let at: Vec<usize> = (0..busy.len()).filter(|at| busy[*at] == process).collect();
        let gaps = at.windows(2).map(|two| two[1] - two[0]);
        assert!(gaps.clone().max().is_some_and(|gap| gap <= 7), "{turns:?}");
    }
    cleaned(&masters, "redquorum:*").await;
}

/// Somebody has this place in the line.
fn stand(masters: &Masters, node: usize, place: &str) {
    let words = ["HSET", "redquorum:line:r", "77", place].map(str::as_bytes);
    assert_eq!(masters.command(node, &words).unwrap(), Reply::Integer(1));
}

async fn who_is_dead_is_passed_over() {
    let masters = own(3);
    let [one, two] = [built(fair(&masters)).await, built(fair(&masters)).await];
    let lease = one.acquire("r").await.unwrap();
    // As a process would have left it that died a moment ago.
    for node in all(&masters) {
        let Ok(Reply::Array(time)) = masters.ask(node, "TIME") else { panic!("no time") };
        let [Reply::Bulk(seconds), ..] = &time[..] else { panic!("{time:?}") };
        let now: u64 = String::from_utf8_lossy(seconds).parse::<u64>().unwrap() * 1_000;
        stand(&masters, node, &format!("1 {now} {}", now + 3_000));
    }
    let waiter = tokio::spawn(two.acquire("r").wait(LONG).into_future());
    sleep(100 * MS).await;
    let before = Instant::now();
    lease.release().await;
    assert!(one.try_acquire("r").await.unwrap().is_none(), "others come first");
    drop(waiter.await.unwrap().unwrap());
    let took = before.elapsed();
    assert!(took > 500 * MS && took < Duration::from_secs(5), "{took:?}");
    cleaned(&masters, "r").await;
}

async fn a_line_that_is_no_line_is_done_without() {
    let masters = own(3);
    let [one, two]: [Redlock; 2] = [built(fair(&masters)).await, built(fair(&masters)).await];
    for another_type in [true, false] {
        for node in all(&masters) {
            if another_type {
                done(&masters, node, "SET redquorum:line:r what");
            } else {
                stand(&masters, node, "9007199254740993 1 9999999999999");
            }
        }
        let lease = one.acquire("r").await.unwrap();
        let waiter = tokio::spawn(two.acquire("r").wait(LONG).into_future());
        sleep(100 * MS).await;
        lease.release().await;
        waiter.await.unwrap().unwrap().release().await;
        all(&masters).for_each(|node| done(&masters, node, "DEL redquorum:line:r"));
    }
    cleaned(&masters, "redquorum:*").await;
}
