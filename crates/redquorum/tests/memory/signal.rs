//! What a signal of a lease tells: that an extension has failed while there is time left, and how a
//! loss differs from a release.

use redquorum::report::Loss;
use redquorum::{LossSignal, Outcome};
use tokio::time::{Instant, sleep};

use crate::support::{MS, NODE_TIMEOUT, S, TTL, VALIDITY, bed, settle, take};

fn ended(signal: LossSignal) -> tokio::task::JoinHandle<Option<Loss>> {
    tokio::spawn(async move { signal.ended().await.map(|lost| lost.cause) })
}

#[tokio::test(start_paused = true)]
async fn a_signal_warns_when_a_renewal_fails_and_there_is_time_left() {
    let (masters, lock) = bed(3).await;
    let lease = take(&lock, "r").await;
    lease.keep_alive(60 * S);
    let signal = lease.loss_signal();
    let warned = tokio::spawn({
        let signal = signal.clone();
        async move { (signal.endangered().await, Instant::now()) }
    });
    sleep(20 * S).await;
    assert!(!warned.is_finished() && !signal.is_endangered(), "all renewals have succeeded");
    let stopped = Instant::now();
    (2..=3).for_each(|number| masters.stop(number));
    let (deadline, at) = warned.await.unwrap();
    // The first renewal after it fails, at the end of its round.
    assert!(at - stopped <= TTL / 3 + NODE_TIMEOUT + MS, "{:?}", at - stopped);
    assert_eq!(deadline, Some(lease.deadline()));
    assert!(lease.validity() > TTL / 2, "{:?}", lease.validity());
    assert!(signal.is_endangered() && lease.is_endangered() && !signal.is_lost());
    // Also to those who ask later, from a thread without a runtime, and of several leases.
    let asks = signal.clone();
    assert!(std::thread::spawn(move || asks.is_endangered()).join().unwrap());
    assert_eq!(lease.endangered().await, deadline);

    (2..=3).for_each(|number| masters.resume(number));
    sleep(3 * S).await;
    assert!(!signal.is_endangered() && !lease.is_endangered(), "a later renewal has succeeded");
    let ends = ended(signal.clone());
    assert_eq!(lease.release().await.outcome, Outcome::Released);
    assert_eq!((ends.await.unwrap(), signal.endangered().await), (None, None));
}

#[tokio::test(start_paused = true)]
async fn an_extension_that_a_caller_asked_for_endangers_a_lease_until_the_loss() {
    let (masters, lock) = bed(3).await;
    let leases = lock.acquire_all(["a", "b"]).await.unwrap();
    let signal = leases.iter().next().unwrap().loss_signal();
    (2..=3).for_each(|number| masters.stop(number));
    assert!(!leases.is_endangered());
    leases.extend().await.unwrap_err();
    assert!(leases.is_endangered() && signal.is_endangered());
    assert_eq!(leases.endangered().await, Some(leases.deadline()));
    leases.deadline().passed().await;
    assert!(!leases.is_endangered() && !signal.is_endangered(), "that is a loss");
    assert_eq!(leases.endangered().await, None);
    assert_eq!(signal.ended().await.map(|lost| lost.cause), Some(Loss::Expired));
}

#[tokio::test(start_paused = true)]
async fn a_loss_stays_a_loss_when_the_lease_is_given_back_after_it() {
    let (_masters, lock) = bed(3).await;
    for releases in [false, true] {
        for notices in [false, true] {
            let lease = take(&lock, "r").await;
            let (early, late) = (ended(lease.loss_signal()), lease.loss_signal());
            settle().await;
            // No timer fires before the holder goes on.
            tokio::time::advance(VALIDITY).await;
            if notices {
                assert!(lease.is_lost());
            }
            let later = notices.then(|| lease.loss_signal());
            if releases {
                assert!(lease.release().await.was_lost());
            } else {
                drop(lease);
            }
            settle().await;
            assert_eq!(early.await.unwrap(), Some(Loss::Expired), "{releases} {notices}");
            for signal in [Some(late), later].into_iter().flatten() {
                assert_eq!(signal.loss().map(|lost| lost.cause), Some(Loss::Expired));
            }
            settle().await;
        }
    }
    assert_eq!(lock.stats().lost, 4);
}

#[tokio::test(start_paused = true)]
async fn nothing_that_waits_for_a_loss_is_woken_by_a_release() {
    let (_masters, lock) = bed(3).await;
    for releases in [false, true] {
        let lease = take(&lock, "r").await;
        let waits = ended(lease.loss_signal());
        sleep(S).await;
        assert!(!waits.is_finished());
        if releases {
            let _ = lease.release().await;
        } else {
            drop(lease);
        }
        assert_eq!(waits.await.unwrap(), None);
        settle().await;
    }
}
