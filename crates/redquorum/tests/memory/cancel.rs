//! Every future is dropped after every number of polls: no key stays, and the lock still works.

use std::pin::pin;
use std::time::Duration;

use redquorum::memory::Masters;
use redquorum::{Outcome, Redlock};
use tokio::time::sleep;

use crate::support::{MS, S, TTL, bed, holding, keys, poll_once, settle, take};

/// More polls than any future of the lock needs to complete.
const MOST: usize = 12;

/// Polls a future this many times, with this pause after each, and drops it. Returns whether it
/// completed.
async fn polled<F: IntoFuture>(future: F, times: usize, pause: Duration) -> bool {
    let mut future = pin!(future.into_future());
    for _ in 0..times {
        if poll_once(future.as_mut()).await.is_ready() {
            return true;
        }
        if pause.is_zero() { tokio::task::yield_now().await } else { sleep(pause).await }
    }
    false
}

/// What is wrong when the future is dropped: on how many masters another client holds the resource,
/// how many are silent until the future was dropped, and whether fencing counters differ, so that a
/// fenced acquire takes another round.
const FAULTS: [(usize, usize, bool); 7] = [
    (0, 0, false),
    (5, 0, false),
    (3, 0, false),
    (0, 2, false),
    (0, 3, false),
    (0, 5, false),
    (0, 0, true),
];

/// Inflicts a fault on five masters that have just been set up.
fn inflict(masters: &Masters, (taken, silent, apart): (usize, usize, bool)) {
    (1..=taken).for_each(|number| masters.set(number, "r", "stranger", None));
    (1..=silent).for_each(|number| masters.stop(number));
    for number in (1..=5).filter(|_| apart) {
        // Above the hint, which is the wall clock in microseconds: a lower counter takes that.
        masters.set(number, "redquorum:fence:r", format!("300000000000000{number}"), None);
    }
}

/// Heals the masters, and checks that no key of the lock stays.
async fn leaves_nothing(masters: &Masters, lock: &Redlock, what: &str) {
    settle().await;
    (1..=5).for_each(|number| masters.resume(number));
    sleep(S).await;
    for number in 1..=5 {
        if masters.value(number, "r").is_some_and(|value| value == b"stranger") {
            masters.forget(number);
        }
    }
    let mut left = (1..=5).flat_map(|number| masters.keys(number));
    // Fencing counters outlive their leases.
    assert!(left.all(|key| key.starts_with(b"redquorum:fence:")), "{what}");
    let pending: usize = lock.stats().masters.iter().map(|master| master.pending_cleanups).sum();
    assert_eq!(pending, 0, "{what}");
    let lease = take(lock, "r").await;
    assert_eq!(lease.release().await.outcome, Outcome::Released, "{what}");
}

/// Drops `start(lock)` after 0, 1, 2, … polls, with every fault, until it completes.
async fn drop_at_every_step<F: IntoFuture>(start: impl Fn(&Redlock) -> F) -> usize {
    let mut dropped = 0;
    for fault @ (taken, silent, apart) in FAULTS {
        for pause in [Duration::ZERO, MS, 60 * MS] {
            for polls in 0..=MOST {
                let (masters, lock) = bed(5).await;
                inflict(&masters, fault);
                let ended = polled(start(&lock), polls, pause).await;
                let what =
                    format!("{taken} taken, {silent} silent, {apart}, {polls} polls, {pause:?}");
                leaves_nothing(&masters, &lock, &what).await;
                dropped += usize::from(!ended);
                if ended {
                    break;
                }
            }
        }
    }
    dropped
}

#[tokio::test(start_paused = true)]
async fn an_acquire_that_is_dropped_leaves_no_key_with_a_fencing_token_or_without() {
    let dropped = drop_at_every_step(|lock| lock.acquire("r").wait(300 * MS)).await;
    assert!(dropped > 50, "{dropped}");
    let dropped = drop_at_every_step(|lock| lock.acquire("r").wait(300 * MS).fenced()).await;
    assert!(dropped > 50, "{dropped}");
}

#[tokio::test(start_paused = true)]
async fn a_try_acquire_that_is_dropped_leaves_no_key() {
    let dropped = drop_at_every_step(|lock| lock.try_acquire("r")).await;
    assert!(dropped > 20, "{dropped}");
}

#[tokio::test(start_paused = true)]
async fn an_acquire_of_several_that_is_dropped_leaves_no_key() {
    let start = |lock: &Redlock| lock.acquire_all(["q", "r", "s"]).wait(300 * MS);
    let dropped = drop_at_every_step(start).await;
    assert!(dropped > 50, "{dropped}");
    let dropped = drop_at_every_step(|lock| start(lock).wait(Duration::ZERO)).await;
    assert!(dropped > 20, "{dropped}");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_dropped_leaves_no_key() {
    let work = async |lease: &redquorum::Lease| {
        for _ in 0..3 {
            sleep(MS).await;
        }
        assert!(!lease.is_lost());
    };
    let start = |lock: &Redlock| Box::pin(lock.acquire("r").wait(300 * MS).run(TTL, work));
    let dropped = drop_at_every_step(start).await;
    assert!(dropped > 70, "{dropped}");
}

#[tokio::test(start_paused = true)]
async fn a_health_probe_that_is_dropped_leaves_nothing() {
    let start = |lock: &Redlock| {
        let lock = lock.clone();
        async move { lock.health().await }
    };
    let dropped = drop_at_every_step(start).await;
    assert!(dropped > 20, "{dropped}");
}

#[tokio::test(start_paused = true)]
async fn futures_of_a_lease_that_are_dropped_leave_the_lease_as_it_is() {
    for polls in 0..=MOST {
        for pause in [Duration::ZERO, MS, 60 * MS] {
            for silent in [0, 2, 3, 5] {
                let (masters, lock) = bed(5).await;
                let lease = take(&lock, "r").await;
                let deadline = lease.deadline();
                settle().await;
                (1..=silent).for_each(|number| masters.stop(number));
                polled(lease.extend(), polls, pause).await;
                polled(lease.lost(), polls, pause).await;
                polled(lease.run(std::future::pending::<()>()), polls, pause).await;
                polled(lease.deadline().passed(), polls, pause).await;
                assert!(!lease.is_lost() && lease.deadline() >= deadline);
                polled(lease.extend_to(5 * S), polls, pause).await;
                assert!(!lease.is_lost() && lease.validity() > 2 * S);
                (1..=silent).for_each(|number| masters.resume(number));
                settle().await;
                assert_eq!(holding(&masters, 5, "r").len(), 5);
                lease.extend_to(TTL).await.unwrap();
                polled(lease.release(), polls, pause).await;
                sleep(S).await;
                assert_eq!(keys(&masters, 5), 0);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn clean_ups_complete_though_the_shutdown_is_dropped() {
    for polls in 0..=3 {
        let (masters, lock) = bed(5).await;
        let lease = take(&lock, "r").await;
        assert!(!polled(lock.shutdown(S), polls, MS).await);
        let _ = lease.release().await;
        settle().await;
        assert_eq!(keys(&masters, 5), 0);
        assert_eq!(lock.acquire("r").await.is_err(), polls > 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_build_that_is_dropped_leaves_the_masters_to_others() {
    let mut dropped = 0;
    for polls in 0..=MOST {
        let masters = Masters::new(5);
        masters.stop(5);
        let ended = polled(masters.builder().require_quorum(true).build(), polls, MS).await;
        dropped += usize::from(!ended);
        let lock = masters.builder().build().await.unwrap();
        drop(take(&lock, "r").await);
    }
    assert!(dropped > 3, "{dropped}");
}

#[tokio::test(start_paused = true)]
async fn a_fault_without_an_effect_would_be_seen() {
    // What a fenced acquire meets that is not dropped: its outcome, and whether it certifies.
    for fault in FAULTS {
        let (masters, lock) = bed(5).await;
        inflict(&masters, fault);
        let acquired = lock.acquire("r").wait(300 * MS).fenced().await;
        let met = match &acquired {
            Ok(_) => "granted",
            Err(error) if error.is_taken() => "taken",
            Err(_) => "no quorum",
        };
        let certified = lock.stats().certified;
        let (taken, silent, apart) = fault;
        let expected = if taken >= 3 {
            "taken"
        } else if silent >= 3 {
            "no quorum"
        } else {
            "granted"
        };
        assert_eq!((met, certified), (expected, u64::from(apart)), "{fault:?}");
        let silences = acquired.as_ref().map_or(0, |lease| 5 - lease.report().in_favour());
        assert!(silences >= silent || expected != "granted", "{fault:?}: {silences}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_left_would_be_seen() {
    let (masters, lock) = bed(5).await;
    std::mem::forget(take(&lock, "r").await);
    sleep(S).await;
    assert_eq!(keys(&masters, 5), 5);
    let check = async move { leaves_nothing(&masters, &lock, "left").await };
    assert!(tokio::spawn(check).await.unwrap_err().is_panic());
}
