//! Masters that forget, under a lock with a restart guard.

use std::time::Duration;

use redquorum::{
    AcquireError, Builder, Outcome, Redlock,
    report::{Admitted, Cause, Distrust, Fingerprint, MasterOutcome, MastersId, Report},
};
use redquorum_protocol::wire::ErrorKind;
use tokio::time::Instant;

use crate::monitor::Monitor;
use crate::support::*;

tests! {
    both:
        masters_that_restart_empty_grant_again_after_a_quarantine,
        a_flush_is_noticed_by_the_command_that_would_grant,
        new_masters_are_refused_until_they_are_initialized,
        initializing_without_a_guard_reports_that_there_is_none,
        locks_with_different_guards_are_refused_with_both,
        locks_over_different_sets_of_masters_are_refused_until_the_markers_are_new;
    real:
        one_list_spelled_in_two_ways_is_one_set_by_its_id,
        missing_permissions_are_done_without_or_named,
        a_marker_that_is_no_string_is_named,
        a_marker_of_any_length_ends_no_connection,
        an_uncontended_acquire_is_one_command_per_master,
}

const TTL: Duration = Duration::from_millis(600);
/// `max_ttl` + drift + 2 s.
const QUARANTINE: Duration = Duration::from_millis(600 + 8 + 2_000);
const MARKER: &str = "redquorum:boot";

fn guarded(builder: Builder) -> Builder {
    builder.node_timeout(100 * MS).ttl(TTL).restart_guard(TTL)
}

async fn guard(masters: &impl Cluster) -> Redlock {
    built(guarded(masters.builder())).await
}

fn count(report: &Report, outcome: &MasterOutcome) -> usize {
    report.masters().iter().filter(|master| master.outcome.as_ref() == Some(outcome)).count()
}

async fn initialized(masters: &impl Cluster) -> Redlock {
    let lock = guard(masters).await;
    let report = lock.initialize_masters().await;
    assert_eq!(count(&report, &MasterOutcome::Initialized), masters.len(), "{report}");
    lock
}

async fn refused(lock: &Redlock) -> AcquireError {
    match lock.acquire("r").wait(Duration::ZERO).await {
        Err(error @ AcquireError::NoQuorum { .. }) => error,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("granted"),
    }
}

async fn refused_with(lock: &Redlock, words: &[&str]) {
    let text = refused(lock).await.to_string();
    words.iter().for_each(|word| assert!(text.contains(word), "{word}: {text}"));
}

fn reason(outcome: Option<&MasterOutcome>) -> Option<Distrust> {
    match outcome {
        Some(MasterOutcome::Unknown(Cause::Distrusted { why, .. })) => Some(why.clone()),
        _ => None,
    }
}

/// The reasons for the distrust that made an acquire fail.
fn reasons(error: &AcquireError) -> Vec<Distrust> {
    let replies = replies(error.report().unwrap());
    replies.iter().filter_map(|reply| reason(reply.as_ref())).collect()
}

async fn works(lock: &Redlock) {
    let lease = lock.acquire("r").wait(Duration::ZERO).await.unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(lease.release().await.outcome, Outcome::Released);
}

async fn trusted(lock: &Redlock) {
    let trusts = || lock.stats().masters.iter().all(|master| master.distrusted.is_none());
    eventually("all masters are trusted", trusts).await;
}

async fn masters_that_restart_empty_grant_again_after_a_quarantine<C: Cluster>() {
    let masters = C::start(3);
    let lock = initialized(&masters).await;
    let holder = lock.acquire("r").await.unwrap();
    let start = Instant::now();
    masters.each(Kill, 1..=2);
    masters.each(Restart, 1..=2);
    eventually("they are connected again", || sum(&lock, |m| m.connected) == 5).await;
    // Master 3 still reports the holder, but the acquire fails because of the distrust.
    let text = ["no quorum: masters that may have forgotten", "distrusted for another"];
    refused_with(&lock, &text).await;
    assert_eq!(reasons(&refused(&guard(&masters).await).await).len(), 2);
    drop(holder);
    let lease = lock.acquire("r").wait(3 * QUARANTINE).await.unwrap();
    let took = start.elapsed();
    assert!(took >= QUARANTINE && took < QUARANTINE + 2 * S + C::LATE, "{took:?}");
    let _ = lease.release().await;
    eventually("all are marked", || masters.holders(MARKER) == [1, 2, 3]).await;
    // A lock that is built now finds the markers.
    works(&guard(&masters).await).await;
}

async fn a_flush_is_noticed_by_the_command_that_would_grant<C: Cluster>() {
    let masters = C::start(3);
    let lock = initialized(&masters).await;
    let _holder = masters.held(&lock, "held").await;
    masters.each(Flush, 1..=2);
    let error = refused(&lock).await;
    assert_eq!(reasons(&error), [Distrust::Forgot, Distrust::Forgot]);
    assert!(error.to_string().contains("its marker has changed"), "{error}");
    assert!(!masters.keys(1..=2).contains(&"r".to_owned()), "nothing was set");
    assert!(lock.stats().masters.iter().all(|master| master.connected == 1));
    works_soon(&lock).await;
}

async fn works_soon(lock: &Redlock) {
    let _ = lock.acquire("r").wait(3 * QUARANTINE).await.unwrap().release().await;
}

async fn new_masters_are_refused_until_they_are_initialized<C: Cluster>() {
    let masters = C::start(3);
    let (lock, other) = (guard(&masters).await, guard(&masters).await);
    // Two verdicts are enough; the lock does not wait for the third.
    assert_eq!(reasons(&refused(&lock).await)[..2], vec![Distrust::Unmarked; 2]);
    assert_eq!(masters.holders("r"), Vec::<usize>::new(), "nothing was sent");
    let health = lock.health().await;
    assert_eq!((health.alive, health.usable, health.has_quorum()), (3, 0, false), "{health}");
    let strict = || guarded(masters.builder()).require_quorum(true).build();
    let build = strict().await.unwrap_err().to_string();
    for text in [health.to_string(), build, refused(&lock).await.to_string()] {
        for words in ["initialize masters that are new", "has no marker"] {
            assert!(text.contains(words), "{text}");
        }
    }
    refused_with(&lock, &["distrusted for another 2"]).await;
    lock.initialize_masters().await;
    assert!(lock.health().await.has_quorum() && strict().await.is_ok());
    works(&lock).await;
    trusted(&other).await;
    works(&other).await;
    let again = lock.initialize_masters().await;
    assert_eq!(count(&again, &MasterOutcome::AlreadyInitialized), 3, "{again}");
    // No grant in between could have found this loss.
    masters.each(Flush, 2..=3);
    let health = lock.health().await;
    assert_eq!((health.alive, health.usable, health.has_quorum()), (3, 1, false), "{health}");
    assert_eq!(health.report.distrusted(), 2, "{health}");
}

async fn initializing_without_a_guard_reports_that_there_is_none<C: Cluster>() {
    let masters = C::start(1);
    let report = masters.lock().await.initialize_masters().await.to_string();
    assert!(report.contains("has no guard"), "{report}");
    assert_eq!(masters.keys(masters.all()), Vec::<String>::new());
}

async fn locks_with_different_guards_are_refused_with_both<C: Cluster>() {
    let masters = C::start(3);
    let plain = || guarded(masters.builder());
    let watching = |bound| plain().clock_guard(bound * MS);
    for (first, other, words) in [
        (plain(), plain().restart_guard(2 * TTL), "a guard of 600ms, and this lock has 1.2s: give"),
        (watching(300), plain(), "a clock guard of 300ms, and this lock has no clock guard: give"),
        (watching(300), watching(200), "of 300ms, and this lock has a clock guard of 200ms"),
    ] {
        masters.each(Flush, 1..=3);
        built(first).await.initialize_masters().await;
        let other = built(other).await;
        refused_with(&other, &[words]).await;
        // Initializing the masters anew resolves the conflict, as soon as the lock has seen that
        // the markers are gone.
        masters.each(Flush, 1..=3);
        let is_foreign = |cause: &Option<Cause>| match cause {
            Some(Cause::Distrusted { why, .. }) => {
                matches!(why, Distrust::OtherMaxTtl { .. } | Distrust::OtherClockBound { .. })
            }
            _ => false,
        };
        let seen = || other.stats().masters.iter().all(|master| !is_foreign(&master.distrusted));
        eventually("the markers are gone", seen).await;
        other.initialize_masters().await;
        works(&other).await;
    }
}

async fn locks_over_different_sets_of_masters_are_refused_until_the_markers_are_new<C: Cluster>() {
    let masters = C::start(3);
    let of = |id: &str| guarded(masters.builder()).masters_id(id);
    let first = built(of("first")).await;
    first.initialize_masters().await;
    let ours = MastersId::Of(Fingerprint::of_name("second"));
    let marked = Some(Admitted::only(MastersId::Of(Fingerprint::of_name("first"))));
    let second = built(of("second")).await;
    assert_eq!(reasons(&refused(&second).await)[0], Distrust::OtherMasters { marked, ours });
    let words = ["other locks use some of these", "the same list of masters", "`masters_id`"];
    refused_with(&second, &words).await;
    replied(&second).await;
    assert_eq!(masters.holders("r"), Vec::<usize>::new());
    let health = second.health().await;
    assert_eq!((health.alive, health.usable, health.has_quorum()), (3, 0, false), "{health}");
    assert!(health.to_string().contains("give all clients the same masters"), "{health}");
    // Without a `masters_id`, the fingerprint of the list identifies the set.
    refused(&guard(&masters).await).await;
    works(&built(of("first")).await).await;
}

/// A lock over some of the masters, with this name for their host.
fn some(masters: &Real, host: &str, nodes: &[usize]) -> Builder {
    over(nodes.iter().map(|node| format!("redis://{host}:{}", masters.port(*node))))
}

async fn one_list_spelled_in_two_ways_is_one_set_by_its_id() {
    let masters = Real::start(3);
    let list = |host| guarded(some(&masters, host, &[1, 2, 3]));
    built(list("127.0.0.1").masters_id("jobs")).await.initialize_masters().await;
    works(&built(list("localhost").masters_id("jobs")).await).await;
    refused_with(&built(list("localhost")).await, &["one `masters_id`"]).await;
    let marker = String::from_utf8(masters.value(2, MARKER).unwrap()).unwrap();
    assert!(marker.contains(" masters=") && !marker.contains("jobs"), "{marker}");
}

const GUARD_ACL: &str = "resetkeys ~r ~redquorum:* -@all +set +get +del +pttl +pexpire +evalsha \
                         +script|load +info +time";

/// Waits until the lock reports that it cannot watch master 1. Returns why.
async fn unwatched(lock: &Redlock) -> String {
    let cannot = || {
        let why = lock.stats().masters[0].distrusted.clone();
        matches!(why, Some(Cause::Distrusted { why: Distrust::Unwatched(_), .. }))
    };
    eventually("it cannot be watched", cannot).await;
    let text = refused(lock).await.to_string();
    text.split_once("cannot be watched: ").expect("the reason").1.to_owned()
}

async fn missing_permissions_are_done_without_or_named() {
    let user = async |acl: &str| {
        let masters = Real::start(3);
        let builder = guarded(masters.user(acl, 0));
        (built(builder).await, masters)
    };
    // Without CONFIG the guard cannot find out which masters sync every write. All else works.
    let (lock, _masters) = user(GUARD_ACL).await;
    works_soon(&lock).await;
    let (lock, _masters) = user(&GUARD_ACL.replace(" +info", "")).await;
    refused_with(&lock, &["INFO is forbidden"]).await;
    for needed in [" ~redquorum:*", " +time"] {
        let (lock, _masters) = user(&GUARD_ACL.replace(needed, "")).await;
        let why = unwatched(&lock).await;
        assert_eq!(ErrorKind::of(why.as_bytes()), ErrorKind::Forbidden, "{needed}: {why}");
    }
}

async fn a_marker_that_is_no_string_is_named() {
    let masters = Real::start(1);
    masters.done(1, "LPUSH redquorum:boot x");
    let why = unwatched(&guard(&masters).await).await;
    assert!(why.contains("WRONGTYPE"), "{why}");
}

async fn a_marker_of_any_length_ends_no_connection() {
    let masters = Real::start(3);
    let _lock = initialized(&masters).await;
    masters.set(1, MARKER, &"x".repeat(1 << 20), None);
    let lock = guard(&masters).await;
    let health = lock.health().await;
    assert_eq!((health.alive, health.usable), (3, 2), "{health}");
    let text = health.to_string();
    assert!(text.contains("`redquorum:boot` is no marker") && text.contains("delete it"), "{text}");
    works(&lock).await;
}

async fn an_uncontended_acquire_is_one_command_per_master() {
    let masters = Real::start(5);
    let lock = initialized(&masters).await;
    works(&lock).await;
    // A release returns before the last masters reply.
    replied(&lock).await;
    let mut monitors: Vec<_> = masters.all().map(|node| Monitor::start(&masters, node)).collect();
    for fenced in [false, true] {
        let released = if fenced {
            lock.acquire("r").fenced().await.unwrap().release().await
        } else {
            lock.acquire("r").await.unwrap().release().await
        };
        assert_eq!(released.outcome, Outcome::Released);
        replied(&lock).await;
        for monitor in &mut monitors {
            // One command grants and one deletes. The monitor marks commands of scripts with `lua`.
            let seen = monitor.seen("\"r\"");
            let sent = seen.iter().filter(|line| !line.contains(" lua]")).count();
            assert_eq!(sent, 2, "{seen:#?}");
        }
    }
}
