//! `report.html`: an overview of all runs, and a timeline of each. It is one file that needs no
//! network, and no JavaScript to be read.
//!
//! This file and those below turn entries, histories and the results of the checkers into positions
//! and texts. The templates only arrange them, and escape all text. No verdict is computed here.

use std::io;
use std::path::Path;

use super::human::observed;
use super::{Ended, Entry, ResultFile, Session, totals};
use chart::cut;
use minijinja::Environment;
use redquorum_checker::{Observed, Outcome};
use redquorum_cli::page::{self, fill};
use redquorum_scenario::history::History;
use redquorum_scenario::{Property, Wanted};
use run::{Section, ViolationView};
use serde::Serialize;

mod chart;
mod lanes;
mod run;
#[cfg(test)]
mod tests;

pub(super) use chart::line;

/// Timelines of runs that hold are drawn while the page stays below this size.
const MOST_BYTES: usize = 8 << 20;
pub(super) struct Run<'a> {
    entry: &'a Entry,
    history: &'a History,
}

#[derive(Serialize)]
struct Page {
    session: ResultFile,
    sentence: String,
    properties: Vec<(String, &'static str)>,
    several: bool,
    runs: Vec<RunFields>,
    left_out: usize,
}

#[derive(Serialize)]
struct RunFields {
    row: OverviewRow,
    violations: Vec<ViolationView>,
    more_violations: usize,
    /// The link from the page to the history.
    history: Option<String>,
    /// The command that draws the timeline that the page leaves out.
    command: Option<String>,
    /// The rendered section below the violations.
    body: Option<String>,
}

/// Renders the report of these runs. Reads each history from its file; relative links start at
/// `folder`. For a page of a single run, `history` is its history in memory.
///
/// # Errors
///
/// The templates are part of the program, so an error is a defect of the program.
pub(crate) fn render(
    session: &Session,
    entries: &[Entry],
    folder: &Path,
    history: Option<&History>,
) -> io::Result<String> {
    let environment = environment().map_err(io::Error::other)?;
    let mut bodies: Vec<Option<String>> = vec![None; entries.len()];
    let mut size = entries.len() * 2_500;
    for index in order(entries) {
        let entry = &entries[index];
        let needed = is_needed(entry) || history.is_some();
        if !needed && size > MOST_BYTES {
            continue;
        }
        let read = if history.is_none() { entry.read_history() } else { None };
        let Some(history) = history.or(read.as_ref()) else { continue };
        let body = fill(&environment, "run.html", &Section::new(&Run { entry, history }))?;
        if needed || size + body.len() <= MOST_BYTES {
            size += body.len();
            bodies[index] = Some(body);
        }
    }
    let runs = entries.iter().enumerate().zip(bodies).map(|((index, entry), body)| {
        let (violations, more_violations) = run::violation_views(entry);
        RunFields {
            row: overview_row(index + 1, entry),
            violations,
            more_violations,
            history: entry.history.as_deref().map(|path| link(path, folder)),
            command: entry.history.as_deref().map(command),
            body,
        }
    });
    let runs: Vec<RunFields> = runs.collect();
    let drawable = |run: &&RunFields| run.body.is_none() && run.history.is_some();
    let first = entries.first().map(|entry| &entry.backend);
    let page = Page {
        session: ResultFile::new(session),
        sentence: totals::totals(entries),
        properties: Property::ALL.map(|property| (title(property), meaning(property))).to_vec(),
        several: entries.iter().any(|entry| Some(&entry.backend) != first),
        left_out: runs.iter().filter(drawable).count(),
        runs,
    };
    fill(&environment, "report.html", &page)
}

fn environment() -> Result<Environment<'static>, minijinja::Error> {
    let mut environment = page::environment()?;
    for (name, text) in [
        ("chart.html", include_str!("page/chart.html")),
        ("report.html", include_str!("page/report.html")),
        ("run.html", include_str!("page/run.html")),
        ("script.js", include_str!("page/script.js")),
        ("violations.html", include_str!("page/violations.html")),
    ] {
        environment.add_template(name, text)?;
    }
    Ok(environment)
}

/// Whether a run always has a timeline: it violates a property, or it differs.
fn is_needed(entry: &Entry) -> bool {
    match &entry.ended {
        Ended::Checked(verdict) => {
            verdict.outcome != Outcome::AsExpected || !verdict.findings.is_empty()
        }
        Ended::Internal(_) => true,
        Ended::Skipped(_) | Ended::Environment(_) => false,
    }
}

/// The order of drawing: first the runs that always have a timeline, then the others, the shortest
/// history first, so that as many as possible fit.
fn order(entries: &[Entry]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..entries.len()).collect();
    order.sort_by_cached_key(|index| {
        let entry = &entries[*index];
        let size = entry.history.as_ref().and_then(|path| path.metadata().ok());
        (!is_needed(entry), size.map_or(0, |of| of.len()))
    });
    order
}

fn link(path: &Path, folder: &Path) -> String {
    path.strip_prefix(folder).unwrap_or(path).display().to_string()
}

fn command(history: &Path) -> String {
    let path = history.display().to_string();
    let page = history.with_file_name("report.html").display().to_string();
    let word = crate::report::shell_word;
    format!("redquorum-chaos check {} --report {}", word(&path), word(&page))
}

/// A row of the first table: a run, with every property as expected and as observed.
#[derive(Debug, Serialize)]
struct OverviewRow {
    id: usize,
    name: String,
    backend: String,
    good: bool,
    class: &'static str,
    symbol: &'static str,
    word: String,
    must: String,
    observed: String,
    cells: Vec<Cell>,
    again: String,
    seed: u64,
    differences: Vec<String>,
}

/// A property of a run.
#[derive(Debug, Serialize)]
struct Cell {
    class: &'static str,
    symbol: &'static str,
    word: &'static str,
    /// Set where the observed value differs.
    expected: &'static str,
}

/// The name of a property in the report.
fn title(property: Property) -> String {
    property.name().replace('-', " ")
}

/// The meaning of a violation of a property.
const fn meaning(property: Property) -> &'static str {
    match property {
        Property::MutualExclusion => "Two clients never believe at the same moment that they hold.",
        Property::UnfencedResource => "No update of a register is lost without fencing tokens.",
        Property::FencedResource => "No update is lost under fencing tokens, and they grow.",
        Property::Validity => "A lease is true while it lasts, and its end is reported.",
        Property::Progress => {
            "While no fault is in force, acquires and extensions succeed in time."
        }
        Property::Liveness => "After all faults are healed, every client can acquire.",
        Property::Hygiene => "No key is left behind, and no client deletes the key of another.",
    }
}

fn overview_row(id: usize, entry: &Entry) -> OverviewRow {
    let causes: Vec<&str> = entry.expect.because.iter().map(|cause| cause.name()).collect();
    let must = match (entry.expect.any_violation(), causes.is_empty()) {
        (false, _) => "must hold".to_owned(),
        (true, true) => "must break".to_owned(),
        (true, false) => format!("must break: {}", causes.join(", ")),
    };
    let time = if entry.time > 0 { format!(" ({})", entry.time + 1) } else { String::new() };
    let (class, symbol) = match (&entry.ended, entry.is_good()) {
        (Ended::Skipped(_), _) => ("none", "–"),
        (_, true) => ("holds", "✓"),
        (Ended::Checked(_), false) => ("wrong", "≠"),
        (_, false) => ("wrong", "!"),
    };
    OverviewRow {
        id,
        name: format!("{}{time}", cut(&entry.name)),
        backend: cut(&entry.backend),
        good: entry.is_good(),
        class,
        symbol,
        word: entry.word().replace('-', " "),
        must,
        observed: cut(&observed(entry)),
        cells: Property::ALL.into_iter().map(|property| overview_cell(entry, property)).collect(),
        again: entry.again.clone(),
        seed: entry.seed,
        differences: match entry.is_good() {
            true => Vec::new(),
            false => entry.differences().iter().take(20).map(|text| cut(text)).collect(),
        },
    }
}

fn overview_cell(entry: &Entry, property: Property) -> Cell {
    let seen = match &entry.ended {
        Ended::Checked(verdict) => verdict.observed.get(&property).copied(),
        _ => None,
    };
    let must = match entry.expect.of(property) {
        Wanted::Safe => "must hold",
        Wanted::Violated => "must break",
    };
    let word = match seen {
        Some(Observed::Safe) => "holds",
        Some(Observed::NotUsed) if must == "must hold" => {
            return Cell { class: "none", symbol: "–", word: "not used", expected: "" };
        }
        Some(Observed::NotUsed) => "not used",
        Some(Observed::Violated) => "breaks",
        Some(Observed::Inconclusive) => {
            return Cell { class: "open", symbol: "?", word: "unclear", expected: must };
        }
        None => return Cell { class: "none", symbol: "–", word: "not checked", expected: must },
    };
    match (must, word) {
        ("must hold", "holds") => Cell { class: word, symbol: "✓", word, expected: "" },
        ("must break", "breaks") => Cell { class: word, symbol: "✗", word, expected: "" },
        _ => Cell { class: "wrong", symbol: "‼", word, expected: must },
    }
}
