//! A job that runs on one of many hosts at each tick, and on another host if that one dies.
//!
//! ```text
//! just masters                   # in one terminal, or: cargo run -p redquorum-rig --bin masters
//! export REDQUORUM_URLS=…        # in the others, the line that it printed
//! cargo run -p redquorum --example cron_singleton host-a
//! cargo run -p redquorum --example cron_singleton host-b
//! ```
//!
//! Stop the host that runs the job, with Ctrl-C or with `kill -KILL`: the other one takes over at
//! its next tick. Kill a master: nothing changes.

mod support;

use std::time::Duration;

use redquorum::{AcquireError, Redlock, RunError};
use support::Failure;
use tokio::time::{MissedTickBehavior, interval, sleep};

const EVERY: Duration = Duration::from_secs(10);
/// The hosts do not tick at the same instant. Without this least time, a late host would find the
/// lease of a short job free, and run the job again.
const AT_LEAST: Duration = Duration::from_secs(8);
/// A job that hangs ends before the next tick.
const AT_MOST: Duration = Duration::from_secs(9);
/// Hosts that tick at the same time can split the votes. After a short random pause one of them
/// wins; with `try_acquire`, all of them could skip the tick.
const WAIT: Duration = Duration::from_secs(1);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let host = std::env::args().nth(1).unwrap_or_else(|| format!("host {}", std::process::id()));
    let lock = Redlock::builder().masters(support::urls()?).ttl(AT_MOST).name(&host);
    let lock = lock.build().await?;
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        ticks.tick().await;
        let tick = lock.acquire("cron:report").wait(WAIT).at_least(AT_LEAST);
        // If the lease is lost, the job is dropped at its next await. Another host may have started
        // it again, so each step of a job must tolerate that.
        match tick.run(AT_MOST, async |_| report(&host).await).await {
            Ok(()) => println!("{host}: done"),
            Err(RunError::NotAcquired(AcquireError::Taken { report, .. })) => {
                let other = report.holder().and_then(|holder| Some(holder.name()?.to_owned()));
                println!("{host}: skipped, {} has it", other.as_deref().unwrap_or("another host"));
            }
            // No quorum, or a lost lease. The next tick is the retry.
            Err(error) => eprintln!("{host}: {error}"),
        }
    }
}

async fn report(host: &str) {
    println!("{host}: reporting");
    sleep(Duration::from_secs(2)).await;
    println!("{host}: reported");
}
