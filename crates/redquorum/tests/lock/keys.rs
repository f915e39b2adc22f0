//! Keys that are no locks, changes to keys, and names of any bytes.

use std::time::Duration;

use redquorum::{
    AcquireError, ExtendError, Outcome,
    report::{Cause, Holder, MasterOutcome},
};
use redquorum_rig::RespValue;

use crate::support::*;

tests! {
    both:
        a_name_may_be_any_bytes_and_names_are_kept_apart;
    real:
        a_key_of_another_type_is_an_outcome_of_its_own,
        flushed_scripts_are_loaded_again_and_clean_ups_complete,
        databases_are_kept_apart,
}

async fn a_name_may_be_any_bytes_and_names_are_kept_apart<C: Cluster>() {
    let masters = C::start(3);
    let lock = built(masters.builder().ttl(60 * S)).await;
    let long = vec![b'x'; 1 << 20];
    let names: [&[u8]; 11] = [
        b"\0",
        b"\0\0",
        b"\r\n",
        b"a\r\n$5\r\nb",
        b"*1\r\n$8\r\nFLUSHALL\r\n",
        b"a b",
        b"\xff\xfe\x80",
        b"{a}b",
        b"'\"\\*?[",
        "ключ 🔒".as_bytes(),
        &long,
    ];
    let mut held = Vec::new();
    for name in names {
        held.push(lock.try_acquire(name).await.unwrap().expect("each is free"));
    }
    replied(&lock).await;
    assert_eq!(masters.keys([3]).len(), names.len());
    for (name, lease) in names.into_iter().zip(held) {
        let shown = format!("{lease:?}");
        assert!(shown.is_ascii() && !shown.chars().any(char::is_control), "{shown}");
        assert_eq!(lease.resource(), name);
        assert!(lock.try_acquire(name).await.unwrap().is_none(), "{shown}");
        lease.extend().await.unwrap_or_else(|error| panic!("{shown}: {error}"));
        assert_eq!(lease.release().await.outcome, Outcome::Released, "{shown}");
    }
    masters.cleaned().await;
}

async fn a_key_of_another_type_is_an_outcome_of_its_own() {
    let masters = Real::start(5);
    let lock = masters.lock().await;
    masters.done_on(1..=5, "LPUSH r element");
    let request = lock.acquire("r").wait(Duration::ZERO);
    let error = Real::at_once(request).await.unwrap_err();
    let AcquireError::Taken { report, .. } = &error else { panic!("{error}") };
    let wrong = Some(MasterOutcome::Taken(Holder::WrongType));
    assert!(replies(report).contains(&wrong), "{error}");
    assert!(error.to_string().contains("the key is of another type, not a lock"), "{error}");
    assert_eq!(masters.text(1, "LINDEX r 0"), "element", "it was touched");
    replied(&lock).await;
    assert_eq!(pending_cleanups(&lock), 0);
    masters.delete(1..=5, "r");
    // If such a key replaces the key of a lease, extend and release report it.
    let lease = masters.held(&lock, "r").await;
    masters.delete(1..=5, "r");
    masters.done_on(1..=5, "LPUSH r element");
    let error = lease.extend().await.unwrap_err();
    assert!(matches!(error, ExtendError::QuorumGone { .. }), "{error}");
    assert!(error.to_string().contains("of another type"), "{error}");
    let released = lease.release().await;
    assert_eq!(released.outcome, Outcome::AlreadyGone, "{}", released.report);
    assert_eq!(masters.number(1, "LLEN r"), 1);
}

async fn flushed_scripts_are_loaded_again_and_clean_ups_complete() {
    let masters = Real::start(3);
    let lock = masters.lock().await;
    let lease = masters.held(&lock, "r").await;
    let flush = || masters.done_on(1..=3, "SCRIPT FLUSH");
    flush();
    let deadline = lease.deadline();
    let error = lease.extend().await.unwrap_err();
    let ExtendError::NoQuorum { report, .. } = &error else { panic!("{error}") };
    assert!(replies(report).contains(&Some(MasterOutcome::Unknown(Cause::NoScript))), "{error}");
    assert_eq!((lease.deadline(), lease.is_lost()), (deadline, false));
    replied(&lock).await;
    assert!(lease.extend().await.unwrap() > deadline);
    flush();
    let released = Real::at_once(lease.release()).await;
    assert_eq!(released.outcome, Outcome::Unknown, "{}", released.report);
    assert!(released.report.to_string().contains("scripts were flushed"), "{}", released.report);
    recovered(&lock).await;
    masters.cleaned().await;
    // No command that creates a key was sent twice.
    assert_eq!(masters.calls(1, "set"), 1);
    let lease = masters.held(&lock, "r").await;
    flush();
    drop(lease);
    masters.cleaned().await;
    assert!(lock.stats().masters.iter().all(|master| master.connected == 1));
}

async fn databases_are_kept_apart() {
    let masters = Real::start(3);
    let of = |database: &str| {
        over(masters.urls().iter().map(|url| format!("{url}/{database}")).collect::<Vec<_>>())
    };
    let nine = built(of("9")).await;
    let lease = nine.acquire("r").await.unwrap();
    replied(&nine).await;
    assert_eq!(masters.holders("r"), Vec::<usize>::new(), "not in database 0");
    let zero = masters.lock().await;
    let other = zero.try_acquire("r").await.unwrap();
    let other = other.expect("two databases are two sets of locks");
    assert!(nine.try_acquire("r").await.unwrap().is_none());
    for lease in [lease, other] {
        assert_eq!(lease.release().await.outcome, Outcome::Released);
    }
    replied(&zero).await;
    let error = built(of("999")).await.try_acquire("r").await.unwrap_err().to_string();
    let text = "the database was not selected: ERR DB index is out of range";
    assert!(error.contains(text), "{error}");
    assert_eq!(masters.ask(1, "DBSIZE").unwrap(), RespValue::Integer(0));
}
