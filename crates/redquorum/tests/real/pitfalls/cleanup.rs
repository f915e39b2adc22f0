//! No end of an attempt or a lease leaves a key behind, even where the `SET` was never
//! acknowledged. No clean-up of one attempt touches the keys of the next one.

use std::collections::HashSet;
use std::time::Duration;

use redquorum::{AcquireError, Backoff, Outcome};
use redquorum_rig::trials::Case;

use crate::raw::{Monitor, value_set};
use crate::support::*;

pub(crate) fn cases() -> Vec<Case> {
    cases![
        an_attempt_that_fails_leaves_no_key_where_it_was_granted,
        an_attempt_that_meets_an_error_leaves_no_key_where_it_was_granted,
        a_release_reaches_masters_that_never_acknowledged_the_set,
        a_set_that_comes_late_is_followed_by_its_own_clean_up,
        no_two_attempts_share_a_token,
        a_late_clean_up_does_not_delete_the_key_of_the_next_attempt,
        a_panic_in_the_protected_work_gives_the_lease_back,
        a_hung_master_does_not_pile_up_commands_without_end,
    ]
}

async fn an_attempt_that_fails_leaves_no_key_where_it_was_granted() {
    let masters = shared();
    let lock = built(calm(masters)).await;
    let r = unique("failed");
    (1..=3).for_each(|node| put(masters, node, &r, 60_000));
    let mut monitor = Monitor::start(masters, 5);
    assert!(lock.try_acquire(&r).await.unwrap().is_none());
    eventually("only what was planted is left", || holders(masters, &r) == [1, 2, 3]).await;
    let sets = monitor.seen(&r).iter().filter(|line| line.contains("\"SET\"")).count();
    assert_eq!(sets, 1, "a key was there for a moment");
    assert_eq!(value(masters, 1, &r).unwrap(), b"somebody", "nobody else's key was touched");
}

async fn an_attempt_that_meets_an_error_leaves_no_key_where_it_was_granted() {
    let masters = own(5);
    let lock = built(calm(&masters)).await;
    for node in 1..=3 {
        done(&masters, node, "CONFIG SET min-replicas-to-write 1");
    }
    let error = lock.acquire("r").wait(Duration::ZERO).await.unwrap_err();
    assert!(matches!(error, AcquireError::NoQuorum { .. }), "{error}");
    assert!(error.to_string().contains("NOREPLICAS"), "{error}");
    cleaned_but(&masters, "r", &[1, 2, 3]).await;
    assert!(calls(&masters, 4, "set") > 0 && calls(&masters, 5, "set") > 0);
}

/// Like [`cleaned`], where some masters refuse the key that the check plants.
async fn cleaned_but(masters: &redquorum_rig::Masters, key: &str, refusing: &[usize]) {
    cleaned(masters, key).await;
    assert_eq!(keys_on(masters, refusing.iter().copied(), key), []);
}

async fn a_release_reaches_masters_that_never_acknowledged_the_set() {
    let masters = own(5);
    let lock = built(calm(&masters)).await;
    masters.pause(1).unwrap();
    masters.pause(2).unwrap();
    let lease = lock.acquire("r").await.unwrap();
    assert_eq!(answers(lease.report())[..2], [None, None], "they acknowledged nothing");
    let released = lease.release().await;
    assert_eq!(released.outcome, Outcome::Released, "{}", released.report);
    masters.resume(1).unwrap();
    masters.resume(2).unwrap();
    answered(&lock).await;
    assert_eq!(keys(&masters, "r"), []);
    for node in [1, 2] {
        assert_eq!((calls(&masters, node, "set"), calls(&masters, node, "del")), (1, 1));
    }
}

async fn a_set_that_comes_late_is_followed_by_its_own_clean_up() {
    let masters = own(3);
    let lock = built(brisk(&masters)).await;
    masters.pause(1).unwrap();
    masters.pause(2).unwrap();
    assert!(lock.try_acquire("r").await.is_err());
    let mut monitor = Monitor::start(&masters, 3);
    masters.resume(1).unwrap();
    masters.resume(2).unwrap();
    answered(&lock).await;
    assert_eq!(keys(&masters, "r"), []);
    for node in [1, 2] {
        assert_eq!((calls(&masters, node, "set"), calls(&masters, node, "del")), (1, 1));
    }
    assert_eq!(monitor.seen("\"SET\""), Vec::<String>::new(), "nothing was sent again");
}

async fn no_two_attempts_share_a_token() {
    let masters = shared();
    let pauses = Backoff::Fixed(5 * MS);
    let lock = built(calm(masters).retry(pauses).wake_ups(false)).await;
    let r = unique("tokens");
    (1..=3).for_each(|node| put(masters, node, &r, 60_000));
    // Every attempt asks master 1, and only some attempts ask the others.
    let mut monitor = Monitor::start(masters, 1);
    let error = lock.acquire(&r).wait(150 * MS).await.unwrap_err();
    let AcquireError::Taken { attempts, .. } = error else { panic!("{error}") };
    let seen = monitor.seen(&r);
    let tokens: Vec<_> = seen.iter().filter_map(|line| value_set(line, &r)).collect();
    assert!(attempts >= 5, "only {attempts} attempts");
    assert_eq!(tokens.len(), usize::try_from(attempts).unwrap());
    assert_eq!(tokens.iter().collect::<HashSet<_>>().len(), tokens.len(), "{tokens:?}");
}

async fn a_late_clean_up_does_not_delete_the_key_of_the_next_attempt() {
    let masters = own(5);
    // The node timeout is so long that no connection counts as dead before the masters go on.
    let lock = built(calm(&masters).retry(Backoff::Fixed(100 * MS))).await;
    put(&masters, 3, "r", 60_000);
    masters.pause(1).unwrap();
    masters.pause(2).unwrap();
    let waiting = tokio::spawn(async move { (lock.acquire("r").await, lock) });
    // The first attempt has two votes, waits for two more in vain, and fails.
    eventually("the first attempt was cleaned up", || calls(&masters, 4, "del") == 1).await;
    delete(&masters, [3], "r");
    let (lease, lock) = waiting.await.unwrap();
    let lease = lease.unwrap();
    // The sockets of both contain the SET, its clean-up and the next SET, in this order.
    masters.resume(1).unwrap();
    masters.resume(2).unwrap();
    answered(&lock).await;
    let mine = value(&masters, 4, "r").unwrap();
    for node in 1..=5 {
        assert_eq!(value(&masters, node, "r"), Some(mine.clone()), "master {node}");
    }
    assert!(calls(&masters, 1, "set") >= 2 && calls(&masters, 1, "del") >= 1);
    assert_eq!(lease.release().await.outcome, Outcome::Released);
}

async fn a_panic_in_the_protected_work_gives_the_lease_back() {
    let masters = shared();
    let lock = built(calm(masters)).await;
    let r = unique("panic");
    let work = {
        let (lock, r) = (lock.clone(), r.clone());
        tokio::spawn(async move {
            let lease = lock.acquire(&r).await.unwrap();
            let held = holders(shared(), &r).len();
            let _: Result<(), _> = lease.run(async { panic!("on purpose: {held} hold it") }).await;
        })
    };
    let panic = work.await.unwrap_err().into_panic();
    let panic = panic.downcast_ref::<String>().unwrap();
    assert!(!panic.contains(": 0 hold it") && panic.starts_with("on purpose"), "{panic}");
    cleaned(masters, &r).await;
    assert!(lock.try_acquire(&r).await.unwrap().is_some());
}

async fn a_hung_master_does_not_pile_up_commands_without_end() {
    let masters = own(3);
    let lock = built(brisk(&masters)).await;
    masters.pause(1).unwrap();
    let mut piled = Vec::new();
    for round in 0..60 {
        let lease = lock.acquire(format!("r{round}")).await.unwrap();
        assert_eq!(lease.release().await.outcome, Outcome::Released);
        tokio::time::sleep(10 * MS).await;
        let hung = &lock.stats().masters[0];
        piled.push((hung.unanswered, hung.owed, hung.unknown));
    }
    // After two node timeouts of silence the link sends no more commands, but keeps its clean-ups.
    let (unanswered, owed, unknown) = piled[30];
    assert!(unanswered > 2 && owed > 1, "{piled:?}");
    assert_eq!((piled[59].0, piled[59].1), (unanswered, owed), "{piled:?}");
    assert!(piled[59].2 > unknown, "{piled:?}");
    masters.resume(1).unwrap();
    answered(&lock).await;
    assert_eq!(keys(&masters, "r*"), []);
    assert_eq!(usize::try_from(calls(&masters, 1, "set")).unwrap(), owed);
}
