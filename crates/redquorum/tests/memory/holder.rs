//! Looks at who holds a resource, which change nothing.

use std::time::Duration;

use redquorum::report::{Holder, MasterOutcome};
use redquorum::{AcquireError, Outcome};
use tokio::time::{Instant, sleep};

use crate::support::{MS, NODE_TIMEOUT, S, TTL, bed, keys, settle, take};

#[tokio::test(start_paused = true)]
async fn a_look_names_the_holder_and_changes_nothing() {
    let (masters, lock) = bed(5).await;
    let other = masters.builder().build().await.unwrap();
    let free = other.holder("r").await.unwrap();
    assert!(free.is_free() && free.holder().is_none());
    assert!(free.to_string().starts_with("free ("), "{free}");
    assert_eq!(keys(&masters, 5), 0);

    let lease = take(&lock, "r").await;
    settle().await;
    sleep(S).await;
    let before = (lease.deadline(), keys(&masters, 5));
    let held = other.holder("r").await.unwrap();
    let (holder, left) = held.holder().expect("all masters name it");
    assert!(matches!(holder, Holder::Lease { .. }) && !held.is_free());
    assert!((TTL - S - 10 * MS..=TTL - S).contains(&left), "{left:?}");
    assert!(held.to_string().contains(&lease.token_id()), "{held} {}", lease.token_id());
    assert_eq!((lease.deadline(), keys(&masters, 5)), before);
    assert!(lease.extend().await.is_ok());
    let _ = lease.release().await;
    assert!(other.holder("r").await.unwrap().is_free());
}

#[tokio::test(start_paused = true)]
async fn readers_are_one_holder() {
    let (masters, lock) = bed(3).await;
    let other = masters.builder().build().await.unwrap();
    let readers =
        [lock.acquire("r").shared().await.unwrap(), other.acquire("r").shared().await.unwrap()];
    settle().await;
    let held = lock.holder("r").await.unwrap();
    let (holder, _) = held.holder().expect("they share it");
    assert!(holder.is_shared() && !held.is_free(), "{held}");
    assert!(readers.iter().any(|reader| held.to_string().contains(&reader.token_id())), "{held}");
    assert!(readers.iter().all(|reader| !reader.is_lost()));
}

#[tokio::test(start_paused = true)]
async fn what_a_minority_has_is_no_lease_and_foreign_keys_are_named() {
    let (masters, lock) = bed(5).await;
    (1..=2).for_each(|number| masters.set(number, "r", "of another program", None));
    let held = lock.holder("r").await.unwrap();
    assert!(held.is_free() && held.holder().is_none(), "{held}");
    let taken = |outcome: &Option<MasterOutcome>| matches!(outcome, Some(MasterOutcome::Taken(_)));
    let named = held.report.masters().iter().filter(|master| taken(&master.outcome));
    assert_eq!(named.count(), 2);
    masters.set(3, "r", "of another program", None);
    let held = lock.holder("r").await.unwrap();
    assert_eq!(held.holder(), Some((Holder::NoExpiry, Duration::MAX)));
    assert!(!held.is_free());
}

#[tokio::test(start_paused = true)]
async fn with_too_few_replies_nothing_is_said() {
    let (masters, lock) = bed(5).await;
    let _lease = take(&lock, "r").await;
    settle().await;
    (1..=3).for_each(|number| masters.stop(number));
    let start = Instant::now();
    let held = lock.holder("r").await.unwrap();
    assert!(start.elapsed() <= NODE_TIMEOUT + MS);
    assert!(held.holder().is_none() && !held.is_free());
    assert!(held.to_string().starts_with("no quorum"), "{held}");
}

#[tokio::test(start_paused = true)]
async fn a_name_that_is_none_is_an_error() {
    let (_masters, lock) = bed(3).await;
    assert!(matches!(lock.holder("").await, Err(AcquireError::Options { .. })));
}

#[tokio::test(start_paused = true)]
async fn whoever_is_refused_sees_the_name_of_the_holder() {
    let (masters, other) = bed(3).await;
    let lock = masters.builder().name("billing-7 ü").build().await.unwrap();
    let shared = lock.acquire("shared").shared().await.unwrap();
    let lease = take(&lock, "r").await;
    settle().await;
    let [value, exclusive] = [masters.value(1, "r").unwrap(), b"@billing-7 \xc3\xbc".to_vec()];
    assert_eq!((value.len(), &value[20..]), (20 + exclusive.len(), &exclusive[..]));
    for (resource, lease) in [("r", &lease), ("shared", &shared)] {
        let Err(AcquireError::Taken { report, .. }) = other.acquire(resource).wait(S).await else {
            panic!("{resource} is held")
        };
        assert_eq!(report.holder().unwrap().name(), Some("billing-7 ü"));
        let held = other.holder(resource).await.unwrap().to_string();
        for text in [held, report.to_string()] {
            assert!(text.contains("by \"billing-7 ü\", token "), "{text}");
            assert!(text.contains(&lease.token_id()), "{text}");
        }
    }
    // A name is no identity: another client with the same one does not have the lease.
    let same = masters.builder().name("billing-7 ü").build().await.unwrap();
    assert!(same.try_acquire("r").await.unwrap().is_none());
    let third = same.acquire("shared").shared().await.unwrap();
    assert_eq!(third.release().await.outcome, Outcome::Released);
    assert!(lease.extend().await.is_ok() && shared.extend().await.is_ok());
    for lease in [lease, shared] {
        assert_eq!(lease.release().await.outcome, Outcome::Released);
    }
    assert_eq!(keys(&masters, 3), 0);
}
