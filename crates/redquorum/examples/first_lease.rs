//! A first lease: acquire, work while it lasts, extend, release, and what each master said.
//!
//! ```text
//! just masters                   # in one terminal, or: cargo run -p redquorum-rig --bin masters
//! export REDQUORUM_URLS=…        # in another, the line that it printed
//! cargo run -p redquorum --example first_lease
//! ```
//!
//! Kill two of the masters in the middle: it goes on, and says at the end what they cannot be asked
//! to delete. Kill a third one: the lease cannot be extended any more. End it by Ctrl-C, which it
//! does not catch: the key goes away within the TTL.

mod support;

use std::time::Duration;

use redquorum::Redlock;
use support::Failure;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    // Built once, and cloned into whatever needs it. A service would not require the quorum, so
    // that it can start before its masters; here it saves waiting for masters that are not there.
    let lock = Redlock::builder().urls(support::urls()?).require_quorum(true).build().await?;
    let result = hold_once(&lock).await;
    // Whatever came of it: what is still owed to the masters is paid now, while there is a
    // runtime. A master that is down cannot be paid, which is worth a line and no failure: if its
    // key is still there, it goes away within the TTL.
    if let Err(unfinished) = lock.shutdown(Duration::from_secs(1)).await {
        eprintln!("{unfinished}");
    }
    result
}

async fn hold_once(lock: &Redlock) -> Result<(), Failure> {
    // It is a lease, not a guard: it is over at its deadline, whatever we are doing then.
    let lease = lock.acquire("invoice:42").ttl(Duration::from_secs(5)).await?;
    println!("acquired for {:.1?}", lease.validity());
    // Three of five are enough, so the slower ones are not awaited.
    for master in lease.report().masters() {
        println!("  {master}");
    }

    // So the work runs inside the lease: at the deadline it would not be polled again.
    let sum = lease.run(async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        19 + 23
    });
    println!("worked: {}", sum.await?);

    // More to do than fits: move the deadline before it comes. `keep_alive` does it by itself.
    let deadline = lease.extend().await?;
    println!("extended, {:.1?} left", deadline.remaining());

    // Dropping it would do too; this waits for an answer. `AlreadyGone` would mean that somebody
    // else may have worked beside us.
    let released = lease.release().await;
    println!("{}", released.outcome);
    for master in released.report.masters() {
        println!("  {master}");
    }
    Ok(())
}
