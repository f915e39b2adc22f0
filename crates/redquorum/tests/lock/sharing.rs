//! Shared leases, as masters and other programs see them.

use std::time::Duration;

use redquorum::report::{Holder, MasterOutcome};
use redquorum::{AcquireError, Outcome};
use redquorum_rig::RespValue;

use crate::support::*;

tests! {
    both:
        readers_hold_together_and_a_writer_alone;
    real:
        any_set_nx_is_refused_while_readers_are_in,
        a_release_lowers_the_end_of_the_key_to_that_of_the_others,
        sorted_sets_of_other_programs_are_reported_and_never_changed,
        many_readers_share_one_key,
}

async fn readers_hold_together_and_a_writer_alone<C: Cluster>() {
    let masters = C::start(5);
    let build = || built(masters.builder().ttl(60 * S));
    let locks = [build().await, build().await];
    let mut readers = Vec::new();
    for lock in &locks {
        readers.push(lock.acquire("r").shared().await.unwrap());
        assert!(lock.try_acquire("r").await.unwrap().is_none());
    }
    for reader in readers {
        assert!(reader.is_shared());
        reader.extend().await.unwrap();
        let released = reader.release().await;
        assert_eq!(released.outcome, Outcome::Released, "{}", released.report);
    }
    masters.cleaned().await;
    let writer = locks[0].try_acquire("r").await.unwrap().expect("the readers are gone");
    for lock in &locks {
        assert!(lock.try_acquire("r").shared().await.unwrap().is_none());
    }
    let _ = writer.release().await;
    masters.cleaned().await;
    for lock in &locks {
        tidied(lock).await;
    }
}

async fn any_set_nx_is_refused_while_readers_are_in() {
    let masters = Real::start(3);
    let lock = masters.lock().await;
    let reader = lock.acquire("r").shared().await.unwrap();
    replied(&lock).await;
    for node in 1..=3 {
        let refused = masters.ask(node, "SET r another NX PX 60000").unwrap();
        assert_eq!(refused, RespValue::Nil);
    }
    assert_eq!(masters.text(1, "TYPE r"), "zset");
    let _ = reader.release().await;
    masters.cleaned().await;
    // The other way round, and the reader is told who is in its way.
    masters.done_on(1..=3, "SET r another NX PX 60000");
    let error = lock.acquire("r").shared().wait(Duration::ZERO).await.unwrap_err();
    let AcquireError::Taken { report, .. } = &error else { panic!("{error}") };
    let foreign = |it: &Option<MasterOutcome>| {
        matches!(it, Some(MasterOutcome::Taken(Holder::Foreign { .. })))
    };
    assert!(replies(report).iter().any(foreign), "{error}");
    assert_eq!(masters.text(1, "GET r"), "another");
}

async fn a_release_lowers_the_end_of_the_key_to_that_of_the_others() {
    let masters = Real::start(3);
    let lock = masters.lock().await;
    let short = lock.acquire("r").shared().ttl(60 * S).await.unwrap();
    let long = lock.acquire("r").shared().ttl(600 * S).await.unwrap();
    replied(&lock).await;
    let left = |node| masters.number(node, "PTTL r");
    assert!((1..=3).all(|node| left(node) > 500_000));
    assert_eq!(Real::at_once(long.release()).await.outcome, Outcome::Released);
    replied(&lock).await;
    assert!((1..=3).all(|node| (1..=60_000).contains(&left(node))));
    let deadline = short.deadline();
    assert!(short.extend().await.unwrap() > deadline);
    assert_eq!(Real::at_once(short.release()).await.outcome, Outcome::Released);
    masters.cleaned().await;
}

async fn sorted_sets_of_other_programs_are_reported_and_never_changed() {
    let masters = Real::start(3);
    let lock = masters.lock().await;
    masters.done_on(1..=3, "ZADD r 1 player 2 another");
    for request in [lock.acquire("r").shared(), lock.acquire("r")] {
        let error = Real::at_once(request.wait(Duration::ZERO)).await.unwrap_err();
        let AcquireError::Taken { report, .. } = &error else { panic!("{error}") };
        let wrong = Some(MasterOutcome::Taken(Holder::WrongType));
        assert!(replies(report).contains(&wrong), "{error}");
    }
    replied(&lock).await;
    assert_eq!(pending_cleanups(&lock), 0);
    assert_eq!((masters.number(1, "ZCARD r"), masters.number(1, "PTTL r")), (2, -1));
}

async fn many_readers_share_one_key() {
    const COUNT: i64 = 10_000;
    let masters = Real::start(1);
    let lock = built(masters.builder().ttl(600 * S)).await;
    let mut readers = Vec::new();
    for _ in 0..COUNT {
        readers.push(lock.try_acquire("r").shared().await.unwrap().expect("they share it"));
    }
    assert_eq!(masters.number(1, "ZCARD r"), COUNT);
    let last = readers.pop().unwrap();
    drop(readers);
    eventually("the others leave", || masters.number(1, "ZCARD r") == 1).await;
    assert!(lock.try_acquire("r").await.unwrap().is_none());
    let _ = last.release().await;
    masters.cleaned().await;
}
