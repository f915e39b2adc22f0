//! Masters that reply with an error: each is one unknown vote with its reason.

use std::time::Duration;

use redquorum::{
    AcquireError, ExtendError, Lease, Outcome, Redlock,
    report::{Cause, MasterOutcome, Report},
    stats::LinkState,
};
use redquorum_rig::{Masters, find_server, trials::Case};

use crate::support::*;

pub(crate) fn cases() -> Vec<Case> {
    cases![
        health_tells_masters_that_refuse_writes_from_those_that_are_down,
        health_writes_nothing,
        nodes_of_a_cluster_are_alive_and_not_usable,
        masters_that_are_read_only_are_unknown_votes,
        masters_without_their_replicas_are_unknown_votes,
        masters_out_of_memory_are_unknown_votes,
        masters_that_are_loading_are_unknown_votes,
        a_master_that_takes_no_more_clients_says_so,
    ]
}

/// The masters that replied with an error of this kind.
fn said(report: &Report, error: &str) -> Vec<usize> {
    let is_error = |answer: &Option<MasterOutcome>| match answer {
        Some(MasterOutcome::Unknown(Cause::Error(text))) => text.starts_with(error),
        _ => false,
    };
    report.masters().iter().filter(|m| is_error(&m.outcome)).map(|m| m.number).collect()
}

/// Checks what must hold for every error. `harm` makes a master reply with it, `heal` ends that.
async fn are_unknown_votes(masters: &Masters, lock: &Redlock, error: &str, harm: &str, heal: &str) {
    let before: Lease = lock.acquire("before").await.unwrap();
    eventually("all have it", || holders(masters, "before").len() == 5).await;
    // Errors of a minority have no effect.
    [2, 4].into_iter().for_each(|node| done(masters, node, harm));
    let lease = lock.acquire("r").await.unwrap();
    lease.extend().await.unwrap();
    assert_eq!(lease.release().await.outcome, Outcome::Released);
    // With a majority of errors there is no quorum, at once, and the report has the reason.
    done(masters, 5, harm);
    let (took, result) = timed(lock.acquire("r").wait(Duration::ZERO)).await;
    let failed = result.unwrap_err();
    assert!(matches!(failed, AcquireError::NoQuorum { .. }), "{failed}");
    assert_eq!(said(failed.report().unwrap(), error), [2, 4, 5], "{failed}");
    assert!(failed.to_string().contains(error) && took < AT_ONCE, "{failed} after {took:?}");
    let deadline = before.deadline();
    match before.extend().await {
        Err(ExtendError::NoQuorum(report)) => assert_eq!(said(&report, error), [2, 4, 5]),
        // Masters out of memory still run scripts that only set a TTL, so the lease is extended.
        Ok(extended) => assert!(error == "OOM" && extended > deadline),
        Err(other) => panic!("{other}"),
    }
    assert!(before.is_lost().is_none() && before.deadline() >= deadline);
    // The link deletes the keys when the masters accept commands again.
    before.release().await;
    [2, 4, 5].into_iter().for_each(|node| done(masters, node, heal));
    eventually("all is paid", || lock.stats().masters.iter().all(|master| master.owed == 0)).await;
    assert_eq!(keys(masters, "*"), []);
    cleaned(masters, "r").await;
    assert_eq!(lock.acquire("r").await.unwrap().release().await.outcome, Outcome::Released);
}

/// For each refusal: the commands that cause it and end it, its error code, and the advice in the
/// message.
const REFUSALS: [(&str, &str, &str, &str); 3] = [
    ("REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE", "READONLY", "give the addresses of masters"),
    ("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0", "OOM", "raise their maxmemory"),
    (
        "CONFIG SET min-replicas-to-write 1",
        "CONFIG SET min-replicas-to-write 0",
        "NOREPLICAS",
        "lower min-replicas-to-write",
    ),
];

async fn health_tells_masters_that_refuse_writes_from_those_that_are_down() {
    let masters = own(3);
    let lock = built(calm(&masters)).await;
    for (harm, heal, code, fix) in REFUSALS {
        [1, 2].into_iter().for_each(|node| done(&masters, node, harm));
        let health = lock.health().await;
        assert_eq!((health.alive, health.usable, health.has_quorum()), (3, 1, false), "{health}");
        assert_eq!(said(&health.report, code), [1, 2], "{health}");
        let built = calm(&masters).require_quorum(true).build().await.unwrap_err().to_string();
        let acquired = lock.try_acquire("r").await.unwrap_err().to_string();
        for text in [health.to_string(), built, acquired] {
            assert!(
                text.contains(&format!("masters answered but refuse writes ({code})")),
                "{text}"
            );
            assert!(text.contains(fix) && !text.contains("too few masters answered"), "{text}");
        }
        [1, 2].into_iter().for_each(|node| done(&masters, node, heal));
        assert!(lock.health().await.has_quorum());
    }
    // A master that is down is not counted as alive.
    masters.kill(1).unwrap();
    let down = |state: &LinkState| matches!(state, LinkState::Down(_));
    eventually("it is noticed", || down(&lock.stats().masters[0].state)).await;
    let health = lock.health().await;
    assert_eq!((health.alive, health.usable, health.has_quorum()), (2, 2, true), "{health}");
}

async fn health_writes_nothing() {
    let masters = own(1);
    let lock = built(calm(&masters)).await;
    let changes = || {
        let info = masters.ask(1, "INFO persistence").unwrap();
        let info = info.text().unwrap().into_owned();
        info.lines()
            .find(|line| line.starts_with("rdb_changes_since_last_save"))
            .unwrap()
            .to_owned()
    };
    let before = changes();
    assert_eq!(lock.health().await.usable, 1);
    assert_eq!((changes(), keys(&masters, "*")), (before.clone(), vec![]));
    // Control: the check sees a write.
    put(&masters, 1, "x", 60_000);
    assert_ne!(changes(), before);
}

async fn nodes_of_a_cluster_are_alive_and_not_usable() {
    let masters = Masters::builder().count(3).config("cluster-enabled", "yes").start().unwrap();
    let lock = built(calm(&masters)).await;
    let health = lock.health().await;
    assert_eq!((health.alive, health.usable), (3, 0), "{health}");
    let text = health.to_string();
    assert!(text.contains("refuse writes (CLUSTERDOWN): give independent masters"), "{text}");
}

async fn masters_that_are_read_only_are_unknown_votes() {
    let masters = own(5);
    let lock = built(calm(&masters).ttl(60 * CALM)).await;
    // A replica of an address without a server.
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
    // A load pauses at each key, and the master handles events every 2 MiB.
    let builder = Masters::builder().count(3).config("rdbcompression", "no");
    // Before Redis 7.0 `DEBUG` needs no permission.
    let is_old = find_server().unwrap().version().starts_with("6.");
    let builder = if is_old { builder } else { builder.config("enable-debug-command", "yes") };
    let masters = builder.start().unwrap();
    let lock = built(calm(&masters)).await;
    let held = lock.acquire("held").await.unwrap();
    for node in [1, 2] {
        done(&masters, node, "DEBUG POPULATE 200 load 65536");
        done(&masters, node, "CONFIG SET key-load-delay 5000");
    }
    let masters = std::sync::Arc::new(masters);
    let reloads = [1, 2].map(|node| {
        let masters = masters.clone();
        // The reply may take longer than the rig waits.
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
    // The held key is in the dump, so it exists again after the load.
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
    // The first lock uses the only connection that the master allows.
    done(&masters, 1, "CONFIG SET maxclients 1");
    let second = built(calm(&masters)).await;
    // The reset behind the error may discard it, but the link retries until it reads the error.
    eventually("it is told", || match &second.stats().masters[0].state {
        LinkState::Down(why) => why.contains("max number of clients reached"),
        _ => false,
    })
    .await;
    let error = second.try_acquire("r").await.unwrap_err();
    assert!(matches!(error, AcquireError::NoQuorum { .. }), "{error}");
    drop(first);
    // The second lock connects as soon as there is room.
    assert_eq!(second.acquire("r").await.unwrap().release().await.outcome, Outcome::Released);
}
