//! The tables of results without a fault, one for each workload.

use serde::Serialize;

use super::format::{count, range};
use super::notes::{Cell, Notes};
use crate::recommend::{Assessment, RunSummary, Verdict};
use crate::results::{Contest, Figures, Outcome, Workload};

/// The tables, and their footnotes.
#[derive(Debug, Serialize)]
pub(super) struct Correctness {
    tables: Vec<Table>,
    notes: Notes,
}

#[derive(Debug, Serialize)]
struct Table {
    name: &'static str,
    title: &'static str,
    /// The runs of a strategy, for example `20 runs` or `1–20 runs`.
    runs: String,
    rows: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    strategy: String,
    verdict: Cell,
    /// Signed up, oversold, lost updates, deadlocks, retries: empty without figures.
    figures: Vec<Figure>,
}

#[derive(Debug, Serialize)]
struct Figure {
    text: String,
    /// `bad`, `zero`, or nothing.
    class: &'static str,
}

impl Correctness {
    pub(super) fn new(contest: &Contest, assessments: &[Assessment]) -> Self {
        let mut notes = Notes::default();
        let mut tables = Vec::new();
        for workload in crate::results::Workload::ALL {
            let summaries = assessments.iter().filter_map(|it| {
                let (_, summary) = it.workloads.iter().find(|(name, _)| *name == workload)?;
                Some((it, summary))
            });
            let counts: Vec<_> = summaries.clone().map(|(_, it)| it.measured as u64).collect();
            if counts.iter().all(|count| *count == 0) {
                continue;
            }
            let rows = summaries.map(|(assessment, summary)| Row {
                strategy: assessment.info.name.clone(),
                verdict: cell(summary, &mut notes),
                figures: figures(
                    workload,
                    &measured(contest, &assessment.info.name, workload),
                    summary,
                ),
            });
            tables.push(Table {
                rows: rows.collect(),
                name: workload.name(),
                title: workload.title(),
                runs: runs(&counts),
            });
        }
        Self { tables, notes }
    }
}

fn runs(counts: &[u64]) -> String {
    let measured = counts.iter().copied().filter(|count| *count > 0);
    let text = range(measured);
    if text == "1" { "1 run".to_owned() } else { format!("{text} runs") }
}

fn cell(summary: &RunSummary, notes: &mut Notes) -> Cell {
    match summary.verdict() {
        Verdict::Correct => Cell::correct(),
        Verdict::Wrong(_) => {
            let share = format!("in {} of {} runs", summary.wrong, summary.measured);
            let detail = (summary.measured > 1).then_some(share);
            Cell::wrong("wrong".to_owned()).with_detail(detail)
        }
        Verdict::NotOffered(reason) => Cell::not_offered(notes.number(&reason)),
        Verdict::Failed(error) => Cell::failed(notes.number(&error)),
        Verdict::NotRun => Cell::not_run(),
    }
}

fn measured<'a>(contest: &'a Contest, strategy: &str, workload: Workload) -> Vec<&'a Figures> {
    let runs = contest
        .runs
        .iter()
        .filter(|run| run.strategy == strategy && run.workload == workload && run.fault.is_none());
    runs.filter_map(|run| match &run.outcome {
        Outcome::Measured(figures) => Some(figures),
        _ => None,
    })
    .collect()
}

fn figures(workload: Workload, measured: &[&Figures], summary: &RunSummary) -> Vec<Figure> {
    if measured.is_empty() {
        return Vec::new();
    }
    let largest = |of: fn(&Figures) -> u64| measured.iter().map(|it| of(it)).max().unwrap_or(0);
    let figure = |number: u64, is_wrong| Figure {
        text: count(number),
        class: if is_wrong {
            "bad"
        } else if number == 0 {
            "zero"
        } else {
            ""
        },
    };
    let violations = summary.violations;
    let rows = measured.iter().map(|it| it.rows);
    let signed_up = match workload {
        Workload::Rush | Workload::LastPlace => range(rows),
        // Runs with different latencies have nothing in common that a range could show.
        Workload::Throughput | Workload::Spread => count(rows.sum()),
    };
    let is_wrong = violations.unsold > 0 || violations.oversold > 0;
    vec![
        Figure { text: signed_up, class: if is_wrong { "bad" } else { "" } },
        figure(violations.oversold, violations.oversold > 0),
        figure(violations.lost_updates, violations.lost_updates > 0),
        figure(largest(|it| it.deadlocks), false),
        figure(largest(|it| it.retries), false),
    ]
}
