//! Lock delay: keys that outlive a lease that was not released.

use std::time::Duration;

use redquorum::memory::Masters;
use redquorum::{AcquireError, BadOption, BuildError, ExtendError, Outcome, Redlock, report::Loss};
use tokio::time::{Instant, sleep};

use crate::support::{MS, S, TTL, VALIDITY, holding, settle, take};

const GRACE: Duration = Duration::from_secs(5);
/// The lock delay plus the drift allowance: 1 % of the key's 15 s and 2 ms.
const OVER: Duration = Duration::from_millis(5_000 + 152);

async fn bed() -> (Masters, Redlock) {
    let masters = Masters::new(3);
    let lock = masters.builder().lock_delay(GRACE).build().await.unwrap();
    (masters, lock)
}

/// How long a rival waits for the resource.
async fn waits(masters: &Masters) -> Duration {
    let rival = masters.builder().build().await.unwrap();
    let start = Instant::now();
    rival.acquire("r").wait(60 * S).await.unwrap().release().await;
    start.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_lost_lease_keeps_others_out_for_the_grace_and_its_deadline_is_as_ever() {
    let (masters, lock) = bed().await;
    let lease = take(&lock, "r").await;
    assert_eq!(lease.validity(), VALIDITY);
    assert_eq!(lease.lost().await.0, Loss::Expired);
    settle().await;
    assert_eq!(holding(&masters, 3, "r"), [1, 2, 3]);
    // Neither a release nor a drop deletes the keys now.
    assert_eq!(lease.release().await.outcome, Outcome::AlreadyGone);
    settle().await;
    assert_eq!(holding(&masters, 3, "r"), [1, 2, 3]);
    let waited = waits(&masters).await;
    assert!(waited >= GRACE && waited <= OVER + S, "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_release_frees_at_once_and_so_does_a_failed_or_dropped_acquire() {
    let (masters, lock) = bed().await;
    let lease = take(&lock, "r").await;
    let rival = lock.acquire("r").wait(Duration::ZERO).await;
    assert!(matches!(rival, Err(AcquireError::Taken { .. })));
    assert_eq!(lease.release().await.outcome, Outcome::Released);
    assert_eq!(waits(&masters).await, Duration::ZERO);
    let mut acquire = Box::pin(lock.try_acquire("r").into_future());
    assert!(crate::support::poll_once(acquire.as_mut()).await.is_pending());
    drop(acquire);
    settle().await;
    assert_eq!(holding(&masters, 3, "r"), Vec::<usize>::new());
}

#[tokio::test(start_paused = true)]
async fn a_dropped_lease_frees_after_the_grace_and_not_after_its_ttl() {
    let (masters, lock) = bed().await;
    drop(take(&lock, "r").await);
    settle().await;
    assert_eq!(holding(&masters, 3, "r"), [1, 2, 3]);
    let waited = waits(&masters).await;
    assert!(waited >= GRACE && waited <= OVER + S, "{waited:?}");
    // Control: without a lock delay, a drop deletes the keys at once.
    let bare = masters.builder().build().await.unwrap();
    drop(take(&bare, "r").await);
    settle().await;
    assert_eq!(holding(&masters, 3, "r"), Vec::<usize>::new());
}

#[tokio::test(start_paused = true)]
async fn an_extension_keeps_the_grace_behind_the_new_deadline() {
    let (masters, lock) = bed().await;
    let lease = take(&lock, "r").await;
    sleep(9 * S).await;
    lease.extend().await.unwrap();
    assert_eq!(lease.validity(), VALIDITY);
    lease.extend_to(20 * S).await.unwrap();
    assert!(lease.validity() > 19 * S && lease.validity() < 20 * S);
    lease.lost().await;
    sleep(GRACE - S).await;
    assert_eq!(holding(&masters, 3, "r"), [1, 2, 3]);
    sleep(3 * S).await;
    assert_eq!(holding(&masters, 3, "r"), Vec::<usize>::new());
}

#[tokio::test(start_paused = true)]
async fn a_watchdog_that_reaches_its_bound_leaves_the_grace_too() {
    let (masters, lock) = bed().await;
    let lease = take(&lock, "r").await;
    lease.keep_alive(30 * S);
    assert_eq!(lease.lost().await.0, Loss::MaxHold);
    let waited = waits(&masters).await;
    // The last renewal may have set a TTL beyond the watchdog's bound.
    assert!(waited >= GRACE && waited <= OVER + S, "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_master_that_was_away_as_the_lease_was_lost_is_cleaned_after_the_grace() {
    let (masters, lock) = bed().await;
    let lease = take(&lock, "r").await;
    masters.set(3, "r", masters.value(3, "r").unwrap(), None);
    masters.kill(3);
    lease.lost().await;
    drop(lease);
    sleep(S).await;
    masters.revive(3);
    sleep(S).await;
    assert_eq!(holding(&masters, 3, "r"), [1, 2, 3], "reconnected, and left alone");
    sleep(GRACE).await;
    assert_eq!(holding(&masters, 3, "r"), Vec::<usize>::new(), "one without TTL, too");
}

#[tokio::test(start_paused = true)]
async fn a_shut_down_waits_for_no_grace() {
    let (masters, lock) = bed().await;
    let (lost, dropped) = (take(&lock, "r").await, take(&lock, "s").await);
    lost.lost().await;
    drop(dropped);
    let start = Instant::now();
    lock.shutdown(60 * S).await.unwrap();
    assert!(start.elapsed() < S, "{:?}", start.elapsed());
    assert_eq!(holding(&masters, 3, "r"), [1, 2, 3]);
    let stats = lock.stats();
    assert!(stats.masters.iter().all(|master| master.owed == 0));
    drop((lost, lock));
    sleep(OVER + S).await;
    assert_eq!(holding(&masters, 3, "r"), Vec::<usize>::new());
}

#[tokio::test(start_paused = true)]
async fn ttl_and_grace_are_bounded_together() {
    let masters = Masters::new(3);
    let day = Duration::from_secs(24 * 60 * 60);
    let build = |ttl, grace| masters.builder().ttl(ttl).lock_delay(grace);
    build(TTL, day - TTL).build().await.unwrap();
    for grace in [day - TTL + Duration::from_nanos(1), day, Duration::MAX] {
        let built = build(TTL, grace).build().await;
        let Err(BuildError::Options(bad @ BadOption::LockDelayTooLong { .. })) = built else {
            panic!("{built:?}")
        };
        assert!(bad.to_string().contains("with the ttl (10s) it may be 86400s at most"), "{bad}");
    }
    // The guard must cover the TTL and the lock delay together.
    build(TTL, GRACE).restart_guard(TTL + GRACE).build().await.unwrap();
    let built = build(TTL, GRACE + MS).restart_guard(TTL + GRACE).build().await;
    let text = built.unwrap_err().to_string();
    assert!(
        text.starts_with("ttl of 10s and lock delay of 5.001s are together above the guard"),
        "{text}"
    );
    let lock = build(TTL, GRACE).restart_guard(TTL + GRACE).build().await.unwrap();
    lock.initialize_masters().await;
    let lease = take(&lock, "r").await;
    let extended = lease.extend_to(TTL + MS).await;
    assert!(matches!(extended, Err(ExtendError::Options(BadOption::TtlAboveGuard { .. }))));
    // So must the lifetime of fencing counters.
    let built = build(TTL, GRACE).fencing_counter_ttl(TTL).build().await;
    assert!(matches!(built, Err(BuildError::Options(BadOption::FencingMemory { .. }))));
}
