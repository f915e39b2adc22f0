//! No end of an attempt or a lease leaves a key behind, even where the `SET` was never
//! acknowledged. No clean-up of one attempt touches the keys of the next one. The tests in memory
//! drop every future at every await.

use std::future::IntoFuture;

use redquorum::{Backoff, Outcome};

use crate::support::*;

tests! {
    both:
        checks_for_keys_that_are_left_see_them,
        an_acquire_that_is_never_polled_sends_nothing,
        a_late_clean_up_does_not_delete_the_key_of_the_next_attempt,
        releasing_takes_nothing_from_the_next_holder;
}

/// Control for all tests.
async fn checks_for_keys_that_are_left_see_them<C: Cluster>() {
    let masters = C::start(3);
    masters.put([3], "planted");
    assert_eq!((masters.holders("planted"), masters.keys(1..=2)), (vec![3], vec![]));
    assert_eq!(masters.keys(masters.all()), ["planted"]);
    masters.delete([3], "planted");
    assert_eq!(masters.keys(masters.all()), Vec::<String>::new());
    std::mem::forget(masters.lock().await.acquire("r").await.unwrap());
    eventually("it is seen", || masters.holders("r") == [1, 2, 3]).await;
}

async fn a_late_clean_up_does_not_delete_the_key_of_the_next_attempt<C: Cluster>() {
    let masters = C::start(5);
    // The node timeout is so long that no connection counts as dead before the masters go on.
    let lock = built(masters.builder().retry(Backoff::Fixed(100 * MS))).await;
    masters.put([3], "r");
    masters.each(Stop, [1, 2]);
    let waiting = tokio::spawn(async move { (lock.acquire("r").await, lock) });
    // The first attempt has two votes, waits for two more in vain, and fails.
    eventually("the first attempt has votes", || masters.value(4, "r").is_some()).await;
    eventually("and was cleaned up", || masters.value(4, "r").is_none()).await;
    masters.delete([3], "r");
    let (lease, lock) = waiting.await.unwrap();
    let lease = lease.unwrap();
    // The pipes of both contain the SET, its clean-up and the next SET, in this order.
    masters.each(Resume, [1, 2]);
    replied(&lock).await;
    let mine = masters.value(4, "r").unwrap();
    assert!(masters.all().all(|node| masters.value(node, "r").as_ref() == Some(&mine)));
    assert!(lock.stats().masters[0].granted >= 2);
    assert_eq!(lease.release().await.outcome, Outcome::Released);
}

async fn releasing_takes_nothing_from_the_next_holder<C: Cluster>() {
    let masters = C::start(5);
    let lock = masters.lock().await;
    for dropped in [false, true] {
        let old = masters.held(&lock, "r").await;
        masters.delete(1..=5, "r");
        let new = masters.held(&lock, "r").await;
        if dropped {
            drop(old);
        } else {
            assert_eq!(old.release().await.outcome, Outcome::AlreadyGone);
        }
        replied(&lock).await;
        assert_eq!(masters.holders("r"), [1, 2, 3, 4, 5]);
        assert_eq!(new.release().await.outcome, Outcome::Released);
        masters.cleaned().await;
    }
}

async fn an_acquire_that_is_never_polled_sends_nothing<C: Cluster>() {
    let masters = C::start(1);
    let lock = masters.lock().await;
    let before = sum(&lock, |master| master.latency.count + master.unanswered as u64);
    drop(lock.acquire("r"));
    drop(lock.acquire("r").into_future());
    drop(lock.try_acquire("r").into_future());
    drop(lock.acquire_all(["r"]).into_future());
    replied(&lock).await;
    assert_eq!(sum(&lock, |master| master.latency.count), before);
}
