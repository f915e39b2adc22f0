//! `just bench`: measures acquire and release without contention, beside a floor of bare
//! connections and beside other locks. All contenders take turns on the same five masters. The
//! result is the ratio within a turn, which cancels the speed of the machine.
//!
//! `--quick` makes a short run, to check that the program works. `--waiting` measures only many
//! clients on one resource. `--threads` measures only 16 tasks on 1 to 8 worker threads. `--held`
//! measures only while 20 000 leases are held. `--watchdog` measures only leases that are extended.
//! `--capacity` measures only commands, bytes and memory. `--scale`, with options of its own,
//! measures what the costs grow with (`just scale`).
//!
//! With the feature `metrics` the library exports to a recorder of Prometheus meanwhile.

#![forbid(unsafe_code)]

mod capacity;
mod contender;
mod crowd;
#[cfg(unix)]
mod raw;
mod scale;
mod table;
mod watchdog;
mod worker;

use std::ops::RangeInclusive;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use contender::{Contender, Kind, Pair};
use redquorum_rig::Masters;
use table::{Slice, Table};

/// The masters, the duration of each contender's turn, and the number of turns.
struct Plan<'a> {
    masters: &'a Masters,
    slice: Duration,
    turns: usize,
}

/// The masters that no fault hits. The table shows the mean of their processor time.
const WELL: RangeInclusive<usize> = 1..=4;

/// The arguments that select a part of the benchmark.
const PARTS: [&str; 7] = [
    "--quick",
    "--waiting",
    "--threads",
    "--held",
    "--moving",
    watchdog::ARGUMENT,
    capacity::ARGUMENT,
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.as_slice() {
        [first, kind, tasks, millis, urls @ ..] if first == crowd::ARGUMENT => {
            return on_runtime(1, crowd::join(kind, tasks, millis, urls));
        }
        [first, mode, urls @ ..] if first == capacity::CHILD_ARGUMENT => {
            return on_runtime(1, capacity::hold(mode, urls));
        }
        [first, options @ ..] if first == scale::ARGUMENT => return scale::main(options),
        [first, count, urls @ ..] if first == scale::CHILD_ARGUMENT => {
            return on_runtime(1, scale::be_clients(count, urls));
        }
        _ => {}
    }
    let part = match arguments.as_slice() {
        [] => "",
        [part] if PARTS.contains(&part.as_str()) => part,
        _ => {
            eprintln!("usage: redquorum-bench [{} | --scale …]", PARTS.join(" | "));
            return ExitCode::from(64);
        }
    };
    let count = if part == "--moving" { 6 } else { 5 };
    if let Err(error) = Masters::start(count).map(|masters| measure(&masters, part)) {
        eprintln!("error: {error}");
        return ExitCode::from(3);
    }
    ExitCode::SUCCESS
}

fn measure(masters: &Masters, part: &str) {
    #[cfg(feature = "metrics")]
    metrics_exporter_prometheus::PrometheusBuilder::new()
        .install_recorder()
        .expect("it is the first recorder");
    let quick = part == "--quick";
    let held = if quick { watchdog::Plan::QUICK } else { watchdog::Plan::FULL };
    let watchdog = || println!("{}", on_runtime(1, watchdog::report(&masters.urls(), &held)));
    if part == "--waiting" {
        let length = Duration::from_secs(5);
        waiting(masters, crowd::ALL, length);
        return sharing(masters, length);
    }
    if part == watchdog::ARGUMENT {
        return watchdog();
    }
    if part == capacity::ARGUMENT {
        return println!("{}", capacity::report(masters));
    }
    let (slice, turns) = if quick { (50, 3) } else { (400, 11) };
    let plan = Plan { masters, slice: Duration::from_millis(slice), turns };
    println!(
        "{} masters on loopback, {} turns of {:?} each. A figure is the median over the turns; in \
         brackets the median of its ratios to the floor's in the same turn.\n",
        masters.len(),
        plan.turns,
        plan.slice
    );
    if part == "--threads" {
        return scaling(&plan);
    }
    if part == "--held" {
        return holding(&plan);
    }
    if part == "--moving" {
        for tasks in [1, 64] {
            let table = on_runtime(1, healthy(&plan, tasks, Kind::MOVING));
            println!("### A move to one other master: {tasks} task(s), 1 worker thread\n\n{table}");
            for kind in [Kind::Moving, Kind::Moved, Kind::Six] {
                let ratio = table.pair_ratio(kind, Kind::Redquorum);
                println!("Pair p50, {}, beside redquorum: {ratio:.2} ×\n", kind.name());
            }
        }
        return;
    }
    for threads in [1, 2] {
        for tasks in [1, 64] {
            let table = on_runtime(threads, healthy(&plan, tasks, Kind::PLAIN));
            println!("### {tasks} task(s), {threads} worker thread(s)\n\n{table}");
        }
    }
    for tasks in [1, 64] {
        let table = on_runtime(1, healthy(&plan, tasks, Kind::DEFENDED));
        println!("### Defences: {tasks} task(s), 1 worker thread\n\n{table}");
        for kind in [Kind::Fenced, Kind::Guarded] {
            let ratio = table.acquire_ratio(kind, Kind::ScriptFloor);
            println!("Acquire p50, {}, beside the script floor: {ratio:.2} ×\n", kind.name());
        }
        let ratio = table.pair_ratio(Kind::Shared, Kind::Fenced);
        println!("Pair p50, shared, beside fenced, which has as many scripts: {ratio:.2} ×\n");
    }
    #[cfg(unix)]
    {
        let table = on_runtime(1, healthy(&plan, 1, Kind::BARE));
        println!("### From the socket up: 1 task, 1 worker thread\n\n{table}");
    }
    if !quick {
        scaling(&plan);
    }
    println!("{}\n", crowd::fencing(masters, plan.slice * 10));
    let crowds = if quick { crowd::SMALL } else { crowd::ALL };
    waiting(masters, crowds, plan.slice * 10);
    watchdog();
    holding(&plan);
    sharing(masters, plan.slice * 10);
    // The last part, since it kills a master.
    for (state, table) in on_runtime(1, degraded(&plan)) {
        println!("### 1 task, 1 worker thread, {state}\n\n{table}");
    }
}

/// Measures 16 tasks on a growing number of worker threads.
fn scaling(plan: &Plan<'_>) {
    for threads in [1, 2, 4, 8] {
        let table = on_runtime(threads, healthy(plan, 16, Kind::PLAIN));
        println!("### 16 tasks, {threads} worker thread(s)\n\n{table}");
    }
}

/// Measures while the process holds many other leases.
fn holding(plan: &Plan<'_>) {
    for tasks in [1, 64] {
        capacity::empty(plan.masters);
        let table = on_runtime(1, healthy(plan, tasks, Kind::HOLDING));
        println!("### 20 000 leases held: {tasks} task(s), 1 worker thread\n\n{table}");
    }
}

/// Measures many clients that request one resource.
fn waiting(masters: &Masters, crowds: &[(usize, usize)], length: Duration) {
    println!("{}", crowd::report(masters, crowds, length));
    println!("{}\n", on_runtime(1, crowd::idle(masters, 200, length * 2)));
}

/// Measures many clients of a resource, or of a semaphore, that several may have at a time.
fn sharing(masters: &Masters, length: Duration) {
    println!("{}", crowd::sharing(masters, length));
    println!("{}", crowd::permits(masters, length));
}

fn on_runtime<T>(threads: usize, work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build()
        .expect("a runtime starts");
    let result = runtime.block_on(work);
    runtime.shutdown_background();
    result
}

async fn contenders(masters: &Masters, kinds: &[Kind]) -> Vec<Contender> {
    let mut contenders = Vec::new();
    for kind in kinds {
        let contender = kind.connect(&masters.urls()).await;
        contender.pair(&format!("bench:{}", kind.name())).await;
        contenders.push(contender);
    }
    contenders
}

/// Measures a turn of every contender.
async fn turn(contenders: &[Contender], plan: &Plan<'_>, tasks: usize, table: &mut Table) {
    for contender in contenders {
        table.slices.push((contender.kind, slice(contender, plan, tasks).await));
    }
}

/// Measures every contender in turns, without faults.
async fn healthy(plan: &Plan<'_>, tasks: usize, kinds: &'static [Kind]) -> Table {
    let contenders = contenders(plan.masters, kinds).await;
    let mut table = Table::new(kinds);
    for _ in 0..plan.turns {
        turn(&contenders, plan, tasks, &mut table).await;
    }
    table
}

/// Measures each turn without faults first, then with master 5 stopped. At the end it kills master
/// 5.
async fn degraded(plan: &Plan<'_>) -> [(&'static str, Table); 3] {
    let masters = plan.masters;
    let contenders = contenders(masters, Kind::PLAIN).await;
    let [mut well, mut hung, mut killed] = [(); 3].map(|()| Table::new(Kind::PLAIN));
    for _ in 0..plan.turns {
        turn(&contenders, plan, 1, &mut well).await;
        masters.pause(5).expect("a master can be stopped");
        turn(&contenders, plan, 1, &mut hung).await;
        masters.resume(5).expect("a master can be resumed");
        // Gives master 5 time to reply to the commands that it received while it was stopped. After
        // that, every contender has all masters again.
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    masters.kill(5).expect("a master can be killed");
    for _ in 0..plan.turns {
        turn(&contenders, plan, 1, &mut killed).await;
    }
    [("all masters up", well), ("master 5 hung", hung), ("master 5 killed", killed)]
}

/// Runs `tasks` tasks for a while, each on its own resources.
async fn slice(contender: &Contender, plan: &Plan<'_>, tasks: usize) -> Slice {
    let masters_before = crowd::cpu(plan.masters, WELL);
    let stop = Arc::new(AtomicBool::new(false));
    let (start, cpu) = (Instant::now(), cpu_time());
    let running: Vec<_> = (0..tasks)
        .map(|task| {
            let (contender, stop) = (contender.clone(), stop.clone());
            tokio::spawn(async move {
                let mut pairs: Vec<Pair> = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    // A contender has its own names, so keys that other contenders leave behind do
                    // not matter. The number of names is limited, because fencing counters stay.
                    let number = pairs.len() % 10_000;
                    let resource = format!("bench:{}:{task}:{number}", contender.kind.name());
                    pairs.push(contender.pair(&resource).await);
                }
                pairs
            })
        })
        .collect();
    tokio::time::sleep(plan.slice).await;
    stop.store(true, Ordering::Relaxed);
    let mut pairs = Vec::new();
    for task in running {
        pairs.extend(task.await.expect("no contender panics"));
    }
    let (elapsed, client) = (start.elapsed(), cpu_time() - cpu);
    let of_masters = (crowd::cpu(plan.masters, WELL) - masters_before).max(0.0);
    let master = Duration::from_secs_f64(of_masters / WELL.count() as f64);
    Slice::new(&pairs, elapsed, [client, master])
}

/// The processor time of this process, with all its threads.
#[cfg(unix)]
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::from_secs(u64::try_from(time.tv_sec).unwrap_or(0))
        + Duration::from_nanos(u64::try_from(time.tv_nsec).unwrap_or(0))
}

/// Not measured here: the column stays zero.
#[cfg(not(unix))]
fn cpu_time() -> Duration {
    Duration::ZERO
}
