//! A lease: granted, inspected, extended, used for work, lost, released. Work under a lease in one
//! call, and the signal that notifies tasks and threads of a loss.

use std::cell::Cell;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use redquorum::memory::Masters;
use redquorum::{
    AcquireError, ExtendError, LossSignal, Lost, Outcome, Owner, RunError, report::Loss,
};
use tokio::time::{Instant, sleep, timeout};

use crate::support::{MS, NODE_TIMEOUT, S, TTL, VALIDITY, bed, keys, poll_once, settle, take};

#[tokio::test(start_paused = true)]
async fn a_lease_has_a_deadline_and_a_validity() {
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
async fn all_tasks_that_wait_for_the_loss_are_woken_at_once() {
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
        assert_eq!(Some(lost), lease.loss());
    }
    assert!(start.elapsed() <= VALIDITY + 2 * MS);
    // A later call returns the loss too.
    assert_eq!(lease.lost().await.cause, Loss::Expired);
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
    assert_eq!(lost.cause, Loss::Expired);
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
    assert_eq!(result.unwrap_err().cause, Loss::Expired);
    assert!(deadline.has_passed());
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

#[tokio::test(start_paused = true)]
async fn a_counter_outlives_its_lease_and_is_remembered_anew_by_every_extension() {
    let masters = redquorum::memory::Masters::new(5);
    let lock = masters.builder().fencing_counter_ttl(60 * S).build().await.unwrap();
    let fenced = || lock.try_acquire("r").fenced();
    let lease = fenced().await.unwrap().expect("it is free");
    let token = lease.fencing_token().unwrap();
    for _ in 0..20 {
        sleep(TTL / 2).await;
        lease.extend().await.unwrap();
    }
    let _ = lease.release().await;
    sleep(59 * S).await;
    let counter = |number| masters.value(number, "redquorum:fence:r");
    assert!((1..=5).all(|number| counter(number) == Some(token.to_string().into_bytes())));
    sleep(2 * S).await;
    assert!((1..=5).all(|number| counter(number).is_none()));
    // The wall clock is the hint again.
    assert!(fenced().await.unwrap().unwrap().fencing_token().unwrap() > token);
}

#[tokio::test(start_paused = true)]
async fn run_returns_the_result_of_the_work_and_frees_the_resource() {
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
    let token = lock.acquire("r").fenced().run(TTL, async |lease| lease.fencing_token().unwrap());
    assert!(token.await.unwrap() > 0);
}

#[tokio::test(start_paused = true)]
async fn the_lease_is_kept_alive_up_to_the_bound_and_the_work_ends_with_it() {
    let (masters, lock) = bed(3).await;
    let long = lock.acquire("r").run(60 * S, async |_| sleep(50 * S).await);
    assert_eq!(long.await, Ok(()));
    let start = Instant::now();
    let work = Arc::new(());
    let witness = Arc::downgrade(&work);
    let too_long = lock.acquire("r").run(60 * S, async move |_| {
        sleep(100 * S).await;
        drop(work);
    });
    assert!(matches!(too_long.await, Err(RunError::Lost(Lost { cause: Loss::MaxHold, .. }))));
    let took = start.elapsed();
    assert!(took > 59 * S && took <= 60 * S + MS, "{took:?}");
    assert!(witness.upgrade().is_none(), "the work was dropped");
    settle().await;
    assert_eq!(keys(&masters, 3), 0);
}

#[tokio::test(start_paused = true)]
async fn the_bound_ends_the_work_before_the_ttl_does() {
    let (masters, lock) = bed(3).await;
    for (bound, work) in [(2 * S, 3 * S), (Duration::ZERO, MS), (2 * S, S)] {
        let start = Instant::now();
        let result = lock.acquire("r").run(bound, async |_| sleep(work).await).await;
        if work < bound {
            assert_eq!(result, Ok(()));
        } else {
            assert!(matches!(result, Err(RunError::Lost(Lost { cause: Loss::MaxHold, .. }))));
        }
        let (took, most) = (start.elapsed(), bound.min(work));
        assert!(took >= most && took <= most + 3 * MS, "{took:?}");
        settle().await;
        assert_eq!(keys(&masters, 3), 0);
    }
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
    assert!(text.starts_with("the work was not started: r: taken by another"), "{text}");
    let _ = held.release().await;
}

#[tokio::test(start_paused = true)]
async fn work_that_panics_gives_the_resource_back() {
    let (masters, lock) = bed(3).await;
    let run = lock.acquire("r").run(TTL, async |_| -> () { panic!("of the work") });
    assert!(tokio::spawn(run).await.unwrap_err().is_panic());
    settle().await;
    assert_eq!(keys(&masters, 3), 0);
}

#[tokio::test(start_paused = true)]
async fn the_result_of_work_that_blocks_its_thread_past_the_deadline_is_dropped() {
    let (_masters, lock) = bed(3).await;
    // Time passes within one poll of the work.
    let blocks = |length| async move {
        assert!(poll_once(pin!(tokio::time::advance(length))).await.is_pending());
    };
    for (length, in_time) in [(VALIDITY - MS, true), (VALIDITY, false)] {
        let lease = take(&lock, "r").await;
        assert_eq!(lease.run(blocks(length)).await.is_ok(), in_time);
        drop(lease);
        settle().await;
        let leases = lock.acquire_all(["r", "s"]).await.unwrap();
        assert_eq!(leases.run(blocks(length)).await.is_ok(), in_time);
        drop(leases);
        settle().await;
        let run = lock.acquire("r").run(TTL, async |_| blocks(length).await);
        match run.await {
            Ok(()) => assert!(in_time),
            Err(RunError::Lost(_)) => assert!(!in_time),
            Err(error) => panic!("{error}"),
        }
        settle().await;
    }
}

/// Reads the signal in a thread without a runtime.
fn in_a_thread(signal: &LossSignal) -> Option<Lost> {
    let signal = signal.clone();
    std::thread::spawn(move || signal.loss()).join().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_signal_notifies_tasks_and_threads_of_a_loss_at_the_deadline() {
    let (masters, lock) = bed(3).await;
    let lease = take(&lock, "r").await;
    let (start, signal) = (Instant::now(), lease.loss_signal());
    let deadline = signal.deadline().unwrap();
    assert_eq!((deadline, in_a_thread(&signal)), (lease.deadline(), None));
    let waits = signal.clone();
    let task = tokio::spawn(async move { (waits.lost().await, start.elapsed()) });
    (1..=3).for_each(|number| masters.stop(number));
    let (lost, after) = task.await.unwrap();
    assert_eq!(lost.cause, Loss::Expired);
    assert!(after >= VALIDITY && after <= VALIDITY + 2 * MS, "{after:?}");
    assert_eq!(in_a_thread(&signal).as_ref(), Some(&lost));
    assert_eq!(lease.loss(), Some(lost));
}

#[tokio::test(start_paused = true)]
async fn a_signal_reads_the_clock_itself() {
    let (_masters, lock) = bed(3).await;
    let lease = take(&lock, "r").await;
    // No task runs until the clock is read.
    tokio::time::advance(VALIDITY - MS).await;
    let signal = lease.loss_signal();
    assert!(!signal.is_lost());
    tokio::time::advance(MS).await;
    assert_eq!(signal.loss().map(|lost| lost.cause), Some(Loss::Expired));
}

#[tokio::test(start_paused = true)]
async fn a_signal_reports_the_release_or_drop_of_its_lease() {
    let (masters, lock) = bed(3).await;
    let cause = |lost: Lost| lost.cause;
    for drops in [false, true] {
        let lease = take(&lock, "r").await;
        let signal = lease.loss_signal();
        let waits = signal.clone();
        let task = tokio::spawn(async move { (waits.lost().await, Instant::now()) });
        sleep(S).await;
        assert!(!task.is_finished() && !signal.is_lost());
        let start = Instant::now();
        if drops {
            drop(lease);
        } else {
            let _ = lease.release().await;
        }
        assert_eq!((signal.loss().map(cause), signal.deadline()), (Some(Loss::GivenBack), None));
        let (lost, at) = task.await.unwrap();
        assert_eq!((lost.cause, at), (Loss::GivenBack, start), "at once");
        assert_eq!(signal.lost().await.cause, Loss::GivenBack);
        settle().await;
        assert!(masters.keys(1).is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_signal_lasts_until_the_last_handle_is_given_back() {
    let (_masters, lock) = bed(3).await;
    let owner = Owner::new();
    let first = lock.acquire("r").owner(&owner).await.unwrap();
    let second = lock.acquire("r").owner(&owner).await.unwrap();
    let signal = first.loss_signal();
    let _ = first.release().await;
    assert!(!signal.is_lost());
    second.extend_to(2 * TTL).await.unwrap();
    assert_eq!(signal.deadline(), Some(second.deadline()), "extending moves it");
    let _ = second.release().await;
    assert_eq!(signal.loss().map(|lost| lost.cause), Some(Loss::GivenBack));
}

#[tokio::test(start_paused = true)]
async fn several_tasks_may_extend_one_lease() {
    let (_masters, lock) = bed(5).await;
    let lease = Arc::new(take(&lock, "r").await);
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..50_u32 {
        let lease = lease.clone();
        tasks.spawn(async move {
            sleep(number % 7 * MS).await;
            let extended = lease.extend_to(TTL + number % 3 * S).await;
            assert!(extended.unwrap() <= lease.deadline() || number % 3 > 0);
        });
    }
    let all = timeout(S, tasks.join_all()).await;
    assert_eq!(all.expect("none hangs").len(), 50);
    assert_eq!(lock.stats().extended, 50);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_polls_late_gets_the_result_of_its_extension() {
    let (_masters, lock) = bed(5).await;
    for late in [Duration::ZERO, S, 5 * S, 15 * S, 60 * S] {
        let lease = take(&lock, "r").await;
        lease.keep_alive(1_000 * S);
        let mut extending = pin!(lease.extend());
        assert!(poll_once(extending.as_mut()).await.is_pending());
        // The watchdog renews the lease several times meanwhile.
        sleep(late).await;
        let reply = timeout(S, extending).await;
        reply.unwrap_or_else(|_| panic!("{late:?} late, and left to wait")).unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_second_call_sets_a_new_bound() {
    let (_masters, lock) = bed(3).await;
    let lease = take(&lock, "r").await;
    lease.keep_alive(1_000 * S);
    sleep(20 * S).await;
    lease.keep_alive(Duration::ZERO);
    let start = Instant::now();
    assert_eq!(lease.lost().await.cause, Loss::MaxHold);
    assert!(start.elapsed() <= VALIDITY + 2 * MS);
}

#[tokio::test(start_paused = true)]
async fn a_watchdog_that_starts_after_a_failed_extension_renews_before_the_deadline() {
    for shorter in [false, true] {
        let (masters, lock) = bed(5).await;
        let lease = take(&lock, "r").await;
        sleep(if shorter { S } else { 8 * S }).await;
        (1..=3).for_each(|number| masters.stop(number));
        lease.extend_to(if shorter { 2 * S } else { TTL }).await.unwrap_err();
        (1..=3).for_each(|number| masters.resume(number));
        sleep(500 * MS).await;
        lease.keep_alive(60 * S);
        sleep(30 * S).await;
        assert!(!lease.is_lost(), "{:?}", lock.stats());
    }
}

#[tokio::test(start_paused = true)]
async fn a_longer_ttl_is_used_from_then_on() {
    let (_masters, lock) = bed(5).await;
    let lease = take(&lock, "r").await;
    lease.extend_to(60 * S).await.unwrap();
    assert_eq!(lease.validity(), 60 * S - 602 * MS);
    sleep(30 * S).await;
    lease.extend().await.unwrap();
    assert_eq!(lease.validity(), 60 * S - 602 * MS);
}

#[tokio::test(start_paused = true)]
async fn a_failed_extension_to_a_shorter_ttl_still_binds_the_holder() {
    let (masters, lock) = bed(3).await;
    let lease = take(&lock, "r").await;
    (1..=3).for_each(|number| masters.stop(number));
    assert!(lease.extend_to(2 * S).await.is_err());
    assert!(lease.validity() <= 2 * S - 22 * MS - NODE_TIMEOUT);
    // The next extension uses the old TTL, which was never replaced.
    (1..=3).for_each(|number| masters.resume(number));
    settle().await;
    lease.extend().await.unwrap();
    assert_eq!(lease.validity(), VALIDITY);
}

#[tokio::test(start_paused = true)]
async fn a_lease_with_a_tiny_ttl_is_not_renewed_in_a_spin() {
    let (_masters, lock) = bed(3).await;
    let lease = lock.acquire("r").ttl(104 * MS).await.unwrap();
    lease.keep_alive(10 * S);
    let kept = timeout(11 * S, lease.lost()).await.unwrap();
    assert_eq!(kept.cause, Loss::MaxHold);
    let extended = lock.stats().extended;
    assert!((250..=310).contains(&extended), "{extended}");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_was_lost_with_its_masters_was_lost_whoever_replies_to_the_release() {
    for masters_down in 0..=3 {
        let (masters, lock) = bed(3).await;
        let lease = take(&lock, "r").await;
        (1..=masters_down).for_each(|number| masters.kill(number));
        let lost = lease.lost().await;
        assert_eq!(lost.cause, Loss::Expired);
        let released = lease.release().await;
        assert_eq!(released.outcome, Outcome::AlreadyGone, "{masters_down} down: {released}");
        assert!(released.was_lost());
    }
    // A release in time, which no quorum answers, does not know.
    let (masters, lock) = bed(3).await;
    let lease = take(&lock, "r").await;
    (1..=2).for_each(|number| masters.kill(number));
    assert_eq!(lease.release().await.outcome, Outcome::Unknown);
}

#[tokio::test(start_paused = true)]
async fn the_first_extension_after_a_quorum_forgot_says_so_and_so_does_the_release() {
    for count in 2..=6 {
        let masters = Masters::new(count);
        let lock = masters.builder().build().await.unwrap();
        let owner = Owner::new();
        let first = lock.acquire("r").owner(&owner).await.unwrap();
        let second = lock.acquire("r").owner(&owner).await.unwrap();
        (1..=count / 2 + 1).for_each(|number| masters.forget(number));
        let failed = first.extend().await.unwrap_err();
        assert!(matches!(failed, ExtendError::QuorumGone { .. }), "{count} masters: {failed}");
        assert!(!first.is_lost(), "a failed extension takes nothing");
        // Masters that do not reply do not hide it.
        (1..=count).for_each(|number| masters.stop(number));
        for lease in [first, second] {
            assert!(lease.release().await.was_lost(), "{count} masters");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_margin_grows_when_a_master_that_missed_the_grant_gets_the_key() {
    let (masters, lock) = bed(3).await;
    let full = take(&lock, "full").await;
    settle().await;
    masters.stop(3);
    let bare = take(&lock, "bare").await;
    bare.extend().await.unwrap();
    assert_eq!((full.margin(), bare.margin()), (2, 1));
    assert_eq!(lock.stats().extended_bare, 1);
    masters.resume(3);
    sleep(2 * S).await;
    // It gets the key with the first of these extensions, and votes on the second.
    for _ in 0..2 {
        bare.extend().await.unwrap();
        settle().await;
    }
    assert_eq!((bare.margin(), lock.stats().extended), (2, 3));
    assert_eq!(lock.stats().extended_bare, 1);
    masters.stop(2);
    masters.stop(3);
    bare.lost().await;
    assert_eq!(bare.margin(), 0);
}
