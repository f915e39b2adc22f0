//! Extensions, by the caller and by the watchdog, never harm: a failure changes nothing, a gap is
//! never hidden, and there is no success after the end of the lease. A local timer reports a loss
//! in time, whatever the masters do.

use std::future::pending;
use std::time::Duration;

use redquorum::{ExtendError, Lost, report::Loss};
use tokio::time::sleep;

use crate::support::*;

tests! {
    both:
        a_watchdog_ends_with_the_release_the_drop_and_the_loss_of_its_lease,
        a_loss_is_reported_in_time_though_no_master_replies_and_is_final;
    real:
        a_shorter_extend_never_shortens_a_key,
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

const TTL: Duration = Duration::from_millis(600);

async fn a_watchdog_ends_with_the_release_the_drop_and_the_loss_of_its_lease<C: Cluster>() {
    for way in ["released", "dropped", "lost"] {
        let masters = C::start(3);
        let lock = built(masters.brisk().ttl(2 * TTL)).await;
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
        sleep(2 * TTL).await;
        assert_eq!(commands(), before, "{way}");
    }
}

async fn a_loss_is_reported_in_time_though_no_master_replies_and_is_final<C: Cluster>() {
    for (fault, heal) in FAULTS {
        let masters = C::start(5);
        let lock = built(masters.brisk().ttl(TTL)).await;
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
