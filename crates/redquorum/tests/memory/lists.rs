//! Clients with different lists of masters, or different guards, on the same masters: who marks a
//! master that has no marker.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redquorum::connect::{Connecting, Node};
use redquorum::memory::Masters;
use redquorum::report::MasterOutcome;
use redquorum::{Builder, Redlock};
use redquorum_protocol::splitmix64;
use tokio::time::sleep;

use crate::support::S;

const BOOT: &str = "redquorum:boot";
/// The longest TTL of the guard.
const MAX_TTL: Duration = Duration::from_secs(4);
/// A quarantine, and the time that looks and reconnects may take.
const QUARANTINE: Duration = Duration::from_secs(8);

fn guarded(builder: Builder) -> Builder {
    builder.ttl(S).restart_guard(MAX_TTL).wait(S).tokio_clock_for_tests()
}

/// A guarded lock over the masters with these numbers.
async fn lock(masters: &Masters, list: impl IntoIterator<Item = usize>) -> Redlock {
    let add = |builder: Builder, number| builder.master(masters.node(number));
    guarded(list.into_iter().fold(Redlock::builder(), add)).build().await.unwrap()
}

/// Five masters that a lock over all of them has marked, and this lock.
async fn marked() -> (Masters, Redlock) {
    let masters = Masters::new(5);
    let lock = lock(&masters, 1..=5).await;
    let report = lock.initialize_masters().await;
    assert!(
        report.masters().iter().all(|of| of.outcome == Some(MasterOutcome::Initialized)),
        "{report}"
    );
    (masters, lock)
}

fn marker(masters: &Masters, number: usize) -> Option<String> {
    masters.value(number, BOOT).map(|value| String::from_utf8(value).unwrap())
}

/// The set of masters, and the guard, that a marker names: all but the process.
fn owner(marker: &str) -> String {
    marker.split_once(' ').unwrap().1.to_owned()
}

async fn grants(lock: &Redlock) -> bool {
    matches!(lock.try_acquire("r").await, Ok(Some(_)))
}

/// A master that some clients cannot reach while the switch is on.
struct Cut<N>(N, Arc<AtomicBool>);

impl<N: Node> Node for Cut<N> {
    fn name(&self) -> String {
        self.0.name()
    }

    fn connect(&self) -> Connecting<'_> {
        Box::pin(async {
            if self.1.load(Ordering::Relaxed) {
                return Err(io::ErrorKind::HostUnreachable.into());
            }
            self.0.connect().await
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_with_a_short_list_does_not_mark_a_master_that_lost_its_data() {
    let (masters, first) = marked().await;
    let wrong = lock(&masters, 1..=4).await;
    assert!(grants(&first).await && !grants(&wrong).await);
    let own = owner(&marker(&masters, 3).unwrap());
    masters.forget(3);
    // The wrong client watches alone: the correct one is gone, and the next one starts later.
    drop(first);
    sleep(3 * QUARANTINE).await;
    assert_eq!(marker(&masters, 3), None);
    let report = wrong.initialize_masters().await.to_string();
    assert!(report.contains("master 1 has the marker of other locks"), "{report}");
    assert_eq!(marker(&masters, 3), None);
    let right = lock(&masters, 1..=5).await;
    assert!(grants(&right).await, "beside the wrong client");
    sleep(2 * QUARANTINE).await;
    assert_eq!(marker(&masters, 3).as_deref().map(owner), Some(own), "it heals by itself");
    assert!(grants(&right).await && !grants(&wrong).await);
}

#[tokio::test(start_paused = true)]
async fn a_client_with_another_guard_does_not_mark_a_master_that_lost_its_data() {
    let (masters, first) = marked().await;
    let own = owner(&marker(&masters, 3).unwrap());
    let other = guarded(masters.builder()).restart_guard(2 * S).build().await.unwrap();
    let clock = guarded(masters.builder()).clock_guard(S / 2).build().await.unwrap();
    masters.restart(3);
    drop(first);
    sleep(3 * QUARANTINE).await;
    assert_eq!(marker(&masters, 3), None);
    assert!(!grants(&other).await && !grants(&clock).await);
    let right = lock(&masters, 1..=5).await;
    sleep(2 * QUARANTINE).await;
    assert_eq!(marker(&masters, 3).as_deref().map(owner), Some(own));
    assert!(grants(&right).await);
}

#[tokio::test(start_paused = true)]
async fn a_quorum_of_own_markers_outvotes_one_of_another_guard() {
    let (masters, lock) = marked().await;
    let own = owner(&marker(&masters, 3).unwrap());
    let foreign = own.replacen("4000", "5000", 1);
    assert_ne!(own, foreign);
    masters.set(1, BOOT, format!("run {foreign}"), None);
    masters.restart(3);
    sleep(2 * QUARANTINE).await;
    assert_eq!(marker(&masters, 3).as_deref().map(owner), Some(own));
    assert!(grants(&lock).await);
    let health = lock.health().await;
    assert_eq!((health.usable, health.has_quorum()), (4, true), "{health}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_is_cut_off_from_most_masters_marks_none() {
    let (masters, right) = marked().await;
    let cut = Arc::new(AtomicBool::new(true));
    let far = |number| Cut(masters.node(number), cut.clone());
    let short = guarded(Redlock::builder()).master(masters.node(3));
    let wrong = [1, 2, 4].into_iter().fold(short, |builder, number| builder.master(far(number)));
    let wrong = wrong.build().await.unwrap();
    let own = owner(&marker(&masters, 3).unwrap());
    masters.forget(3);
    drop(right);
    sleep(3 * QUARANTINE).await;
    assert_eq!(marker(&masters, 3), None, "it may be another set's");
    cut.store(false, Ordering::Relaxed);
    let right = lock(&masters, 1..=5).await;
    sleep(2 * QUARANTINE).await;
    assert_eq!(marker(&masters, 3).as_deref().map(owner), Some(own));
    assert!(grants(&right).await && !grants(&wrong).await);
}

/// Two sets that share master 5, which was down while the first set began. Both have a quorum of
/// their own markers, and these quorums do not meet. So a single marker of other masters refuses,
/// beside any number of own ones.
#[tokio::test(start_paused = true)]
async fn own_markers_do_not_outvote_those_of_other_lists_however_many_they_are() {
    let masters = Masters::new(9);
    let first = lock(&masters, 1..=5).await;
    masters.kill(5);
    first.initialize_masters().await;
    assert!(grants(&first).await);
    masters.revive(5);
    let second = lock(&masters, 5..=9).await;
    second.initialize_masters().await;
    sleep(2 * S).await;
    let own = owner(&marker(&masters, 1).unwrap());
    let of_first =
        (1..=5).filter(|at| marker(&masters, *at).as_deref().map(owner) == Some(own.clone()));
    assert_eq!(of_first.count(), 4);
    assert!(!grants(&first).await && grants(&second).await);
}

/// Beside five masters of a working set run clients with wrong lists, so far wrong that a quorum of
/// theirs needs one of the five that is marked. Masters lose their data, one after the other, and
/// clients are cut off from some. No wrong client ever marks one of the five or is granted a lease,
/// and each master heals by itself.
#[tokio::test(start_paused = true)]
async fn whatever_wrong_lists_run_beside_a_set_that_works_it_heals_by_itself() {
    const ALL: usize = 8;
    let mut wrong_clients = 0;
    for seed in 0..16 {
        let mut state = seed;
        let mut below =
            |bound: u32| u32::try_from(splitmix64(&mut state) % u64::from(bound)).unwrap();
        let masters = Masters::new(ALL);
        let mut right = lock(&masters, 1..=5).await;
        right.initialize_masters().await;
        let own = owner(&marker(&masters, 1).unwrap());
        let mut wrong = Vec::new();
        let mut cuts = Vec::new();
        while wrong.len() < 3 {
            let list: Vec<usize> = (1..=ALL).filter(|_| below(2) == 0).collect();
            let outside = list.iter().filter(|number| **number > 5).count();
            // One more of the five has no marker at a time.
            if list == [1, 2, 3, 4, 5] || outside + 1 > list.len() / 2 {
                continue;
            }
            let mut builder = guarded(Redlock::builder());
            for number in list {
                let cut = Arc::new(AtomicBool::new(false));
                builder = builder.master(Cut(masters.node(number), cut.clone()));
                cuts.push(cut);
            }
            wrong.push(builder.build().await.unwrap());
            wrong_clients += 1;
        }
        for _ in 0..4 {
            let number = 1 + below(5) as usize;
            for cut in &cuts {
                cut.store(below(3) == 0, Ordering::Relaxed);
            }
            // Connections break, and do not come back where they are cut.
            (1..=ALL).for_each(|number| masters.kill(number));
            (1..=ALL).for_each(|number| masters.revive(number));
            if below(2) == 0 {
                masters.restart(number);
            } else {
                masters.forget(number);
            }
            if below(2) == 0 {
                // For a time no correct client is there.
                drop(right);
                sleep(S * below(20)).await;
                right = lock(&masters, 1..=5).await;
            }
            sleep(2 * QUARANTINE).await;
            for number in 1..=5 {
                let shown = marker(&masters, number).as_deref().map(owner);
                assert_eq!(shown.as_ref(), Some(&own), "seed {seed}, master {number}");
            }
            assert!(grants(&right).await, "seed {seed}");
            for lock in &wrong {
                assert!(!grants(lock).await, "seed {seed}");
            }
        }
    }
    assert_eq!(wrong_clients, 48);
}

/// A name that leads to an empty server of somebody else shows what a master shows that lost its
/// data. `docs/safety.md` says why the guard does not tell them apart.
#[tokio::test(start_paused = true)]
async fn an_empty_server_behind_the_name_of_a_master_is_marked_after_a_quarantine() {
    struct Renamed<N>(N, Arc<AtomicBool>, N);
    impl<N: Node> Node for Renamed<N> {
        fn name(&self) -> String {
            self.0.name()
        }
        fn connect(&self) -> Connecting<'_> {
            if self.1.load(Ordering::Relaxed) { self.2.connect() } else { self.0.connect() }
        }
    }
    let (masters, other) = marked().await;
    let strangers = Masters::new(3);
    let stale = Arc::new(AtomicBool::new(true));
    // Its look-ups of three names lead to strangers.
    let misled = (1..=5).fold(guarded(Redlock::builder()), |builder, number| match number {
        1..=3 => {
            let stranger = strangers.node(number);
            builder.master(Renamed(masters.node(number), stale.clone(), stranger))
        }
        _ => builder.master(masters.node(number)),
    });
    let misled = misled.build().await.unwrap();
    assert!(!grants(&misled).await, "for a quarantine it does not count them");
    sleep(2 * QUARANTINE).await;
    let held = other.acquire("r").await.unwrap();
    assert!(grants(&misled).await, "this breaks A1, and no guard sees it");
    assert!(!held.is_lost());
    assert!((1..=3).all(|number| marker(&strangers, number).is_some()));
}

/// As by a balancer that closes connections at an age.
#[tokio::test(start_paused = true)]
async fn masters_become_trusted_where_connections_are_closed_sooner_than_a_quarantine_ends() {
    let masters = Masters::new(3);
    let lock = lock(&masters, 1..=3).await;
    for _ in 0..(QUARANTINE * 2).as_secs() / 2 {
        sleep(2 * S).await;
        (1..=3).for_each(|number| masters.kill(number));
        (1..=3).for_each(|number| masters.revive(number));
    }
    sleep(S).await;
    assert!(grants(&lock).await);
}
