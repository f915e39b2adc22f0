//! Holding several resources: the earliest deadline, extending all, the loss of one.

use std::time::Duration;

use redquorum::memory::Masters;
use redquorum::{ExtendError, Outcome, report::Loss};
use tokio::time::{Instant, sleep};

use crate::support::{MS, S, TTL, VALIDITY, answers, bed, holding, keys, settle};

#[tokio::test(start_paused = true)]
async fn the_deadline_is_the_earliest() {
    let (_masters, lock) = bed(3).await;
    let leases = lock.acquire_all(["a", "b"]).await.unwrap();
    leases.get("b").unwrap().extend_to(5 * S).await.unwrap();
    assert_eq!(leases.deadline(), leases.get("b").unwrap().deadline());
    assert!(leases.get("a").unwrap().deadline() > leases.deadline());
    assert!(leases.validity() < 5 * S && leases.get("c").is_none());
}

#[tokio::test(start_paused = true)]
async fn all_are_extended_in_one_round_trip() {
    let (_masters, lock) = bed(3).await;
    let leases = lock.acquire_all(["a", "b", "c"]).await.unwrap();
    sleep(3 * S).await;
    let before = answers(&lock);
    let deadline = leases.extend().await.unwrap();
    settle().await;
    assert_eq!(answers(&lock) - before, 3 * 3);
    assert_eq!(deadline, leases.deadline());
    assert_eq!(leases.validity(), VALIDITY);
    leases.extend_to(5 * S).await.unwrap();
    assert!(leases.validity() < 5 * S);
}

#[tokio::test(start_paused = true)]
async fn the_error_of_an_extension_names_the_worst() {
    let (masters, lock) = bed(3).await;
    let leases = lock.acquire_all(["a", "b", "c"]).await.unwrap();
    settle().await;
    (1..=3).for_each(|number| masters.set(number, "b", "somebody", None));
    let error = leases.extend().await.unwrap_err();
    assert_eq!(error.resource, b"b");
    assert!(matches!(error.error, ExtendError::QuorumGone(_)), "{error}");
    assert!(error.to_string().starts_with("b: not extended"), "{error}");
    (1..=2).for_each(|number| masters.stop(number));
    let error = leases.extend().await.unwrap_err();
    assert_eq!(error.resource, b"b", "of two reasons the worse is told: {error}");
    (1..=2).for_each(|number| masters.resume(number));
    let error = leases.extend_to(MS).await.unwrap_err();
    assert!(matches!(error.error, ExtendError::Options(_)), "{error}");
}

#[tokio::test(start_paused = true)]
async fn the_loss_of_one_is_told_with_its_name_and_ends_the_work() {
    let (masters, lock) = bed(3).await;
    let leases = lock.acquire_all(["a", "b"]).await.unwrap();
    leases.get("b").unwrap().extend_to(2 * S).await.unwrap();
    let start = Instant::now();
    let error = leases.run(sleep(TTL)).await.unwrap_err();
    assert!(start.elapsed() < 2 * S, "{:?}", start.elapsed());
    assert_eq!((&error.resource[..], error.lost.0), (&b"b"[..], Loss::Expired));
    assert_eq!(leases.lost().await, error);
    assert_eq!(leases.is_lost(), Some(error));
    assert_eq!(leases.validity(), Duration::ZERO);
    // The other lease is still held.
    assert!(leases.get("a").unwrap().is_lost().is_none());
    let error = leases.extend().await.unwrap_err();
    assert!(matches!(error.error, ExtendError::Lost(_)), "{error}");
    let released = leases.release().await;
    assert_eq!(released.outcome(), Outcome::AlreadyGone);
    let each: Vec<Outcome> = released.iter().map(|(_, released)| released.outcome).collect();
    assert_eq!(each, [Outcome::Released, Outcome::AlreadyGone]);
    assert_eq!(keys(&masters, 3), 0);
}

#[tokio::test(start_paused = true)]
async fn work_that_is_done_in_time_is_returned() {
    let (_masters, lock) = bed(3).await;
    let leases = lock.acquire_all(["a", "b"]).await.unwrap();
    assert_eq!(leases.run(async { 42 }).await, Ok(42));
}

#[tokio::test(start_paused = true)]
async fn the_watchdog_keeps_all_of_them_and_no_longer_than_asked() {
    let (_masters, lock) = bed(3).await;
    let leases = lock.acquire_all(["a", "b"]).await.unwrap();
    let start = Instant::now();
    leases.keep_alive(35 * S);
    sleep(30 * S).await;
    assert!(leases.is_lost().is_none());
    let lost = leases.lost().await;
    assert_eq!(lost.lost.0, Loss::MaxHold);
    assert!(start.elapsed() <= 35 * S, "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn what_is_dropped_is_given_back() {
    let (masters, lock) = bed(3).await;
    drop(lock.acquire_all(["a", "b"]).await.unwrap());
    settle().await;
    assert_eq!(keys(&masters, 3), 0);
    // A release that is never polled.
    drop(lock.acquire_all(["a", "b"]).await.unwrap().release());
    settle().await;
    assert_eq!(keys(&masters, 3), 0);
    // Each lease is released separately.
    let mut each = lock.acquire_all(["a", "b"]).await.unwrap().into_iter();
    let first = each.next().unwrap();
    first.release().await;
    settle().await;
    assert_eq!((holding(&masters, 3, "a").len(), holding(&masters, 3, "b").len()), (0, 3));
}

#[tokio::test(start_paused = true)]
async fn each_resource_has_a_fencing_token_of_its_own() {
    let (_masters, lock) = bed(3).await;
    let mut last = [0, 0];
    for _ in 0..5 {
        let leases = lock.acquire_all(["a", "b"]).fenced().await.unwrap();
        let tokens = ["a", "b"].map(|name| leases.get(name).unwrap().fencing_token());
        assert!(tokens[0] > last[0] && tokens[1] > last[1], "{last:?} {tokens:?}");
        last = tokens;
        leases.release().await;
        // A client that acquires one of them continues its counter.
        let single = lock.acquire("b").fenced().await.unwrap();
        assert!(single.fencing_token() > last[1]);
        last[1] = single.fencing_token();
        single.release().await;
    }
}

#[tokio::test(start_paused = true)]
async fn resources_on_different_masters_are_held_together() {
    let (one, other) = (Masters::new(3), Masters::new(5));
    let first = one.builder().build().await.unwrap();
    sleep(S).await;
    let second = other.builder().ttl(4 * S).build().await.unwrap();
    // The same name on other masters is another resource.
    let leases = first.acquire_all(["a", "b"]).and(&second, ["c", "a"]).await.unwrap();
    settle().await;
    assert_eq!((keys(&one, 3), keys(&other, 5)), (6, 10));
    assert!(leases.validity() < 4 * S && leases.validity() > 3 * S, "{:?}", leases.validity());
    leases.release().await;
    assert_eq!((keys(&one, 3), keys(&other, 5)), (0, 0));
    // A taken resource on the second set of masters frees the one acquired on the first.
    let held = second.acquire("c").await.unwrap();
    let error = first.acquire_all(["a"]).and(&second, ["c"]).wait(S).await.unwrap_err();
    assert_eq!(error.resource(), Some(&b"c"[..]));
    settle().await;
    assert_eq!(keys(&one, 3), 0);
    drop(held);
}
