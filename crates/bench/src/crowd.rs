//! Many tasks and processes contend for one resource. The section measures four things: the share
//! of time in which a task holds the resource, the hand-over between two holders, the longest wait,
//! and the cost of a lease for the masters.

use std::fmt::Write as _;
use std::iter::Sum;
use std::ops::RangeInclusive;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redquorum_rig::Masters;
use tokio::time::sleep;

use crate::contender::{Contender, Kind, PATIENCE, PERMITS, connect};
use crate::worker::{self, Worker};

/// The first argument of a process of the crowd. The contender, the number of tasks, the time in
/// milliseconds, and the URLs follow it.
pub(crate) const ARGUMENT: &str = "--crowd";

/// The starts of the lines with which a process of the crowd reports the number of its commands,
/// and of its leases that needed a certification round.
const COMMANDS: &str = "commands ";
const CERTIFIED: &str = "certified ";

/// The start of the lines with the number of leases of each task.
const OF_TASK: &str = "leases of a task: ";

/// The time for which each task works under its lease.
const HOLD: Duration = Duration::from_millis(2);

/// The least duration of a measurement, for each process of the crowd.
const PER_PROCESS: Duration = Duration::from_millis(100);

/// The time that the tasks of `idle` have to join the queue.
const START: Duration = Duration::from_millis(700);

/// The commands of clients that do not count them, as the masters' statistics name them. Commands
/// inside their scripts have other names.
const ON_THE_WIRE: [&str; 6] = ["set", "eval", "evalsha", "hello", "subscribe", "unsubscribe"];

/// One lease: the start of the wait, the grant and the release.
#[derive(Clone, Copy)]
struct Lease {
    asked: u64,
    granted: u64,
    released: u64,
}

/// The number of processes, and of tasks in each, in a short run.
pub(crate) const SMALL: &[(usize, usize)] = &[(2, 1), (1, 16), (4, 4)];

/// The number of processes, and of tasks in each, in a full run. The cost of a lease must not grow
/// with the number of processes.
pub(crate) const ALL: &[(usize, usize)] =
    &[(2, 1), (1, 16), (4, 4), (4, 1), (16, 1), (64, 1), (200, 1)];

/// Measures all contenders in each of these crowds.
pub(crate) fn report(masters: &Masters, crowds: &[(usize, usize)], length: Duration) -> String {
    let mut text = String::new();
    for &(processes, tasks) in crowds {
        // Reduces the influence of each process's first and last attempt.
        let length = length.max(PER_PROCESS * u32::try_from(processes).unwrap_or(u32::MAX));
        let _ = write!(
            text,
            "### One resource: {processes} process(es) of {tasks} task(s), each holds it for {HOLD:?}\n\n\
             | | leases/s | efficiency | hand-over p50 | p99 | mean wait | longest | commands per lease \
             | masters' CPU per lease |\n\
             |---|---|---|---|---|---|---|---|---|\n"
        );
        let kinds = if (processes, tasks) == (2, 1) { Kind::PAIRED } else { Kind::CROWDED };
        for kind in kinds {
            let row = row(masters, *kind, (processes, tasks), length);
            let _ = writeln!(text, "| {} | {row} |", kind.name());
        }
        text.push('\n');
    }
    text
}

/// The readers and writers of [`sharing`]: processes, and tasks in each.
const READERS: (usize, usize) = (8, 8);
const WRITERS: (usize, usize) = (2, 1);

/// Lets readers and writers contend for one resource. Each begins again as soon as it is done, so
/// that the readers would keep the writers out for ever if nothing held them back.
pub(crate) fn sharing(masters: &Masters, length: Duration) -> String {
    let tasks = |(processes, tasks): (usize, usize)| processes * tasks;
    let mut text = format!(
        "### One resource: {} readers in {} processes and {} writers, each holds it for {HOLD:?}\n\n\
         | | leases/s | mean wait | longest | commands per lease, of all |\n|---|---|---|---|---|\n",
        tasks(READERS),
        READERS.0,
        tasks(WRITERS),
    );
    for [reader, writer] in Kind::SHARING {
        let (lines, _) = run(masters, &[(*reader, READERS), (*writer, WRITERS)], length);
        let commands: u64 = lines.iter().flatten().filter_map(|line| count(line, COMMANDS)).sum();
        let leases = |of: &Vec<String>| of.iter().filter_map(|line| lease(line)).collect();
        let each: Vec<Vec<Lease>> = lines.iter().map(leases).collect();
        let all = each.iter().map(Vec::len).sum::<usize>().max(1);
        for (kind, leases) in [reader, writer].into_iter().zip(&each) {
            let (mean, longest) = waits(leases);
            let rate = leases.len() as f64 / length.as_secs_f64();
            let commands = commands as f64 / all as f64;
            let _ = writeln!(
                text,
                "| {} | {rate:.0} | {mean:.1} ms | {longest:.0} ms | {commands:.1} |",
                kind.name()
            );
        }
    }
    text
}

/// Lets tasks, and processes, contend for the permits of a semaphore; and for one of its slots,
/// which each draws anew: what a program would do without a semaphore.
pub(crate) fn permits(masters: &Masters, length: Duration) -> String {
    let mut text = String::new();
    for (processes, tasks) in [(1, 64), (16, 1)] {
        let _ = write!(
            text,
            "### {PERMITS} permits: {processes} process(es) of {tasks} task(s), each holds one for \
             {HOLD:?}\n\n\
             | | permits/s | mean wait | longest | commands per permit | least and most permits of \
             a task |\n|---|---|---|---|---|---|\n"
        );
        for kind in Kind::PERMITTED {
            let (lines, _) = run(masters, &[(*kind, (processes, tasks))], length);
            let lines = lines.concat();
            let commands: u64 = lines.iter().filter_map(|line| count(line, COMMANDS)).sum();
            let each: Vec<u64> = lines.iter().filter_map(|line| count(line, OF_TASK)).collect();
            let leases: Vec<Lease> = lines.iter().filter_map(|line| lease(line)).collect();
            let (mean, longest) = waits(&leases);
            let (least, most) = (each.iter().min(), each.iter().max());
            let _ = writeln!(
                text,
                "| {} | {:.0} | {mean:.1} ms | {longest:.0} ms | {:.1} | {} to {} |",
                kind.name(),
                leases.len() as f64 / length.as_secs_f64(),
                commands as f64 / leases.len().max(1) as f64,
                least.unwrap_or(&0),
                most.unwrap_or(&0),
            );
        }
        text.push('\n');
    }
    text
}

fn row(masters: &Masters, kind: Kind, crowd: (usize, usize), length: Duration) -> String {
    let (lines, cpu) = run(masters, &[(kind, crowd)], length);
    let lines = lines.concat();
    let mut counts = lines.iter().filter_map(|line| count(line, COMMANDS)).peekable();
    let counted = counts.peek().is_some().then(|| counts.sum());
    let leases = lines.iter().filter_map(|line| lease(line)).collect();
    figures(leases, counted.unwrap_or_else(|| commands(masters)), cpu)
}

/// Lets processes contend for one fenced resource. Counts how often the masters' numbers differ, so
/// that a lease needs a certification round.
pub(crate) fn fencing(masters: &Masters, length: Duration) -> String {
    const PROCESSES: usize = 8;
    let (lines, _) = run(masters, &[(Kind::Fenced, (PROCESSES, 1))], length);
    let lines = lines.concat();
    let acquired = lines.iter().filter_map(|line| lease(line)).count();
    let certified: u64 = lines.iter().filter_map(|line| count(line, CERTIFIED)).sum();
    assert!(acquired > 0, "no process acquired anything");
    let share = certified as f64 * 100.0 / acquired as f64;
    format!(
        "### Fencing tokens: {PROCESSES} processes contend for one resource\n\n{acquired} leases \
         in {length:?}; {certified} needed a second round: {share:.2} %"
    )
}

/// Lets crowds contend: so many processes of a kind, with so many tasks in each. Returns what the
/// processes of each crowd print, and the masters' processor time in seconds.
fn run(
    masters: &Masters,
    crowds: &[(Kind, (usize, usize))],
    length: Duration,
) -> (Vec<Vec<String>>, f64) {
    let millis = length.as_millis().to_string();
    let start = |(kind, (processes, tasks)): &(Kind, (usize, usize))| -> Vec<Worker> {
        let tasks = tasks.to_string();
        let arguments = [ARGUMENT, kind.name(), &tasks, &millis];
        (0..*processes).map(|_| Worker::start(&arguments, &masters.urls())).collect()
    };
    let mut workers: Vec<Vec<Worker>> = crowds.iter().map(start).collect();
    for worker in workers.iter_mut().flatten() {
        worker.report();
    }
    reset_counts(masters);
    let before = cpu(masters, 1..=masters.len());
    workers.iter_mut().flatten().for_each(Worker::go_on);
    let finish = |of: Vec<Worker>| of.into_iter().flat_map(Worker::finish).collect();
    let lines = workers.into_iter().map(finish).collect();
    (lines, cpu(masters, 1..=masters.len()) - before)
}

fn count(line: &str, name: &str) -> Option<u64> {
    line.strip_prefix(name)?.parse().ok()
}

fn lease(line: &str) -> Option<Lease> {
    let numbers: Vec<u64> = line.split(' ').map_while(|word| word.parse().ok()).collect();
    let [asked, granted, released] = numbers[..] else { return None };
    Some(Lease { asked, granted, released })
}

/// The mean wait and the longest one, in milliseconds.
fn waits(leases: &[Lease]) -> (f64, f64) {
    let wait = |lease: &Lease| lease.granted.saturating_sub(lease.asked) as f64 / 1e6;
    let mean = leases.iter().map(wait).sum::<f64>() / leases.len().max(1) as f64;
    (mean, leases.iter().map(wait).fold(0.0, f64::max))
}

fn figures(mut leases: Vec<Lease>, commands: u64, cpu: f64) -> String {
    leases.sort_by_key(|lease| lease.granted);
    let (Some(first), Some(last)) = (leases.first(), leases.last()) else {
        return "no lease | | | | | | |".to_owned();
    };
    let ms = |nanos: f64| nanos / 1e6;
    let count = leases.len() as f64;
    let span = (last.released - first.granted) as f64;
    let held: f64 =
        leases.iter().map(|lease| lease.released.saturating_sub(lease.granted) as f64).sum();
    let gap = |two: &[Lease]| two[1].granted.saturating_sub(two[0].released) as f64;
    let mut gaps: Vec<f64> = leases.windows(2).map(gap).collect();
    gaps.sort_by(f64::total_cmp);
    let (mean, longest) = waits(&leases);
    format!(
        "{:.0} | {:.0} % | {:.2} ms | {:.2} ms | {:.0} ms | {:.0} ms ({:.1} ×) | {:.1} | {:.0} µs",
        count / (span / 1e9),
        100.0 * held / span,
        ms(crate::table::quantile(&gaps, 0.5)),
        ms(crate::table::quantile(&gaps, 0.99)),
        mean,
        longest,
        longest / mean,
        commands as f64 / count,
        1e6 * cpu / count,
    )
}

/// Runs one process of the crowd: connects, waits for a line on its input, and prints its leases.
pub(crate) async fn join(kind: &str, tasks: &str, millis: &str, urls: &[String]) -> ExitCode {
    let known = Kind::PAIRED.iter().chain(Kind::CROWDED).chain(Kind::DEFENDED);
    let mut known = known.chain(Kind::SHARING.as_flattened()).chain(Kind::PERMITTED);
    let kind = known.find(|known| known.name() == kind).expect("a known contender");
    let contender = kind.connect(urls).await;
    worker::report("ready").await;
    let before = contender.lock().map(crate::contender::commands);
    let end = now() + 1_000_000 * millis.parse::<u64>().unwrap_or(1_000);
    let work = |_| tokio::spawn(take_turns(contender.clone(), end));
    let running: Vec<_> = (0..tasks.parse().unwrap_or(1)).map(work).collect();
    for task in running {
        let leases = task.await.expect("no contender panics");
        println!("{OF_TASK}{}", leases.len());
        for Lease { asked, granted, released } in leases {
            println!("{asked} {granted} {released}");
        }
    }
    if let Some((lock, before)) = contender.lock().zip(before) {
        println!("{COMMANDS}{}", crate::contender::commands(lock) - before);
        println!("{CERTIFIED}{}", lock.stats().certified);
    }
    ExitCode::SUCCESS
}

async fn take_turns(contender: Contender, end: u64) -> Vec<Lease> {
    let mut leases = Vec::new();
    while now() < end {
        let asked = now();
        let left = Duration::from_nanos(end.saturating_sub(asked));
        let Some(held) = contender.take("bench:crowd", left).await else { break };
        let granted = now();
        sleep(HOLD).await;
        let released = now();
        contender.give_back("bench:crowd", held).await;
        leases.push(Lease { asked, granted, released });
    }
    leases
}

/// Lets the tasks of one process wait for a resource that another client holds. Measures the
/// commands per second on all masters together.
pub(crate) async fn idle(masters: &Masters, waiters: usize, length: Duration) -> String {
    let (urls, ttl) = (masters.urls(), Duration::from_secs(30));
    let (holder, crowd) = (connect(&urls, ttl).await, connect(&urls, ttl).await);
    let lease = holder.acquire("bench:idle").wait(PATIENCE).await.expect("it is free");
    lease.keep_alive(Duration::from_secs(3600));
    let wait = || crowd.acquire("bench:idle").wait(2 * length + START).into_future();
    let waiting: Vec<_> = (0..waiters).map(|_| tokio::spawn(wait())).collect();
    sleep(START).await;
    reset_counts(masters);
    sleep(length).await;
    let rate = commands(masters) as f64 / length.as_secs_f64();
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
    let _ = lease.release().await;
    format!(
        "### {waiters} tasks wait for a resource that is held at a TTL of 30 s\n\n{rate:.1} commands a second on all \
         masters together, the watchdog's included"
    )
}

pub(crate) fn reset_counts(masters: &Masters) {
    for node in 1..=masters.len() {
        masters.ask(node, "CONFIG RESETSTAT").expect("a master answers");
    }
}

/// The number of commands that clients sent so far.
pub(crate) fn commands(masters: &Masters) -> u64 {
    info(masters, 1..=masters.len(), "commandstats", |line| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        ON_THE_WIRE.contains(&name).then(|| rest.split(',').next()?.parse::<u64>().ok())?
    })
}

/// The processor time of these masters so far, in seconds.
pub(crate) fn cpu(masters: &Masters, nodes: RangeInclusive<usize>) -> f64 {
    info(masters, nodes, "cpu", |line| match line.split_once(':')? {
        ("used_cpu_sys" | "used_cpu_user", seconds) => seconds.trim().parse::<f64>().ok(),
        _ => None,
    })
}

/// The sum, over these masters, of the values that `read` takes from a section of `INFO`.
pub(crate) fn info<T: Sum>(
    masters: &Masters,
    nodes: RangeInclusive<usize>,
    section: &str,
    read: impl Fn(&str) -> Option<T>,
) -> T {
    let of = |node| {
        let info = masters.info(node, section).expect("a master replies");
        info.lines().filter_map(&read).sum::<T>()
    };
    nodes.map(of).sum()
}

/// Nanoseconds of the system clock, which all processes share.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
