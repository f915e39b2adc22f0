//! The table of all runs.

use serde::Serialize;

use super::format::{count, time};
use crate::recommend::Violations;
use crate::results::{Contest, Figures, Outcome};

/// A run: its figures, or the reason why it has none.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    strategy: String,
    workload: &'static str,
    fault: Option<&'static str>,
    network_ms: u32,
    repetition: u32,
    symbol: &'static str,
    result: String,
    class: &'static str,
    /// The cells after the result. Empty if there are no figures.
    figures: Vec<String>,
}

/// All runs, in the order in which they were made.
pub(super) fn rows(contest: &Contest) -> Vec<Row> {
    let rows = contest.runs.iter().map(|run| {
        let (symbol, class, result, figures) = match &run.outcome {
            Outcome::Measured(it) => {
                let violations = Violations::of(run.workload, it);
                if violations.is_none() {
                    ("✓", "good", "correct".to_owned(), cells(it))
                } else {
                    ("✗", "bad", violations.describe(), cells(it))
                }
            }
            Outcome::NotOffered { reason } => {
                ("–", "none", format!("not offered: {reason}"), Vec::new())
            }
            Outcome::Failed { error } => {
                ("!", "bad", format!("not completed: {error}"), Vec::new())
            }
        };
        Row {
            strategy: run.strategy.clone(),
            workload: run.workload.name(),
            fault: run.fault.map(crate::results::Fault::name),
            network_ms: run.network_ms,
            repetition: run.repetition,
            symbol,
            result,
            class,
            figures,
        }
    });
    rows.collect()
}

/// The order is that of the columns in the template.
fn cells(it: &Figures) -> Vec<String> {
    vec![
        count(it.applications),
        count(it.accepted),
        count(it.refused),
        count(it.errors),
        count(it.rows),
        count(it.counter),
        count(it.deadlocks),
        count(it.retries),
        format!("{:.1}", it.seconds),
        format!("{:.1}", it.per_second),
        time(it.latency.p50),
        time(it.latency.p95),
        time(it.latency.p99),
        time(it.latency.longest),
        time(it.stall_ms),
        format!("{:.1}", it.statements),
        format!("{:.1}", it.redis_commands),
        count(it.connections),
    ]
}
