//! Several processes contend for one fenced resource. The section counts how often the masters'
//! numbers differ, so that a lease needs a certification round.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::contender::connect;
use crate::worker::Worker;

/// The first argument of a contending process. The time in milliseconds and the URLs follow it.
pub(crate) const ARGUMENT: &str = "--contend";

const PROCESSES: usize = 8;

/// The time for which each process works under its lease.
const HOLD: Duration = Duration::from_millis(2);

/// Lets processes contend for `length`, and returns a report.
pub(crate) fn report(urls: &[String], length: Duration) -> String {
    let millis = length.as_millis().to_string();
    let start = |_| Worker::start(&[ARGUMENT, &millis], urls);
    let workers: Vec<_> = (0..PROCESSES).map(start).collect();
    let (mut acquired, mut certified) = (0, 0);
    for text in workers.into_iter().flat_map(Worker::finish) {
        let mut numbers = text.split(' ').map(|word| word.parse::<u64>().unwrap_or(0));
        acquired += numbers.next().unwrap_or(0);
        certified += numbers.next().unwrap_or(0);
    }
    assert!(acquired > 0, "no process acquired anything");
    let share = certified as f64 * 100.0 / acquired as f64;
    format!(
        "### Fencing tokens: {PROCESSES} processes contend for one resource\n\n{acquired} leases in \
         {length:?}; {certified} needed a second round: {share:.2} %"
    )
}

/// Runs one contending process. It acquires and releases as often as it can. It prints the number
/// of its leases, and how many of them needed a second round.
pub(crate) async fn contend(millis: &str, urls: &[String]) -> ExitCode {
    let length = Duration::from_millis(millis.parse().unwrap_or(1_000));
    let lock = connect(urls, Duration::from_secs(10)).await;
    let start = Instant::now();
    while start.elapsed() < length {
        let wait = length.saturating_sub(start.elapsed());
        if let Ok(lease) = lock.acquire("contended").wait(wait).fenced().await {
            tokio::time::sleep(HOLD).await;
            let _ = lease.release().await;
        }
    }
    let stats = lock.stats();
    println!("{} {}", stats.acquired, stats.certified);
    ExitCode::SUCCESS
}
