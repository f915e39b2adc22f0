//! The load of a lock besides time: commands and bytes of an acquire and of a release, and the
//! memory of leases that are held, on a master and in the client.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use redquorum::{Builder, Lease, Redlock};
use redquorum_rig::Masters;

use crate::contender::{PATIENCE, build, builder, commands};
use crate::crowd::{info, reset_counts};
use crate::worker::{self, Worker};

/// The first argument of a run of this section alone.
pub(crate) const ARGUMENT: &str = "--capacity";

/// The first argument of a process that holds leases. The mode and the URLs follow it.
pub(crate) const CHILD_ARGUMENT: &str = "--capacity-of";

/// No lease of a measurement expires.
const TTL: Duration = Duration::from_secs(600);

/// The number of leases.
const LEASES: usize = 20_000;

/// The number of concurrent requests.
const AT_ONCE: usize = 64;

#[derive(Clone, Copy)]
struct Mode {
    name: &'static str,
    fenced: bool,
    options: fn(Builder) -> Builder,
}

const MODES: [Mode; 5] = [
    Mode { name: "plain", fenced: false, options: |builder| builder },
    Mode { name: "fenced", fenced: true, options: |builder| builder },
    Mode { name: "guarded", fenced: false, options: |builder| builder.restart_guard(TTL) },
    Mode { name: "fenced and guarded", fenced: true, options: |it| it.restart_guard(TTL) },
    Mode { name: "fair", fenced: false, options: |builder| builder.fair(true) },
];

/// The bytes that all masters together have received and sent, and their memory.
struct Count {
    received: u64,
    sent: u64,
    memory: u64,
}

impl Count {
    fn now(masters: &Masters) -> Self {
        let sum = |section: &str, name: &str| {
            info(masters, 1..=masters.len(), section, |line| {
                line.strip_prefix(name)?.strip_prefix(':')?.parse().ok()
            })
        };
        Self {
            received: sum("stats", "total_net_input_bytes"),
            sent: sum("stats", "total_net_output_bytes"),
            memory: sum("memory", "used_memory"),
        }
    }

    /// The bytes that one master received and sent for each lease.
    fn bytes(&self, masters: &Masters) -> String {
        let each = |bytes: u64| bytes as f64 / (LEASES * masters.len()) as f64;
        format!("{:.0} | {:.0}", each(self.received), each(self.sent))
    }

    /// The memory that this has more than an earlier count, for each lease on one master.
    fn grown(&self, before: &Self, masters: &Masters) -> f64 {
        (self.memory as f64 - before.memory as f64) / (LEASES * masters.len()) as f64
    }
}

pub(crate) fn report(masters: &Masters) -> String {
    let mut text = format!(
        "### Capacity: {LEASES} leases, whose resources have names of {} bytes\n\n\
         All figures are for one lease, those of masters for one master.\n\n\
         | lock | acquire: commands | bytes received | bytes sent | release: commands \
         | bytes received | bytes sent | memory of a master, held | after the release \
         | resident memory of the client, held |\n\
         |---|---|---|---|---|---|---|---|---|---|\n",
        resource(0).len()
    );
    for mode in MODES {
        let _ = writeln!(text, "| {} | {} |", mode.name, row(masters, mode));
    }
    text
}

/// Deletes all keys: a runtime ends before its dropped leases are all deleted, and their TTL is
/// long.
pub(crate) fn empty(masters: &Masters) {
    for node in 1..=masters.len() {
        masters.ask(node, "FLUSHALL").expect("a master answers");
    }
}

/// Lets a process of its own hold leases: no other measurement has used its memory.
fn row(masters: &Masters, mode: Mode) -> String {
    empty(masters);
    let mut worker = Worker::start(&[CHILD_ARGUMENT, mode.name], &masters.urls());
    worker.report();
    reset_counts(masters);
    let before = Count::now(masters);
    worker.go_on();
    let (acquire, client) = (worker.report(), worker.report());
    let held = Count::now(masters);
    reset_counts(masters);
    worker.go_on();
    let release = worker.report();
    let released = Count::now(masters);
    worker.finish();
    format!(
        "{acquire} | {} | {release} | {} | {:.0} | {:.0} | {client}",
        held.bytes(masters),
        released.bytes(masters),
        held.grown(&before, masters),
        released.grown(&before, masters),
    )
}

/// Runs the process that holds leases. It prints its figures after each step, and reads a line
/// before the next.
pub(crate) async fn hold(name: &str, urls: &[String]) -> ExitCode {
    let mode = MODES.iter().find(|mode| mode.name == name).expect("a known mode");
    let lock = build((mode.options)(builder(urls, TTL))).await;
    // Connections, scripts and buffers are there before the first measurement.
    let warm = take(&lock, mode, LEASES..LEASES + 4 * AT_ONCE).await;
    give_back(&lock, warm).await;
    worker::report("ready").await;
    let (memory, before) = (resident(), commands(&lock));
    let leases = take(&lock, mode, 0..LEASES).await;
    println!("{}", per_lease(&lock, commands(&lock) - before));
    let grown = resident().zip(memory).map(|(now, before)| now.saturating_sub(before));
    let grown = grown.map(|bytes| format!("{:.0}", bytes as f64 / LEASES as f64));
    worker::report(&grown.unwrap_or_else(|| "not measured".to_owned())).await;
    let before = commands(&lock);
    give_back(&lock, leases).await;
    println!("{}", per_lease(&lock, commands(&lock) - before));
    ExitCode::SUCCESS
}

/// The number of commands of one master for each lease.
fn per_lease(lock: &Redlock, commands: u64) -> String {
    format!("{:.2}", commands as f64 / (LEASES * lock.masters()) as f64)
}

/// A name of usual length.
fn resource(number: usize) -> String {
    format!("bench:capacity:{number:09}")
}

async fn take(lock: &Redlock, mode: &Mode, numbers: std::ops::Range<usize>) -> Vec<Lease> {
    let acquire = async |number| {
        let request = lock.acquire(resource(number)).wait(PATIENCE);
        let request = if mode.fenced { request.fenced() } else { request };
        request.await.expect("it is free")
    };
    let taking = stream::iter(numbers).map(acquire).buffer_unordered(AT_ONCE);
    let leases = taking.collect().await;
    answered(lock).await;
    leases
}

async fn give_back(lock: &Redlock, leases: Vec<Lease>) {
    let releasing = stream::iter(leases).map(Lease::release).buffer_unordered(AT_ONCE);
    releasing.for_each(|_| std::future::ready(())).await;
    answered(lock).await;
}

/// Waits until all masters have replied, also those for which no caller waits.
async fn answered(lock: &Redlock) {
    while lock
        .stats()
        .masters
        .iter()
        .any(|master| master.unanswered > 0 || master.pending_cleanups > 0)
    {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// The resident memory of this process in bytes, where the system shows it.
pub(crate) fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}
