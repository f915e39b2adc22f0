//! A minority of masters that is down or hung, and split votes: none of them makes an acquire fail,
//! slow or endless.

use redquorum::{
    AcquireError, ExtendError, Outcome,
    report::{Cause, Holder, MasterOutcome},
};
use redquorum_rig::trials::Case;

use crate::support::*;

pub(crate) fn cases() -> Vec<Case> {
    cases![
        one_master_down_is_one_unknown_vote_and_no_error,
        two_masters_that_hang_neither_block_an_acquire_nor_slow_it_down,
        a_hung_majority_is_told_after_one_node_timeout_and_leaves_no_key,
        a_dead_majority_is_told_at_once_and_leaves_no_key,
        a_refusal_that_stands_does_not_wait_for_hung_masters,
        an_even_split_of_votes_is_decided_at_once,
        two_clients_of_an_even_number_of_masters_never_hang,
    ]
}

async fn one_master_down_is_one_unknown_vote_and_no_error() {
    let masters = own(5);
    let lock = built(calm(&masters)).await;
    masters.kill(2).unwrap();
    for round in 0..10 {
        let (took, lease) = timed(lock.acquire(format!("r{round}"))).await;
        let lease = lease.unwrap_or_else(|error| panic!("round {round}: {error}"));
        assert!(took < AT_ONCE, "round {round} took {took:?}");
        assert!(!matches!(answers(lease.report())[1], Some(MasterOutcome::Done)));
        let (took, released) = timed(lease.release()).await;
        assert_eq!(released.outcome, Outcome::Released, "{}", released.report);
        assert!(took < AT_ONCE, "round {round} took {took:?}");
    }
    eventually("no key is left on those that live", || {
        keys_on(&masters, [1, 3, 4, 5], "r*").is_empty()
    })
    .await;
}

async fn two_masters_that_hang_neither_block_an_acquire_nor_slow_it_down() {
    let masters = own(5);
    let lock = built(calm(&masters)).await;
    masters.pause(1).unwrap();
    masters.pause(4).unwrap();
    for round in 0..20 {
        let (took, lease) = timed(lock.acquire(format!("r{round}"))).await;
        assert!(took < AT_ONCE, "round {round} took {took:?}");
        let (took, released) = timed(lease.unwrap().release()).await;
        assert_eq!(released.outcome, Outcome::Released, "{}", released.report);
        assert!(took < AT_ONCE, "round {round} took {took:?}");
    }
    masters.resume(1).unwrap();
    masters.resume(4).unwrap();
    cleaned(&masters, "r*").await;
    assert!(calls(&masters, 1, "set") > 0, "the hung ones had something to clean");
}

async fn a_hung_majority_is_told_after_one_node_timeout_and_leaves_no_key() {
    let masters = own(5);
    let lock = built(brisk(&masters)).await;
    [1, 2, 3].into_iter().for_each(|node| masters.pause(node).unwrap());
    let (took, error) = timed(lock.try_acquire("r")).await;
    let error = error.unwrap_err();
    assert!(matches!(error, AcquireError::NoQuorum { .. }), "{error}");
    assert!(took >= 100 * MS && took < 100 * MS + AT_ONCE, "{took:?}");
    for hung in &answers(error.report().unwrap())[..3] {
        assert_eq!(*hung, Some(MasterOutcome::Unknown(Cause::Silent)), "{error}");
    }
    // An acquire with time left retries, and ends when its wait is over.
    let (took, error) = timed(lock.acquire("r").wait(300 * MS)).await;
    let error = error.unwrap_err();
    assert!(matches!(error, AcquireError::NoQuorum { attempts: 2.., .. }), "{error}");
    assert!(took >= 300 * MS && took < 500 * MS + AT_ONCE, "{took:?}");
    eventually("no key is left on those that live", || keys_on(&masters, [4, 5], "r").is_empty())
        .await;
    [1, 2, 3].into_iter().for_each(|node| masters.resume(node).unwrap());
    eventually("the lock recovers", || {
        lock.stats().masters.iter().all(|master| master.unanswered == 0 && master.owed == 0)
    })
    .await;
    assert_eq!(keys(&masters, "r"), []);
    assert!(calls(&masters, 1, "set") > 0, "the hung ones had something to clean");
    assert!(lock.try_acquire("r").await.unwrap().is_some());
}

async fn a_dead_majority_is_told_at_once_and_leaves_no_key() {
    let masters = own(5);
    let lock = built(calm(&masters)).await;
    [2, 3, 5].into_iter().for_each(|node| masters.kill(node).unwrap());
    for round in 0..5 {
        let (took, error) = timed(lock.try_acquire("r")).await;
        let error = error.unwrap_err();
        assert!(matches!(error, AcquireError::NoQuorum { .. }), "round {round}: {error}");
        assert!(took < AT_ONCE, "round {round} took {took:?}");
    }
    eventually("no key is left on those that live", || keys_on(&masters, [1, 4], "r").is_empty())
        .await;
    assert!(calls(&masters, 1, "set") > 0, "those that live had something to clean");
}

async fn a_refusal_that_stands_does_not_wait_for_hung_masters() {
    let masters = own(5);
    let (lock, other) = (built(calm(&masters)).await, built(calm(&masters)).await);
    let held = other.acquire("held").await.unwrap();
    let lease = lock.acquire("lost").await.unwrap();
    answered(&other).await;
    answered(&lock).await;
    delete(&masters, 1..=3, "lost");
    [4, 5].into_iter().for_each(|node| masters.pause(node).unwrap());
    let (took, outcome) = timed(lock.try_acquire("held")).await;
    assert!(outcome.unwrap().is_none() && took < AT_ONCE, "acquire took {took:?}");
    let (took, result) = timed(lease.extend()).await;
    let error = result.unwrap_err();
    assert!(matches!(error, ExtendError::QuorumGone(_)), "{error}");
    assert!(took < AT_ONCE, "extend took {took:?}");
    let (took, released) = timed(lease.release()).await;
    assert_eq!(released.outcome, Outcome::AlreadyGone, "{}", released.report);
    assert!(took < AT_ONCE, "release took {took:?}");
    [4, 5].into_iter().for_each(|node| masters.resume(node).unwrap());
    answered(&lock).await;
    assert_eq!(keys(&masters, "lost"), []);
    assert_eq!(held.release().await.outcome, Outcome::Released);
}

async fn an_even_split_of_votes_is_decided_at_once() {
    for count in [2, 4] {
        let masters = own(count);
        let lock = built(calm(&masters)).await;
        (1..=count / 2).for_each(|node| put(&masters, node, "r", 60_000));
        let (took, outcome) = timed(lock.try_acquire("r")).await;
        assert!(outcome.unwrap().is_none());
        assert!(took < AT_ONCE, "{count} masters took {took:?}");
        let (took, error) = timed(lock.acquire("r").wait(50 * MS)).await;
        let error = error.unwrap_err();
        assert!(matches!(error, AcquireError::Taken { .. }), "{error}");
        assert!(took < AT_ONCE, "{count} masters took {took:?}");
        let held = Some(MasterOutcome::Taken(Holder::Foreign { left_ms: 0 }));
        let said = &answers(error.report().unwrap())[0];
        assert_eq!(
            said.as_ref().map(std::mem::discriminant),
            held.as_ref().map(std::mem::discriminant)
        );
        eventually("only what was planted is left", || {
            holders(&masters, "r").into_iter().eq(1..=count / 2)
        })
        .await;
    }
}

async fn two_clients_of_an_even_number_of_masters_never_hang() {
    for count in [2, 4] {
        let masters = own(count);
        let locks = [built(calm(&masters)).await, built(calm(&masters)).await];
        let clients = locks.map(|lock| {
            tokio::spawn(async move {
                let mut won = 0;
                for round in 0..30 {
                    let (took, outcome) = timed(lock.try_acquire("r")).await;
                    assert!(took < AT_ONCE, "{count} masters, round {round}: {took:?}");
                    if let Some(lease) = outcome.unwrap() {
                        won += 1;
                        assert_eq!(lease.release().await.outcome, Outcome::Released);
                    }
                }
                won
            })
        });
        for client in clients {
            client.await.unwrap();
        }
        cleaned(&masters, "r").await;
    }
}
