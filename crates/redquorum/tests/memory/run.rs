//! Acquire, work and release in one call.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redquorum::{AcquireError, Lease, Lost, RunError, report::Loss};
use tokio::time::{Instant, sleep};

use crate::support::{MS, S, TTL, bed, keys, settle, take};

#[tokio::test(start_paused = true)]
async fn the_result_of_the_work_is_passed_through_and_the_resource_is_free_then() {
    let (masters, lock) = bed(3).await;
    let done = lock.acquire("r").run(TTL, async |lease| {
        assert_eq!(keys(&masters, 3), 3);
        assert_eq!(lease.resource(), b"r");
        7
    });
    assert_eq!(done.await, Ok(7));
    // The release has completed; it does not run in the background.
    assert_eq!(keys(&masters, 3), 0);
    let failed = lock.acquire("r").run(TTL, async |_| Err::<(), _>("no funds"));
    assert_eq!(failed.await, Ok(Err("no funds")));
    assert_eq!(keys(&masters, 3), 0);
    let token = lock.acquire("r").fenced().run(TTL, async |lease| lease.fencing_token());
    assert!(token.await.unwrap() > 0);
}

#[tokio::test(start_paused = true)]
async fn the_lease_is_kept_alive_up_to_the_bound_and_the_work_ends_with_it() {
    let (masters, lock) = bed(3).await;
    let long = lock.acquire("r").run(60 * S, async |_| sleep(50 * S).await);
    assert_eq!(long.await, Ok(()));
    let start = Instant::now();
    let dropped = Arc::new(AtomicBool::new(false));
    struct SetOnDrop(Arc<AtomicBool>);
    impl Drop for SetOnDrop {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let guard = SetOnDrop(dropped.clone());
    let too_long = lock.acquire("r").run(60 * S, async move |_| {
        sleep(100 * S).await;
        drop(guard);
    });
    assert_eq!(too_long.await, Err(RunError::Lost(Lost(Loss::MaxHold))));
    let took = start.elapsed();
    assert!(took > 59 * S && took <= 60 * S + MS, "{took:?}");
    assert!(dropped.load(Ordering::Relaxed), "the work was dropped");
    settle().await;
    assert_eq!(keys(&masters, 3), 0);
}

#[tokio::test(start_paused = true)]
async fn a_loss_is_told_at_once_though_no_master_answers() {
    let (masters, lock) = bed(3).await;
    let stop = async |lease: &Lease| {
        (1..=3).for_each(|number| masters.stop(number));
        let deadline = lease.deadline();
        deadline.passed().await;
        sleep(S).await;
    };
    let start = Instant::now();
    let lost = lock.acquire("r").ttl(2 * S).run(60 * S, stop).await;
    assert!(matches!(lost, Err(RunError::Lost(Lost(Loss::Expired)))), "{lost:?}");
    assert!(start.elapsed() <= 2 * S, "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn work_without_a_lease_is_not_started() {
    let (_masters, lock) = bed(3).await;
    let held = take(&lock, "r").await;
    let refused = lock.acquire("r").wait(S).run(TTL, async |_| panic!("it was started")).await;
    let Err(RunError::NotAcquired(AcquireError::Taken { .. })) = &refused else {
        panic!("{refused:?}")
    };
    let text = refused.unwrap_err().to_string();
    assert!(text.starts_with("the work was not started: taken by another"), "{text}");
    held.release().await;
}

#[tokio::test(start_paused = true)]
async fn work_that_panics_gives_the_resource_back() {
    let (masters, lock) = bed(3).await;
    let run = lock.acquire("r").run(TTL, async |_| -> () { panic!("of the work") });
    assert!(tokio::spawn(run).await.unwrap_err().is_panic());
    settle().await;
    assert_eq!(keys(&masters, 3), 0);
}
