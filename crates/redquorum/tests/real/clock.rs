//! A lock with a clock guard, over real masters whose clocks step.

use std::time::Duration;

use redquorum::{
    AcquireError, Builder, Lease, Redlock,
    report::{Cause, Distrust},
};
use redquorum_rig::{ClockChange, Masters, clocks_supported, trials::Case};
use tokio::time::sleep;

use crate::raw::Monitor;
use crate::support::*;

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = cases![a_trusted_master_is_looked_at_every_half_of_the_longest_lease];
    // Elsewhere a test of the rig reports that clocks cannot be set.
    if clocks_supported().is_ok() {
        cases.extend(cases![
            without_a_clock_guard_a_step_lets_a_rival_in,
            a_rival_that_watches_sees_the_step,
            a_rival_that_comes_after_the_step_sees_that_one_is_ahead,
            a_step_within_the_bound_disturbs_nobody,
        ]);
    }
    cases
}

const TTL: Duration = Duration::from_millis(1_500);
const BOUND: Duration = Duration::from_millis(600);

fn with_clocks() -> Masters {
    Masters::builder().count(3).clocks().start().unwrap()
}

fn guarded(masters: &Masters) -> Builder {
    brisk(masters).ttl(TTL).restart_guard(TTL)
}

async fn watching(masters: &Masters) -> Redlock {
    built(guarded(masters).clock_guard(BOUND)).await
}

/// A lease granted by masters 1 and 2. The clock of master 1 then steps beyond its TTL.
async fn stepped(masters: &Masters, lock: &Redlock) -> Lease {
    masters.pause(3).unwrap();
    let lease = lock.acquire("r").wait(Duration::ZERO).await.unwrap_or_else(|e| panic!("{e}"));
    masters.resume(3).unwrap();
    cleaned_of(masters, 3).await;
    masters.set_clock(1, ClockChange::forward(2 * TTL)).unwrap();
    lease
}

/// Master 3 may have executed the SET late; these tests need a lease without it.
async fn cleaned_of(masters: &Masters, node: usize) {
    sleep(20 * MS).await;
    delete(masters, [node], "r");
}

async fn refused(lock: &Redlock) -> String {
    match lock.acquire("r").wait(Duration::ZERO).await {
        Err(error @ (AcquireError::Taken { .. } | AcquireError::NoQuorum { .. })) => {
            error.to_string()
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("granted"),
    }
}

async fn without_a_clock_guard_a_step_lets_a_rival_in() {
    let masters = with_clocks();
    let lock = built(guarded(&masters)).await;
    lock.initialize_masters().await;
    let rival = built(guarded(&masters)).await;
    let lease = stepped(&masters, &lock).await;
    let other = rival.acquire("r").wait(Duration::ZERO).await.unwrap_or_else(|e| panic!("{e}"));
    assert!(lease.is_lost().is_none() && other.is_lost().is_none());
}

async fn a_rival_that_watches_sees_the_step() {
    let masters = with_clocks();
    let lock = watching(&masters).await;
    lock.initialize_masters().await;
    let rival = watching(&masters).await;
    sleep(50 * MS).await;
    let lease = stepped(&masters, &lock).await;
    let text = refused(&rival).await;
    assert!(text.contains("its clock stepped ahead by"), "{text}");
    assert!(lease.is_lost().is_none(), "it was too late to tell");
    let distrusted = || {
        let why = rival.stats().masters[0].distrusted.clone();
        matches!(why, Some(Cause::Distrusted { why: Distrust::ClockStepped { .. }, .. }))
    };
    assert!(distrusted());
    eventually("it is trusted again", || !distrusted()).await;
    rival.acquire("r").await.unwrap().release().await;
}

async fn a_rival_that_comes_after_the_step_sees_that_one_is_ahead() {
    let masters = with_clocks();
    let lock = watching(&masters).await;
    lock.initialize_masters().await;
    let lease = stepped(&masters, &lock).await;
    let rival = watching(&masters).await;
    let text = refused(&rival).await;
    assert!(text.contains("its clock may be ahead of another master's by"), "{text}");
    assert!(lease.is_lost().is_none(), "it was too late to tell");
}

async fn a_step_within_the_bound_disturbs_nobody() {
    let masters = with_clocks();
    let lock = watching(&masters).await;
    lock.initialize_masters().await;
    for node in all(&masters) {
        masters.set_clock(node, ClockChange::forward(BOUND / 6)).unwrap();
        lock.acquire("r").wait(Duration::ZERO).await.unwrap().release().await;
    }
    assert!(lock.stats().masters.iter().all(|master| master.distrusted.is_none()));
}

async fn a_trusted_master_is_looked_at_every_half_of_the_longest_lease() {
    let masters = own(1);
    let lock = watching(&masters).await;
    lock.initialize_masters().await;
    let mut monitor = Monitor::start(&masters, 1);
    sleep(2 * TTL).await;
    let seen = monitor.seen("redquorum:vigil");
    let looks = seen.iter().filter(|line| !line.contains(" lua]")).count();
    assert!((3..=5).contains(&looks), "{seen:#?}");
    drop(lock);
}
