//! The table of strategies under faults.

use serde::Serialize;

use super::format::time;
use super::notes::{Cell, Notes};
use crate::recommend::{Assessment, RunSummary, Verdict};

/// The table, and its footnotes.
#[derive(Debug, Serialize)]
pub(super) struct Faults {
    columns: Vec<Column>,
    rows: Vec<Row>,
    notes: Notes,
}

#[derive(Debug, Serialize)]
struct Column {
    name: &'static str,
    title: &'static str,
}

#[derive(Debug, Serialize)]
struct Row {
    strategy: String,
    cells: Vec<Cell>,
}

impl Faults {
    pub(super) fn new(assessments: &[Assessment]) -> Self {
        let mut notes = Notes::default();
        let mut rows = Vec::new();
        for it in assessments {
            let cells = it.faults.iter().map(|(_, summary)| cell(summary, &mut notes)).collect();
            rows.push(Row { strategy: it.info.name.clone(), cells });
        }
        let columns = crate::results::Fault::ALL
            .map(|it| Column { name: it.name(), title: it.title() })
            .into();
        Self { columns, rows, notes }
    }
}

fn cell(summary: &RunSummary, notes: &mut Notes) -> Cell {
    let stall = summary.stall_ms().map(|ms| format!("stalled for {}", time(ms)));
    let runs = (summary.measured > 1).then(|| format!("{} runs", summary.measured));
    match summary.verdict() {
        Verdict::Correct => match stall {
            None => Cell::correct().with_detail(runs),
            Some(stall) => Cell::slow(stall).with_detail(Some("correct".to_owned())),
        },
        Verdict::Wrong(violations) => {
            let mut parts = violations.parts().into_iter();
            let worst = parts.next().unwrap_or_default();
            let share = (summary.measured > 1)
                .then(|| format!("in {} of {} runs", summary.wrong, summary.measured));
            let detail: Vec<_> = parts.chain(stall).chain(share).collect();
            let detail = (!detail.is_empty()).then(|| detail.join(", "));
            let cell = if violations.corrupts() { Cell::wrong(worst) } else { Cell::slow(worst) };
            cell.with_detail(detail)
        }
        Verdict::NotOffered(reason) => Cell::not_offered(notes.number(&reason)),
        Verdict::Failed(error) => Cell::failed(notes.number(&error)),
        Verdict::NotRun => Cell::not_run(),
    }
}
