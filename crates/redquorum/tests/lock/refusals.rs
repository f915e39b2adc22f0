//! Masters that reply with an error: each is one unknown vote with its reason. The library
//! classifies the errors of the installed server as its table has them.

use std::time::Duration;

use redquorum::{
    AcquireError, ExtendError, Outcome,
    report::{Cause, MasterOutcome, Report},
};
use redquorum_protocol::wire::{ErrorKind, KNOWN_VERSIONS, KnownError, known_errors};
use redquorum_rig::trials::Talk;
use redquorum_rig::{Masters, find_server};

use crate::support::*;

tests! {
    real:
        errors_are_worded_as_in_the_table,
        masters_that_refuse_writes_are_unknown_votes,
        health_writes_nothing,
        nodes_of_a_cluster_are_alive_and_not_usable,
        a_master_that_takes_no_more_clients_is_named_with_its_reason,
}

/// The states of a master in which it refuses writes: the name in the table of known errors, the
/// commands that cause and end the state, the code of the error, and the advice in the message.
const REFUSALS: [(&str, [&str; 2], &str, &str); 3] = [
    (
        "'read-only'",
        ["REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE"],
        "READONLY",
        "give the addresses of masters",
    ),
    (
        "'out of memory'",
        ["CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0"],
        "OOM",
        "raise their maxmemory",
    ),
    (
        "'no replicas'",
        ["CONFIG SET min-replicas-to-write 1", "CONFIG SET min-replicas-to-write 0"],
        "NOREPLICAS",
        "lower min-replicas-to-write",
    ),
];

fn answered_with(report: &Report, error: &str) -> Vec<usize> {
    let is_error = |reply: &Option<MasterOutcome>| match reply {
        Some(MasterOutcome::Unknown(Cause::Error(text))) => text.starts_with(error),
        _ => false,
    };
    report.masters().iter().filter(|m| is_error(&m.outcome)).map(|m| m.number).collect()
}

async fn masters_that_refuse_writes_are_unknown_votes() {
    for (_, [refuse, accept], code, advice) in REFUSALS {
        let masters = Real::start(5);
        let lock = built(masters.builder().ttl(60 * S)).await;
        let before = masters.held(&lock, "before").await;
        // Errors of a minority have no effect.
        masters.done_on([2, 4], refuse);
        let lease = lock.acquire("r").await.unwrap();
        lease.extend().await.unwrap();
        assert_eq!(lease.release().await.outcome, Outcome::Released);
        // With a majority of errors there is no quorum, at once, and each report has the reason.
        masters.done(5, refuse);
        let request = lock.acquire("r").wait(Duration::ZERO);
        let failed = Real::at_once(request).await.unwrap_err();
        assert!(matches!(failed, AcquireError::NoQuorum { .. }), "{failed}");
        let health = lock.health().await;
        assert_eq!((health.alive, health.usable, health.has_quorum()), (5, 2, false), "{health}");
        for report in [failed.report().unwrap(), &health.report] {
            assert_eq!(answered_with(report, code), [2, 4, 5], "{report}");
        }
        let build = masters.builder().require_quorum(true).build().await.unwrap_err();
        for text in [failed.to_string(), health.to_string(), build.to_string()] {
            let refuse = format!("masters answered but refuse writes ({code})");
            assert!(text.contains(&refuse) && text.contains(advice), "{text}");
            assert!(!text.contains("too few masters answered"), "{text}");
        }
        let deadline = before.deadline();
        match before.extend().await {
            Err(ExtendError::NoQuorum { report, .. }) => {
                assert_eq!(answered_with(&report, code), [2, 4, 5]);
            }
            // Masters out of memory still run scripts that only set a TTL, so the lease is
            // extended.
            Ok(extended) => assert!(code == "OOM" && extended > deadline),
            Err(other) => panic!("{other}"),
        }
        assert!(!before.is_lost() && before.deadline() >= deadline);
        // The link deletes the keys when the masters accept commands again.
        let _ = before.release().await;
        masters.done_on([2, 4, 5], accept);
        recovered(&lock).await;
        masters.cleaned().await;
        assert!(lock.health().await.has_quorum());
        assert_eq!(lock.acquire("r").await.unwrap().release().await.outcome, Outcome::Released);
    }
}

async fn health_writes_nothing() {
    let masters = Real::start(1);
    let lock = masters.lock().await;
    let changes = || {
        let info = masters.text(1, "INFO persistence");
        let mut lines = info.lines();
        lines.find(|line| line.starts_with("rdb_changes_since_last_save")).unwrap().to_owned()
    };
    let before = changes();
    assert_eq!(lock.health().await.usable, 1);
    assert_eq!((changes(), masters.keys([1])), (before.clone(), vec![]));
    // Control: the check sees a write.
    masters.put([1], "x");
    assert_ne!(changes(), before);
}

async fn nodes_of_a_cluster_are_alive_and_not_usable() {
    let masters = Real::of(Masters::builder().count(3).config("cluster-enabled", "yes"));
    let health = masters.lock().await.health().await;
    assert_eq!((health.alive, health.usable), (3, 0), "{health}");
    let text = health.to_string();
    assert!(text.contains("refuse writes (CLUSTERDOWN): give independent masters"), "{text}");
}

async fn a_master_that_takes_no_more_clients_is_named_with_its_reason() {
    let masters = Real::start(1);
    let first = masters.lock().await;
    // The first lock uses the only connection that the master allows.
    masters.done(1, "CONFIG SET maxclients 1");
    let second = masters.lock().await;
    // The reset behind the error may discard it, but the link retries until it reads the error.
    eventually("the reason is reported", || {
        why_down(&second, 1).is_some_and(|why| why.contains("max number of clients reached"))
    })
    .await;
    let error = second.try_acquire("r").await.unwrap_err();
    assert!(matches!(error, AcquireError::NoQuorum { .. }), "{error}");
    drop(first);
    // The second lock connects as soon as there is room.
    assert_eq!(second.acquire("r").await.unwrap().release().await.outcome, Outcome::Released);
}

async fn provoked(masters: &Real, locker: &mut Talk, known: &KnownError) -> String {
    if known.kind == ErrorKind::Busy {
        masters.done(1, "CONFIG SET lua-time-limit 1");
        Talk::connect(masters.port(1)).send("EVAL \"while true do end\" 0");
        let mut error = String::new();
        eventually("the script runs", || {
            error = locker.ask(known.command);
            error != "+none"
        })
        .await;
        masters.done(1, "SCRIPT KILL");
        eventually("the script has ended", || locker.ask(known.command) == "+none").await;
        return error;
    }
    let refusal = REFUSALS.iter().find(|(state, ..)| known.command.contains(state));
    let [refuse, accept] = refusal.map_or(["PING"; 2], |refusal| refusal.1);
    masters.done(1, refuse);
    let error = locker.ask(known.command);
    masters.done(1, accept);
    error
}

/// Replaces the names of scripts as in the table.
fn without_names(error: &str) -> String {
    let is_sha1 =
        |word: &str| word.len() == 40 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    let words = error.split_inclusive([' ', '_', ',', ')']).map(|word| {
        let name = word.trim_end_matches([',', ')']);
        if is_sha1(name) { word.replace(name, "<sha1>") } else { word.to_owned() }
    });
    words.collect()
}

async fn errors_are_worded_as_in_the_table() {
    let server = find_server().unwrap();
    let version = server.version().rsplit_once('.').unwrap().0.to_owned();
    let masters = Real::start(1);
    masters.done(1, "RPUSH list x");
    let rights = "resetkeys ~r ~list -@all +eval +evalsha +pttl +set +type";
    masters.done(1, &format!("ACL SETUSER locker on >pw {rights}"));
    let mut locker = Talk::connect(masters.port(1));
    assert_eq!(locker.ask("AUTH locker pw"), "+OK");
    for known in &known_errors().collect::<Vec<_>>() {
        let line = provoked(&masters, &mut locker, known).await;
        let error = line.strip_prefix('-').unwrap_or_else(|| panic!("{}: {line}", known.command));
        assert_eq!(ErrorKind::of(error.as_bytes()), known.kind, "{}: {error}", known.command);
        let mut texts = known.texts.iter();
        let text = texts.find(|(versions, _)| versions.split(' ').any(|known| known == version));
        // For a version that is not in the table, only the kinds are known.
        assert_eq!(text.is_some(), KNOWN_VERSIONS.contains(&&*version), "{version}");
        if let Some((_, text)) = text {
            assert_eq!(without_names(error), text.trim_end(), "{}", known.command);
        }
    }
}
