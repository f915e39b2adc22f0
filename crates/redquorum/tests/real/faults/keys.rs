//! Keys that are no locks, and changes to keys: other types, other programs, no TTL, flushed
//! scripts, flushed masters, resources of any bytes.

use redquorum::{
    AcquireError, BadOption, ExtendError, Lease, Outcome,
    report::{Cause, Holder, MasterOutcome},
};
use redquorum_rig::{Masters, RespValue, trials::Case};

use crate::support::*;

pub(crate) fn cases() -> Vec<Case> {
    cases![
        a_key_of_another_type_is_an_outcome_that_says_so,
        a_key_without_ttl_is_an_outcome_that_says_so,
        a_lease_whose_keys_were_replaced_deletes_none_of_them,
        flushed_scripts_are_loaded_again_and_what_is_owed_is_paid,
        an_extend_after_flushed_scripts_recovers,
        a_flushed_master_costs_its_vote_and_not_the_lease,
        a_resource_may_be_any_bytes,
        an_empty_or_endless_resource_is_refused_before_anything_is_sent,
        a_prefix_is_put_in_front_of_every_key,
    ]
}

/// The holder as each master reports it after a refused attempt.
async fn holder_of(masters: &Masters, r: &str) -> (Vec<Option<MasterOutcome>>, String) {
    let lock = built(calm(masters)).await;
    let (took, result) = timed(lock.acquire(r).wait(MS)).await;
    let error = result.unwrap_err();
    assert!(matches!(error, AcquireError::Taken { .. }), "{error}");
    assert!(took < AT_ONCE, "{took:?}");
    assert!(lock.try_acquire(r).await.unwrap().is_none());
    (answers(error.report().unwrap()), error.to_string())
}

async fn a_key_of_another_type_is_an_outcome_that_says_so() {
    let masters = shared();
    let r = unique("list");
    all(masters).for_each(|node| done(masters, node, &format!("LPUSH {r} element")));
    let (said, text) = holder_of(masters, &r).await;
    assert!(said.contains(&Some(MasterOutcome::Taken(Holder::WrongType))), "{text}");
    assert!(text.contains("the key is of another type, not a lock"), "{text}");
    let element = masters.ask(1, &format!("LINDEX {r} 0")).unwrap();
    assert_eq!(element.text().unwrap(), "element", "it was touched");
    delete(masters, all(masters), &r);
    // If such a key replaces the key of a lease, extend and release report it.
    let lock = built(calm(masters)).await;
    let lease = lock.acquire(&r).await.unwrap();
    answered(&lock).await;
    delete(masters, all(masters), &r);
    all(masters).for_each(|node| done(masters, node, &format!("LPUSH {r} element")));
    let error = lease.extend().await.unwrap_err();
    assert!(matches!(error, ExtendError::QuorumGone(_)), "{error}");
    assert!(error.to_string().contains("of another type"), "{error}");
    let released = lease.release().await;
    assert_eq!(released.outcome, Outcome::AlreadyGone, "{}", released.report);
    assert_eq!(masters.ask(1, &format!("LLEN {r}")).unwrap(), RespValue::Integer(1));
    delete(masters, all(masters), &r);
}

async fn a_key_without_ttl_is_an_outcome_that_says_so() {
    let masters = shared();
    let r = unique("eternal");
    all(masters).for_each(|node| done(masters, node, &format!("SET {r} forgotten")));
    let (said, text) = holder_of(masters, &r).await;
    assert!(said.contains(&Some(MasterOutcome::Taken(Holder::NoExpiry))), "{text}");
    assert!(text.contains("a key without TTL, which never expires"), "{text}");
    assert_eq!(value(masters, 1, &r).unwrap(), b"forgotten", "it was touched");
    delete(masters, all(masters), &r);
}

async fn a_lease_whose_keys_were_replaced_deletes_none_of_them() {
    let masters = shared();
    let lock = built(calm(masters)).await;
    let r = unique("replaced");
    let lease = lock.acquire(&r).await.unwrap();
    answered(&lock).await;
    delete(masters, all(masters), &r);
    all(masters).for_each(|node| put(masters, node, &r, 60_000));
    let released = lease.release().await;
    assert_eq!(released.outcome, Outcome::AlreadyGone, "{}", released.report);
    answered(&lock).await;
    assert_eq!(holders(masters, &r), [1, 2, 3, 4, 5]);
    delete(masters, all(masters), &r);
}

/// A lease with its key on all masters, and all masters without their scripts.
async fn without_scripts(masters: &Masters, lock: &redquorum::Redlock) -> Lease {
    let lease = lock.acquire("r").await.unwrap();
    answered(lock).await;
    all(masters).for_each(|node| done(masters, node, "SCRIPT FLUSH"));
    lease
}

async fn flushed_scripts_are_loaded_again_and_what_is_owed_is_paid() {
    let masters = own(3);
    let lock = built(calm(&masters)).await;
    let lease = without_scripts(&masters, &lock).await;
    let (took, released) = timed(lease.release()).await;
    assert_eq!(released.outcome, Outcome::Unknown, "{}", released.report);
    assert!(released.report.to_string().contains("scripts were flushed"), "{}", released.report);
    assert!(took < AT_ONCE, "{took:?}");
    cleaned(&masters, "r").await;
    answered(&lock).await;
    assert_eq!(lock.stats().masters.iter().map(|master| master.owed).sum::<usize>(), 0);
    // No command that creates a key was sent twice.
    assert_eq!(calls(&masters, 1, "set"), 1);
    let lease = without_scripts(&masters, &lock).await;
    drop(lease);
    cleaned(&masters, "r").await;
    let lease = lock.acquire("r").await.unwrap();
    assert_eq!(lease.release().await.outcome, Outcome::Released);
    assert!(lock.stats().masters.iter().all(|master| master.connected == 1));
}

async fn an_extend_after_flushed_scripts_recovers() {
    let masters = own(3);
    let lock = built(calm(&masters)).await;
    let lease = without_scripts(&masters, &lock).await;
    let deadline = lease.deadline();
    let error = lease.extend().await.unwrap_err();
    let ExtendError::NoQuorum(report) = &error else { panic!("{error}") };
    assert!(answers(report).contains(&Some(MasterOutcome::Unknown(Cause::NoScript))), "{error}");
    assert_eq!((lease.deadline(), lease.is_lost()), (deadline, None));
    answered(&lock).await;
    assert!(lease.extend().await.unwrap() > deadline);
    assert_eq!(lease.release().await.outcome, Outcome::Released);
    cleaned(&masters, "r").await;
}

async fn a_flushed_master_costs_its_vote_and_not_the_lease() {
    let masters = own(5);
    let lock = built(calm(&masters)).await;
    let lease = lock.acquire("r").await.unwrap();
    answered(&lock).await;
    [1, 2].into_iter().for_each(|node| done(&masters, node, "FLUSHALL"));
    lease.extend().await.unwrap();
    answered(&lock).await;
    lease.extend().await.unwrap();
    answered(&lock).await;
    assert_eq!(holders(&masters, "r"), [1, 2, 3, 4, 5], "they got it back");
    assert!(lock.try_acquire("r").await.unwrap().is_none());
    // A quorum does not survive the loss of a majority of keys, and the error reports it.
    answered(&lock).await;
    all(&masters).for_each(|node| done(&masters, node, "FLUSHALL"));
    let error = lease.extend().await.unwrap_err();
    assert!(matches!(error, ExtendError::QuorumGone(_)), "{error}");
    assert_eq!(lease.release().await.outcome, Outcome::AlreadyGone);
    cleaned(&masters, "*").await;
}

async fn a_resource_may_be_any_bytes() {
    let masters = shared();
    let lock = built(calm(masters)).await;
    let tail = unique("bytes");
    let mut long = tail.clone().into_bytes();
    long.resize(1 << 20, b'x');
    let resources = [
        [b"\0\0".as_slice(), tail.as_bytes()].concat(),
        [b"\r\n$3\r\nDEL\r\n \"*?[".as_slice(), tail.as_bytes()].concat(),
        [b"\xff\xfe\x80".as_slice(), tail.as_bytes()].concat(),
        format!("é💥 {tail}").into_bytes(),
        long,
    ];
    for resource in resources {
        let name = resource[..resource.len().min(30)].escape_ascii().to_string();
        let lease = lock.acquire(&resource).await.unwrap_or_else(|error| panic!("{name}: {error}"));
        answered(&lock).await;
        for node in all(masters) {
            match masters.command(node, &[b"GET", &resource]) {
                Ok(RespValue::Bulk(token)) => assert_eq!(token.len(), 20, "{name}"),
                other => panic!("{name} is not there: {other:?}"),
            }
        }
        assert!(lock.try_acquire(&resource).await.unwrap().is_none(), "{name}");
        lease.extend().await.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(format!("{lease:?}").is_ascii());
        let released = lease.release().await;
        assert_eq!(released.outcome, Outcome::Released, "{name}: {}", released.report);
        answered(&lock).await;
        for node in all(masters) {
            assert_eq!(
                masters.command(node, &[b"GET", &resource]).unwrap(),
                RespValue::Nil,
                "{name}"
            );
        }
    }
}

async fn an_empty_or_endless_resource_is_refused_before_anything_is_sent() {
    let masters = own(1);
    let lock = built(calm(&masters).prefix("p")).await;
    for resource in [vec![], vec![b'x'; 1 << 20]] {
        let error = lock.acquire(&resource).await.unwrap_err();
        let refused = matches!(
            error,
            AcquireError::Options(BadOption::ResourceEmpty | BadOption::ResourceTooLong { .. })
        );
        assert!(refused, "{error}");
        assert!(lock.try_acquire(&resource).await.is_err());
    }
    assert_eq!(calls(&masters, 1, "set"), 0);
}

async fn a_prefix_is_put_in_front_of_every_key() {
    let masters = shared();
    let prefix = unique("prefix");
    let lock = built(calm(masters).prefix(format!("{prefix}:"))).await;
    let lease = lock.acquire("r").await.unwrap();
    answered(&lock).await;
    assert_eq!(holders(masters, &format!("{prefix}:r")), [1, 2, 3, 4, 5]);
    let plain = built(calm(masters)).await;
    assert!(plain.try_acquire(format!("{prefix}:r")).await.unwrap().is_none(), "the same key");
    assert_eq!(lease.release().await.outcome, Outcome::Released);
    cleaned(masters, &format!("{prefix}*")).await;
}
