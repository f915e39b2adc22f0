//! Leader election among several processes. One leads until it stops, dies or its term is over;
//! then another one takes its place.
//!
//! ```text
//! just masters                   # in one terminal, or: cargo run -p redquorum-rig --bin masters
//! export REDQUORUM_URLS=…        # in the others, the line that it printed
//! cargo run -p redquorum --example leader_election anna
//! cargo run -p redquorum --example leader_election ben
//! ```
//!
//! End the leader with Ctrl-C: the other process leads within a second. End it with `kill -KILL`:
//! the other process leads within the TTL. Pause it with `kill -STOP` and resume it with `kill
//! -CONT`: it notices the lost lease before it does anything more. Kill three masters: no process
//! leads.

#[path = "support/stop.rs"]
mod stop;
mod support;

use std::{convert::Infallible, time::Duration};

use redquorum::{AcquireError, Backoff, Lease, Redlock};
use support::Failure;
use tokio::time::sleep;

/// The TTL, which is also the longest time without a leader after a leader dies.
const TTL: Duration = Duration::from_secs(3);
/// The longest term of one leader, so that a leader that hangs does not lead for ever.
const TERM: Duration = Duration::from_secs(30);
/// Candidates wait for long, so a pause between their attempts may be longer than the default
/// maximum of 250 ms.
const PAUSE: Backoff =
    Backoff::Jittered { initial: Duration::from_millis(100), max: Duration::from_secs(1) };

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let me = std::env::args().nth(1).unwrap_or_else(|| format!("process {}", std::process::id()));
    let lock = Redlock::builder().urls(support::urls()?).ttl(TTL).retry(PAUSE).build().await?;
    // Either branch drops the campaign with everything in it, a lease included. The library
    // releases the lease in the background, and withdraws votes in progress.
    let result: Result<_, Failure> = tokio::select! {
        signal = stop::stop() => signal.map_err(Into::into),
        Err(error) = campaign(&lock, &me) => Err(error.into()),
    };
    // Wait until all masters that are up have confirmed that the key is gone.
    if let Err(unfinished) = lock.shutdown(Duration::from_secs(2)).await {
        eprintln!("{me}: {unfinished}");
    }
    println!("{me}: {}, leads no more", result?);
    Ok(())
}

/// Stands for leader in a loop. It returns only on an error that no retry can fix.
async fn campaign(lock: &Redlock, me: &str) -> Result<Infallible, AcquireError> {
    loop {
        println!("{me}: stands");
        match lock.acquire("leader").wait(Duration::from_secs(60)).await {
            Ok(lease) => lead(lease, me).await,
            // Another process leads, and is alive.
            Err(AcquireError::Taken { .. }) => {}
            // The masters were not reachable, or this process was stopped: both are temporary.
            Err(error @ (AcquireError::NoQuorum { .. } | AcquireError::TooLate { .. })) => {
                eprintln!("{me}: {error}");
            }
            Err(error) => return Err(error),
        }
        // Gives other candidates a chance.
        sleep(Duration::from_secs(1)).await;
    }
}

/// Leads until the lease is lost. After the deadline only the code of `govern` between two awaits
/// can still run. Where that matters, the resource itself must refuse the writes of a former
/// leader.
async fn lead(lease: Lease, me: &str) {
    println!("{me}: leads");
    lease.keep_alive(TERM);
    match lease.run(govern(me)).await {
        // Nothing to release: the lease is lost.
        Err(lost) => println!("{me}: stepped down, {lost}"),
        Ok(()) => println!("{me}: resigned, {:?}", lease.release().await.outcome),
    }
}

/// The work of the leader. The leader resigns when `govern` returns.
async fn govern(me: &str) {
    for step in 1.. {
        println!("{me}: leader's work, step {step}");
        sleep(Duration::from_secs(1)).await;
    }
}
