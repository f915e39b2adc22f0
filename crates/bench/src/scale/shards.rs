//! Resources that are spread over several quorums.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use redquorum::Shards;
use redquorum_rig::Masters;

use crate::contender::{PATIENCE, answers, builder};
use crate::table::median;
use crate::{cpu_time, crowd, on_runtime};

/// The length of a turn: each number of shards has one in each round.
const TURN: Duration = Duration::from_millis(500);

/// The tasks that acquire and release, each its own resources: so many in all, and so many for each
/// shard.
const TASKS: usize = 64;

/// No key of a task that was cut off keeps others out for long.
const TTL: Duration = Duration::from_secs(10);

/// How many names a task uses.
const NAMES: usize = 1_000;

/// The figures of a turn.
struct Turn {
    pairs_per_second: f64,
    client_micros: f64,
    /// The processor time of one master for a pair of its own shard.
    master_micros: f64,
}

pub(super) fn print(masters: usize, counts: &[usize], rounds: usize) -> Result<(), String> {
    let most = counts.iter().copied().max().unwrap_or(1);
    let started = Masters::start(masters * most).map_err(|why| why.to_string())?;
    for (grows, text) in [(false, "in all"), (true, "for each shard")] {
        let tasks = |count| if grows { TASKS * count } else { TASKS };
        let turns = on_runtime(1, measure(&started, masters, counts, rounds, &tasks));
        println!(
            "### Shards of {masters} masters: {TASKS} tasks {text}, 1 worker thread, medians of \
             {rounds} rounds\n\n\
             In brackets is the median of the ratios to the first row in the same round, and behind \
             it the least and the largest of them.\n"
        );
        print_turns(masters, counts, &turns);
    }
    Ok(())
}

fn print_turns(masters: usize, counts: &[usize], turns: &[Vec<Turn>]) {
    println!(
        "| shards | masters | pairs/s | client CPU µs/pair | a master's CPU µs per pair of its shard \
         | pairs/s of a full core of each master | of all shards |\n\
         |---|---|---|---|---|---|---|"
    );
    for (at, count) in counts.iter().enumerate() {
        let cell = |of: fn(&Turn) -> f64| {
            let ratios = turns.iter().map(|turn| of(&turn[at]) / of(&turn[0]));
            let mut ratios: Vec<f64> = ratios.collect();
            ratios.sort_by(f64::total_cmp);
            let value = median(turns.iter().map(|turn| of(&turn[at])).collect());
            let (least, largest) = (ratios[0], ratios[ratios.len() - 1]);
            match at {
                0 => format!("{value:.0}"),
                _ => format!("{value:.0} ({:.2} ×, {least:.2} to {largest:.2})", median(ratios)),
            }
        };
        let core = 1e6 / median(turns.iter().map(|turn| turn[at].master_micros).collect());
        println!(
            "| {count} | {} | {} | {} | {} | {core:.0} | {:.0} |",
            count * masters,
            cell(|turn| turn.pairs_per_second),
            cell(|turn| turn.client_micros),
            cell(|turn| turn.master_micros),
            core * *count as f64,
        );
    }
    println!();
}

/// Measures each number of shards in turns.
async fn measure(
    started: &Masters,
    masters: usize,
    counts: &[usize],
    rounds: usize,
    tasks: &impl Fn(usize) -> usize,
) -> Vec<Vec<Turn>> {
    let (urls, mut shards) = (started.urls(), Vec::new());
    for count in counts {
        let named = urls.chunks(masters).take(*count).enumerate();
        let named = named.map(|(number, urls)| (format!("shard-{number}"), urls));
        let built = builder(&[], TTL).shards(named).build_shards().await;
        let built = built.expect("its options are good");
        for (_, lock) in built.iter() {
            answers(lock).await;
        }
        shards.push(built);
    }
    // One turn before the first round: buffers and tables of keys have their size.
    for shards in &shards {
        turn(started, shards, masters, TASKS).await;
    }
    let mut turns = Vec::new();
    for _ in 0..rounds {
        let mut round = Vec::new();
        for (shards, &count) in shards.iter().zip(counts) {
            round.push(turn(started, shards, masters, tasks(count)).await);
        }
        turns.push(round);
    }
    turns
}

/// A turn of these tasks; each shard has as many masters.
async fn turn(started: &Masters, shards: &Shards, masters: usize, tasks: usize) -> Turn {
    let used = 1..=shards.iter().count() * masters;
    let (of_masters, of_client) = (crowd::cpu(started, used.clone()), cpu_time());
    let (start, stop) = (Instant::now(), Arc::new(AtomicBool::new(false)));
    let work = async |task: usize, shards: Shards, stop: Arc<AtomicBool>| {
        let mut pairs = 0_usize;
        while !stop.load(Ordering::Relaxed) {
            let resource = format!("scale:{task}:{}", pairs % NAMES);
            let request = shards.acquire(resource).wait(PATIENCE);
            drop(request.await.expect("it is free").release().await);
            pairs += 1;
        }
        pairs
    };
    let spawn = |task| tokio::spawn(work(task, shards.clone(), stop.clone()));
    let tasks: Vec<_> = (0..tasks).map(spawn).collect();
    tokio::time::sleep(TURN).await;
    stop.store(true, Ordering::Relaxed);
    let mut pairs = 0;
    for task in tasks {
        pairs += task.await.expect("no task panics");
    }
    let (elapsed, of_client) = (start.elapsed(), cpu_time() - of_client);
    let of_masters = crowd::cpu(started, used) - of_masters;
    let pairs = pairs as f64;
    Turn {
        pairs_per_second: pairs / elapsed.as_secs_f64(),
        client_micros: of_client.as_secs_f64() * 1e6 / pairs,
        master_micros: of_masters * 1e6 / (pairs * masters as f64),
    }
}
