//! Shared leases: many readers or one writer.

use std::future::IntoFuture;
use std::pin::pin;
use std::time::Duration;

use redquorum::{AcquireError, BadOption, Builder, Lease, Outcome, Owner, Redlock};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::support::{
    MS, NODE_TIMEOUT, S, TTL, VALIDITY, bed, keys, poll_once, processes, replies, settle, take,
};
use crate::vanished::Machine;

async fn read(lock: &Redlock) -> Lease {
    lock.try_acquire("r").shared().await.unwrap().expect("readers do not exclude each other")
}

async fn is_taken(lock: &Redlock) -> bool {
    lock.try_acquire("r").await.unwrap().is_none()
}

async fn refuses_readers(lock: &Redlock) -> bool {
    lock.try_acquire("r").shared().await.unwrap().is_none()
}

#[tokio::test(start_paused = true)]
async fn readers_of_one_process_and_of_others_hold_together_and_keep_writers_out() {
    let (masters, locks) = processes(2, |lock| lock).await;
    let start = Instant::now();
    let leases = [read(&locks[0]).await, read(&locks[0]).await, read(&locks[1]).await];
    assert!(start.elapsed() < NODE_TIMEOUT, "each in one round trip");
    for lease in &leases {
        assert!(lease.is_shared() && lease.fencing_token().is_none());
        assert!(lease.validity() > VALIDITY - NODE_TIMEOUT);
    }
    let [one, two, three] = leases;
    for lease in [one, two] {
        assert!(is_taken(&locks[0]).await && is_taken(&locks[1]).await);
        assert_eq!(lease.release().await.outcome, Outcome::Released);
    }
    assert!(is_taken(&locks[0]).await, "one reader is left");
    drop(three);
    settle().await;
    let writer = take(&locks[0], "r").await;
    assert!(!writer.is_shared());
    assert!(refuses_readers(&locks[0]).await && refuses_readers(&locks[1]).await);
    let _ = writer.release().await;
    settle().await;
    assert_eq!(keys(&masters, 5), 0);
}

#[tokio::test(start_paused = true)]
async fn a_dead_reader_beside_a_released_long_one_keeps_writers_out_for_its_own_ttl_only() {
    let (masters, locks) = processes(2, |lock| lock).await;
    let machine = Machine::default();
    let dead = machine.lock(&masters, 5).await;
    let long = locks[0].acquire("r").shared().ttl(1_000 * S).await.unwrap();
    let short = dead.acquire("r").shared().await.unwrap();
    machine.vanish();
    sleep(S).await;
    let _ = long.release().await;
    sleep(TTL - 2 * S).await;
    assert!(is_taken(&locks[1]).await, "it may be alive");
    sleep(S + 2 * MS).await;
    assert!(!is_taken(&locks[1]).await, "it expired");
    drop(short);
}

#[tokio::test(start_paused = true)]
async fn extending_one_reader_leaves_the_others_and_a_release_lowers_the_end() {
    let (_masters, locks) = processes(2, |lock| lock).await;
    let (one, other) = (read(&locks[0]).await, read(&locks[1]).await);
    one.extend_to(100 * S).await.unwrap();
    sleep(TTL).await;
    assert!(other.is_lost() && !one.is_lost() && is_taken(&locks[1]).await);
    let third = read(&locks[1]).await;
    let _ = one.release().await;
    sleep(TTL + 2 * MS).await;
    assert!(third.is_lost() && !is_taken(&locks[0]).await);
}

#[tokio::test(start_paused = true)]
async fn the_watchdog_keeps_a_shared_lease_alive() {
    let (_masters, locks) = processes(2, |lock| lock).await;
    let lease = read(&locks[0]).await;
    lease.keep_alive(100 * S);
    sleep(50 * S).await;
    assert!(!lease.is_lost() && is_taken(&locks[1]).await && !refuses_readers(&locks[1]).await);
    sleep(60 * S).await;
    assert!(lease.is_lost() && !is_taken(&locks[1]).await);
}

/// Readers come without end, and overlap. A writer that waits gets in as soon as those have left
/// that were there before it.
#[tokio::test(start_paused = true)]
async fn a_writer_gets_in_under_a_steady_stream_of_readers() {
    for (fair, wake_ups) in [(false, true), (true, true), (false, false)] {
        let (_masters, locks) = processes(5, |lock| lock.fair(fair).wake_ups(wake_ups)).await;
        let start = Instant::now();
        let mut tasks = JoinSet::new();
        for (number, lock) in (0..4).zip(&locks) {
            for task in 0..2 {
                let lock = lock.clone();
                tasks.spawn(async move {
                    sleep((number * 20 + task * 40) * MS).await;
                    let mut longest = Duration::ZERO;
                    while start.elapsed() < 20 * S {
                        let asked = Instant::now();
                        let lease = lock.acquire("r").shared().wait(60 * S).await.unwrap();
                        longest = longest.max(asked.elapsed());
                        sleep(100 * MS).await;
                        let _ = lease.release().await;
                    }
                    longest
                });
            }
        }
        sleep(S).await;
        let (mut waits, mut count) = (Duration::ZERO, 0);
        while start.elapsed() < 20 * S {
            let asked = Instant::now();
            let lease = locks[4].acquire("r").wait(60 * S).await.unwrap();
            waits = waits.max(asked.elapsed());
            count += 1;
            let _ = lease.release().await;
            sleep(50 * MS).await;
        }
        let readers = tasks.join_all().await.into_iter().max().unwrap();
        println!("fair {fair}, woken {wake_ups}: {count} writes, {waits:?}; readers {readers:?}");
        if wake_ups {
            assert!(waits < 1_500 * MS && readers < 1_500 * MS && count > 20, "{waits:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_of_readers_goes_in_together() {
    let (_masters, locks) = processes(4, |lock| lock).await;
    let writer = locks[0].acquire("r").await.unwrap();
    let mut tasks = JoinSet::new();
    for lock in locks.iter().skip(1) {
        for _ in 0..3 {
            let lock = lock.clone();
            tasks.spawn(async move {
                let lease = lock.acquire("r").shared().wait(60 * S).await.unwrap();
                let at = Instant::now();
                sleep(5 * S).await;
                drop(lease);
                at
            });
        }
    }
    sleep(2 * S).await;
    let free = Instant::now();
    let _ = writer.release().await;
    for at in tasks.join_all().await {
        assert!(at - free < 100 * MS, "{:?}", at - free);
    }
}

/// A master wakes a bounded number of them at once. The others find out by a look.
#[tokio::test(start_paused = true)]
async fn a_crowd_of_readers_is_in_within_two_looks() {
    let (_masters, locks) = processes(151, |lock| lock).await;
    let writer = locks[0].acquire("r").await.unwrap();
    let mut tasks = JoinSet::new();
    for lock in locks.iter().skip(1) {
        let request = lock.acquire("r").shared().wait(60 * S);
        tasks.spawn(async move { (request.await.unwrap(), Instant::now()) });
    }
    sleep(2 * S).await;
    let free = Instant::now();
    let _ = writer.release().await;
    for (_, at) in tasks.join_all().await {
        assert!(at - free < 2 * S, "{:?}", at - free);
    }
}

#[tokio::test(start_paused = true)]
async fn local_readers_share_a_turn_and_a_local_writer_keeps_its_place() {
    let (_masters, lock) = bed(3).await;
    let first = read(&lock).await;
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for name in ["reader", "writer", "behind", "behind"] {
        let lock = lock.clone();
        tasks.spawn(async move {
            let lease = match name {
                "writer" => lock.acquire("r").wait(60 * S).await,
                _ => lock.acquire("r").shared().wait(60 * S).await,
            };
            let at = start.elapsed();
            sleep(S).await;
            drop(lease.unwrap());
            (at.as_secs(), name)
        });
        settle().await;
    }
    sleep(2 * S).await;
    drop(first);
    let mut order = tasks.join_all().await;
    order.sort_unstable();
    assert_eq!(order, [(0, "reader"), (2, "writer"), (3, "behind"), (3, "behind")]);
}

#[tokio::test(start_paused = true)]
async fn try_acquire_does_not_pass_a_waiting_writer() {
    let (_masters, locks) = processes(3, |lock| lock).await;
    let reader = read(&locks[0]).await;
    let writer = locks[1].clone();
    let writer = tokio::spawn(async move { writer.acquire("r").wait(60 * S).await });
    sleep(500 * MS).await;
    assert!(refuses_readers(&locks[2]).await);
    // Beside readers, it is the waiter that explains the refusal.
    let error = locks[2].acquire("r").shared().wait(Duration::ZERO).await.unwrap_err();
    assert!(error.to_string().contains("a waiter comes first"), "{error}");
    writer.abort();
    settle().await;
    sleep(S).await;
    assert!(!refuses_readers(&locks[2]).await, "nobody waits any more");
    drop(reader);
}

#[tokio::test(start_paused = true)]
async fn a_reader_behind_a_writer_looks_at_one_master_every_half_a_second_at_most() {
    let (_masters, locks) = processes(3, |lock| lock).await;
    let reader = locks[0].acquire("r").shared().ttl(600 * S).await.unwrap();
    let wait = |lock: &Redlock| lock.acquire("r").wait(600 * S);
    let mut waiting = JoinSet::new();
    waiting.spawn(wait(&locks[1]).into_future());
    sleep(S).await;
    waiting.spawn(wait(&locks[2]).shared().into_future());
    sleep(5 * S).await;
    let before = [replies(&locks[1]), replies(&locks[2])];
    sleep(30 * S).await;
    for (lock, before) in locks[1..].iter().zip(before) {
        let asked = replies(lock) - before;
        assert!((30..=61).contains(&asked), "{asked}");
    }
    drop(reader);
    while let Some(lease) = waiting.join_next().await {
        drop(lease.unwrap().unwrap());
    }
}

/// A writer whose machine vanishes while it waits keeps new readers out until its position lapses.
#[tokio::test(start_paused = true)]
async fn a_writer_that_vanishes_costs_readers_its_position_once() {
    let (masters, locks) = processes(2, |lock| lock).await;
    let machine = Machine::default();
    let reader = locks[0].acquire("r").shared().ttl(600 * S).await.unwrap();
    let vanishes = machine.lock(&masters, 5).await;
    let waits = tokio::spawn(async move { vanishes.acquire("r").wait(Duration::MAX).await });
    sleep(S).await;
    machine.vanish();
    for bound in [16 * S, 100 * MS] {
        let asked = Instant::now();
        let lease = locks[1].acquire("r").shared().wait(60 * S).await.unwrap();
        assert!(asked.elapsed() < bound, "{:?}", asked.elapsed());
        drop(lease);
    }
    waits.abort();
    drop(reader);
}

#[tokio::test(start_paused = true)]
async fn an_owner_shares_its_exclusive_lease_and_does_not_wait_for_itself() {
    let (_masters, lock) = bed(3).await;
    let owner = Owner::new();
    let exclusive = lock.acquire("r").fenced().owner(&owner).await.unwrap();
    let again = lock.acquire("r").shared().owner(&owner).await.unwrap();
    assert!(!again.is_shared() && again.handles() == 2);
    assert!(lock.try_acquire("r").shared().await.unwrap().is_none(), "it is held alone");
    drop((exclusive, again));
    settle().await;
    let shared = lock.acquire("r").shared().owner(&owner).await.unwrap();
    let again = lock.acquire("r").shared().owner(&owner).await.unwrap();
    assert!(again.is_shared() && shared.handles() == 2);
    let asked = Instant::now();
    let error = lock.acquire("r").owner(&owner).wait(60 * S).await.unwrap_err();
    assert!(matches!(error, AcquireError::Options { error: BadOption::HeldShared, .. }), "{error}");
    assert!(asked.elapsed().is_zero() && shared.handles() == 2, "{error}");
    let other = lock.acquire("r").shared().owner(&Owner::new()).await.unwrap();
    assert_eq!(other.handles(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_shared_lease_has_no_fencing_token() {
    let (_masters, lock) = bed(1).await;
    for request in [lock.acquire("r").shared().fenced(), lock.acquire("r").fenced().shared()] {
        let error = request.await.unwrap_err();
        let BadOption::SharedFenced = (match &error {
            AcquireError::Options { error, .. } => *error,
            _ => panic!("{error}"),
        }) else {
            panic!("{error}")
        };
    }
    let all = lock.acquire_all(["a", "b"]).shared().fenced().await;
    assert!(matches!(all, Err(AcquireError::Options { error: BadOption::SharedFenced, .. })));
}

#[tokio::test(start_paused = true)]
async fn several_resources_are_shared_together() {
    let (masters, locks) = processes(2, |lock| lock).await;
    let one = locks[0].acquire_all(["a", "b"]).shared().await.unwrap();
    let two = locks[1].acquire_all(["b", "c"]).shared().await.unwrap();
    let writer = locks[1].acquire_all(["c", "a"]).wait(Duration::ZERO).await;
    assert!(writer.is_err());
    drop((one, two));
    settle().await;
    assert!(locks[1].acquire_all(["c", "a"]).wait(Duration::ZERO).await.is_ok());
    settle().await;
    assert_eq!(keys(&masters, 5), 0);
}

#[tokio::test(start_paused = true)]
async fn with_a_guard_and_a_lock_delay_it_is_a_lease_like_any_other() {
    let build = |lock: Builder| lock.restart_guard(600 * S).lock_delay(2 * S);
    let (masters, locks) = processes(2, build).await;
    let _ = locks[0].initialize_masters().await;
    sleep(3 * S).await;
    let (one, other) = (read(&locks[0]).await, read(&locks[1]).await);
    let _ = one.release().await;
    drop(other);
    sleep(S).await;
    assert!(is_taken(&locks[0]).await, "the lock delay of the one that was dropped");
    sleep(3 * S).await;
    assert!(!is_taken(&locks[0]).await);
    settle().await;
    (1..=3).for_each(|number| masters.forget(number));
    sleep(3 * S).await;
    let refused = locks[0].acquire("r").shared().wait(Duration::ZERO).await;
    assert!(matches!(refused, Err(AcquireError::NoQuorum { .. })), "{refused:?}");
}

/// Whatever a future is dropped at, its keys go, and nothing is left of it.
#[tokio::test(start_paused = true)]
async fn a_dropped_request_leaves_nothing() {
    let (masters, locks) = processes(2, |lock| lock).await;
    for polls in 0..6 {
        let mut request = Box::pin(locks[0].acquire("r").shared().wait(S).into_future());
        for _ in 0..polls {
            if poll_once(pin!(&mut request)).await.is_ready() {
                break;
            }
            settle().await;
        }
        drop(request);
        sleep(S).await;
        assert!(!is_taken(&locks[1]).await, "after {polls} polls");
        settle().await;
        assert_eq!(keys(&masters, 5), 0, "after {polls} polls");
    }
}

#[tokio::test(start_paused = true)]
async fn a_thousand_readers_hold_together() {
    let (masters, locks) = processes(10, |lock| lock).await;
    let mut tasks = JoinSet::new();
    for number in 0..1_000 {
        let lock = locks[number % 10].clone();
        tasks.spawn(async move { lock.acquire("r").shared().await.unwrap() });
    }
    let leases = tasks.join_all().await;
    assert!(is_taken(&locks[0]).await);
    let odd: Vec<Lease> = leases
        .into_iter()
        .enumerate()
        .filter(|(number, _)| number % 2 == 1)
        .map(|(_, it)| it)
        .collect();
    settle().await;
    assert!(is_taken(&locks[0]).await);
    drop(odd);
    sleep(S).await;
    assert!(!is_taken(&locks[0]).await);
    settle().await;
    assert_eq!(keys(&masters, 5), 0);
}

#[tokio::test(start_paused = true)]
async fn keys_of_others_are_errors_and_stay() {
    let (masters, lock) = bed(3).await;
    for number in 1..=3 {
        masters.set(number, "r", "another program's", None);
    }
    let error = lock.acquire("r").shared().wait(Duration::ZERO).await.unwrap_err();
    assert!(error.to_string().contains("without TTL"), "{error}");
    assert_eq!(masters.value(1, "r").unwrap(), b"another program's");
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_is_told_why_sees_who_holds_the_resource() {
    let (_masters, locks) = processes(2, |lock| lock).await;
    let reader = read(&locks[0]).await;
    let error = locks[1].acquire("r").wait(Duration::ZERO).await.unwrap_err();
    assert!(error.to_string().contains("shared"), "{error}");
    drop(reader);
}
