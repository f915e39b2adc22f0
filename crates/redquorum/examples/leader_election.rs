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

use std::time::Duration;

use redquorum::{Leadership, Redlock};
use support::Failure;
use tokio::time::sleep;

/// The longest time without a leader after a leader dies.
const TTL: Duration = Duration::from_secs(3);
/// A leader that hangs does not lead for ever.
const TERM: Duration = Duration::from_secs(30);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let me = std::env::args().nth(1).unwrap_or_else(|| format!("process {}", std::process::id()));
    let lock = Redlock::builder().masters(support::urls()?).ttl(TTL).build().await?;
    // A signal drops the candidature with everything in it. The library gives the lease back in the
    // background, and withdraws votes in progress.
    tokio::select! {
        signal = stop::stop() => println!("{me}: {}, leads no more", signal?),
        resigned = lock.lead("leader", TERM, |leadership| govern(&me, leadership)) => resigned?,
    }
    // Wait until all masters that are up have confirmed that the key is gone.
    if let Err(unfinished) = lock.shutdown(Duration::from_secs(2)).await {
        eprintln!("{me}: {unfinished}");
    }
    Ok(())
}

/// The work of the leader. When its term is over it is dropped, at one of its awaits: only the code
/// between two of them can still run. Where that matters, the resource itself must refuse the
/// writes of a former leader, by the number of the term. The leader resigns if this returns.
async fn govern(me: &str, leadership: Leadership) {
    for step in 1.. {
        println!("{me}: leads in term {}, step {step}", leadership.term());
        sleep(Duration::from_secs(1)).await;
    }
}
