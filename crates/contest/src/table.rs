//! The figures as tables: one for each workload, fault and latency.

use crate::{
    database::Product,
    fault::{Verdict, expectation},
    recommend::{group, median},
    results::{Contest, Fault, Figures, Outcome, Run, Workload},
    strategy::Kind,
};

type Key = (Workload, Option<Fault>, u32);

const COLUMNS: [&str; 17] = [
    "", "strategy", "rows", "counter", "lost", "over", "deadl.", "retries", "errors", "/s", "p50",
    "p95", "p99", "longest", "stall", "stmts", "cmds",
];

pub(crate) fn print(contest: &Contest, product: Product) {
    let mut keys: Vec<Key> = Vec::new();
    for run in &contest.runs {
        let key = (run.workload, run.fault, run.network_ms);
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    for key in keys {
        print_one(contest, key, product);
    }
    if let Some(why) = &contest.stopped {
        println!("PARTIAL: {why}");
    } else if !contest.runs.is_empty() {
        println!(
            "rows, counter, lost and over: the worst run; the rest: medians. Times in ms. \
             stmts, cmds: per accepted application"
        );
    }
}

fn print_one(contest: &Contest, (workload, fault, network_ms): Key, product: Product) {
    let (name, title) = match fault {
        Some(fault) => (fault.name(), fault.title()),
        None => (workload.name(), workload.title()),
    };
    let network =
        if network_ms == 0 { String::new() } else { format!(", network {network_ms} ms") };
    println!("{name}: {title}{network}");
    let mut rows = vec![COLUMNS.map(str::to_owned).to_vec()];
    let mut notes = Vec::new();
    for info in &contest.strategies {
        let is_of_table = |run: &&Run| {
            run.strategy == info.name
                && (run.workload, run.fault, run.network_ms) == (workload, fault, network_ms)
        };
        let Ok(kind) = info.name.parse::<Kind>() else { continue };
        let runs: Vec<&Run> = contest.runs.iter().filter(is_of_table).collect();
        let measured: Vec<&Figures> = runs.iter().filter_map(|run| run.outcome.figures()).collect();
        if !measured.is_empty() {
            let expected = expectation(kind, workload, fault, product);
            let worst = measured.iter().map(|figures| expected.verdict(workload, figures)).max();
            rows.push(row(&info.name, worst.unwrap_or(Verdict::Expected), &measured));
        }
        let reasons = runs.iter().filter_map(|run| reason(run));
        notes.extend(reasons.map(|reason| (info.name.as_str(), reason)));
    }
    if rows.len() > 1 {
        print_aligned(&rows);
    }
    for (reason, names) in group(notes.into_iter()) {
        println!("  {reason}: {}", names.join(", "));
    }
    println!();
}

fn reason(run: &Run) -> Option<String> {
    match &run.outcome {
        Outcome::NotOffered { reason } => Some(format!("not offered, {reason}")),
        Outcome::Failed { error } => Some(format!("FAILED: {error}")),
        Outcome::Measured(_) => None,
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of a run are far below 2⁵³")]
fn row(name: &str, verdict: Verdict, all: &[&Figures]) -> Vec<String> {
    let mark = match verdict {
        Verdict::Expected => "✓",
        Verdict::NotCaught => "?",
        Verdict::Wrong => "✗",
    };
    let middle = |get: fn(&Figures) -> f64| {
        median(all.iter().map(|figures| get(figures)).collect()).unwrap_or(0.0)
    };
    let most = |get: fn(&Figures) -> u64| all.iter().map(|figures| get(figures)).max().unwrap_or(0);
    // The run that is furthest from its places.
    let worst = all.iter().max_by_key(|figures| (figures.lost_updates, figures.oversold));
    let worst = worst.copied();
    let of_worst = |get: fn(&Figures) -> u64| worst.map_or(0, get).to_string();
    vec![
        mark.to_owned(),
        name.to_owned(),
        of_worst(|figures| figures.rows),
        of_worst(|figures| figures.counter),
        most(|figures| figures.lost_updates).to_string(),
        most(|figures| figures.oversold).to_string(),
        format!("{:.0}", middle(|figures| figures.deadlocks as f64)),
        format!("{:.0}", middle(|figures| figures.retries as f64)),
        format!("{:.0}", middle(|figures| figures.errors as f64)),
        format!("{:.0}", middle(|figures| figures.per_second)),
        time(middle(|figures| figures.latency.p50)),
        time(middle(|figures| figures.latency.p95)),
        time(middle(|figures| figures.latency.p99)),
        time(middle(|figures| figures.latency.longest)),
        time(middle(|figures| figures.stall_ms)),
        format!("{:.1}", middle(|figures| figures.statements)),
        format!("{:.1}", middle(|figures| figures.redis_commands)),
    ]
}

/// Milliseconds with two or three digits.
fn time(ms: f64) -> String {
    if ms < 10.0 { format!("{ms:.1}") } else { format!("{ms:.0}") }
}

/// Columns of the same width; text to the left, numbers to the right.
fn print_aligned(rows: &[Vec<String>]) {
    const TEXT: usize = 2;
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    for row in rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let width = width(column).unwrap_or(0);
            line += &if column < TEXT {
                format!("  {cell:<width$}")
            } else {
                format!("  {cell:>width$}")
            };
        }
        println!("{}", line.trim_end());
    }
}
