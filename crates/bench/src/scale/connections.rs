//! What a client process costs a master, and itself: a client process is a `Redlock`, which has one
//! connection to each master. Some programs build many of them, since a program may have only so
//! many files open.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use redquorum::Redlock;
use redquorum::stats::LinkState;
use redquorum_rig::Masters;
use tokio::time::sleep;

use crate::capacity::resident;
use crate::contender::{PATIENCE, build, builder};
use crate::crowd::{commands, cpu, info, reset_counts};
use crate::worker::{self, Worker};

/// The first argument of a program with client processes. Their number and the URLs follow it.
pub(crate) const CHILD_ARGUMENT: &str = "--clients-of";

/// The resource for which all clients wait.
const WANTED: &str = "scale:wanted";

/// No lease of a measurement expires.
const TTL: Duration = Duration::from_secs(3600);

/// How long a master has to give back the buffers of connections that have become idle.
const SETTLING: Duration = Duration::from_secs(8);

/// How long processor time and commands are counted: as often as an idle client sends a probe.
const COUNTING: Duration = Duration::from_secs(15);

/// How many clients of a program connect at the same time.
const AT_ONCE: usize = 64;

/// The files that a program, or a master, has open besides its connections.
const OTHER_FILES: usize = 128;

/// The time for which each client works under its lease, when they take turns.
const HOLD: Duration = Duration::from_millis(2);

/// How long they do so at most.
const LONGEST_HERD: Duration = Duration::from_secs(60);

/// What all clients do, in this order.
const STATES: [&str; 3] = ["idle", "each holds a lease", "all wait for one resource"];

pub(super) fn print(masters: usize, counts: &[usize]) -> Result<(), String> {
    println!(
        "### Clients of {masters} masters\n\n\
         Figures of a master are the mean of all masters, and its memory is what it has more than \
         before the clients came.\n\n\
         | clients | | connections of a master | its memory per client, at once | {:?} later | its \
         resident memory per client then | its commands/s | its CPU, % of a core | resident memory of a client |\n\
         |---|---|---|---|---|---|---|---|---|",
        SETTLING + COUNTING
    );
    let files = open_files();
    let most = (files - OTHER_FILES).min(ports());
    let mut herds = Vec::new();
    for &count in counts {
        herds.push(rows_of(masters, count.min(most), files)?);
    }
    println!(
        "\n### The same clients take turns on that one resource, {HOLD:?} each\n\n\
         | clients | had it | within | leases/s | commands of a master per lease | a master's CPU per \
         lease |\n|---|---|---|---|---|---|"
    );
    herds.iter().for_each(|row| println!("{row}"));
    println!();
    if let Some(count) = counts.iter().find(|count| **count > most) {
        println!(
            "{count} clients are not possible here: a process may have {files} files open, and a \
             master can be reached from {} ports.\n",
            ports()
        );
    }
    Ok(())
}

/// Prints a row for each state of so many clients, and returns the row of their herd.
fn rows_of(masters: usize, count: usize, files: usize) -> Result<String, String> {
    let started = Masters::builder().count(masters).config("maxclients", &files.to_string());
    let masters = started.start().map_err(|why| why.to_string())?;
    let before = Memory::now(&masters);
    let each = ((files - OTHER_FILES) / masters.len()).max(1);
    let shares = (0..count.div_ceil(each)).map(|at| each.min(count - at * each));
    let start =
        |share: usize| Worker::start(&[CHILD_ARGUMENT, &share.to_string()], &masters.urls());
    let mut workers: Vec<Worker> = shares.map(start).collect();
    for node in 1..=masters.len() {
        let set = format!("SET {WANTED} another PX {}", TTL.as_millis());
        masters.ask(node, &set).map_err(|why| why.to_string())?;
    }
    for state in STATES {
        let bytes: Vec<String> = workers.iter_mut().map(Worker::report).collect();
        let at_once = Memory::now(&masters);
        std::thread::sleep(SETTLING);
        reset_counts(&masters);
        let cpu_before = cpu(&masters, 1..=masters.len());
        std::thread::sleep(COUNTING);
        let seconds = COUNTING.as_secs_f64() * masters.len() as f64;
        let busy = 100.0 * (cpu(&masters, 1..=masters.len()) - cpu_before) / seconds;
        let rate = commands(&masters) as f64 / seconds;
        let now = Memory::now(&masters);
        let grown = |now: &Memory, memory: fn(&Memory) -> f64| {
            kib((memory(now) - memory(&before)) / (masters.len() * count) as f64)
        };
        let clients: Option<f64> = bytes.iter().map(|bytes| bytes.parse::<f64>().ok()).sum();
        let client = clients.map_or("not measured".to_owned(), |bytes| kib(bytes / count as f64));
        println!(
            "| {count} | {state} | {:.0} | {} | {} | {} | {rate:.0} | {busy:.1} | {client} |",
            now.connections - 1.0,
            grown(&at_once, |memory| memory.used),
            grown(&now, |memory| memory.used),
            grown(&now, |memory| memory.resident),
        );
        workers.iter_mut().for_each(Worker::go_on);
    }
    reset_counts(&masters);
    let (start, cpu_before) = (Instant::now(), cpu(&masters, 1..=masters.len()));
    for node in 1..=masters.len() {
        masters.ask(node, &format!("DEL {WANTED}")).map_err(|why| why.to_string())?;
    }
    let lines = workers.into_iter().flat_map(Worker::finish);
    let had: usize = lines.filter_map(|line| line.parse::<usize>().ok()).sum();
    let seconds = start.elapsed().as_secs_f64();
    let leases = (masters.len() * had.max(1)) as f64;
    Ok(format!(
        "| {count} | {had} | {seconds:.1} s | {:.0} | {:.1} | {:.0} µs |",
        had as f64 / seconds,
        commands(&masters) as f64 / leases,
        (cpu(&masters, 1..=masters.len()) - cpu_before) * 1e6 / leases,
    ))
}

fn kib(bytes: f64) -> String {
    format!("{:.1} KiB", bytes / 1024.0)
}

/// The connections of a master, and the bytes of all masters together.
struct Memory {
    connections: f64,
    used: f64,
    resident: f64,
}

impl Memory {
    fn now(masters: &Masters) -> Self {
        let sum = |section: &str, name: &str| -> f64 {
            info(masters, 1..=masters.len(), section, |line| {
                line.strip_prefix(name)?.strip_prefix(':')?.trim().parse::<f64>().ok()
            })
        };
        Self {
            connections: sum("clients", "connected_clients") / masters.len() as f64,
            used: sum("memory", "used_memory"),
            resident: sum("memory", "used_memory_rss"),
        }
    }
}

/// Is so many client processes: goes through all states. Reports in each how much resident memory
/// they have taken, and waits for a line before the next.
pub(crate) async fn be_clients(count: &str, urls: &[String]) -> ExitCode {
    let count: usize = count.parse().expect("the parent gives a number");
    open_files();
    let before = resident();
    let building = (0..count).map(|_| build(builder(urls, TTL)));
    let locks: Vec<Redlock> = stream::iter(building).buffer_unordered(AT_ONCE).collect().await;
    for lock in &locks {
        while lock.stats().masters.iter().any(|master| master.state != LinkState::Up) {
            sleep(Duration::from_millis(10)).await;
        }
    }
    let grown = || {
        let grown = resident().zip(before).map(|(now, before)| now.saturating_sub(before));
        grown.map_or("not measured".to_owned(), |bytes| bytes.to_string())
    };
    worker::report(&grown()).await;
    let id = std::process::id();
    let acquire = async |(number, lock): (usize, &Redlock)| {
        let lease = lock.acquire(format!("scale:{id}:{number}")).wait(PATIENCE).await;
        lease.expect("it is free")
    };
    let locks_with_numbers = stream::iter(locks.iter().enumerate());
    let leases: Vec<_> = locks_with_numbers.map(acquire).buffer_unordered(AT_ONCE).collect().await;
    worker::report(&grown()).await;
    stream::iter(leases)
        .for_each_concurrent(AT_ONCE, async |lease| drop(lease.release().await))
        .await;
    let wait = |lock: &Redlock| {
        let request = lock.acquire(WANTED).wait(TTL);
        tokio::spawn(async move {
            let lease = request.await.expect("the wait is long");
            sleep(HOLD).await;
            drop(lease.release().await);
        })
    };
    let mut waiting: Vec<_> = locks.iter().map(wait).collect();
    // Each has made its first attempt, and is in the queues.
    while locks.iter().any(|lock| lock.stats().masters.iter().any(|it| it.subscriptions == 0)) {
        sleep(Duration::from_millis(100)).await;
    }
    worker::report(&grown()).await;
    let all = async {
        for task in &mut waiting {
            task.await.expect("no client panics");
        }
    };
    // Those that have not had the resource by then are told apart below.
    let _ = tokio::time::timeout(LONGEST_HERD, all).await;
    println!("{}", waiting.iter().filter(|task| task.is_finished()).count());
    ExitCode::SUCCESS
}

/// Lets this process and its children have as many files open as the system allows, and returns how
/// many those are.
#[cfg(unix)]
fn open_files() -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.unwrap_or(1_000_000);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: Some(most), ..limit });
    let files = if raised.is_ok() { most } else { limit.current.unwrap_or(most) };
    usize::try_from(files).unwrap_or(usize::MAX)
}

/// Such systems have no limit that matters here.
#[cfg(not(unix))]
fn open_files() -> usize {
    1_000_000
}

/// From how many ports of this machine one master can be reached at the same time.
fn ports() -> usize {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range");
    let range = range.unwrap_or_else(|_| "32768 60999".to_owned());
    let ends: Vec<usize> = range.split_whitespace().flat_map(str::parse).collect();
    let [first, last] = ends[..] else { return usize::MAX };
    // Some are in use by others.
    (last - first).saturating_sub(OTHER_FILES)
}
