//! Error messages name the option, the problem and the fix.

use std::error::Error;
use std::time::Duration;

use redquorum::memory::Masters;
use redquorum::{Backoff, Redlock};

use crate::support::{MS, S, TTL};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Checks that the message is a fragment in lower case, on one line, without a full stop, and
/// contains these words.
fn check(error: &dyn Error, words: &[&str]) {
    let text = error.to_string();
    for word in words {
        assert!(text.contains(word), "{word:?} is missing in: {text}");
    }
    let first = text.chars().next().unwrap();
    assert!(first.is_lowercase() || first.is_ascii_digit() || first == '\\', "{text}");
    assert!(!text.ends_with('.') && !text.chars().any(char::is_control), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_failed_build_names_the_option_and_the_fix() {
    let builder = || Masters::new(3).builder();
    let guarded = |max_ttl| builder().restart_guard(max_ttl);
    let huge = |timeout| builder().node_timeout(timeout).connect_timeout(timeout);
    let (bound, ns) = (500 * MS, Duration::from_nanos(1));
    let shrinking = Backoff::Decorrelated { initial: 2 * MS, max: MS };
    let dwindling = Backoff::Exponential { initial: MS, max: S, multiplier_percent: 99 };
    let clock_bounds = &["out of bounds: set at least 1ms"][..];
    let at_most = &["with the ttl (10s) it may be 86400s at most"][..];
    for (builder, words) in [
        (Redlock::builder(), &["no masters", "at least one"][..]),
        (Masters::new(65).builder(), &["65 masters", "at most 64"]),
        (builder().ttl(100 * MS), &["ttl of 100ms", "drift (3ms)", "node timeout (100ms)"]),
        (builder().ttl(100 * MS), &["raise the ttl or lower the node timeout"]),
        (builder().ttl(90_000 * S), &["ttl of 90000s", "at most 86400s", "extend"]),
        (builder().drift(1_000_000, Duration::ZERO), &["ttl of 10s is too short"]),
        (builder().drift(0, 10 * S), &["ttl of 10s is too short"]),
        (builder().drift(u32::MAX, Duration::MAX), &["ttl of 10s is too short"]),
        (builder().drift(0, Duration::ZERO), &["drift of 0ns is too small"]),
        (builder().drift(0, MS - ns), &["drift of 999.999µs is too small"]),
        (builder().node_timeout(Duration::ZERO), &["node timeout of 0ns", "at least 1ms"]),
        (builder().node_timeout(MS - ns), &["node timeout of 999.999µs", "at least 1ms"]),
        (huge(10 * S), &["ttl of 10s is too short"]),
        (huge(Duration::MAX), &["ttl of 10s is too short"]),
        (builder().connect_timeout(99 * MS), &["connect timeout of 99ms", "at least", "100ms"]),
        (builder().retry(Backoff::Fixed(Duration::ZERO)), &["back-off of 0ns", "at least 1ms"]),
        (builder().retry(shrinking), &["at most 1ms", "first pause (2ms)", "longer `max`"]),
        (builder().retry(dwindling), &["by 99 percent", "at least 100", "200 to double"]),
        (builder().master("nonsense"), &["master 4", "not a Redis URL", "redis://"]),
        (builder().master("redis://me@db1"), &["a user without a password", "user:password@host"]),
        (builder().master("redis://db1").master("redis://DB1"), &["masters 4 and 5", "give each"]),
        (builder().clock_guard(bound), &["set the guard, too"]),
        (guarded(TTL).clock_guard(Duration::ZERO), clock_bounds),
        (guarded(TTL).clock_guard(TTL), clock_bounds),
        (guarded(TTL).clock_guard(Duration::MAX), clock_bounds),
        (guarded(TTL).clock_guard(TTL - 202 * MS), &["lower the clock guard on all clients"]),
        (guarded(TTL).ttl(TTL + MS), &["ttl of 10.001s is above the guard of this lock, 10s"]),
        (guarded(Duration::MAX), &["86400s"]),
        (builder().lock_delay(DAY - TTL + ns), at_most),
        (builder().lock_delay(Duration::MAX), at_most),
        (
            guarded(TTL + 5 * S).lock_delay(5 * S + MS),
            &["ttl of 10s and lock delay of 5.001s are together above the guard"],
        ),
        (builder().lock_delay(5 * S).fencing_counter_ttl(TTL), &["fencing"]),
    ] {
        check(&builder.build().await.unwrap_err(), words);
    }
    for builder in [
        builder().drift(0, MS),
        builder().node_timeout(MS),
        builder().connect_timeout(100 * MS),
        guarded(TTL).clock_guard(bound),
        builder().lock_delay(DAY - TTL),
        guarded(TTL + 5 * S).lock_delay(5 * S),
    ] {
        builder.build().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_acquire_names_the_reason_and_the_holder() {
    let masters = Masters::new(3);
    let lock = masters.builder().build().await.unwrap();
    let held = lock.acquire("r").await.unwrap();
    let taken = lock.acquire("r").wait(Duration::ZERO).await.unwrap_err();
    let words =
        ["r: taken by another", "1 attempt;", "master 3 (memory-3): held by token", "10000 ms"];
    check(&taken, &words);
    check(&lock.acquire("").await.unwrap_err(), &["the resource is empty", "name what"]);
    let long = lock.acquire(vec![0; 2 << 20]).await.unwrap_err();
    check(&long, &["2097152 bytes", "at most 1048576", "lock a hash of it"]);
    assert!(long.to_string().len() < 1000, "it repeats the name: {long}");
    (1..=2).for_each(|number| masters.kill(number));
    tokio::time::sleep(MS).await;
    // Another resource, so the request does not queue behind the other.
    let none = lock.acquire("free").wait(S).await.unwrap_err();
    check(
        &none,
        &[
            "no quorum: too few masters answered",
            "attempts;",
            "master 1 (memory-1): not connected: ",
        ],
    );
    let not = held.extend().await.unwrap_err();
    check(
        &not,
        &["r: not extended, the old deadline stands", "master 2 (memory-2): not connected"],
    );
    drop(held);
    let unfinished = lock.shutdown(S).await.unwrap_err();
    check(
        &unfinished,
        &["within 1s", "2 keys with a pending clean-up", "0 keys of living leases", "one ttl"],
    );
    check(&lock.acquire("r").await.unwrap_err(), &["the lock was shut down"]);
}

/// The headline says whether waiting helps, as the reason of each master does.
#[tokio::test(start_paused = true)]
async fn a_lock_whose_guard_distrusts_its_masters_says_whether_waiting_helps() {
    const OTHERS: &str = "give all clients the same guard";
    let masters = Masters::new(3);
    let of = |max_ttl| masters.builder().ttl(S).restart_guard(max_ttl);
    let lock = of(4 * S).build().await.unwrap();
    let headline = async |lock: &Redlock| {
        let error = lock.try_acquire("r").await.unwrap_err().to_string();
        error.split(" (").next().unwrap().to_owned()
    };
    let new = headline(&lock).await;
    assert!(new.ends_with("; wait, or initialize masters that are new"), "{new}");
    lock.initialize_masters().await;
    let other = headline(&of(5 * S).build().await.unwrap()).await;
    assert!(other.contains("waiting does not help") && other.contains(OTHERS), "{other}");
    assert!(!other.contains("; wait") && !other.contains("initialize"), "{other}");
    let clock = headline(&of(4 * S).clock_guard(S / 2).build().await.unwrap()).await;
    assert!(clock.contains("give all clients the same clock guard"), "{clock}");
    (1..=2).for_each(|number| masters.forget(number));
    let _ = lock.try_acquire("r").await;
    let forgot = headline(&lock).await;
    assert!(
        forgot.ends_with("can be alive; wait"),
        "who initializes them breaks the lock: {forgot}"
    );
    // One master that waits, and two that do not.
    let mixed = of(5 * S).build().await.unwrap();
    masters.set(1, "redquorum:boot", masters.value(3, "redquorum:boot").unwrap(), None);
    tokio::time::sleep(2 * S).await;
    let mixed = headline(&mixed).await;
    assert!(mixed.contains("waiting does not help") && mixed.contains(OTHERS), "{mixed}");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_was_never_tried_says_what_was_before_it() {
    let lock = Masters::new(3).builder().build().await.unwrap();
    let held = lock.acquire("r").await.unwrap();
    let taken = lock.acquire("r").wait(4 * S).await.unwrap_err();
    let why = "taken by another (not tried: another request of this process was before it";
    check(&taken, &[why, "master 3 (memory-3): held by token"]);
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn a_lost_lease_names_the_reason() {
    let masters = Masters::new(3);
    let lock = masters.builder().build().await.unwrap();
    let lease = lock.acquire("r").await.unwrap();
    check(&lease.lost().await, &["r: the lease is lost: its deadline passed"]);
    check(&lease.extend().await.unwrap_err(), &["r: the lease is lost: its deadline passed"]);
    let lease = lock.acquire("r").await.unwrap();
    (1..=3).for_each(|number| masters.forget(number));
    check(&lease.extend().await.unwrap_err(), &["the key is gone from a quorum", "no such key"]);
}

#[test]
fn a_builder_shows_its_options_and_no_secret() {
    let builder = Redlock::builder().master("redis://me:hunter2@db1").ttl(7 * S).prefix("hidden?");
    let shown = format!("{builder:?}");
    for word in ["masters: 1", "ttl: 7s", "wait: 10s", "node_timeout: 100ms", "connect_timeout: 1s"]
    {
        assert!(shown.contains(word), "{word:?} is missing in {shown}");
    }
    assert!(!shown.contains("hunter2"), "{shown}");
}
