//! Fencing tokens: unique, growing, and without an extra round trip where the counters agree.

use std::time::Duration;

use redquorum::{AcquireError, Lease, MAX_FENCING_TOKEN, Redlock};

use crate::monitor::Monitor;
use crate::support::*;

tests! {
    both:
        counters_that_differ_are_brought_together,
        a_counter_without_a_number_is_no_vote_and_leaves_no_key;
    real:
        a_counter_of_another_type_is_no_vote_and_leaves_no_key,
        a_plain_request_sends_no_command_for_tokens,
}

const COUNTER: &str = "redquorum:fence:r";

async fn take(lock: &Redlock) -> Lease {
    let lease = lock.acquire("r").wait(Duration::ZERO).fenced().await;
    lease.unwrap_or_else(|error| panic!("{error}"))
}

async fn give_back(lock: &Redlock, lease: Lease) {
    let _ = lease.release().await;
    replied(lock).await;
}

fn counters(masters: &impl Cluster) -> Vec<u64> {
    let texts = masters.all().filter_map(|node| masters.value(node, COUNTER));
    texts.map(|text| String::from_utf8(text).unwrap().parse().unwrap()).collect()
}

async fn counters_that_differ_are_brought_together<C: Cluster>() {
    let masters = C::start(5);
    let lock = masters.lock().await;
    let lease = take(&lock).await;
    let now = lease.fencing_token().unwrap();
    give_back(&lock, lease).await;
    // Ahead of the wall clock.
    let ahead = |node: usize| now + 1_000_000_000 * node as u64;
    masters.all().for_each(|node| masters.set(node, COUNTER, &ahead(node).to_string(), None));
    let before = sum(&lock, |master| master.latency.count);
    let lease = take(&lock).await;
    replied(&lock).await;
    assert_eq!(sum(&lock, |master| master.latency.count) - before, 10);
    // Which masters reply first is random. The counters of a quorum equal the token.
    let token = lease.fencing_token().unwrap();
    assert!(token > ahead(3), "{token} of {now}");
    let stand = counters(&masters).iter().filter(|counter| **counter == token).count();
    assert!(stand >= 3, "{:?}", counters(&masters));
    assert_eq!((lock.stats().acquired, lock.stats().certified), (2, 1));
    give_back(&lock, lease).await;
    assert!(take(&lock).await.fencing_token().unwrap() > token);
}

/// A spoilt counter of a minority costs its votes, and one of a majority is an error.
async fn is_no_vote<C: Cluster>(spoil: impl Fn(&C, usize)) {
    let masters = C::start(5);
    let lock = masters.lock().await;
    (1..=2).for_each(|node| spoil(&masters, node));
    let lease = take(&lock).await;
    replied(&lock).await;
    let report = lease.latest_report().to_string();
    assert!(report.contains("FENCE the counter of this resource"), "{report}");
    assert_eq!(masters.holders("r"), [3, 4, 5]);
    give_back(&lock, lease).await;
    masters.delete([3], COUNTER);
    spoil(&masters, 3);
    let refused = lock.acquire("r").wait(Duration::ZERO).fenced().await.unwrap_err();
    assert!(matches!(refused, AcquireError::NoQuorum { .. }), "{refused}");
    // A plain acquire is not affected.
    let _ = lock.acquire("r").await.unwrap().release().await;
    masters.freed("r").await;
}

async fn a_counter_without_a_number_is_no_vote_and_leaves_no_key<C: Cluster>() {
    let last = MAX_FENCING_TOKEN.to_string();
    let spent = ["9007199254740993", "18446744073709551615", &last];
    for text in ["many", "nan", "inf", "1e300"].into_iter().chain(spent) {
        is_no_vote::<C>(|masters, node| masters.set(node, COUNTER, text, None)).await;
    }
}

async fn a_counter_of_another_type_is_no_vote_and_leaves_no_key() {
    let spoil = |masters: &Real, node| masters.done(node, &format!("LPUSH {COUNTER} element"));
    is_no_vote::<Real>(spoil).await;
}

async fn a_plain_request_sends_no_command_for_tokens() {
    let masters = Real::start(3);
    let lock = masters.lock().await;
    let mut monitor = Monitor::start(&masters, 1);
    let lease = lock.acquire("r").await.unwrap();
    lease.extend().await.unwrap();
    let _ = lease.release().await;
    replied(&lock).await;
    let mut seen = monitor.seen("redquorum:");
    // Only the release looks for waiters.
    seen.retain(|line| !line.contains("redquorum:queue:") && !line.contains("redquorum:lapse:"));
    assert_eq!(seen, Vec::<String>::new());
    masters.cleaned().await;
    give_back(&lock, take(&lock).await).await;
    assert!(!monitor.seen("redquorum:fence:").is_empty(), "the monitor sees such a command");
}
