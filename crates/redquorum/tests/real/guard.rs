//! A lock with a restart guard, and real masters that forget.

use std::time::Duration;

use redquorum::{
    AcquireError, Outcome, Redlock,
    report::{Cause, Distrust, MasterOutcome},
};
use redquorum_protocol::wire::ErrorKind;
use redquorum_rig::{Masters, Persistence, trials::Case};
use tokio::time::{Instant, sleep};

use crate::raw::Monitor;
use crate::support::*;

pub(crate) fn cases() -> Vec<Case> {
    cases![
        masters_that_restart_empty_grant_again_after_a_quarantine,
        a_flush_is_noticed_on_the_open_connection_and_nothing_is_set,
        new_masters_are_refused_and_blessed_ones_are_not,
        another_guard_is_told,
        lists_that_share_a_master_are_told_and_nobody_is_let_in_beside_the_holder,
        one_list_spelled_in_two_ways_is_one_fleet_by_name,
        a_master_that_syncs_every_write_is_trusted_over_its_restart,
        a_marker_of_any_length_takes_no_connection_down,
        a_kill_under_everysec_is_distrusted,
        permissions_that_are_missing_are_made_do_without_or_told,
        a_marker_that_is_no_string_is_told,
        scripts_that_were_flushed_are_loaded_again,
        an_uncontended_acquire_is_one_command_per_master,
    ]
}

const TTL: Duration = Duration::from_millis(600);
/// `max_ttl` + drift + 2 s.
const QUARANTINE: Duration = Duration::from_millis(600 + 8 + 2_000);

async fn guarded(masters: &Masters) -> Redlock {
    built(brisk(masters).ttl(TTL).restart_guard(TTL)).await
}

async fn blessed(masters: &Masters) -> Redlock {
    let lock = guarded(masters).await;
    let report = lock.initialize_masters().await;
    let all =
        report.masters().iter().all(|master| master.outcome == Some(MasterOutcome::Initialized));
    assert!(all, "{report}");
    lock
}

async fn refused(lock: &Redlock) -> String {
    match lock.acquire("r").wait(Duration::ZERO).await {
        Err(error @ AcquireError::NoQuorum { .. }) => error.to_string(),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("granted"),
    }
}

fn marker(masters: &Masters, node: usize) -> Option<Vec<u8>> {
    value(masters, node, "redquorum:boot")
}

async fn works(lock: &Redlock) {
    let lease = lock.acquire("r").wait(Duration::ZERO).await.unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(lease.release().await.outcome, Outcome::Released);
}

async fn masters_that_restart_empty_grant_again_after_a_quarantine() {
    let masters = own(3);
    let lock = blessed(&masters).await;
    works(&lock).await;
    let start = Instant::now();
    (1..=2).for_each(|node| masters.restart(node).unwrap());
    eventually("it is connected again", || {
        lock.stats().masters[..2].iter().all(|m| m.connected == 2)
    })
    .await;
    let text = refused(&lock).await;
    assert!(text.contains("distrusted for another"), "{text}");
    let lease = lock.acquire("r").wait(3 * QUARANTINE).await.unwrap();
    assert!(start.elapsed() >= QUARANTINE, "{:?}", start.elapsed());
    lease.release().await;
    let marked = || (1..=3).all(|node| marker(&masters, node).is_some());
    eventually("all are marked", marked).await;
}

async fn a_flush_is_noticed_on_the_open_connection_and_nothing_is_set() {
    let masters = own(3);
    let lock = blessed(&masters).await;
    let lease = lock.acquire("held").await.unwrap();
    for node in 1..=2 {
        done(&masters, node, "FLUSHALL");
    }
    let text = refused(&lock).await;
    assert!(text.contains("its marker has changed"), "{text}");
    assert_eq!(keys_on(&masters, 1..=2, "r"), []);
    cleaned(&masters, "r").await;
    assert!(lock.stats().masters.iter().all(|master| master.connected == 1));
    drop(lease);
}

async fn new_masters_are_refused_and_blessed_ones_are_not() {
    let masters = own(5);
    let (lock, other) = (guarded(&masters).await, guarded(&masters).await);
    let text = refused(&lock).await;
    assert!(text.contains("it has no marker") && text.contains("initialize"), "{text}");
    assert_eq!(keys(&masters, "r"), []);
    lock.initialize_masters().await;
    works(&lock).await;
    let trusts = || other.stats().masters.iter().all(|master| master.distrusted.is_none());
    eventually("the other one sees it", trusts).await;
    works(&other).await;
    let again = lock.initialize_masters().await;
    assert!(
        again.masters().iter().all(|master| master.outcome != Some(MasterOutcome::Initialized)),
        "{again}"
    );
}

async fn another_guard_is_told() {
    let masters = own(3);
    let _lock = blessed(&masters).await;
    let other = built(brisk(&masters).ttl(TTL).restart_guard(2 * TTL)).await;
    let text = refused(&other).await;
    assert!(text.contains("a guard of 600ms, and this lock has 1.2s"), "{text}");
}

/// A lock over these masters, with this name for their host.
fn over(masters: &Masters, host: &str, nodes: &[usize]) -> redquorum::Builder {
    let url = |node: &usize| format!("redis://{host}:{}", masters.port(*node));
    let builder = Redlock::builder().masters(nodes.iter().map(url)).node_timeout(100 * MS);
    builder.ttl(TTL).restart_guard(TTL)
}

async fn lists_that_share_a_master_are_told_and_nobody_is_let_in_beside_the_holder() {
    let masters = own(5);
    let first = built(over(&masters, "127.0.0.1", &[1, 2, 3])).await;
    first.initialize_masters().await;
    let lease = first.acquire("r").await.unwrap();
    let second = built(over(&masters, "127.0.0.1", &[3, 4, 5])).await;
    // Two masters belong to this list alone, and they are a quorum of it.
    let report = second.initialize_masters().await;
    let blessed =
        report.masters().iter().filter(|m| m.outcome == Some(MasterOutcome::Initialized)).count();
    assert_eq!(blessed, 2, "{report}");
    let text = refused(&second).await;
    for part in ["other locks use some of these", "its marker is of locks over other masters"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(lease.is_lost().is_none());
    // The order of the list does not matter, and the first lock is not affected.
    let again = built(over(&masters, "127.0.0.1", &[3, 1, 2])).await;
    lease.release().await;
    works(&again).await;
    works(&first).await;
    // Control: without a guard both clients win.
    let bare = |nodes: &'static [usize]| {
        let url = |node: &usize| format!("redis://127.0.0.1:{}", masters.port(*node));
        built(Redlock::builder().masters(nodes.iter().map(url)).node_timeout(100 * MS))
    };
    let one = bare(&[1, 2, 3]).await.try_acquire("s").await.unwrap().unwrap();
    let two = bare(&[3, 4, 5]).await.try_acquire("s").await.unwrap();
    assert!(two.is_some() && one.is_lost().is_none());
}

async fn one_list_spelled_in_two_ways_is_one_fleet_by_name() {
    let masters = own(3);
    let nodes = [1, 2, 3];
    built(over(&masters, "127.0.0.1", &nodes).masters_id("jobs")).await.initialize_masters().await;
    works(&built(over(&masters, "localhost", &nodes).masters_id("jobs")).await).await;
    let text = refused(&built(over(&masters, "localhost", &nodes)).await).await;
    assert!(text.contains("one `masters_id`"), "{text}");
    let marker = marker(&masters, 2).unwrap();
    let marker = String::from_utf8(marker).unwrap();
    assert!(marker.contains(" fleet=") && !marker.contains("jobs"), "{marker}");
}

fn with_file(persistence: Persistence) -> Masters {
    Masters::builder().count(3).persistence(persistence).start().unwrap()
}

async fn a_master_that_syncs_every_write_is_trusted_over_its_restart() {
    let masters = with_file(Persistence::AofAlways);
    let lock = blessed(&masters).await;
    assert!(marker(&masters, 1).unwrap().ends_with(b" always"));
    all(&masters).for_each(|node| masters.restart(node).unwrap());
    eventually("it is connected again", || lock.stats().masters.iter().all(|m| m.connected == 2))
        .await;
    works(&lock).await;
    // Control: without `always` in the marker, a restarted master is not trusted.
    let marker = marker(&masters, 1).unwrap();
    let plain = String::from_utf8(marker).unwrap().replace(" always", "");
    for node in all(&masters) {
        masters.command(node, &[b"SET", b"redquorum:boot", plain.as_bytes()]).unwrap();
    }
    let text = refused(&guarded(&masters).await).await;
    assert!(text.contains("it was restarted"), "{text}");
}

async fn a_marker_of_any_length_takes_no_connection_down() {
    let masters = own(3);
    let _lock = blessed(&masters).await;
    let long = vec![b'x'; 100_000];
    masters.command(1, &[b"SET", b"redquorum:boot", &long]).unwrap();
    let health = guarded(&masters).await.health().await;
    assert_eq!((health.alive, health.usable), (3, 2), "{health}");
    assert!(health.to_string().contains("`redquorum:boot` is no marker"), "{health}");
}

async fn a_kill_under_everysec_is_distrusted() {
    let masters = with_file(Persistence::AofEverysec);
    let _lock = blessed(&masters).await;
    for node in all(&masters) {
        // A server may delay writes to the file while it syncs the file.
        eventually("the marker is in the file", || {
            let info = masters.ask(node, "INFO persistence").unwrap();
            let is_written = info.text().unwrap().lines().any(|line| line == "aof_buffer_length:0");
            is_written && marker(&masters, node).is_some()
        })
        .await;
        masters.restart(node).unwrap();
        assert!(marker(&masters, node).is_some(), "the marker is there again");
    }
    let text = refused(&guarded(&masters).await).await;
    assert!(text.contains("it was restarted"), "{text}");
}

/// The least permissions of a lock with a guard.
const GUARD_ACL: &str = "resetkeys ~r ~redquorum:* -@all +set +get +del +pttl +pexpire +evalsha \
                         +script|load +info +time";

async fn with_user(acl: &str) -> (Masters, Redlock) {
    let masters = own(3);
    all(&masters)
        .for_each(|node| done(&masters, node, &format!("ACL SETUSER locker on >pw {acl}")));
    let url = |node| format!("redis://locker:pw@127.0.0.1:{}", masters.port(node));
    let builder = Redlock::builder().masters(all(&masters).map(url)).node_timeout(100 * MS);
    let lock = built(builder.ttl(TTL).restart_guard(TTL)).await;
    (masters, lock)
}

async fn permissions_that_are_missing_are_made_do_without_or_told() {
    // Without CONFIG the guard cannot find out which masters sync every write. All else works.
    let (_masters, lock) = with_user(GUARD_ACL).await;
    lock.acquire("r").wait(3 * QUARANTINE).await.unwrap().release().await;
    let (_masters, lock) = with_user(&GUARD_ACL.replace(" +info", "")).await;
    let text = refused(&lock).await;
    assert!(text.contains("INFO is forbidden"), "{text}");
    for needed in [" ~redquorum:*", " +time"] {
        let (_masters, lock) = with_user(&GUARD_ACL.replace(needed, "")).await;
        let cannot = || {
            let why = lock.stats().masters[0].distrusted.clone();
            matches!(why, Some(Cause::Distrusted { why: Distrust::Unwatched(_), .. }))
        };
        eventually("it is told that it cannot be watched", cannot).await;
        let text = refused(&lock).await;
        let why = text.split_once("cannot be watched: ").expect("it is told").1;
        assert_eq!(ErrorKind::of(why.as_bytes()), ErrorKind::Forbidden, "{needed}: {text}");
    }
}

async fn a_marker_that_is_no_string_is_told() {
    let masters = own(1);
    done(&masters, 1, "LPUSH redquorum:boot x");
    let lock = guarded(&masters).await;
    let cannot = || {
        matches!(
            lock.stats().masters[0].distrusted,
            Some(Cause::Distrusted { why: Distrust::Unwatched(_), .. })
        )
    };
    eventually("it is looked at", cannot).await;
    let text = refused(&lock).await;
    assert!(text.contains("WRONGTYPE"), "{text}");
}

async fn scripts_that_were_flushed_are_loaded_again() {
    let masters = own(3);
    let lock = blessed(&masters).await;
    all(&masters).for_each(|node| done(&masters, node, "SCRIPT FLUSH"));
    let text = refused(&lock).await;
    assert!(text.contains("scripts were flushed"), "{text}");
    sleep(100 * MS).await;
    works(&lock).await;
}

async fn an_uncontended_acquire_is_one_command_per_master() {
    let masters = own(5);
    let lock = blessed(&masters).await;
    works(&lock).await;
    let mut monitors: Vec<_> = all(&masters).map(|node| Monitor::start(&masters, node)).collect();
    for fenced in [false, true] {
        let lease = if fenced {
            let lease = lock.acquire("r").fenced().await.unwrap();
            lease.release().await
        } else {
            lock.acquire("r").await.unwrap().release().await
        };
        assert_eq!(lease.outcome, Outcome::Released);
        sleep(50 * MS).await;
        for monitor in &mut monitors {
            // One command grants and one deletes. The monitor marks commands of scripts with `lua`.
            let seen = monitor.seen("\"r\"");
            let sent = seen.iter().filter(|line| !line.contains(" lua]")).count();
            assert_eq!(sent, 2, "{seen:#?}");
        }
    }
}
