//! A storm on five masters: pauses, broken connections and flushed scripts at random, while tasks
//! of several clients acquire, extend, drop and release. No two of them ever hold a resource at
//! once, and no key of theirs is left at the end. The test prints its seed.

use std::future::IntoFuture;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redquorum::{Lease, Redlock};
use redquorum_rig::Masters;
use redquorum_rig::trials::Case;
use tokio::time::{Instant, sleep, timeout};

use crate::support::{MS, brisk, built, keys_on, own};

pub(crate) fn cases() -> Vec<Case> {
    cases![holds_that_overlap_are_seen, a_storm_breaks_no_exclusion_and_leaves_no_key]
}

const RESOURCES: usize = 4;

/// For each resource, the times in which a client believed to hold it: from, until.
type Holds = Mutex<Vec<Vec<(Instant, Instant)>>>;

fn overlaps(holds: &Holds) -> usize {
    let mut holds = holds.lock().unwrap();
    let count = |of_one: &mut Vec<(Instant, Instant)>| {
        of_one.sort_unstable();
        of_one.windows(2).filter(|pair| pair[1].0 < pair[0].1).count()
    };
    holds.iter_mut().map(count).sum()
}

async fn holds_that_overlap_are_seen() {
    let now = Instant::now();
    let holds = Mutex::new(vec![vec![(now + 2 * MS, now + 4 * MS), (now, now + 3 * MS)]]);
    assert_eq!(overlaps(&holds), 1);
}

/// A small random generator with a seed (splitmix64).
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    fn millis(&mut self, bound: u64) -> Duration {
        Duration::from_millis(self.below(bound))
    }
}

async fn a_storm_breaks_no_exclusion_and_leaves_no_key() {
    let seed = u64::from(std::process::id());
    println!("storm: seed {seed}");
    let masters = own(5);
    let builder = || brisk(&masters).prefix("storm:").ttl(1_500 * MS).wait(3_000 * MS);
    let locks = [built(builder()).await, built(builder()).await, built(builder()).await];
    let holds: Arc<Holds> = Arc::new(Mutex::new(vec![Vec::new(); RESOURCES]));
    let over = Arc::new(AtomicBool::new(false));
    let tasks: Vec<_> = (0..18)
        .map(|task| {
            let (lock, holds, over) = (locks[task % 3].clone(), holds.clone(), over.clone());
            let chance = Chance(seed.wrapping_mul(1_000) + task as u64);
            tokio::spawn(client(lock, holds, over, chance))
        })
        .collect();
    storm(&masters, &mut Chance(seed)).await;
    over.store(true, Relaxed);
    let mut granted = 0;
    for task in tasks {
        granted += task.await.unwrap();
    }
    for lock in &locks {
        lock.shutdown(Duration::from_secs(5)).await.unwrap();
    }
    assert_eq!(keys_on(&masters, 1..=5, "storm:*"), []);
    assert_eq!(overlaps(&holds), 0, "seed {seed}");
    assert!(granted > 5, "a dull storm: {granted} leases");
}

/// Four seconds in which some minority of the masters has a fault most of the time.
async fn storm(masters: &Masters, chance: &mut Chance) {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(4) {
        let [one, other] = [(); 2].map(|()| usize::try_from(chance.below(5)).unwrap() + 1);
        match chance.below(4) {
            0 | 1 => {
                [one, other].into_iter().for_each(|node| masters.pause(node).unwrap());
                sleep(chance.millis(500)).await;
                [one, other].into_iter().for_each(|node| masters.resume(node).unwrap());
            }
            2 => drop(masters.ask(one, "CLIENT KILL TYPE normal SKIPME yes").unwrap()),
            _ => drop(masters.ask(one, "SCRIPT FLUSH").unwrap()),
        }
        sleep(chance.millis(100)).await;
    }
}

async fn client(
    lock: Redlock,
    holds: Arc<Holds>,
    over: Arc<AtomicBool>,
    mut chance: Chance,
) -> usize {
    let mut granted = 0;
    while !over.load(Relaxed) {
        let resource = usize::try_from(chance.below(RESOURCES as u64)).unwrap();
        let acquiring = lock.acquire(format!("r{resource}")).into_future();
        let Ok(Ok(lease)) = timeout(chance.millis(300), acquiring).await else { continue };
        granted += 1;
        let from = Instant::now();
        let how = chance.below(5);
        use_lease(&lease, how, &mut chance).await;
        // The moment of a loss is unknown here, so a hold that ended in a loss does not count.
        let now = Instant::now();
        let until = if lease.is_lost().is_some() { from } else { now };
        holds.lock().unwrap()[resource].push((from, until));
        match how {
            0 => drop(lease),
            1 => drop(timeout(MS / 20, lease.release()).await),
            _ => drop(lease.release().await),
        }
    }
    granted
}

async fn use_lease(lease: &Lease, how: u64, chance: &mut Chance) {
    match how {
        2 => {
            lease.keep_alive(Duration::from_secs(4));
            // Sometimes longer than the TTL.
            let _ = lease.run(sleep(chance.millis(2_500))).await;
        }
        3 => drop(lease.extend().await),
        4 => drop(timeout(MS, lease.extend()).await),
        _ => sleep(chance.millis(60)).await,
    }
}
