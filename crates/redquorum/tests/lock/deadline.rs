//! Every lease that is returned is valid: its deadline counts from before the first byte was sent,
//! for every TTL, and however slow the replies or the caller are. With a lock delay, keys outlive a
//! lease that was not released. A local timer reports a loss in time, whatever the masters do.

use std::future::{IntoFuture, pending};
use std::task::Poll;
use std::time::Duration;

use redquorum::{AcquireError, ExtendError, Lost, Outcome, Redlock, report::Loss};
use tokio::time::{Instant, sleep};

use crate::support::*;

tests! {
    both:
        no_ttl_however_short_makes_a_lease_that_has_expired,
        a_lease_that_is_collected_after_its_deadline_is_too_late_and_leaves_no_key,
        a_released_lease_is_free_at_once_and_a_dropped_one_after_the_lock_delay,
        a_shutdown_waits_for_no_lock_delay,
        a_watchdog_ends_with_the_release_the_drop_and_the_loss_of_its_lease,
        a_loss_is_reported_in_time_though_no_master_replies_and_is_final;
    real:
        a_shorter_extend_never_shortens_a_key,
}

/// The validity of a TTL after the default drift allowance.
fn validity(ttl: Duration) -> Duration {
    ttl - ttl / 100 - 2 * MS
}

async fn no_ttl_however_short_makes_a_lease_that_has_expired<C: Cluster>() {
    let masters = C::start(5);
    // Slightly longer than the drift plus the node timeout.
    let lock = built(masters.builder().node_timeout(MS).ttl(4 * MS)).await;
    let mut granted = 0;
    // On a busy machine few attempts are granted in time.
    for round in 0.. {
        if round >= 200 && granted > 0 {
            break;
        }
        let asked = Instant::now();
        match lock.acquire(format!("r{round}")).wait(Duration::ZERO).await {
            Ok(lease) => {
                granted += 1;
                let left = lease.validity();
                assert!(left <= validity(4 * MS), "round {round}: {left:?} are left");
                // The validity counts from the call or later, and ends within a TTL after the
                // reply.
                assert!(lease.is_lost() || asked.elapsed() + left >= validity(4 * MS));
                lease.lost().await;
                assert_eq!(lease.validity(), Duration::ZERO);
                assert!(asked.elapsed() >= validity(4 * MS), "round {round} was lost too early");
            }
            Err(AcquireError::NoQuorum { .. } | AcquireError::TooLate { .. }) => {}
            Err(error) => panic!("round {round}: {error}"),
        }
    }
    masters.cleaned().await;
}

async fn a_lease_that_is_collected_after_its_deadline_is_too_late_and_leaves_no_key<C: Cluster>() {
    let masters = C::start(3);
    // Because of the lock delay, the keys do not expire in time.
    let lock = built(masters.brisk().ttl(300 * MS).lock_delay(60 * S)).await;
    let mut acquiring = lock.acquire("r").wait(Duration::ZERO).into_future();
    masters.each(Stop, 1..=2);
    assert!(poll_once(&mut acquiring).await.is_pending());
    let sent = Instant::now();
    masters.each(Resume, 1..=2);
    // The caller is stopped: the votes arrive, but the future is not polled.
    eventually("all have granted", || sum(&lock, |master| master.granted) == 3).await;
    sleep((300 * MS).saturating_sub(sent.elapsed())).await;
    match poll_once(&mut acquiring).await {
        Poll::Ready(Err(AcquireError::TooLate { report, attempts: 1, .. })) => {
            assert_eq!(report.in_favour(), 3, "{report}");
        }
        other => panic!("{other:?}"),
    }
    masters.cleaned().await;
    assert_eq!(lock.stats().too_late, 1);
    // A caller with time left tries again.
    let mut acquiring = lock.acquire("r").wait(10 * S).into_future();
    masters.each(Stop, 1..=2);
    assert!(poll_once(&mut acquiring).await.is_pending());
    masters.each(Resume, 1..=2);
    sleep(400 * MS).await;
    assert!(acquiring.await.unwrap().validity() > Duration::ZERO);
}

const TTL: Duration = Duration::from_millis(400);
const DELAY: Duration = Duration::from_millis(1_500);
/// The drift of the keys, and the pause of a waiter.
const LATER: Duration = Duration::from_millis(500);

async fn delayed(masters: &impl Cluster) -> Redlock {
    built(masters.brisk().ttl(TTL).lock_delay(DELAY)).await
}

async fn a_released_lease_is_free_at_once_and_a_dropped_one_after_the_lock_delay<C: Cluster>() {
    let masters = C::start(3);
    // The TTL is so long that the test can only see the end of the lock delay.
    let lock = built(masters.brisk().ttl(10 * S).lock_delay(DELAY)).await;
    let lease = masters.held(&lock, "r").await;
    assert!(lock.try_acquire("r").await.unwrap().is_none());
    assert_eq!(lease.release().await.outcome, Outcome::Released);
    C::at_once(masters.freed("r")).await;
    // An acquire that is dropped returned no lease.
    let mut acquiring = lock.try_acquire("r").into_future();
    masters.each(Stop, 1..=3);
    assert!(poll_once(&mut acquiring).await.is_pending());
    drop(acquiring);
    masters.each(Resume, 1..=3);
    replied(&lock).await;
    C::at_once(masters.freed("r")).await;
    let lease = masters.held(&lock, "r").await;
    let start = Instant::now();
    drop(lease);
    replied(&lock).await;
    assert_eq!(masters.holders("r"), [1, 2, 3]);
    masters.freed("r").await;
    let took = start.elapsed();
    assert!(took >= DELAY && took < DELAY + LATER + C::LATE, "{took:?}");
}

async fn a_shutdown_waits_for_no_lock_delay<C: Cluster>() {
    let masters = C::start(3);
    let lock = delayed(&masters).await;
    let (lost, dropped) = (masters.held(&lock, "r").await, masters.held(&lock, "s").await);
    drop(dropped);
    lost.lost().await;
    C::at_once(lock.shutdown(10 * DELAY)).await.unwrap();
    assert_eq!((masters.holders("r").len(), pending_cleanups(&lock)), (3, 0));
    drop((lost, lock));
    masters.cleaned().await;
}

async fn a_shorter_extend_never_shortens_a_key() {
    let masters = Real::start(5);
    let lock = built(masters.builder().ttl(60 * S)).await;
    let lease = masters.held(&lock, "r").await;
    lease.extend_to(5 * S).await.unwrap();
    replied(&lock).await;
    assert!(lease.validity() <= 5 * S, "the holder is bound by it");
    assert!(masters.all().all(|node| masters.pttl(node, "r") > 50_000), "a key was shortened");
}

async fn a_watchdog_ends_with_the_release_the_drop_and_the_loss_of_its_lease<C: Cluster>() {
    for way in ["released", "dropped", "lost"] {
        let masters = C::start(3);
        let lock = built(masters.brisk().ttl(1_200 * MS)).await;
        let lease = masters.held(&lock, "r").await;
        lease.keep_alive(60 * S);
        eventually("it renews", || lock.stats().extended > 0).await;
        match way {
            "released" => drop(lease.release().await),
            "dropped" => drop(lease),
            _ => {
                masters.delete(1..=3, "r");
                assert_eq!(lease.run(pending::<()>()).await.unwrap_err().cause, Loss::QuorumGone);
                assert!(!lease.deadline().has_passed() && lease.validity() == Duration::ZERO);
                assert_eq!((lock.stats().lost, lock.stats().not_extended), (1, 1));
            }
        }
        masters.cleaned().await;
        replied(&lock).await;
        let commands = || sum(&lock, |master| master.latency.count);
        let before = commands();
        // A watchdog would renew three times in this time.
        sleep(1_200 * MS).await;
        assert_eq!(commands(), before, "{way}");
    }
}

async fn a_loss_is_reported_in_time_though_no_master_replies_and_is_final<C: Cluster>() {
    for (fault, heal) in FAULTS {
        let masters = C::start(5);
        let lock = built(masters.brisk().ttl(600 * MS)).await;
        let lease = lock.acquire("r").await.unwrap();
        lease.keep_alive(10 * S);
        masters.each(fault, masters.all());
        let lost = C::takes(lease.validity(), lease.lost()).await;
        assert_eq!((lost.cause, lock.stats().lost), (Loss::Expired, 1));
        assert!(lease.deadline().has_passed(), "not before the deadline");
        masters.each(heal, masters.all());
        // Stopped masters now execute the delayed renewals and reply.
        replied(&lock).await;
        assert_eq!((lease.loss(), lease.lost().await), (Some(lost.clone()), lost));
        let error = lease.extend().await.unwrap_err();
        assert!(matches!(error, ExtendError::Lost(Lost { cause: Loss::Expired, .. })), "{error}");
        masters.cleaned().await;
    }
}
