//! Masters that die, come back, hang and forget, and how the lock reports it.

use std::time::Duration;

use redquorum::memory::Masters;
use redquorum::{AcquireError, BuildError, Outcome, stats::LinkState};
use tokio::time::{Instant, sleep};

use crate::support::{MS, NODE_TIMEOUT, S, TTL, bed, holding, keys, settle, take};

#[tokio::test(start_paused = true)]
async fn a_lock_is_built_while_its_masters_are_down_and_works_once_they_are_up() {
    let masters = Masters::new(5);
    (1..=5).for_each(|number| masters.kill(number));
    let start = Instant::now();
    let lock = masters.builder().build().await.unwrap();
    assert_eq!(start.elapsed(), Duration::ZERO, "refused at once");
    let error = lock.try_acquire("r").await.unwrap_err();
    assert!(error.to_string().contains("memory-5): not connected: connection refused"), "{error}");
    sleep(60 * S).await;
    (1..=5).for_each(|number| masters.restart(number));
    // The longest pause between two attempts to connect.
    sleep(S).await;
    drop(take(&lock, "r").await);
}

#[tokio::test(start_paused = true)]
async fn a_quorum_can_be_required() {
    for (dead, silent, fits) in [
        (0, 0, true),
        (2, 0, true),
        (3, 0, false),
        (1, 1, true),
        (1, 2, false),
        (5, 0, false),
        (0, 5, false),
    ] {
        let masters = Masters::new(5);
        (1..=dead).for_each(|number| masters.kill(number));
        (dead + 1..=dead + silent).for_each(|number| masters.stop(number));
        let start = Instant::now();
        let built = masters.builder().require_quorum(true).build().await;
        let bound = if silent > 0 { S + NODE_TIMEOUT + 2 * MS } else { MS };
        assert!(start.elapsed() <= bound, "{dead} {silent}: {:?}", start.elapsed());
        match built {
            Ok(lock) => assert!(fits && lock.health().await.has_quorum()),
            Err(BuildError::NoQuorum(report)) => {
                assert!(!fits, "{report}");
                assert!(report.to_string().contains("memory-1): not connected"), "{report}");
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn acquiring_is_as_fast_with_a_silent_or_dead_minority() {
    let (masters, lock) = bed(5).await;
    masters.stop(1);
    masters.kill(2);
    let start = Instant::now();
    for _ in 0..100 {
        let lease = take(&lock, "r").await;
        assert_eq!(lease.release().await.outcome, Outcome::Released);
    }
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_dead_or_silent_majority_is_an_error_and_no_key_is_left_when_it_is_back() {
    for dead in [true, false] {
        let (masters, lock) = bed(5).await;
        (1..=3).for_each(|number| if dead { masters.kill(number) } else { masters.stop(number) });
        settle().await;
        let start = Instant::now();
        let error = lock.try_acquire("r").await.unwrap_err();
        assert!(matches!(error, AcquireError::NoQuorum { .. }), "{error}");
        assert!(start.elapsed() <= NODE_TIMEOUT + MS);
        settle().await;
        assert_eq!(keys(&masters, 5), 0);
        (1..=3)
            .for_each(|number| if dead { masters.restart(number) } else { masters.resume(number) });
        sleep(S).await;
        // The master has executed the late SET by now, and its clean-up behind it.
        assert_eq!(keys(&masters, 5), 0);
        drop(take(&lock, "r").await);
    }
}

#[tokio::test(start_paused = true)]
async fn a_set_in_the_buffer_of_a_dead_connection_leaves_no_zombie() {
    let (masters, lock) = bed(5).await;
    masters.stop(5);
    let lease = take(&lock, "r").await;
    // Long enough for the link to give up and to try a second connection.
    sleep(5 * S).await;
    assert_eq!(lease.release().await.outcome, Outcome::Released);
    masters.resume(5);
    sleep(S).await;
    assert_eq!(holding(&masters, 5, "r"), Vec::<usize>::new());
    assert_eq!(lock.stats().masters[4].owed, 0);
}

#[tokio::test(start_paused = true)]
async fn a_minority_of_restarts_without_memory_breaks_no_lease() {
    let (masters, lock) = bed(5).await;
    let lease = take(&lock, "r").await;
    (1..=2).for_each(|number| masters.restart(number));
    sleep(S).await;
    assert!(lock.try_acquire("r").await.unwrap().is_none());
    lease.extend().await.unwrap();
    assert_eq!(lease.release().await.outcome, Outcome::Released);
    sleep(S).await;
    assert_eq!(keys(&masters, 5), 0);
}

#[tokio::test(start_paused = true)]
async fn a_master_that_was_stopped_and_killed_runs_after_its_restart() {
    let (masters, lock) = bed(1).await;
    masters.stop(1);
    masters.restart(1);
    sleep(2 * S).await;
    drop(take(&lock, "r").await);
}

#[tokio::test(start_paused = true)]
async fn health_tells_who_is_alive_in_time() {
    let (masters, lock) = bed(5).await;
    let health = lock.health().await;
    assert_eq!((health.alive, health.quorum, health.has_quorum()), (5, 3, true));
    assert!(
        health.to_string().starts_with("5 of 5 masters usable, 5 alive, 3 needed: "),
        "{health}"
    );
    masters.kill(1);
    masters.stop(2);
    masters.stop(3);
    let start = Instant::now();
    let health = lock.health().await;
    assert_eq!((health.alive, health.has_quorum()), (2, false));
    assert!(start.elapsed() <= NODE_TIMEOUT + MS);
    // The link is stalled by now, so the lock sends it no probe.
    sleep(S).await;
    let start = Instant::now();
    assert_eq!(lock.health().await.alive, 2);
    assert_eq!(start.elapsed(), Duration::ZERO);
    masters.restart(1);
    (2..=3).for_each(|number| masters.resume(number));
    sleep(S).await;
    assert_eq!(lock.health().await.alive, 5);
}

#[tokio::test(start_paused = true)]
async fn stats_tell_what_was_seen_of_each_master() {
    let (masters, lock) = bed(3).await;
    masters.set(1, "taken", "somebody", None);
    drop(take(&lock, "taken").await);
    masters.set(2, "taken", "somebody", None);
    assert!(lock.clone().try_acquire("taken").await.unwrap().is_none());
    settle().await;
    masters.kill(3);
    settle().await;
    drop(take(&lock, "r").await);
    settle().await;
    let stats = lock.stats();
    assert_eq!((stats.acquired, stats.taken, stats.released, stats.lost), (2, 1, 0, 0));
    let seen: Vec<_> = stats.masters.iter().map(|m| (m.granted, m.refused, m.connected)).collect();
    assert_eq!((seen[0].0, seen[1].0, seen[2].0), (1, 2, 2), "{seen:?}");
    assert!(seen[0].1 >= 2 && seen[2].1 == 0 && seen.iter().all(|seen| seen.2 == 1), "{seen:?}");
    assert_eq!((&*stats.masters[0].name, &stats.masters[0].state), ("memory-1", &LinkState::Up));
    assert!(matches!(&stats.masters[2].state, LinkState::Down(why) if !why.is_empty()));
    assert!(stats.masters[2].unknown >= 1 && stats.masters[0].latency.count >= 4);
    assert_eq!(stats.masters[0].latency.max, Duration::ZERO, "time stood still");
    masters.restart(3);
    sleep(S).await;
    assert_eq!(lock.stats().masters[2].connected, 2);
}

#[tokio::test(start_paused = true)]
async fn a_lost_lease_is_counted_once() {
    let (_masters, lock) = bed(3).await;
    let lease = take(&lock, "r").await;
    sleep(2 * TTL).await;
    assert!(lease.is_lost().is_some() && lease.extend().await.is_err());
    lease.lost().await;
    lease.release().await;
    let stats = lock.stats();
    assert_eq!((stats.lost, stats.released, stats.acquired), (1, 1, 1));
}

#[test]
fn no_source_of_the_lock_reads_the_wall_clock_but_for_the_hint_of_the_fencing_counters() {
    fn sources(dir: &std::path::Path, found: &mut Vec<std::path::PathBuf>) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { sources(&path, found) } else { found.push(path) }
        }
    }
    let mut found = Vec::new();
    let here = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    for dir in ["src", "../protocol/src"] {
        sources(&here.join(dir), &mut found);
    }
    let reads = |path: &std::path::Path| {
        let text = std::fs::read_to_string(path).unwrap();
        let text = match text.split_once(concat!("fn wall_", "micros() -> u64 {")) {
            Some((before, after)) => format!("{before}{}", after.split_once("\n}\n").unwrap().1),
            None => text,
        };
        ["SystemTime", "UNIX_EPOCH", "ClockId::Realtime"].iter().any(|word| text.contains(word))
    };
    assert!(found.len() > 20, "the sources are elsewhere");
    assert!(reads(
        std::path::Path::new(file!())
            .file_name()
            .map(|name| here.join("tests/memory").join(name))
            .unwrap()
            .as_path()
    ));
    let readers: Vec<_> = found.iter().filter(|path| reads(path)).collect();
    assert!(readers.is_empty(), "{readers:?}");
}
