//! Fencing tokens from real counters: the values of counters, how the library reads them, and what
//! a register in Redis does with tokens.

use redquorum::{AcquireError, FencedLease, MAX_FENCING_TOKEN, Redlock};
use redquorum_protocol::wire::{CERTIFY, GRANT};
use redquorum_rig::{Masters, RespValue, trials::Case};

use crate::support::*;

pub(crate) fn cases() -> Vec<Case> {
    cases![
        tokens_grow_over_processes_and_counters_say_the_same,
        counters_that_differ_are_brought_together,
        a_counter_of_another_type_or_without_a_number_is_no_vote_and_leaves_no_key,
        numbers_are_whole_up_to_the_last_that_counts,
        a_hint_is_followed_only_as_far_as_the_masters_own_clock,
        counters_are_remembered_anew_by_an_extension_and_a_repair_counts,
        who_asks_for_no_token_sends_what_it_always_sent,
    ]
}

async fn take(lock: &Redlock, r: &str) -> FencedLease {
    lock.acquire(r).wait(MS).fenced().await.unwrap_or_else(|error| panic!("{error}"))
}

fn counter(r: &str) -> String {
    format!("redquorum:fence:{r}")
}

fn numbers(masters: &Masters, r: &str) -> Vec<u64> {
    let number = |node| value(masters, node, &counter(r));
    let texts = all(masters).filter_map(number);
    texts.map(|text| String::from_utf8(text).unwrap().parse().unwrap()).collect()
}

async fn tokens_grow_over_processes_and_counters_say_the_same() {
    let (masters, r) = (shared(), unique("tokens"));
    let locks = [built(calm(masters)).await, built(calm(masters)).await];
    let mut last = 0;
    for round in 0..10 {
        let lock = &locks[round % 2];
        let lease = take(lock, &r).await;
        assert!(lease.fencing_token() > last, "{} after {last}", lease.fencing_token());
        last = lease.fencing_token();
        answered(lock).await;
        assert_eq!(numbers(masters, &r), [last; 5]);
        lease.release().await;
        answered(lock).await;
    }
}

async fn counters_that_differ_are_brought_together() {
    let (masters, r) = (shared(), unique("diverged"));
    let lock = built(calm(masters)).await;
    let lease = take(&lock, &r).await;
    let now = lease.fencing_token();
    lease.release().await;
    answered(&lock).await;
    for node in all(masters) {
        let ahead = now + 1_000_000_000 * node as u64;
        done(masters, node, &format!("SET {} {ahead}", counter(&r)));
    }
    let lease = take(&lock, &r).await;
    let token = lease.fencing_token();
    assert_eq!(token, now + 3_000_000_001, "the third smallest of five");
    answered(&lock).await;
    let stand = numbers(masters, &r).iter().filter(|number| **number == token).count();
    assert_eq!(stand, 3, "{:?}", numbers(masters, &r));
    lease.release().await;
    answered(&lock).await;
    let next = take(&lock, &r).await;
    assert_eq!(next.fencing_token(), token + 1);
}

async fn a_counter_of_another_type_or_without_a_number_is_no_vote_and_leaves_no_key() {
    let masters = shared();
    let lock = built(calm(masters)).await;
    for spoil in [
        "LPUSH KEY element",
        "SET KEY many",
        "SET KEY nan",
        "SET KEY inf",
        "SET KEY 1e300",
        "SET KEY 9007199254740990",
        "SET KEY 9007199254740993",
    ] {
        let r = unique("spoilt");
        for node in 1..=2 {
            done(masters, node, &spoil.replace("KEY", &counter(&r)));
        }
        let lease = take(&lock, &r).await;
        answered(&lock).await;
        let report = lease.latest_report().to_string();
        assert!(report.contains("FENCE the counter of this resource"), "{spoil}: {report}");
        assert_eq!(holders(masters, &r), [3, 4, 5], "{spoil}");
        lease.release().await;
        delete(masters, [3], &counter(&r));
        done(masters, 3, &spoil.replace("KEY", &counter(&r)));
        let refused = lock.acquire(&r).wait(MS).fenced().await.unwrap_err();
        assert!(matches!(refused, AcquireError::NoQuorum { .. }), "{spoil}: {refused}");
        // A plain acquire is not affected.
        lock.acquire(&r).await.unwrap().release().await;
        cleaned(masters, &r).await;
    }
}

/// Runs a script as the library does.
fn script(masters: &Masters, source: &str, r: &str, args: &[&str]) -> RespValue {
    let counter = counter(r);
    let mut words: Vec<&[u8]> =
        vec![b"EVAL", source.as_bytes(), b"2", r.as_bytes(), counter.as_bytes()];
    words.extend(args.iter().map(|arg| arg.as_bytes()));
    masters.command(1, &words).unwrap()
}

async fn numbers_are_whole_up_to_the_last_that_counts() {
    let (masters, r) = (shared(), unique("whole"));
    let last = i64::try_from(MAX_FENCING_TOKEN).unwrap();
    script(masters, GRANT.source, &r, &["t", "60000", "1", "60000"]);
    for number in [1_795_000_000_123_456, (1 << 52) + 1, last - 1, last] {
        let text = number.to_string();
        let said = script(masters, CERTIFY.source, &r, &["t", &text, "60000"]);
        assert_eq!(said, RespValue::Integer(number));
        assert_eq!(value(masters, 1, &counter(&r)).unwrap(), text.as_bytes());
    }
    delete(masters, [1], &r);
    let refused = script(masters, GRANT.source, &r, &["t", "60000", "1", "60000"]);
    assert!(matches!(refused, RespValue::Error(_)), "{refused:?}");
    assert_eq!(value(masters, 1, &r), None);
    delete(masters, [1], &counter(&r));
}

async fn a_hint_is_followed_only_as_far_as_the_masters_own_clock() {
    let (masters, r) = (shared(), unique("hint"));
    let far = MAX_FENCING_TOKEN.to_string();
    let said = script(masters, GRANT.source, &r, &["t", "60000", &far, "60000"]);
    let RespValue::Integer(number) = said else { panic!("{said:?}") };
    let Ok(RespValue::Array(time)) = masters.ask(1, "TIME") else { panic!("no time") };
    let [seconds, micros] = [0, 1].map(|at| {
        let text = time[at].text().expect("a text").into_owned();
        text.parse::<i64>().expect("a number")
    });
    let ahead = number - (seconds * 1_000_000 + micros);
    assert!((0..=1_000_000).contains(&ahead), "{ahead} us ahead");
    delete(masters, [1], &r);
    let next = script(masters, GRANT.source, &r, &["t", "60000", "0", "60000"]);
    assert_eq!(next, RespValue::Integer(number + 1), "one that is behind is not followed at all");
    delete(masters, [1], &r);
}

async fn counters_are_remembered_anew_by_an_extension_and_a_repair_counts() {
    let (masters, r) = (shared(), unique("kept"));
    let lock = built(calm(masters).fencing_memory(60_000 * MS)).await;
    let lease = take(&lock, &r).await;
    let token = lease.fencing_token();
    answered(&lock).await;
    done(masters, 1, &format!("PEXPIRE {} 1000", counter(&r)));
    delete(masters, [2], &counter(&r));
    delete(masters, [3], &r);
    lease.extend().await.unwrap();
    answered(&lock).await;
    lease.extend().await.unwrap();
    answered(&lock).await;
    assert!(pttl(masters, 1, &counter(&r)) > 50_000);
    assert_eq!(numbers(masters, &r), [token, token, token + 1, token, token]);
    assert_eq!((lease.fencing_token(), holders(masters, &r).len()), (token, 5));
}

async fn who_asks_for_no_token_sends_what_it_always_sent() {
    let (masters, r) = (own(3), unique("plain"));
    let lock = built(calm(&masters)).await;
    let mut watched = crate::raw::Monitor::start(&masters, 1);
    let lease = lock.acquire(&r).await.unwrap();
    lease.extend().await.unwrap();
    lease.release().await;
    answered(&lock).await;
    let mut seen = watched.seen("redquorum:");
    // Only the release looks for waiters.
    seen.retain(|line| !line.contains("redquorum:queue:") && !line.contains("redquorum:lapse:"));
    assert_eq!(seen, Vec::<String>::new());
    assert!(keys(&masters, "redquorum:*").is_empty());
    take(&lock, &r).await.release().await;
    answered(&lock).await;
    assert!(!watched.seen("redquorum:fence:").is_empty(), "the watch is blind");
}
