//! Extending never harms: a failure changes nothing, a gap is never hidden, and there is no success
//! after the end of the lease.

use std::time::Duration;

use redquorum::{
    ExtendError, Lease, Lost, Outcome,
    report::{Loss, MasterOutcome},
};
use redquorum_rig::{Masters, trials::Case};
use tokio::time::{Instant, sleep};

use crate::support::*;

pub(crate) fn cases() -> Vec<Case> {
    cases![
        a_failed_extend_deletes_nothing_and_the_old_deadline_stands,
        an_extend_without_answers_deletes_nothing_and_the_old_deadline_stands,
        a_key_made_anew_does_not_count_in_the_round_that_made_it,
        a_gap_in_the_quorum_is_never_hidden_by_keys_made_anew,
        a_minority_that_lost_the_key_gets_it_back,
        an_extend_takes_no_key_from_a_rival,
        extending_an_expired_lease_is_no_success_though_the_keys_are_there,
        an_extend_that_is_answered_after_the_deadline_is_no_success,
        a_shorter_extend_never_shortens_a_key,
        a_shorter_extend_binds_the_holder_before_any_answer,
        a_late_repair_leaves_no_zombie,
    ]
}

/// A lease with its key on all masters.
async fn full(masters: &Masters, lock: &redquorum::Redlock, r: &str) -> Lease {
    let lease = lock.acquire(r).await.unwrap();
    eventually("all have it", || holders(masters, r).len() == masters.len()).await;
    answered(lock).await;
    lease
}

async fn a_failed_extend_deletes_nothing_and_the_old_deadline_stands() {
    let masters = shared();
    let lock = built(calm(masters)).await;
    let r = unique("extend");
    let lease = full(masters, &lock, &r).await;
    let deadline = lease.deadline();
    delete(masters, 1..=3, &r);
    let error = lease.extend().await.unwrap_err();
    let ExtendError::QuorumGone(report) = &error else { panic!("{error}") };
    assert_eq!(answers(report)[..3], vec![Some(MasterOutcome::Absent); 3]);
    answered(&lock).await;
    assert_eq!(holders(masters, &r), [4, 5], "the other two are still there");
    assert_eq!(lease.deadline(), deadline);
    assert_eq!(lease.is_lost(), None);
    assert!(deadline.remaining() > CALM);
    lease.release().await;
    cleaned(masters, &r).await;
}

async fn an_extend_without_answers_deletes_nothing_and_the_old_deadline_stands() {
    let masters = own(5);
    let lock = built(brisk(&masters)).await;
    let lease = full(&masters, &lock, "r").await;
    let deadline = lease.deadline();
    [1, 3, 5].into_iter().for_each(|node| masters.pause(node).unwrap());
    let (took, result) = timed(lease.extend()).await;
    let error = result.unwrap_err();
    assert!(matches!(error, ExtendError::NoQuorum(_)), "{error}");
    assert!(took >= 100 * MS && took < 100 * MS + AT_ONCE, "{took:?}");
    assert_eq!((lease.deadline(), lease.is_lost()), (deadline, None));
    [1, 3, 5].into_iter().for_each(|node| masters.resume(node).unwrap());
    answered(&lock).await;
    assert_eq!(holders(&masters, "r"), [1, 2, 3, 4, 5]);
    assert!(lease.extend().await.unwrap() > deadline, "and then it can be extended");
    assert_eq!(lease.release().await.outcome, Outcome::Released);
}

async fn a_key_made_anew_does_not_count_in_the_round_that_made_it() {
    let masters = own(5);
    let lock = built(brisk(&masters)).await;
    let lease = full(&masters, &lock, "r").await;
    delete(&masters, 1..=2, "r");
    // The first round finds the gaps. It repairs none, because a repair would hide the gap.
    let deadline = lease.extend().await.unwrap();
    answered(&lock).await;
    assert_eq!(holders(&masters, "r"), [3, 4, 5]);
    // The second round repairs the gaps and does not count them. Only two masters had the key
    // throughout.
    masters.pause(3).unwrap();
    let error = lease.extend().await.unwrap_err();
    assert!(matches!(error, ExtendError::NoQuorum(_)), "{error}");
    assert_eq!(lease.deadline(), deadline);
    // The third round counts them.
    assert!(lease.extend().await.unwrap() > deadline);
    masters.resume(3).unwrap();
    answered(&lock).await;
    assert_eq!(holders(&masters, "r"), [1, 2, 3, 4, 5]);
    assert_eq!(lease.release().await.outcome, Outcome::Released);
}

async fn a_gap_in_the_quorum_is_never_hidden_by_keys_made_anew() {
    let masters = shared();
    let lock = built(calm(masters)).await;
    let r = unique("gap");
    let lease = full(masters, &lock, &r).await;
    let deadline = lease.deadline();
    delete(masters, 1..=3, &r);
    for _ in 0..3 {
        let error = lease.extend().await.unwrap_err();
        assert!(matches!(error, ExtendError::QuorumGone(_)), "{error}");
        answered(&lock).await;
        assert_eq!(holders(masters, &r), [4, 5]);
    }
    assert_eq!((lease.deadline(), lease.is_lost()), (deadline, None));
    lease.release().await;
    cleaned(masters, &r).await;
}

async fn a_minority_that_lost_the_key_gets_it_back() {
    let masters = shared();
    let lock = built(calm(masters)).await;
    let r = unique("repair");
    let lease = full(masters, &lock, &r).await;
    delete(masters, [2, 4], &r);
    for _ in 0..2 {
        lease.extend().await.unwrap();
        answered(&lock).await;
    }
    assert_eq!(holders(masters, &r), [1, 2, 3, 4, 5]);
    lease.release().await;
    cleaned(masters, &r).await;
}

async fn an_extend_takes_no_key_from_a_rival() {
    let masters = shared();
    let (lock, rivals) = (built(calm(masters)).await, built(calm(masters)).await);
    let r = unique("rival");
    let lease = full(masters, &lock, &r).await;
    let mine = value(masters, 5, &r);
    delete(masters, 1..=3, &r);
    let rival = rivals.acquire(&r).await.unwrap();
    for _ in 0..3 {
        let error = lease.extend().await.unwrap_err();
        assert!(matches!(error, ExtendError::QuorumGone(_)), "{error}");
        answered(&lock).await;
    }
    assert_eq!(lease.release().await.outcome, Outcome::AlreadyGone);
    answered(&lock).await;
    let his = value(masters, 1, &r);
    assert!(his.is_some() && his != mine);
    assert_eq!((value(masters, 2, &r), value(masters, 3, &r)), (his.clone(), his));
    rival.extend().await.unwrap();
    assert_eq!(rival.release().await.outcome, Outcome::Released);
}

async fn extending_an_expired_lease_is_no_success_though_the_keys_are_there() {
    let masters = shared();
    let lock = built(brisk(masters).ttl(250 * MS)).await;
    let r = unique("expired");
    let lease = full(masters, &lock, &r).await;
    all(masters).for_each(|node| done(masters, node, &format!("PEXPIRE {r} 60000")));
    assert_eq!(holders(masters, &r).len(), 5);
    while !lease.deadline().has_passed() {
        tokio::task::yield_now().await;
    }
    let error = lease.extend().await.unwrap_err();
    assert!(matches!(error, ExtendError::Lost(Lost(Loss::Expired))), "{error}");
    assert_eq!(lease.validity(), Duration::ZERO);
    // The loss has deleted the keys, so the resource is free.
    cleaned(masters, &r).await;
    let error = lease.extend_to(5 * CALM).await.unwrap_err();
    assert!(matches!(error, ExtendError::Lost(Lost(Loss::Expired))), "{error}");
}

async fn an_extend_that_is_answered_after_the_deadline_is_no_success() {
    let masters = own(3);
    // The round may last longer than the lease.
    let lock = built(calm(&masters).ttl(3 * CALM / 2)).await;
    let lease = full(&masters, &lock, "r").await;
    let deadline = lease.deadline();
    sleep(deadline.remaining().saturating_sub(200 * MS)).await;
    all(&masters).for_each(|node| masters.pause(node).unwrap());
    let (asked, remaining) = (Instant::now(), deadline.remaining());
    let (took, result) = timed(lease.extend()).await;
    let error = result.unwrap_err();
    assert!(matches!(error, ExtendError::Lost(Lost(Loss::Expired))), "{error}");
    assert!(took < remaining + AT_ONCE, "{took:?} of {remaining:?}");
    all(&masters).for_each(|node| masters.resume(node).unwrap());
    answered(&lock).await;
    assert!(asked.elapsed() < CALM, "the answers came within the round");
    assert!(lease.is_lost().is_some() && lease.deadline() == deadline, "lost is final");
    cleaned(&masters, "r").await;
}

async fn a_shorter_extend_never_shortens_a_key() {
    let masters = shared();
    let lock = built(calm(masters).ttl(60 * CALM)).await;
    let r = unique("shorter");
    let lease = full(masters, &lock, &r).await;
    let before = lease.deadline();
    lease.extend_to(5 * CALM).await.unwrap();
    answered(&lock).await;
    assert!(lease.deadline() < before, "the holder is bound by it");
    assert!(lease.validity() <= 5 * CALM);
    for node in 1..=5 {
        assert!(pttl(masters, node, &r) > 50_000, "master {node} was shortened");
    }
    lease.release().await;
}

async fn a_shorter_extend_binds_the_holder_before_any_answer() {
    let masters = own(3);
    let lock = built(calm(&masters).ttl(60 * CALM)).await;
    let lease = full(&masters, &lock, "r").await;
    all(&masters).for_each(|node| masters.pause(node).unwrap());
    assert!(lease.validity() > 50 * CALM);
    let mut extending = Box::pin(lease.extend_to(5 * CALM));
    assert!(poll_once(&mut extending).await.is_pending());
    assert!(lease.validity() <= 5 * CALM);
    // The outcome of the extension does not matter.
    drop(extending);
    all(&masters).for_each(|node| masters.resume(node).unwrap());
    answered(&lock).await;
    assert!(lease.validity() <= 5 * CALM);
    assert_eq!(lease.release().await.outcome, Outcome::Released);
}

async fn a_late_repair_leaves_no_zombie() {
    let masters = own(3);
    let lock = built(calm(&masters)).await;
    let lease = full(&masters, &lock, "r").await;
    delete(&masters, [3], "r");
    lease.extend().await.unwrap();
    answered(&lock).await;
    masters.pause(3).unwrap();
    lease.extend().await.unwrap();
    assert_eq!(lease.release().await.outcome, Outcome::Released);
    masters.resume(3).unwrap();
    answered(&lock).await;
    assert_eq!(calls(&masters, 3, "set"), 2, "the repair was made, late");
    assert_eq!(keys(&masters, "r"), []);
}
