//! Masters that forget, under a lock with a restart guard.

use std::time::Duration;

use redquorum::memory::Masters;
use redquorum::{
    AcquireError, BadOption, BuildError, ExtendError, Outcome, Redlock,
    report::{Cause, Distrust, Fingerprint, MasterOutcome},
};
use tokio::time::{Instant, sleep};

use crate::support::{MS, S, TTL, settle, take};

/// `max_ttl` + drift + 2 s.
const QUARANTINE: Duration = Duration::from_millis(10_000 + 102 + 2_000);

async fn guarded(masters: &Masters) -> Redlock {
    masters.builder().restart_guard(TTL).build().await.unwrap()
}

/// Masters with boot markers, and a lock that trusts them.
async fn bed(count: usize) -> (Masters, Redlock) {
    let masters = Masters::new(count);
    let lock = guarded(&masters).await;
    let report = lock.initialize_masters().await;
    assert!(
        report.masters().iter().all(|master| master.outcome == Some(MasterOutcome::Initialized))
    );
    (masters, lock)
}

/// The reasons for the distrust, where it made the acquire fail.
fn distrust(error: &AcquireError) -> Vec<Distrust> {
    let AcquireError::NoQuorum { report, .. } = error else { panic!("{error}") };
    let why = |answer: &Option<MasterOutcome>| match answer {
        Some(MasterOutcome::Unknown(Cause::Distrusted { why, .. })) => Some(why.clone()),
        _ => None,
    };
    report.masters().iter().filter_map(|master| why(&master.outcome)).collect()
}

#[tokio::test(start_paused = true)]
async fn new_masters_grant_after_one_quarantine_and_the_error_says_so() {
    let masters = Masters::new(5);
    let (start, lock) = (Instant::now(), guarded(&masters).await);
    let error = lock.try_acquire("r").await.unwrap_err();
    // Three verdicts are enough; the lock does not wait for the rest.
    assert_eq!(distrust(&error)[..3], [Distrust::Unmarked, Distrust::Unmarked, Distrust::Unmarked]);
    let text = error.to_string();
    for part in ["initialize masters that are new", "distrusted for another 12.1s", "has no marker"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!((1..=5).all(|number| masters.value(number, "r").is_none()), "nothing was sent");
    let lease = lock.acquire("r").wait(60 * S).await.unwrap();
    let waited = start.elapsed();
    assert!(waited >= QUARANTINE && waited < QUARANTINE + S, "{waited:?}");
    lease.release().await;
    // A lock that is built now finds the markers.
    take(&guarded(&masters).await, "r").await.release().await;
}

#[tokio::test(start_paused = true)]
async fn masters_that_are_blessed_are_trusted_at_once_and_by_others_within_a_second() {
    let masters = Masters::new(5);
    let (lock, other) = (guarded(&masters).await, guarded(&masters).await);
    assert!(lock.try_acquire("r").await.is_err());
    lock.initialize_masters().await;
    take(&lock, "r").await.release().await;
    sleep(S).await;
    settle().await;
    take(&other, "r").await.release().await;
    let again = lock.initialize_masters().await;
    assert!(again.to_string().contains("has"), "{again}");
    let marked =
        |answer: &Option<MasterOutcome>| matches!(answer, Some(MasterOutcome::AlreadyInitialized));
    assert!(again.masters().iter().all(|master| marked(&master.outcome)), "{again}");
}

#[tokio::test(start_paused = true)]
async fn health_counts_masters_that_are_distrusted_as_alive_and_not_as_usable() {
    let masters = Masters::new(3);
    let lock = guarded(&masters).await;
    let health = lock.health().await;
    assert_eq!((health.alive, health.usable, health.has_quorum()), (3, 0, false), "{health}");
    let strict = || masters.builder().restart_guard(TTL).require_quorum(true).build();
    let error = strict().await.unwrap_err();
    for text in [health.to_string(), error.to_string()] {
        assert!(text.contains("initialize masters that are new"), "{text}");
        assert!(text.contains("has no marker"), "{text}");
    }
    lock.initialize_masters().await;
    assert!(lock.health().await.has_quorum() && strict().await.is_ok());
    let keys: Vec<_> = (1..=3).map(|number| masters.keys(number)).collect();
    assert_eq!(lock.health().await.usable, 3);
    assert_eq!((1..=3).map(|number| masters.keys(number)).collect::<Vec<_>>(), keys);
    // No grant in between could have found the loss.
    (2..=3).for_each(|number| masters.forget(number));
    let health = lock.health().await;
    assert_eq!((health.alive, health.usable, health.has_quorum()), (3, 1, false), "{health}");
    assert_eq!(health.report.distrusted(), 2, "{health}");
}

/// A marker of any length does not end the connection.
#[tokio::test(start_paused = true)]
async fn a_marker_of_a_megabyte_is_distrusted_and_the_reason_is_told() {
    let (masters, _) = bed(3).await;
    masters.set(1, "redquorum:boot", vec![b'x'; 1 << 20], None);
    let lock = guarded(&masters).await;
    let health = lock.health().await;
    assert_eq!((health.alive, health.usable), (3, 2), "{health}");
    let garbled = Some(Distrust::Garbled);
    let why = |answer: &Option<MasterOutcome>| match answer {
        Some(MasterOutcome::Unknown(Cause::Distrusted { why, .. })) => Some(why.clone()),
        _ => None,
    };
    assert_eq!(why(&health.report.masters()[0].outcome), garbled, "{health}");
    assert!(health.to_string().contains("delete it"), "{health}");
    take(&lock, "r").await.release().await;
    // The lock replaces it like any other untrusted marker.
    sleep(QUARANTINE + 2 * S).await;
    assert_eq!(lock.health().await.usable, 3);
}

#[tokio::test(start_paused = true)]
async fn one_master_of_another_set_is_enough_for_health_to_say_no() {
    let (masters, _) = bed(3).await;
    let other = masters.builder().restart_guard(TTL).masters_id("other").build().await.unwrap();
    let health = other.health().await;
    assert_eq!((health.alive, health.usable, health.has_quorum()), (3, 0, false), "{health}");
    assert!(health.to_string().contains("give all clients the same masters"), "{health}");
    (2..=3).for_each(|number| masters.forget(number));
    settle().await;
    let own = masters.builder().restart_guard(TTL).masters_id("other").build().await.unwrap();
    own.initialize_masters().await;
    let health = own.health().await;
    assert_eq!((health.usable, health.has_quorum()), (2, false), "{health}");
    assert!(own.try_acquire("r").await.is_err(), "as health said");
}

#[tokio::test(start_paused = true)]
async fn blessing_without_a_guard_says_that_there_is_nothing_to_bless() {
    let masters = Masters::new(1);
    let lock = masters.builder().build().await.unwrap();
    let report = lock.initialize_masters().await.to_string();
    assert!(report.contains("has no guard"), "{report}");
    assert_eq!(masters.keys(1), Vec::<Vec<u8>>::new());
}

#[tokio::test(start_paused = true)]
async fn masters_that_restart_without_their_data_grant_nothing_while_a_lost_lease_could_live() {
    let (masters, lock) = bed(3).await;
    let holder = take(&lock, "r").await;
    (1..=2).for_each(|number| masters.restart(number));
    sleep(S).await;
    let rival = guarded(&masters).await;
    let error = rival.try_acquire("r").await.unwrap_err();
    assert_eq!(distrust(&error).len(), 2, "{error}");
    // Master 3 still reports the holder, but the acquire fails because of the distrust.
    let text = error.to_string();
    assert!(text.contains("no quorum: masters that may have forgotten"), "{text}");
    let stats = rival.stats();
    assert!(stats.masters[0].distrusted.is_some() && stats.masters[2].distrusted.is_none());
    drop(holder);
    let start = Instant::now();
    rival.acquire("r").wait(60 * S).await.unwrap().release().await;
    assert!(start.elapsed() >= QUARANTINE - 2 * S, "{:?}", start.elapsed());
    assert!(rival.stats().masters[0].distrusted.is_none());
}

/// Control: without the guard, the resource is granted twice.
#[tokio::test(start_paused = true)]
async fn without_a_guard_the_rival_is_let_in() {
    let masters = Masters::new(3);
    let lock = masters.builder().build().await.unwrap();
    let holder = take(&lock, "r").await;
    (1..=2).for_each(|number| masters.forget(number));
    let rival = take(&lock, "r").await;
    assert!(holder.is_lost().is_none() && rival.is_lost().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_flush_is_noticed_by_the_very_command_that_would_grant() {
    let (masters, lock) = bed(3).await;
    let holder = take(&lock, "r").await;
    (1..=2).for_each(|number| masters.forget(number));
    let error = lock.try_acquire("r").await.unwrap_err();
    assert_eq!(distrust(&error), [Distrust::Forgot, Distrust::Forgot], "{error}");
    assert!((1..=2).all(|number| masters.value(number, "r").is_none()), "nothing was set");
    assert!(holder.is_lost().is_none());
    // A second loss during the quarantine starts the quarantine again.
    sleep(QUARANTINE - S).await;
    (1..=2).for_each(|number| masters.forget(number));
    sleep(QUARANTINE - S).await;
    assert!(lock.try_acquire("r").await.is_err(), "its quarantine began anew");
    sleep(3 * S).await;
    take(&lock, "r").await.release().await;
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_kept_extended_and_released_over_the_restart_of_a_master() {
    let (masters, lock) = bed(3).await;
    let lease = take(&lock, "r").await;
    lease.keep_alive(3_600 * S);
    for number in 1..=3 {
        masters.restart(number);
        sleep(QUARANTINE + S).await;
        assert!(lease.is_lost().is_none(), "master {number}");
        assert!(lock.try_acquire("r").await.unwrap().is_none());
    }
    let released = lease.release().await;
    assert_eq!(released.outcome, Outcome::Released);
    take(&lock, "r").await.release().await;
}

#[tokio::test(start_paused = true)]
async fn clean_ups_are_paid_to_distrusted_masters_too() {
    let (masters, lock) = bed(3).await;
    let lease = take(&lock, "r").await;
    // Master 1 has the key but no valid marker.
    let marker = masters.value(1, "redquorum:boot").unwrap();
    masters.set(1, "redquorum:boot", "garbage", None);
    assert!(lock.try_acquire("s").await.unwrap().is_some(), "two are enough");
    assert!(lock.stats().masters[0].distrusted.is_some());
    assert_eq!(lease.release().await.outcome, Outcome::Released);
    settle().await;
    assert!((1..=3).all(|number| masters.value(number, "r").is_none()));
    // When the marker is back, the lock trusts the master again.
    masters.set(1, "redquorum:boot", marker, None);
    sleep(2 * S).await;
    assert!(lock.stats().masters[0].distrusted.is_none());
}

#[tokio::test(start_paused = true)]
async fn locks_with_different_guards_are_told_whose_is_which() {
    let (masters, _lock) = bed(3).await;
    let other = masters.builder().restart_guard(TTL + S).build().await.unwrap();
    let error = other.try_acquire("r").await.unwrap_err().to_string();
    assert!(error.contains("a guard of 10s, and this lock has 11s: give all"), "{error}");
    // Time does not resolve the conflict; initializing the masters anew does.
    sleep(10 * QUARANTINE).await;
    assert!(other.try_acquire("r").await.is_err());
    (1..=3).for_each(|number| masters.forget(number));
    other.initialize_masters().await;
    take(&other, "r").await.release().await;
}

async fn of_fleet(masters: &Masters, name: &str) -> Redlock {
    masters.builder().restart_guard(TTL).masters_id(name).build().await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn locks_over_different_sets_of_masters_are_told_and_one_name_makes_them_one() {
    let masters = Masters::new(3);
    let first = of_fleet(&masters, "first").await;
    first.initialize_masters().await;
    let ours = Fingerprint::of_name("second");
    let marked = Some(Fingerprint::of_name("first"));
    let second = of_fleet(&masters, "second").await;
    let error = second.try_acquire("r").await.unwrap_err();
    assert_eq!(distrust(&error)[0], Distrust::OtherFleet { marked, ours });
    let text = error.to_string();
    for part in
        ["other locks use some of these masters", "the same list of masters", "`masters_id`"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    settle().await;
    assert!((1..=3).all(|number| masters.value(number, "r").is_none()));
    // Without a `masters_id`, the fingerprint of the list identifies the set.
    assert!(guarded(&masters).await.try_acquire("r").await.is_err());
    take(&of_fleet(&masters, "first").await, "r").await.release().await;
    // Time does not resolve the conflict; new markers do.
    sleep(10 * QUARANTINE).await;
    assert!(second.try_acquire("r").await.is_err());
    drop(first);
    (1..=3).for_each(|number| masters.forget(number));
    second.acquire("r").wait(60 * S).await.unwrap().release().await;
}

/// One master that is shared with another set is enough, though the others are a quorum.
#[tokio::test(start_paused = true)]
async fn one_master_of_another_set_refuses_and_one_of_another_process_does_not() {
    let (masters, lock) = bed(3).await;
    let marker = String::from_utf8(masters.value(3, "redquorum:boot").unwrap()).unwrap();
    let [run_id, max_ttl, fleet] = marker.split(' ').collect::<Vec<_>>()[..] else {
        panic!("{marker}")
    };
    let set = |text: String| masters.set(3, "redquorum:boot", text, None);
    set(format!("{run_id}x {max_ttl} {fleet}"));
    take(&guarded(&masters).await, "r").await.release().await;
    for other in
        [format!("{run_id} {max_ttl} fleet=0123456789abcdef"), format!("{run_id} {max_ttl}")]
    {
        set(other);
        let error = guarded(&masters).await.try_acquire("r").await.unwrap_err();
        assert!(matches!(distrust(&error)[..], [Distrust::OtherFleet { .. }]), "{error}");
    }
    // A lock that trusted the master before finds the other marker in its attempt.
    let error = lock.acquire("r").wait(Duration::ZERO).await;
    drop(error);
    settle().await;
    assert!(lock.try_acquire("r").await.is_err());
    set(marker.clone());
    sleep(2 * S).await;
    take(&lock, "r").await.release().await;
}

#[tokio::test(start_paused = true)]
async fn a_fenced_lease_has_its_token_under_a_guard_and_a_plain_one_leaves_no_counter() {
    let (masters, lock) = bed(3).await;
    let first = lock.acquire("r").fenced().await.unwrap();
    let token = first.fencing_token();
    first.release().await;
    let next = lock.acquire("r").fenced().await.unwrap();
    assert!(next.fencing_token() > token);
    take(&lock, "plain").await.release().await;
    settle().await;
    let keys = masters.keys(1);
    assert!(!keys.iter().any(|key| key.ends_with(b"plain")), "{keys:?}");
}

#[tokio::test(start_paused = true)]
async fn no_ttl_is_above_the_guard() {
    let masters = Masters::new(3);
    let above = |bad: BadOption| matches!(bad, BadOption::TtlAboveGuard { .. });
    let built = masters.builder().ttl(TTL + MS).restart_guard(TTL).build().await;
    assert!(matches!(built, Err(BuildError::Options(bad)) if above(bad)));
    let text = built.unwrap_err().to_string();
    assert!(text.starts_with("ttl of 10.001s is above the guard of this lock, 10s"), "{text}");
    let built = masters.builder().restart_guard(Duration::MAX).build().await;
    assert!(matches!(built, Err(BuildError::Options(BadOption::TtlTooLong { .. }))));
    let (_masters, lock) = bed(3).await;
    let acquired = lock.acquire("r").ttl(TTL + MS).await;
    assert!(matches!(acquired, Err(AcquireError::Options(bad)) if above(bad)));
    let lease = take(&lock, "r").await;
    let extended = lease.extend_to(TTL + MS).await;
    assert!(matches!(extended, Err(ExtendError::Options(bad)) if above(bad)));
    lease.extend_to(TTL).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_shut_down_watches_nobody() {
    let masters = Masters::new(3);
    let lock = guarded(&masters).await;
    lock.shutdown(S).await.unwrap();
    settle().await;
    masters.forget(1);
    sleep(2 * QUARANTINE).await;
    assert_eq!(masters.keys(1), Vec::<Vec<u8>>::new());
}
