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

#[path = "support/stop.rs"]
mod stop;
mod support;

use std::{convert::Infallible, time::Duration};

use redquorum::{AcquireError, Lease, Redlock, RunError};
use support::Failure;
use tokio::time::{MissedTickBehavior, interval, sleep};

/// The interval of the job.
const EVERY: Duration = Duration::from_secs(10);
/// The TTL, which is also the longest wait of other hosts for a host that died. It is short,
/// because the watchdog extends the lease of a live host.
const TTL: Duration = Duration::from_secs(3);
/// The time for which a host tries at each tick. Hosts that tick at the same time can split the
/// votes, so that no host wins at the first attempt. After a short random pause one of them wins.
/// With `try_acquire`, all of them would skip the tick.
const WAIT: Duration = Duration::from_secs(1);
/// The least time for which the winner of a tick keeps the lease. The hosts do not tick at the same
/// instant. If a later host found the lease free, the job would run twice.
const AT_LEAST: Duration = Duration::from_secs(8);
/// The longest time for which a job runs. A job that hangs ends before the next tick.
const AT_MOST: Duration = Duration::from_secs(9);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let host = std::env::args().nth(1).unwrap_or_else(|| format!("host {}", std::process::id()));
    let lock = Redlock::builder().urls(support::urls()?).ttl(TTL).build().await?;
    let signal = tokio::select! {
        signal = stop::stop() => signal?,
        never = tick_for_ever(&lock, &host) => match never {},
    };
    println!("{host}: {signal}");
    // The signal dropped a job in progress, and its lease with it. The library releases the lease
    // in the background. Wait for that, so that the next host need not wait for the TTL. A master
    // that is down cannot delete its key, which is no failure of this program.
    if let Err(unfinished) = lock.shutdown(Duration::from_secs(2)).await {
        eprintln!("{host}: {unfinished}");
    }
    Ok(())
}

async fn tick_for_ever(lock: &Redlock, host: &str) -> Infallible {
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        ticks.tick().await;
        match run_once(lock, host).await {
            Ok(true) => println!("{host}: done"),
            Ok(false) => println!("{host}: skipped, another host has it"),
            // No quorum, or a lost lease. The next tick is the retry.
            Err(error) => eprintln!("{host}: {error}"),
        }
    }
}

/// Returns whether this host ran the job.
async fn run_once(lock: &Redlock, host: &str) -> Result<bool, Failure> {
    // If the lease is lost, the job is dropped at its next await. Another host may have started the
    // job again, so each step of it must tolerate that.
    let job = async |_: &Lease| tokio::join!(report(host), sleep(AT_LEAST));
    match lock.acquire("cron:report").wait(WAIT).run(AT_MOST, job).await {
        Ok(_) => Ok(true),
        Err(RunError::NotAcquired(AcquireError::Taken { .. })) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

async fn report(host: &str) {
    println!("{host}: reporting");
    sleep(Duration::from_secs(2)).await;
    println!("{host}: reported");
}
