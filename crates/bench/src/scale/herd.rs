//! Many clients, each a process of its own, want one resource at the same moment.

use std::time::{Duration, Instant};

use super::virtual_time::{Run, between, millis, play, read};
use crate::table::quantile;

/// The time for which each client works under its lease, in milliseconds.
const HOLD: u64 = 2;

pub(super) fn print(waiters: &[usize]) -> Result<(), String> {
    println!(
        "### A herd: clients that want one resource at once, each holds it for {HOLD} ms, in virtual \
         time\n\n\
         | clients | | all had it after | hand-over p50 | p99 | longest | commands of a master | of a \
         master per lease | the simulation took |\n\
         |---|---|---|---|---|---|---|---|---|"
    );
    for &count in waiters {
        for fair in [false, true] {
            let start = Instant::now();
            let run = play(&read(&scenario(count, fair))?, 1);
            let row = row(&run, count)?;
            let kind = if fair { "fair" } else { "plain" };
            println!("| {count} | {kind} | {row} | {:.1} s |", start.elapsed().as_secs_f64());
        }
    }
    println!();
    Ok(())
}

fn scenario(count: usize, fair: bool) -> String {
    format!(
        "name = \"herd\"\nabout = \"Many clients want one resource at once.\"\n\
         [lock]\nttl = \"10s\"\nnode-timeout = \"100ms\"\nfair = {fair}\n\
         [[client]]\nid = \"c\"\ncount = {count}\n\
         script = [\"acquire L wait 50m\", \"work {HOLD}ms\", \"release L\"]\n"
    )
}

fn row(run: &Run, count: usize) -> Result<String, String> {
    let (Some(last), true) = (run.leases.last(), run.leases.len() == count) else {
        return Err(format!("{} of {count} clients had the resource", run.leases.len()));
    };
    let mut gaps: Vec<f64> = run.hand_overs().map(|(_, _, gap)| millis(gap)).collect();
    gaps.sort_by(f64::total_cmp);
    let commands = run.commands.iter().sum::<u64>() as f64 / run.commands.len() as f64;
    let end: Duration = between(0, last.granted);
    Ok(format!(
        "{:.2} s | {:.2} ms | {:.2} ms | {:.0} ms | {commands:.0} | {:.1}",
        end.as_secs_f64(),
        quantile(&gaps, 0.5),
        quantile(&gaps, 0.99),
        gaps.last().copied().unwrap_or_default(),
        commands / count as f64,
    ))
}
