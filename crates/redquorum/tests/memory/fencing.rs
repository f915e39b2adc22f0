//! Fencing tokens: unique, growing, and without an extra round trip where the counters agree.

use redquorum::{AcquireError, BadOption, FencedLease, Redlock};
use redquorum_protocol::MAX_NUMBER;
use tokio::time::sleep;

use crate::support::{MS, S, TTL, answers, bed, settle};

const COUNTER: &str = "redquorum:fence:r";

async fn take(lock: &Redlock) -> FencedLease {
    lock.try_acquire("r").fenced().await.unwrap().expect("it is free")
}

/// The token of a lease that is released at once.
async fn token(lock: &Redlock) -> u64 {
    let lease = take(lock).await;
    let token = lease.fencing_token();
    lease.release().await;
    settle().await;
    token
}

fn counters(masters: &redquorum::memory::Masters) -> Vec<u64> {
    let of = |number| {
        let value = masters.value(number, COUNTER)?;
        std::str::from_utf8(&value).ok()?.parse().ok()
    };
    (1..=5).filter_map(of).collect()
}

#[tokio::test(start_paused = true)]
async fn tokens_grow_and_cost_no_round_trip() {
    let (masters, lock) = bed(5).await;
    let mut last = 0;
    for round in 1..=20 {
        let before = answers(&lock);
        let lease = take(&lock).await;
        settle().await;
        assert_eq!(answers(&lock) - before, 5, "round {round}: one command for each master");
        assert!(lease.fencing_token() > last);
        last = lease.fencing_token();
        assert_eq!(counters(&masters), [last; 5]);
        lease.release().await;
        settle().await;
    }
}

#[tokio::test(start_paused = true)]
async fn counters_that_differ_take_one_more_round_and_agree_again() {
    let (masters, lock) = bed(5).await;
    let now = token(&lock).await;
    // Ahead of the wall clock.
    let ahead = [10, 20, 30, 40, 50].map(|ahead| now + ahead * 1_000_000_000);
    for (number, counter) in (1..).zip(ahead) {
        masters.set(number, COUNTER, counter.to_string(), None);
    }
    let before = answers(&lock);
    let lease = take(&lock).await;
    settle().await;
    assert_eq!(answers(&lock) - before, 10);
    // Which masters reply first is random. The counters of a quorum equal the token.
    let token = lease.fencing_token();
    assert!(token > ahead[2], "{token} {ahead:?}");
    assert!(counters(&masters).iter().filter(|counter| **counter == token).count() >= 3);
    assert_eq!((lock.stats().acquired, lock.stats().certified), (2, 1));
    lease.release().await;
    settle().await;
    // Three of five counters agree now, but the first three replies may come from other masters.
    let before = answers(&lock);
    let next = take(&lock).await;
    settle().await;
    assert!(answers(&lock) - before <= 10);
    assert!(next.fencing_token() > token);
}

#[tokio::test(start_paused = true)]
async fn a_counter_that_is_far_ahead_is_not_followed_where_a_quorum_need_not() {
    let (masters, lock) = bed(5).await;
    let first = token(&lock).await;
    masters.set(2, COUNTER, (MAX_NUMBER - 5).to_string(), None);
    masters.stop(5);
    for _ in 0..3 {
        let lease = take(&lock).await;
        if lease.fencing_token() < MAX_NUMBER / 2 {
            lease.release().await;
            settle().await;
            continue;
        }
        panic!("{} follows the one that is ahead; before it was {first}", lease.fencing_token());
    }
}

#[tokio::test(start_paused = true)]
async fn a_counter_that_is_spent_or_no_number_is_no_vote_and_leaves_no_key() {
    let (masters, lock) = bed(5).await;
    token(&lock).await;
    for spent in [MAX_NUMBER.to_string(), "18446744073709551615".to_owned(), "x".to_owned()] {
        masters.set(1, COUNTER, &spent, None);
        masters.set(2, COUNTER, &spent, None);
        let lease = take(&lock).await;
        settle().await;
        assert!(masters.value(1, "r").is_none(), "{spent}");
        let text = lease.latest_report().to_string();
        assert!(text.contains("counter of this resource"), "{text}");
        assert_eq!(masters.value(1, COUNTER).unwrap(), spent.as_bytes(), "it is left as it was");
        lease.release().await;
        settle().await;
        masters.set(3, COUNTER, &spent, None);
        let refused = lock.acquire("r").wait(std::time::Duration::ZERO).fenced().await;
        assert!(matches!(refused, Err(AcquireError::NoQuorum { .. })), "{refused:?}");
        settle().await;
        assert!((1..=5).all(|number| masters.value(number, "r").is_none()));
        (1..=3).for_each(|number| masters.set(number, COUNTER, "7", None));
    }
}

#[tokio::test(start_paused = true)]
async fn extending_keeps_the_token_and_the_counters_and_a_repair_raises_one() {
    let (masters, lock) = bed(5).await;
    let lease = take(&lock).await;
    let token = lease.fencing_token();
    settle().await;
    masters.forget(4);
    lease.extend().await.unwrap();
    settle().await;
    assert!(masters.value(4, "r").is_none(), "its first answer was that it has no key");
    assert_eq!(masters.value(4, COUNTER), None);
    lease.extend().await.unwrap();
    settle().await;
    // A master without a counter continues from the token.
    assert_eq!(lease.fencing_token(), token);
    assert_eq!(counters(&masters), [token; 5]);
    // A master with a counter increments it.
    masters.set(4, "r", "another", Some(5 * MS));
    sleep(10 * MS).await;
    lease.extend().await.unwrap();
    lease.extend().await.unwrap();
    settle().await;
    assert_eq!(counters(&masters), [token, token, token, token + 1, token]);
}

#[tokio::test(start_paused = true)]
async fn a_counter_outlives_its_lease_and_is_remembered_anew_by_every_extension() {
    let masters = redquorum::memory::Masters::new(5);
    let lock = masters.builder().fencing_memory(60 * S).build().await.unwrap();
    let lease = take(&lock).await;
    let token = lease.fencing_token();
    for _ in 0..20 {
        sleep(TTL / 2).await;
        lease.extend().await.unwrap();
    }
    lease.release().await;
    sleep(59 * S).await;
    assert_eq!(counters(&masters), [token; 5]);
    sleep(2 * S).await;
    assert_eq!(counters(&masters), [0; 0]);
    // The wall clock is the hint again.
    assert!(take(&lock).await.fencing_token() > token);
}

#[tokio::test(start_paused = true)]
async fn who_wants_no_token_shares_masters_with_who_does() {
    let (_masters, lock) = bed(5).await;
    let plain = lock.try_acquire("r").await.unwrap().unwrap();
    assert!(lock.try_acquire("r").fenced().await.unwrap().is_none());
    plain.release().await;
    settle().await;
    let fenced = take(&lock).await;
    assert!(lock.try_acquire("r").await.unwrap().is_none());
    let first = fenced.fencing_token();
    assert!(!format!("{fenced:?}").is_empty());
    drop(fenced);
    settle().await;
    lock.try_acquire("r").await.unwrap().unwrap().release().await;
    settle().await;
    assert!(token(&lock).await > first);
}

#[tokio::test(start_paused = true)]
async fn the_names_of_the_locks_own_keys_are_refused() {
    let (_masters, lock) = bed(3).await;
    let refused = lock.try_acquire(COUNTER).await;
    assert!(
        matches!(refused, Err(AcquireError::Options(BadOption::ResourceReserved))),
        "{refused:?}"
    );
    // The prefix can also make a resource's key a reserved one.
    let masters = redquorum::memory::Masters::new(3);
    let lock = masters.builder().prefix("red").build().await.unwrap();
    assert!(lock.try_acquire("quorum:r").await.is_err());
    assert!(lock.try_acquire("quorum").await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn an_acquire_that_is_dropped_while_it_certifies_leaves_nothing() {
    use std::future::IntoFuture;
    use std::pin::pin;
    let (masters, lock) = bed(5).await;
    for (number, counter) in (1..).zip(["1", "22", "333", "4444", "55555"]) {
        masters.set(number, COUNTER, format!("{counter}00000000000"), None);
    }
    for polls in 1..200 {
        let mut taking = Box::pin(lock.acquire("r").fenced().into_future());
        let mut won = false;
        for _ in 0..polls {
            won |= crate::support::poll_once(taking.as_mut()).await.is_ready();
            if won {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(taking);
        settle().await;
        settle().await;
        assert!((1..=5).all(|number| masters.value(number, "r").is_none()), "{polls} polls");
        if won {
            return;
        }
        pin!(sleep(MS)).await;
    }
    panic!("never won");
}
