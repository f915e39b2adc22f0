//! Masters whose clocks step ahead, under a lock with a clock guard. And the lock itself reads no
//! wall clock.

use std::time::Duration;

use redquorum::memory::Masters;
use redquorum::{
    Builder, Redlock,
    report::{Cause, Distrust},
};
use tokio::time::sleep;

use crate::support::{MS, S, TTL, settle, take};

const BOUND: Duration = Duration::from_millis(500);
/// `max_ttl` + drift.
const WINDOW: Duration = Duration::from_millis(10_000 + 102);

fn watching(masters: &Masters) -> Builder {
    masters.builder().restart_guard(TTL).clock_guard(BOUND)
}

async fn built(builder: Builder) -> Redlock {
    let lock = builder.build().await.unwrap();
    // Waits for the replies to the first looks.
    settle().await;
    lock
}

/// Masters with boot markers, and two locks that have watched them for long enough.
async fn bed() -> (Masters, Redlock, Redlock) {
    let masters = Masters::new(3);
    let holder = built(watching(&masters)).await;
    holder.initialize_masters().await;
    let rival = built(watching(&masters)).await;
    sleep(3 * WINDOW).await;
    (masters, holder, rival)
}

fn distrust(lock: &Redlock, number: usize) -> Option<Distrust> {
    match lock.stats().masters[number - 1].distrusted.clone() {
        Some(Cause::Distrusted { why, .. }) => Some(why),
        Some(other) => panic!("{other}"),
        None => None,
    }
}

/// A lease that masters 1 and 2 have granted, and master 3 has not. Master 3 is up again.
async fn bare(masters: &Masters, lock: &Redlock) -> redquorum::Lease {
    masters.kill(3);
    let lease = take(lock, "r").await;
    masters.revive(3);
    sleep(2 * S).await;
    lease
}

#[tokio::test(start_paused = true)]
async fn a_rival_that_watches_does_not_count_the_grant_of_a_master_that_stepped() {
    let (masters, holder, rival) = bed().await;
    let lease = bare(&masters, &holder).await;
    masters.step_clock(1, TTL);
    assert!(masters.value(1, "r").is_none(), "it dropped the key");
    assert!(rival.try_acquire("r").await.unwrap().is_none());
    let why = distrust(&rival, 1);
    assert!(
        matches!(why, Some(Distrust::ClockStepped { by }) if by > TTL - MS && by <= TTL),
        "{why:?}"
    );
    assert!(!lease.is_lost());
    // The key of the attempt is gone, and a distrusted master gets no new one.
    settle().await;
    assert!(masters.value(1, "r").is_none());
    assert!(rival.try_acquire("r").await.unwrap().is_none());
    masters.kill(2);
    let error = rival.try_acquire("s").await.unwrap_err();
    let text = error.to_string();
    for part in ["distrusted for another 10.1s", "its clock stepped ahead by 10.0s"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    masters.revive(2);
    drop(lease);
    sleep(WINDOW).await;
    assert_eq!(distrust(&rival, 1), None);
    let _ = take(&rival, "r").await.release().await;
    let of = |number: usize| rival.stats().masters[number - 1].clone();
    assert!(of(1).granted >= 1 && of(1).unknown >= 2, "{:?}", of(1));
    assert!(of(2).refused >= 2 && of(2).granted >= 1, "{:?}", of(2));
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
    assert!(reads(&here.join("tests/memory/clock.rs")), "this test names the wall clock");
    let readers: Vec<_> = found.iter().filter(|path| reads(path)).collect();
    assert!(readers.is_empty(), "{readers:?}");
}
