//! A first lease: acquire, work while it lasts, extend, release, and print the replies of the
//! masters.
//!
//! ```text
//! just masters                   # in one terminal, or: cargo run -p redquorum-rig --bin masters
//! export REDQUORUM_URLS=…        # in another, the line that it printed
//! cargo run -p redquorum --example first_lease
//! ```
//!
//! Kill two of the masters while it runs: it goes on. At the end it prints that these masters did
//! not delete the key. Kill a third one: the lease cannot be extended any more. End it with Ctrl-C,
//! which it does not handle: the key expires within the TTL.

mod support;

use std::time::Duration;

use redquorum::Redlock;
use support::Failure;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    // Build the lock once, and clone it into every task. A service would not require the quorum, so
    // that it can start before its masters. This example requires it, so that it fails at once if
    // the masters are not up.
    let lock = Redlock::builder().urls(support::urls()?).require_quorum(true).build().await?;
    let result = hold_once(&lock).await;
    // Complete the pending clean-ups while there is a runtime, whatever the result. A master that
    // is down cannot delete its key: print that, but do not fail. The key expires within the TTL.
    if let Err(unfinished) = lock.shutdown(Duration::from_secs(1)).await {
        eprintln!("{unfinished}");
    }
    result
}

async fn hold_once(lock: &Redlock) -> Result<(), Failure> {
    // A lease, not a guard: it ends at its deadline, even if this process is still working.
    let lease = lock.acquire("invoice:42").ttl(Duration::from_secs(5)).await?;
    println!("acquired for {:.1?}", lease.validity());
    // Three of five are enough, so `acquire` does not wait for the slower ones.
    for master in lease.report().masters() {
        println!("  {master}");
    }

    // The work runs inside the lease: at the deadline it would no longer be polled.
    let sum = lease.run(async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        19 + 23
    });
    println!("worked: {}", sum.await?);

    // The rest of the work needs more time: move the deadline early. `keep_alive` does that in the
    // background.
    let deadline = lease.extend().await?;
    println!("extended, {:.1?} left", deadline.remaining());

    // Dropping the lease would release it, too, but `release` waits for the outcome. `AlreadyGone`
    // would mean that another client may have worked at the same time.
    let released = lease.release().await;
    println!("{}", released.outcome);
    for master in released.report.masters() {
        println!("  {master}");
    }
    Ok(())
}
