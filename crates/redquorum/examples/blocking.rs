//! Use from a plain thread: feature `blocking`, no `async`, no runtime.
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

use redquorum::Redlock;
use support::Failure;

fn main() -> Result<(), Failure> {
    let ttl = Duration::from_secs(3);
    let lock = Redlock::builder().masters(support::urls()?).ttl(ttl).build_blocking()?;
    let lease = lock.acquire("invoice:42").send()?;
    // The watchdog extends the lease in the background. Its bound ends the lease of a thread that
    // hangs.
    lease.keep_alive(Duration::from_secs(60));
    for page in 1..=10 {
        // Nothing can stop a thread from outside. So check before each step, and keep steps short:
        // a step that begins in time may end too late.
        if let Some(lost) = lease.loss() {
            return Err(lost.into());
        }
        println!("page {page}, ours for another {:.1?}", lease.validity());
        print_page();
    }
    println!("{}", lease.release());
    // Completes the pending clean-ups: a process that ends leaves its keys to expire.
    Ok(lock.shutdown(Duration::from_secs(1))?)
}

/// The work, which blocks.
#[expect(clippy::disallowed_methods, reason = "this thread is no worker of a runtime")]
fn print_page() {
    thread::sleep(Duration::from_secs(1));
}
