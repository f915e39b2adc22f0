//! Masters that answer with an error: each is one unknown vote that says why.

use std::time::Duration;

use redquorum::{
    AcquireError, Answer, Cause, ExtendError, Lease, LinkState, Outcome, Redlock, Report,
};
use redquorum_rig::{Masters, trials::Case};

use crate::support::*;

pub(crate) fn cases() -> Vec<Case> {
    cases![
        masters_that_are_read_only_are_unknown_votes,
        masters_without_their_replicas_are_unknown_votes,
        masters_out_of_memory_are_unknown_votes,
        masters_that_are_loading_are_unknown_votes,
        a_master_that_takes_no_more_clients_says_so,
    ]
}

/// The masters that said an error of this kind.
fn said(report: &Report, error: &str) -> Vec<usize> {
    let is_error = |answer: &Option<Answer>| match answer {
        Some(Answer::Unknown(Cause::Error(text))) => text.starts_with(error),
        _ => false,
    };
    report.masters().iter().filter(|m| is_error(&m.answer)).map(|m| m.number).collect()
}

/// What must be true of every error: `harm` makes one master answer it, `heal` ends that.
async fn are_unknown_votes(masters: &Masters, lock: &Redlock, error: &str, harm: &str, heal: &str) {
    let before: Lease = lock.acquire("before").await.unwrap();
    eventually("all have it", || holders(masters, "before").len() == 5).await;
    // A minority does no harm.
    [2, 4].into_iter().for_each(|node| done(masters, node, harm));
    let lease = lock.acquire("r").await.unwrap();
    lease.extend().await.unwrap();
    assert_eq!(lease.release().await.outcome, Outcome::Released);
    // A majority is no quorum, at once, and the report tells why.
    done(masters, 5, harm);
    let (took, result) = timed(lock.acquire("r").wait(Duration::ZERO)).await;
    let failed = result.unwrap_err();
    assert!(matches!(failed, AcquireError::NoQuorum { .. }), "{failed}");
    assert_eq!(said(failed.report().unwrap(), error), [2, 4, 5], "{failed}");
    assert!(failed.to_string().contains(error) && took < AT_ONCE, "{failed} after {took:?}");
    let deadline = before.deadline();
    match before.extend().await {
        Err(ExtendError::NoQuorum(report)) => assert_eq!(said(&report, error), [2, 4, 5]),
        // Where scripts may still lengthen a key's life, the lease is extended indeed.
        Ok(extended) => assert!(error == "OOM" && extended > deadline),
        Err(other) => panic!("{other}"),
    }
    assert!(before.is_lost().is_none() && before.deadline() >= deadline);
    // What cannot be deleted now is deleted when that has passed.
    before.release().await;
    [2, 4, 5].into_iter().for_each(|node| done(masters, node, heal));
    eventually("all is paid", || lock.stats().masters.iter().all(|master| master.owed == 0)).await;
    assert_eq!(keys(masters, "*"), []);
    cleaned(masters, "r").await;
    assert_eq!(lock.acquire("r").await.unwrap().release().await.outcome, Outcome::Released);
}

async fn masters_that_are_read_only_are_unknown_votes() {
    let masters = own(5);
    let lock = built(calm(&masters).ttl(60 * CALM)).await;
    // Of a master at an address where nobody answers.
    let harm = "REPLICAOF 127.0.0.1 1";
    are_unknown_votes(&masters, &lock, "READONLY", harm, "REPLICAOF NO ONE").await;
}

async fn masters_without_their_replicas_are_unknown_votes() {
    let masters = own(5);
    let lock = built(calm(&masters).ttl(60 * CALM)).await;
    let [harm, heal] = [1, 0].map(|count| format!("CONFIG SET min-replicas-to-write {count}"));
    are_unknown_votes(&masters, &lock, "NOREPLICAS", &harm, &heal).await;
}

async fn masters_out_of_memory_are_unknown_votes() {
    let masters = own(5);
    let lock = built(calm(&masters).ttl(60 * CALM)).await;
    let [harm, heal] = [1, 0].map(|bytes| format!("CONFIG SET maxmemory {bytes}"));
    are_unknown_votes(&masters, &lock, "OOM", &harm, &heal).await;
}

async fn masters_that_are_loading_are_unknown_votes() {
    // A dump is loaded key by key with a pause at each, and the master looks up often.
    let masters = Masters::builder()
        .count(3)
        .config("enable-debug-command", "yes")
        .config("loading-process-events-interval-bytes", "1024")
        .start()
        .unwrap();
    let lock = built(calm(&masters)).await;
    let held = lock.acquire("held").await.unwrap();
    for node in [1, 2] {
        done(&masters, node, "DEBUG POPULATE 2000 load 100");
        done(&masters, node, "CONFIG SET key-load-delay 200");
    }
    let masters = std::sync::Arc::new(masters);
    let reloads = [1, 2].map(|node| {
        let masters = masters.clone();
        // Its answer may take longer than the rig has patience.
        tokio::task::spawn_blocking(move || drop(masters.ask(node, "DEBUG RELOAD")))
    });
    let start = tokio::time::Instant::now();
    let error = loop {
        assert!(start.elapsed() < 2 * CALM, "none is loading");
        match lock.try_acquire("r").await {
            Err(error) if said(error.report().unwrap(), "LOADING") == [1, 2] => break error,
            _ => {}
        }
    };
    assert!(matches!(error, AcquireError::NoQuorum { .. }), "{error}");
    // The held key is in the dump, and comes back.
    let released = held.release().await;
    assert_eq!(released.outcome, Outcome::Unknown, "{}", released.report);
    assert_eq!(said(&released.report, "LOADING"), [1, 2], "{}", released.report);
    for reload in reloads {
        reload.await.unwrap();
    }
    eventually("all is paid", || lock.stats().masters.iter().all(|master| master.owed == 0)).await;
    assert!(lock.stats().masters.iter().all(|master| master.connected == 1));
    assert_eq!(keys(&masters, "held"), []);
    cleaned(&masters, "r").await;
}

async fn a_master_that_takes_no_more_clients_says_so() {
    let masters = own(1);
    let first = built(calm(&masters)).await;
    // The first lock has the one connection that there may be.
    done(&masters, 1, "CONFIG SET maxclients 1");
    let second = built(calm(&masters)).await;
    // What it says may be lost in the reset behind it, but not for ever: it is tried again.
    eventually("it is told", || match &second.stats().masters[0].state {
        LinkState::Down(why) => why.contains("max number of clients reached"),
        _ => false,
    })
    .await;
    let error = second.try_acquire("r").await.unwrap_err();
    assert!(matches!(error, AcquireError::NoQuorum { .. }), "{error}");
    drop(first);
    // And as soon as there is room, it is let in.
    assert_eq!(second.acquire("r").await.unwrap().release().await.outcome, Outcome::Released);
}
