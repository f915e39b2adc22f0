//! Use from blocking code: it contains no `async`, and a struct hides a small runtime.
//!
//! ```text
//! just masters                   # in one terminal, or: cargo run -p redquorum-rig --bin masters
//! export REDQUORUM_URLS=…        # in another, the line that it printed
//! cargo run -p redquorum --example blocking
//! ```
//!
//! Start it twice: the second process waits for the first. Kill three masters while it runs: it
//! stops at the deadline. End it with Ctrl-C, which it does not handle: the key expires within the
//! TTL.

mod support;

use std::{thread, time::Duration};

use redquorum::{Builder, Lease, Redlock, Released};
use support::Failure;
use tokio::runtime::{self, Runtime};

fn main() -> Result<(), Failure> {
    let ttl = Duration::from_secs(3);
    let lock = BlockingLock::build(Redlock::builder().urls(support::urls()?).ttl(ttl))?;
    // Declared after the lock, so the lease is dropped before the lock on every path.
    let lease = lock.acquire("invoice:42")?;
    // The watchdog extends the lease in the background. Its bound ends the lease of a thread that
    // hangs.
    lease.keep_alive(Duration::from_secs(60));
    for page in 1..=10 {
        // `Lease::run` can stop a future, but nothing can stop a thread from outside. So check
        // before each step, and keep steps short: a step that begins in time may end too late.
        if let Some(lost) = lease.is_lost() {
            return Err(lost.into());
        }
        println!("page {page}, ours for another {:.1?}", lease.validity());
        print_page();
    }
    println!("{:?}", lock.release(lease).outcome);
    Ok(())
}

/// A lock for threads that are not part of a runtime. Its methods block, so they panic inside a
/// runtime.
struct BlockingLock {
    lock: Redlock,
    runtime: Runtime,
}

impl BlockingLock {
    fn build(builder: Builder) -> Result<Self, Failure> {
        // The runtime has its own thread, so connections and the watchdog run while the caller
        // works. A current-thread runtime would stop between two calls, and extend nothing.
        let runtime = runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("redquorum")
            .enable_all()
            .build()?;
        let lock = runtime.block_on(builder.build())?;
        Ok(Self { lock, runtime })
    }

    fn acquire(&self, resource: &str) -> Result<Lease, Failure> {
        Ok(self.runtime.block_on(self.lock.acquire(resource).into_future())?)
    }

    fn release(&self, lease: Lease) -> Released {
        self.runtime.block_on(lease.release())
    }
}

impl Drop for BlockingLock {
    /// Completes the pending clean-ups: without a runtime, no task deletes the keys.
    fn drop(&mut self) {
        if let Err(unfinished) = self.runtime.block_on(self.lock.shutdown(Duration::from_secs(1))) {
            eprintln!("{unfinished}");
        }
    }
}

/// The work, which blocks.
#[expect(clippy::disallowed_methods, reason = "this thread is no worker of a runtime")]
fn print_page() {
    thread::sleep(Duration::from_secs(1));
}
