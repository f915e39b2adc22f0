//! A lease: granted, inspected, used for work, lost, released.

use std::cell::Cell;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use redquorum::{
    AcquireError, Outcome,
    report::{Loss, MasterOutcome},
};
use tokio::time::{Instant, sleep};

use crate::support::{
    MS, NODE_TIMEOUT, S, TTL, VALIDITY, bed, holding, keys, poll_once, settle, take,
};

#[tokio::test(start_paused = true)]
async fn a_lease_excludes_others_until_it_is_released() {
    let (masters, lock) = bed(5).await;
    let lease = lock.acquire("r").await.unwrap();
    assert!(lock.try_acquire("r").await.unwrap().is_none());
    let released = lease.release().await;
    assert_eq!(released.outcome, Outcome::Released, "{}", released.report);
    assert!(released.report.in_favour() >= 3, "{}", released.report);
    drop(take(&lock, "r").await);
    lock.shutdown(S).await.unwrap();
    assert_eq!(keys(&masters, 5), 0);
}

#[tokio::test(start_paused = true)]
async fn a_lease_tells_its_deadline_and_what_is_left_of_it() {
    let (_masters, lock) = bed(5).await;
    let lease = lock.acquire("r").await.unwrap();
    let later = lock.acquire("s").ttl(2 * TTL).await.unwrap();
    assert_eq!((lease.validity(), lease.deadline().remaining()), (VALIDITY, VALIDITY));
    assert!(lease.deadline() < later.deadline() && lease.deadline() == lease.deadline());
    sleep(S).await;
    assert_eq!(lease.validity(), VALIDITY - S);
    let start = Instant::now();
    lease.deadline().passed().await;
    assert!(start.elapsed() >= VALIDITY - S && start.elapsed() <= VALIDITY - S + 2 * MS);
    assert!(lease.deadline().has_passed() && !later.deadline().has_passed());
    assert_eq!((lease.validity(), lease.deadline().remaining()), (Duration::ZERO, Duration::ZERO));
    later.deadline().passed().await;
}

#[tokio::test(start_paused = true)]
async fn a_lease_tells_what_each_master_said() {
    let (masters, lock) = bed(5).await;
    masters.kill(2);
    masters.set(4, "r", "somebody", Some(TTL));
    settle().await;
    let lease = lock.acquire("r").await.unwrap();
    assert_eq!(lease.report().in_favour(), 3);
    let said = lease.report().masters();
    // A later report has the replies that came after the quorum.
    assert!(lease.latest_report().in_favour() >= 3);
    assert_eq!((said[0].number, &*said[4].name), (1, "memory-5"));
    assert!(matches!(said[1].outcome, Some(MasterOutcome::Unknown(_))), "{}", said[1]);
    assert!(matches!(said[3].outcome, Some(MasterOutcome::Taken(_)) | None), "{}", said[3]);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_not_extended_is_lost_at_its_deadline() {
    let (_masters, lock) = bed(3).await;
    let start = Instant::now();
    let lease = lock.acquire("r").await.unwrap();
    let lost = lease.lost().await;
    assert!(start.elapsed() >= VALIDITY && start.elapsed() <= VALIDITY + 2 * MS);
    assert_eq!((lost.0, lease.is_lost()), (Loss::Expired, Some(lost)));
    let released = lease.release().await;
    assert_eq!(released.outcome, Outcome::AlreadyGone, "{}", released.report);
}

#[tokio::test(start_paused = true)]
async fn everybody_who_waits_for_the_loss_is_told_at_once() {
    let (_masters, lock) = bed(3).await;
    let lease = Arc::new(lock.acquire("r").await.unwrap());
    let start = Instant::now();
    let mut waiters = tokio::task::JoinSet::new();
    for number in 0..10 {
        let lease = lease.clone();
        waiters.spawn(async move {
            sleep(number * S).await;
            lease.lost().await
        });
    }
    for lost in waiters.join_all().await {
        assert_eq!(Some(lost), lease.is_lost());
    }
    assert!(start.elapsed() <= VALIDITY + 2 * MS);
    // A later call returns the loss too.
    assert_eq!(lease.lost().await.0, Loss::Expired);
}

#[tokio::test(start_paused = true)]
async fn work_under_a_lease_returns_its_value_and_leaves_the_lease() {
    let (_masters, lock) = bed(3).await;
    let lease = lock.acquire("r").await.unwrap();
    let value = lease
        .run(async {
            sleep(S).await;
            42
        })
        .await;
    assert_eq!(value, Ok(42));
    assert!(lease.is_lost().is_none());
    assert_eq!(lease.release().await.outcome, Outcome::Released);
}

#[tokio::test(start_paused = true)]
async fn work_is_not_polled_after_the_deadline() {
    let (_masters, lock) = bed(3).await;
    let lease = lock.acquire("r").await.unwrap();
    let (deadline, late, polls) = (lease.deadline(), Cell::new(0), Cell::new(0));
    let dropped = Rc::new(());
    let witness = Rc::downgrade(&dropped);
    let work = async {
        let _dropped = dropped;
        // Short steps, and one that takes the clock past the deadline.
        loop {
            polls.set(polls.get() + 1);
            late.set(late.get() + usize::from(deadline.has_passed()));
            sleep(7 * MS).await;
        }
    };
    let worked: Result<(), _> = lease.run(work).await;
    let lost = worked.unwrap_err();
    assert_eq!(lost.0, Loss::Expired);
    assert!(polls.get() > 1000 && late.get() == 0, "{polls:?} {late:?}");
    assert!(witness.upgrade().is_none(), "the work is dropped");
}

#[tokio::test(start_paused = true)]
async fn work_that_is_always_ready_is_stopped_too() {
    let (_masters, lock) = bed(3).await;
    let lease = lock.acquire("r").await.unwrap();
    let deadline = lease.deadline();
    let result = lease
        .run(async {
            loop {
                tokio::task::yield_now().await;
                // Instead of work, move the clock without letting a timer fire.
                tokio::time::advance(MS).await;
            }
        })
        .await;
    let result: Result<(), _> = result;
    assert_eq!(result.unwrap_err().0, Loss::Expired);
    assert!(deadline.has_passed());
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_the_work_gives_the_resource_back() {
    let (masters, lock) = bed(3).await;
    let lease = lock.acquire("r").await.unwrap();
    let worker = tokio::spawn(async move { lease.run(async { panic!("in the work") }).await });
    assert!(worker.await.unwrap_err().is_panic());
    settle().await;
    assert_eq!(keys(&masters, 3), 0);
    drop(take(&lock, "r").await);
}

#[tokio::test(start_paused = true)]
async fn releasing_tells_what_became_of_the_lease() {
    let (masters, lock) = bed(5).await;
    let lease = take(&lock, "r").await;
    (1..=3).for_each(|number| masters.forget(number));
    assert_eq!(lease.release().await.outcome, Outcome::AlreadyGone);

    let lease = take(&lock, "r").await;
    (1..=3).for_each(|number| masters.stop(number));
    let start = Instant::now();
    assert_eq!(lease.release().await.outcome, Outcome::Unknown);
    assert!(start.elapsed() <= NODE_TIMEOUT + MS, "{:?}", start.elapsed());
    (1..=3).for_each(|number| masters.resume(number));
    sleep(S).await;
    assert_eq!(keys(&masters, 5), 0);
    assert_eq!(lock.stats().released, 2);
}

#[tokio::test(start_paused = true)]
async fn releasing_takes_nothing_from_the_next_holder() {
    let (masters, lock) = bed(5).await;
    for dropped in [false, true] {
        let old = take(&lock, "r").await;
        sleep(TTL).await;
        let new = take(&lock, "r").await;
        if dropped {
            drop(old);
        } else {
            assert_eq!(old.release().await.outcome, Outcome::AlreadyGone);
        }
        settle().await;
        assert_eq!(holding(&masters, 5, "r"), [1, 2, 3, 4, 5]);
        assert_eq!(new.release().await.outcome, Outcome::Released);
    }
}

#[tokio::test(start_paused = true)]
async fn a_dropped_lease_and_a_dropped_release_give_the_resource_back() {
    let (masters, lock) = bed(5).await;
    drop(take(&lock, "r").await);
    settle().await;
    assert_eq!(keys(&masters, 5), 0);
    drop(take(&lock, "r").await.release());
    settle().await;
    assert_eq!(keys(&masters, 5), 0);
    let mut releasing = Box::pin(take(&lock, "r").await.release());
    assert!(poll_once(releasing.as_mut()).await.is_pending());
    drop(releasing);
    settle().await;
    assert_eq!(keys(&masters, 5), 0);
}

#[tokio::test(start_paused = true)]
async fn whoever_comes_too_late_for_a_won_lease_gets_none() {
    let (masters, lock) = bed(5).await;
    // Control: a caller that polls in time.
    let mut acquiring = pin!(lock.acquire("r").wait(Duration::ZERO).into_future());
    assert!(poll_once(acquiring.as_mut()).await.is_pending());
    // A won lease is kept for one second, so that a future that is never polled blocks no others.
    sleep(S - MS).await;
    let lease = acquiring.await.unwrap();
    assert!(lease.validity() <= VALIDITY - S + MS && lease.is_lost().is_none());
    drop(lease);

    for wait in [Duration::ZERO, S] {
        let mut acquiring = pin!(lock.acquire("r").wait(wait).into_future());
        assert!(poll_once(acquiring.as_mut()).await.is_pending());
        // The votes arrive. Then the process is stopped for longer than the lease would last.
        settle().await;
        assert_eq!(holding(&masters, 5, "r").len(), 5);
        sleep(VALIDITY).await;
        let result = acquiring.await;
        let Err(AcquireError::TooLate { report, attempts: 1 }) = &result else {
            panic!("{result:?}")
        };
        assert!(report.in_favour() >= 3, "{report}");
        settle().await;
        assert_eq!(keys(&masters, 5), 0, "granted too late, and not cleaned up");
    }
    assert_eq!(lock.stats().too_late, 2);

    // A caller with time left tries again.
    let mut acquiring = pin!(lock.acquire("r").wait(2 * TTL).into_future());
    assert!(poll_once(acquiring.as_mut()).await.is_pending());
    sleep(TTL).await;
    assert!(acquiring.await.unwrap().validity() > VALIDITY - S);
}

#[tokio::test(start_paused = true)]
async fn a_lease_shows_its_resource_and_no_token() {
    let (masters, lock) = bed(1).await;
    let lease = take(&lock, "a\nb").await;
    assert_eq!(lease.resource(), b"a\nb");
    let shown = format!("{lease:?} {lock:?} {:?}", lease.deadline());
    assert!(shown.contains(r"a\nb") && shown.contains("memory-1"), "{shown}");
    let token = masters.value(1, "a\nb").unwrap();
    assert_eq!(token.len(), 20);
    let hex: String = token.iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(!shown.contains(&hex[..8]), "{shown}");
}

#[tokio::test(start_paused = true)]
async fn deadlines_of_two_locks_can_be_compared() {
    let (masters, first) = bed(3).await;
    let early = take(&first, "early").await.deadline();
    sleep(S).await;
    let second = masters.builder().build().await.unwrap();
    let late = take(&second, "late").await.deadline();
    assert!(early < late && early != late);
    assert_eq!(take(&first, "too").await.deadline(), late);
}
