//! Several resources at once: all or none, in one round trip, each as safe as a single one.

use std::future::IntoFuture;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use redquorum::{AcquireError, BadOption, ExtendError, Lease, Outcome, Redlock, report::Loss};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::support::*;

tests! {
    both:
        all_are_granted_in_one_round_trip_and_each_has_its_own_key,
        if_one_is_taken_the_others_are_free_and_the_error_names_it_and_its_holder,
        a_request_that_is_collected_too_late_gets_nothing,
        bad_requests_are_refused_and_nothing_is_sent,
        a_thousand_are_granted_and_given_back,
        all_are_extended_in_one_round_trip_and_the_deadline_is_the_earliest,
        the_error_of_an_extension_names_the_worst,
        the_loss_of_one_names_it_and_ends_the_work,
        resources_on_different_masters_are_held_together,
        the_watchdog_keeps_all_of_them_and_no_longer_than_asked,
        no_lock_delay_for_leases_that_were_never_handed_out;
    real:
        a_request_that_waited_gets_no_more_than_the_ttl,
        a_semaphore_hands_out_its_permits_and_no_more_while_masters_are_killed,
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("r{number}")).collect()
}

fn replies(lock: &Redlock) -> u64 {
    sum(lock, |master| master.latency.count)
}

async fn all_are_granted_in_one_round_trip_and_each_has_its_own_key<C: Cluster>() {
    let masters = C::start(5);
    let lock = masters.lock().await;
    let before = replies(&lock);
    let leases = C::at_once(lock.acquire_all(["b", "a", "c"])).await.unwrap();
    replied(&lock).await;
    assert_eq!(replies(&lock) - before, 3 * 5);
    // In the order of the request.
    let order: Vec<&[u8]> = leases.iter().map(Lease::resource).collect();
    assert_eq!(order, [b"b", b"a", b"c"]);
    assert!(["a", "b", "c"].iter().all(|resource| masters.holders(resource).len() == 5));
    let [a, b, c] = ["a", "b", "c"].map(|resource| masters.value(1, resource));
    assert!(a != b && b != c && a != c);
    assert_eq!(leases.release().await.outcome(), Outcome::Released);
    masters.cleaned().await;
}

async fn if_one_is_taken_the_others_are_free_and_the_error_names_it_and_its_holder<C: Cluster>() {
    let masters = C::start(5);
    let lock = masters.lock().await;
    let _held = masters.held(&lock, "b").await;
    let error = lock.acquire_all(["a", "b", "c"]).wait(Duration::ZERO).await.unwrap_err();
    let AcquireError::Taken { resource, report, attempts: 1 } = &error else { panic!("{error}") };
    assert_eq!(resource, b"b");
    assert!(report.holder().is_some(), "{report}");
    let text = error.to_string();
    assert!(text.starts_with("b: taken by another"), "{text}");
    // The other resources are free at once.
    let rest = lock.acquire_all(["a", "c"]).wait(Duration::ZERO).await.unwrap();
    assert_eq!(lock.stats().taken, 1);
    let _ = rest.release().await;
    eventually("only one is held", || masters.keys(1..=5) == ["b"; 5]).await;
}

async fn a_request_that_is_collected_too_late_gets_nothing<C: Cluster>() {
    let masters = C::start(3);
    let lock = built(masters.brisk().lock_delay(60 * S)).await;
    let request = lock.acquire_all(["a", "b"]).ttl(300 * MS).wait(Duration::ZERO);
    let mut acquiring = request.into_future();
    masters.each(Stop, 1..=3);
    assert!(poll_once(&mut acquiring).await.is_pending());
    masters.each(Resume, 1..=3);
    eventually("all have granted", || sum(&lock, |master| master.granted) == 6).await;
    sleep(400 * MS).await;
    let error = acquiring.await.unwrap_err();
    assert!(matches!(error, AcquireError::TooLate { .. }), "{error}");
    masters.cleaned().await;
}

async fn bad_requests_are_refused_and_nothing_is_sent<C: Cluster>() {
    let masters = C::start(3);
    let lock = masters.lock().await;
    let (other, before) = (lock.clone(), replies(&lock));
    let none: [&str; 0] = [];
    let error = lock.acquire_all(none).await.unwrap_err();
    assert_eq!(error.to_string(), "no resource was named: name at least one");
    let error = lock.acquire_all(["a", "b", "a"]).await.unwrap_err();
    assert_eq!(error, AcquireError::NamedTwice { resource: b"a".to_vec() });
    assert_eq!(error.to_string(), "a: named twice in one request: name it once");
    let error = lock.acquire_all(["a"]).and(&other, ["b", "a"]).await.unwrap_err();
    assert_eq!(error, AcquireError::NamedTwice { resource: b"a".to_vec() });
    let error = lock.acquire_all(["a", ""]).await.unwrap_err();
    let bad = BadOption::ResourceEmpty;
    assert_eq!(error, AcquireError::Options { resource: Vec::new(), error: bad });
    let error = lock.acquire_all(["a"]).ttl(MS).await.unwrap_err();
    assert!(matches!(error, AcquireError::Options { .. }), "{error}");
    let error = lock.acquire_all(names(1001)).await.unwrap_err();
    assert_eq!(error, AcquireError::TooManyResources { resources: 1001, most: 1000 });
    assert_eq!(replies(&lock), before);
    lock.shutdown(S).await.unwrap();
    assert_eq!(lock.acquire_all(["a"]).await.unwrap_err(), AcquireError::ShutDown);
}

async fn a_thousand_are_granted_and_given_back<C: Cluster>() {
    let masters = C::start(3);
    let lock = built(masters.builder().ttl(60 * S)).await;
    let many = names(1000);
    let leases = lock.acquire_all(&many).wait(Duration::ZERO).await.unwrap();
    let error = lock.acquire_all(&many).wait(Duration::ZERO).await.unwrap_err();
    assert!(matches!(error, AcquireError::Taken { .. }), "{error}");
    leases.extend().await.unwrap();
    replied(&lock).await;
    assert_eq!(masters.keys(1..=3).len(), 3000);
    assert_eq!(leases.release().await.outcome(), Outcome::Released);
    masters.cleaned().await;
}

async fn all_are_extended_in_one_round_trip_and_the_deadline_is_the_earliest<C: Cluster>() {
    let masters = C::start(3);
    let lock = masters.lock().await;
    let leases = lock.acquire_all(["a", "b", "c"]).await.unwrap();
    replied(&lock).await;
    let (deadline, before) = (leases.deadline(), replies(&lock));
    sleep(10 * MS).await;
    assert!(C::at_once(leases.extend()).await.unwrap() > deadline);
    replied(&lock).await;
    assert_eq!(replies(&lock) - before, 3 * 3);
    leases.get("b").unwrap().extend_to(5 * S).await.unwrap();
    assert_eq!(leases.deadline(), leases.get("b").unwrap().deadline());
    assert!(leases.get("a").unwrap().deadline() > leases.deadline());
    assert!(leases.validity() < 5 * S && leases.get("d").is_none());
}

async fn the_error_of_an_extension_names_the_worst<C: Cluster>() {
    let masters = C::start(3);
    let lock = built(masters.brisk()).await;
    let leases = lock.acquire_all(["a", "b", "c"]).await.unwrap();
    replied(&lock).await;
    masters.put(1..=3, "b");
    let error = leases.extend().await.unwrap_err();
    assert_eq!(error.resource().unwrap(), b"b");
    assert!(matches!(error, ExtendError::QuorumGone { .. }), "{error}");
    assert!(error.to_string().starts_with("b: not extended"), "{error}");
    masters.each(Stop, 1..=2);
    let error = leases.extend().await.unwrap_err();
    assert_eq!(error.resource().unwrap(), b"b", "of two reasons the worse is reported: {error}");
    masters.each(Resume, 1..=2);
    let error = leases.extend_to(MS).await.unwrap_err();
    assert!(matches!(error, ExtendError::Options { .. }), "{error}");
}

async fn the_loss_of_one_names_it_and_ends_the_work<C: Cluster>() {
    let masters = C::start(3);
    let lock = built(masters.brisk()).await;
    let leases = lock.acquire_all(["a", "b"]).await.unwrap();
    assert_eq!(leases.run(async { 42 }).await, Ok(42));
    leases.get("b").unwrap().extend_to(300 * MS).await.unwrap();
    let left = leases.validity();
    let error = C::takes(left, leases.run(sleep(10 * S))).await.unwrap_err();
    assert_eq!((&error.resource[..], error.cause), (&b"b"[..], Loss::Expired));
    assert_eq!(leases.lost().await, error);
    assert_eq!(leases.loss(), Some(error));
    assert_eq!(leases.validity(), Duration::ZERO);
    // The other lease is still held.
    assert!(!leases.get("a").unwrap().is_lost());
    let error = leases.extend().await.unwrap_err();
    assert!(matches!(error, ExtendError::Lost(_)), "{error}");
    let released = leases.release().await;
    assert_eq!(released.outcome(), Outcome::AlreadyGone);
    let each: Vec<Outcome> = released.iter().map(|released| released.outcome).collect();
    assert_eq!(each, [Outcome::Released, Outcome::AlreadyGone]);
    masters.cleaned().await;
}

async fn resources_on_different_masters_are_held_together<C: Cluster>() {
    let (one, other) = (C::start(3), C::start(5));
    let first = one.lock().await;
    let second = built(other.builder().ttl(4 * S)).await;
    // The same name on other masters is another resource.
    let leases = first.acquire_all(["a", "b"]).and(&second, ["c", "a"]).await.unwrap();
    replied(&first).await;
    replied(&second).await;
    assert_eq!((one.keys(1..=3).len(), other.keys(1..=5).len()), (6, 10));
    assert!(leases.validity() < 4 * S && leases.validity() > 2 * S, "{:?}", leases.validity());
    let _ = leases.release().await;
    one.cleaned().await;
    other.cleaned().await;
    // A taken resource on the second set of masters frees the one acquired on the first.
    let _held = second.acquire("c").await.unwrap();
    let error = first.acquire_all(["a"]).and(&second, ["c"]).wait(50 * MS).await.unwrap_err();
    assert_eq!(error.resource(), Some(&b"c"[..]));
    one.freed("a").await;
}

async fn the_watchdog_keeps_all_of_them_and_no_longer_than_asked<C: Cluster>() {
    let masters = C::start(3);
    let lock = built(masters.brisk().ttl(600 * MS)).await;
    let leases = lock.acquire_all(["a", "b"]).await.unwrap();
    leases.keep_alive(2 * S);
    sleep(S).await;
    assert!(!leases.is_lost());
    let (took, lost) = timed(leases.lost()).await;
    assert_eq!(lost.cause, Loss::MaxHold);
    assert!(took <= S + C::LATE, "{took:?}");
}

/// Another library multiplies the lease by its unit at each round that fails.
async fn a_request_that_waited_gets_no_more_than_the_ttl() {
    let masters = Real::start(3);
    let lock = built(masters.brisk().ttl(5 * S)).await;
    let held = masters.held(&lock, "b").await;
    let waiting = tokio::spawn(lock.acquire_all(["a", "b"]).wait(60 * S).into_future());
    sleep(500 * MS).await;
    assert_eq!(held.release().await.outcome, Outcome::Released);
    let leases = waiting.await.unwrap().unwrap();
    assert!(leases.iter().all(|lease| lease.validity() <= 5 * S));
    for (node, resource) in masters.all().flat_map(|node| [(node, "a"), (node, "b")]) {
        assert!(masters.pttl(node, resource) <= 5_000, "{node} {resource}");
    }
}

async fn no_lock_delay_for_leases_that_were_never_handed_out<C: Cluster>() {
    let masters = C::start(3);
    let lock = built(masters.builder().lock_delay(60 * S)).await;
    let held = lock.acquire("b").await.unwrap();
    lock.acquire_all(["a", "b", "c"]).wait(Duration::ZERO).await.unwrap_err();
    eventually("only one is held", || masters.keys(1..=3) == ["b"; 3]).await;
    let _ = held.release().await;
    // A request that won the votes, and is dropped before it returned leases.
    let mut acquiring = lock.acquire_all(["a", "b"]).into_future();
    masters.each(Stop, 1..=3);
    assert!(poll_once(&mut acquiring).await.is_pending());
    masters.each(Resume, 1..=3);
    eventually("all have granted", || masters.keys(1..=3).len() == 6).await;
    drop(acquiring);
    masters.cleaned().await;
}

async fn a_semaphore_hands_out_its_permits_and_no_more_while_masters_are_killed() {
    const PERMITS: usize = 3;
    let masters = Real::start(5);
    let mut locks = Vec::new();
    for _ in 0..4 {
        locks.push(masters.lock().await);
    }
    let inside = Arc::new([const { AtomicBool::new(false) }; PERMITS]);
    let mut tasks = JoinSet::new();
    for task in 0..16 {
        let (semaphore, inside) = (locks[task % 4].semaphore("gpu", PERMITS), inside.clone());
        tasks.spawn(async move {
            for _ in 0..5 {
                let permit = semaphore.acquire().wait(60 * S).await.unwrap();
                let slot = semaphore.slot(&permit).expect("it is a permit");
                assert!(!inside[slot - 1].swap(true, Relaxed), "slot {slot} is held twice");
                sleep(20 * MS).await;
                inside[slot - 1].store(false, Relaxed);
                // A master that is killed at this moment may leave the outcome unknown.
                assert!(!permit.release().await.was_lost());
            }
        });
    }
    sleep(200 * MS).await;
    masters.each(Kill, [2, 5]);
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
}
