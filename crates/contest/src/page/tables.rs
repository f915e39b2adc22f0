//! The rows of the tables: decisions, correctness, faults, and all runs.

use serde::Serialize;

use super::format::{count, range, time};
use crate::recommend::{
    Answer, Assessment, Recommendation, RunSummary, Situation, Verdict, Violations,
};
use crate::results::{Contest, Fault, Figures, Outcome, Run, Workload};

/// A row of the decision table: if the condition holds, then use the strategy.
#[derive(Debug, Serialize)]
pub(super) struct Decision {
    condition: &'static str,
    /// `use`, `no-strategy` or `incomplete`.
    kind: &'static str,
    /// Whether no lock can be the answer, as opposed to none of those in the contest.
    no_lock_suffices: bool,
    strategy: Option<Strategy>,
    missing: Vec<String>,
    command: Option<String>,
    evidence: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Strategy {
    name: String,
    title: String,
    needs: &'static str,
}

pub(super) fn decisions(recommendation: &Recommendation) -> Vec<Decision> {
    let describe = |name: &String| {
        let found = recommendation.assessments.iter().find(|it| it.info.name == *name);
        found.map(|it| Strategy {
            name: name.clone(),
            title: it.info.title.clone(),
            needs: it.info.needs.title(),
        })
    };
    let row = |decision: &crate::recommend::Decision| {
        let (kind, strategy, missing) = match &decision.answer {
            Answer::Use { strategy } => ("use", describe(strategy), [].as_slice()),
            Answer::NoStrategy => ("no-strategy", None, [].as_slice()),
            Answer::Incomplete { missing } => ("incomplete", None, missing.as_slice()),
        };
        Decision {
            condition: decision.situation.title(),
            kind,
            no_lock_suffices: decision.situation == Situation::CannotCompareTokens,
            strategy,
            missing: missing.iter().map(ToString::to_string).collect(),
            command: decision.answer.command(),
            evidence: decision.evidence.clone(),
        }
    };
    recommendation.decisions.iter().map(row).collect()
}

/// The verdict in a cell of a table: a symbol and words, so that no colour is needed.
#[derive(Debug, Serialize)]
struct Cell {
    /// The class that colours the cell: `good`, `bad`, `slow` or `none`.
    class: &'static str,
    symbol: &'static str,
    text: String,
    detail: Option<String>,
    note: Option<usize>,
}

impl Cell {
    fn new(class: &'static str, symbol: &'static str, text: impl Into<String>) -> Self {
        Self { class, symbol, text: text.into(), detail: None, note: None }
    }

    fn with_detail(self, detail: Option<String>) -> Self {
        Self { detail, ..self }
    }

    /// The cell of a verdict without figures. Cells with the same reason share a footnote.
    fn without_figures(verdict: Verdict, notes: &mut Vec<String>) -> Self {
        let (reason, cell) = match verdict {
            Verdict::NotOffered(reason) => (reason, Self::new("none", "–", "not offered")),
            Verdict::Failed(error) => (error, Self::new("none", "!", "not completed")),
            _ => return Self::new("none", "?", "not run"),
        };
        if !notes.contains(&reason) {
            notes.push(reason.clone());
        }
        let index = notes.iter().position(|note| *note == reason);
        Self { note: index.map(|index| index + 1), ..cell }
    }
}

/// Of how many runs the worst is shown, if there are several.
fn share(summary: &RunSummary) -> Option<String> {
    let RunSummary { wrong, measured, .. } = summary;
    (*measured > 1).then(|| format!("in {wrong} of {measured} runs"))
}

/// The tables of results without a fault, one for each workload, and their footnotes.
#[derive(Debug, Default, Serialize)]
pub(super) struct Correctness {
    tables: Vec<Table>,
    notes: Vec<String>,
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
    /// Signed up, oversold, lost updates, deadlocks, retries, each with its class: `bad`, `zero`,
    /// or nothing. Empty without figures.
    figures: Vec<(String, &'static str)>,
}

impl Correctness {
    pub(super) fn new(contest: &Contest, assessments: &[Assessment]) -> Self {
        let mut this = Self::default();
        for workload in Workload::ALL {
            let summaries = assessments.iter().filter_map(|it| {
                let (_, summary) = it.workloads.iter().find(|(name, _)| *name == workload)?;
                Some((it, summary))
            });
            let counts = summaries.clone().map(|(_, it)| it.measured as u64);
            let runs = range(counts.filter(|count| *count > 0));
            if runs.is_empty() {
                continue;
            }
            let rows = summaries.map(|(assessment, summary)| Row {
                strategy: assessment.info.name.clone(),
                verdict: match summary.verdict() {
                    Verdict::Correct => Cell::new("good", "✓", "correct"),
                    Verdict::Wrong(_) => Cell::new("bad", "✗", "wrong").with_detail(share(summary)),
                    other => Cell::without_figures(other, &mut this.notes),
                },
                figures: figures(workload, contest, &assessment.info.name, summary.violations),
            });
            this.tables.push(Table {
                rows: rows.collect(),
                name: workload.name(),
                title: workload.title(),
                runs: if runs == "1" { "1 run".to_owned() } else { format!("{runs} runs") },
            });
        }
        this
    }
}

fn figures(
    workload: Workload,
    contest: &Contest,
    strategy: &str,
    violations: Violations,
) -> Vec<(String, &'static str)> {
    let of_row = |run: &&Run| run.strategy == strategy && run.is_of(workload);
    let measured: Vec<_> =
        contest.runs.iter().filter(of_row).filter_map(|run| run.outcome.figures()).collect();
    if measured.is_empty() {
        return Vec::new();
    }
    let largest = |of: fn(&Figures) -> u64| measured.iter().map(|it| of(it)).max().unwrap_or(0);
    let figure = |number, class| (count(number), if number == 0 { "zero" } else { class });
    let rows = measured.iter().map(|it| it.rows);
    let signed_up = match workload {
        Workload::Rush | Workload::LastPlace => range(rows),
        // Runs with different latencies have nothing in common that a range could show.
        Workload::Throughput | Workload::Spread => count(rows.sum()),
    };
    let is_wrong = violations.unsold > 0 || violations.oversold > 0;
    vec![
        (signed_up, if is_wrong { "bad" } else { "" }),
        figure(violations.oversold, "bad"),
        figure(violations.lost_updates, "bad"),
        figure(largest(|it| it.deadlocks), ""),
        figure(largest(|it| it.retries), ""),
    ]
}

#[derive(Debug, Serialize)]
pub(super) struct Faults {
    columns: Vec<(&'static str, &'static str)>,
    rows: Vec<(String, Vec<Cell>)>,
    notes: Vec<String>,
}

impl Faults {
    pub(super) fn new(assessments: &[Assessment]) -> Self {
        let mut notes = Vec::new();
        let row = |it: &Assessment| {
            let cells = it.faults.iter().map(|(_, summary)| under_fault(summary, &mut notes));
            (it.info.name.clone(), cells.collect())
        };
        let rows = assessments.iter().map(row).collect();
        Self { columns: Fault::ALL.map(|it| (it.name(), it.title())).into(), rows, notes }
    }
}

fn under_fault(summary: &RunSummary, notes: &mut Vec<String>) -> Cell {
    let stall = summary.stall_ms().map(|ms| format!("stalled for {}", time(ms)));
    // Correct data, but applicants waited or were turned away.
    let slow = |text: String| Cell::new("slow", "◷", text);
    match (summary.verdict(), stall) {
        (Verdict::Correct, None) => {
            let runs = (summary.measured > 1).then(|| format!("{} runs", summary.measured));
            Cell::new("good", "✓", "correct").with_detail(runs)
        }
        (Verdict::Correct, Some(stall)) => slow(stall).with_detail(Some("correct".to_owned())),
        (Verdict::Wrong(violations), stall) => {
            let mut parts = violations.parts().into_iter();
            let worst = parts.next().unwrap_or_default();
            let cell =
                if violations.corrupts() { Cell::new("bad", "✗", worst) } else { slow(worst) };
            let detail: Vec<_> = parts.chain(stall).chain(share(summary)).collect();
            cell.with_detail((!detail.is_empty()).then(|| detail.join(", ")))
        }
        (other, _) => Cell::without_figures(other, notes),
    }
}

/// A run: its figures, or the reason why it has none.
#[derive(Debug, Serialize)]
pub(super) struct RunRow<'a> {
    run: &'a Run,
    symbol: &'static str,
    result: String,
    class: &'static str,
    /// The cells after the result. Empty if there are no figures.
    figures: Vec<String>,
}

pub(super) fn runs(contest: &Contest) -> Vec<RunRow<'_>> {
    let rows = contest.runs.iter().map(|run| {
        let Run { outcome, workload, .. } = run;
        let (symbol, class, result) = match outcome {
            Outcome::Measured(figures) => {
                let violations = Violations::of(*workload, figures);
                if violations.is_none() {
                    ("✓", "good", "correct".to_owned())
                } else {
                    ("✗", "bad", violations.describe())
                }
            }
            Outcome::NotOffered { reason } => ("–", "none", format!("not offered: {reason}")),
            Outcome::Failed { error } => ("!", "bad", format!("not completed: {error}")),
        };
        let figures = outcome.figures().map(cells).unwrap_or_default();
        RunRow { run, symbol, result, class, figures }
    });
    rows.collect()
}

/// The order is that of the columns in the template.
fn cells(it: &Figures) -> Vec<String> {
    let decimal = |number: f64| format!("{number:.1}");
    vec![
        count(it.applications),
        count(it.accepted),
        count(it.refused),
        count(it.errors),
        count(it.rows),
        count(it.counter),
        count(it.deadlocks),
        count(it.retries),
        decimal(it.seconds),
        decimal(it.per_second),
        time(it.latency.p50),
        time(it.latency.p95),
        time(it.latency.p99),
        time(it.latency.longest),
        time(it.stall_ms),
        decimal(it.statements),
        decimal(it.redis_commands),
        count(it.connections),
    ]
}
