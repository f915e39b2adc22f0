//! How often an acquire and a release allocate memory, all tasks of the lock included. Counted, not
//! timed: it is the same on every machine.

use std::alloc::System;
use std::time::Duration;

use redquorum::{Acquire, Outcome, Redlock};
use redquorum_rig::Masters;
use redquorum_rig::trials::{self, with_masters};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const PAIRS: usize = 1_000;

/// The allocations of each pair, and their bytes: the mean over many.
async fn of_pairs(lock: &Redlock, with: impl Fn(Acquire) -> Acquire) -> (f64, f64) {
    let mut before = Region::new(ALLOCATOR);
    // The first pairs fill tables and buffers.
    for number in 0..2 * PAIRS {
        if number == PAIRS {
            before = Region::new(ALLOCATOR);
        }
        let name = [b'a' + u8::try_from(number % 20).unwrap(); 12];
        let lease = with(lock.acquire(name)).await.unwrap();
        assert_eq!(lease.release().await.outcome, Outcome::Released);
    }
    let change = before.change();
    let each = |count: usize| count as f64 / PAIRS as f64;
    (each(change.allocations + change.reallocations), each(change.bytes_allocated))
}

fn a_pair_allocates_little() {
    let masters = Masters::start(5).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let builder = Redlock::builder().masters(masters.urls()).ttl(Duration::from_secs(10));
        let lock = builder.require_quorum(true).build().await.unwrap();
        let plain = of_pairs(&lock, |acquire| acquire).await;
        let fenced = of_pairs(&lock, Acquire::fenced).await;
        println!("allocations and bytes per pair: {plain:.1?} plain, {fenced:.1?} fenced");
        // A pair is ten commands. Below this, the counter does not count.
        assert!((5.0..24.0).contains(&plain.0), "{plain:?}");
        assert!((5.0..29.0).contains(&fenced.0), "{fenced:?}");
    });
}

fn main() -> std::process::ExitCode {
    trials::run([with_masters("a_pair_allocates_little", a_pair_allocates_little)])
}
