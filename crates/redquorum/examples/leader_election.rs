//! Leader election: several processes stand, one leads until it stops, dies or its term is over,
//! and another one takes its place.
//!
//! ```text
//! just masters                   # in one terminal, or: cargo run -p redquorum-rig --bin masters
//! export REDQUORUM_URLS=…        # in the others, the line that it printed
//! cargo run -p redquorum --example leader_election anna
//! cargo run -p redquorum --example leader_election ben
//! ```
//!
//! End the leader by Ctrl-C: the other one leads within a second. End it by `kill -KILL`: within
//! the TTL. Pause it by `kill -STOP` and let it go on by `kill -CONT`: it notices before it does
//! anything more. Kill three masters: nobody leads.

#[path = "support/stop.rs"]
mod stop;
mod support;

use std::{convert::Infallible, time::Duration};

use redquorum::{AcquireError, Backoff, Lease, Redlock};
use support::Failure;
use tokio::time::sleep;

/// For how long nobody leads after a leader died.
const TTL: Duration = Duration::from_secs(3);
/// How long one leader may lead, so that one that hangs does not lead for ever.
const TERM: Duration = Duration::from_secs(30);
/// Candidates wait for long: they need not ask four times a second each, as the default is.
const PAUSE: Backoff =
    Backoff::Jittered { initial: Duration::from_millis(100), max: Duration::from_secs(1) };

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let me = std::env::args().nth(1).unwrap_or_else(|| format!("process {}", std::process::id()));
    let lock = Redlock::builder().urls(support::urls()?).ttl(TTL).retry(PAUSE).build().await?;
    // What ends the campaign is dropped with everything in it, a lease included: the resource is
    // given back in the background, and a vote under way is withdrawn.
    let result: Result<_, Failure> = tokio::select! {
        signal = stop::stop() => signal.map_err(Into::into),
        Err(error) = campaign(&lock, &me) => Err(error.into()),
    };
    // And this waits until the masters have said that it is gone, all that are up.
    if let Err(unfinished) = lock.shutdown(Duration::from_secs(2)).await {
        eprintln!("{me}: {unfinished}");
    }
    println!("{me}: {}, leads no more", result?);
    Ok(())
}

/// Stands again and again. Returns only if standing makes no sense any more.
async fn campaign(lock: &Redlock, me: &str) -> Result<Infallible, AcquireError> {
    loop {
        println!("{me}: stands");
        match lock.acquire("leader").wait(Duration::from_secs(60)).await {
            Ok(lease) => lead(lease, me).await,
            // Somebody else leads, and lives.
            Err(AcquireError::Taken { .. }) => {}
            // The masters are away, or this process was: that mends itself.
            Err(error @ (AcquireError::NoQuorum { .. } | AcquireError::TooLate { .. })) => {
                eprintln!("{me}: {error}");
            }
            Err(error) => return Err(error),
        }
        // Others may stand too.
        sleep(Duration::from_secs(1)).await;
    }
}

/// Leads until the lease is lost. Nothing of it happens after the deadline, except what `govern`
/// does between two awaits: where that matters, what it writes to must refuse a former leader.
async fn lead(lease: Lease, me: &str) {
    println!("{me}: leads");
    lease.keep_alive(TERM);
    match lease.run(govern(me)).await {
        // Nothing to release: it is not ours any more.
        Err(lost) => println!("{me}: stepped down, {lost}"),
        Ok(()) => println!("{me}: resigned, {:?}", lease.release().await.outcome),
    }
}

/// What only the leader does. It resigns by returning.
async fn govern(me: &str) {
    for step in 1.. {
        println!("{me}: leader's work, step {step}");
        sleep(Duration::from_secs(1)).await;
    }
}
