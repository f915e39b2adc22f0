//! A few of many jobs at a time, in several processes: each job has one of three devices to itself.
//!
//! ```text
//! just masters                   # in one terminal, or: cargo run -p redquorum-rig --bin masters
//! export REDQUORUM_URLS=…        # in the others, the line that it printed
//! cargo run -p redquorum --example semaphore anna
//! cargo run -p redquorum --example semaphore ben
//! ```
//!
//! Both processes together use no device twice at a time. Kill one: the other one gets its devices
//! within the TTL.

mod support;

use std::time::Duration;

use redquorum::{Redlock, RunError, Semaphore};
use support::Failure;
use tokio::{task::JoinSet, time::sleep};

const DEVICES: usize = 3;
const JOBS: usize = 9;
/// The longest time without a device after its process dies.
const TTL: Duration = Duration::from_secs(3);
/// A job that hangs does not keep its device for ever.
const AT_MOST: Duration = Duration::from_secs(30);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let me = std::env::args().nth(1).unwrap_or_else(|| format!("process {}", std::process::id()));
    let lock = Redlock::builder().masters(support::urls()?).ttl(TTL).build().await?;
    let devices = lock.semaphore("device", DEVICES);
    let mut jobs = JoinSet::new();
    for job in 1..=JOBS {
        jobs.spawn(run(me.clone(), job, devices.clone()));
    }
    for done in jobs.join_all().await {
        done?;
    }
    Ok(lock.shutdown(Duration::from_secs(2)).await?)
}

async fn run(me: String, job: usize, devices: Semaphore) -> Result<(), RunError> {
    let permit = devices.acquire().wait(Duration::from_secs(60)).await;
    let permit = permit.map_err(RunError::NotAcquired)?;
    permit.keep_alive(AT_MOST);
    let device = devices.slot(&permit).unwrap_or_default();
    println!("{me}: job {job} on device {device}");
    // If the permit is lost, the job is dropped at its next await.
    permit.run(sleep(Duration::from_secs(1))).await.map_err(RunError::Lost)?;
    let _ = permit.release().await;
    Ok(())
}
