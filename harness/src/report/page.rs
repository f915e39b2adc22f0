//! `report.html`: an overview of all runs, and a timeline of each. It is one file that needs no
//! network, and no JavaScript to be read.
//!
//! The modules below turn entries, histories and the results of the checkers into positions and
//! texts. The templates only arrange them, and escape all text. No verdict is computed here.

use std::io;
use std::path::Path;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, UndefinedBehavior};
use serde::Serialize;

use super::{Ended, Entry, ResultFile, Session, totals};
use redquorum_checker::Outcome;
use redquorum_scenario::Property;
use redquorum_scenario::history::History;

mod chart;
mod clients;
mod doctor;
mod faults;
mod figures;
mod masters;
mod names;
mod overview;
mod registers;
mod run;
#[cfg(test)]
mod tests;
mod text;
mod violations;

pub(crate) use doctor::render_diagnosis;
use overview::Row;
use run::Section;
pub(super) use text::line;
use violations::ViolationView;

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
    row: Row,
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
        let (violations, more_violations) = violations::views(entry);
        RunFields {
            row: overview::row(index + 1, entry),
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
        sentence: totals::sentence(entries),
        properties: Property::ALL
            .map(|property| (overview::title(property), overview::meaning(property)))
            .to_vec(),
        several: entries.iter().any(|entry| Some(&entry.backend) != first),
        left_out: runs.iter().filter(drawable).count(),
        runs,
    };
    fill(&environment, "report.html", &page)
}

/// Fills a template with values.
fn fill(environment: &Environment<'_>, name: &str, values: &impl Serialize) -> io::Result<String> {
    let template = environment.get_template(name).map_err(io::Error::other)?;
    template.render(Serde(values)).map_err(io::Error::other)
}

fn environment() -> Result<Environment<'static>, minijinja::Error> {
    let mut environment = Environment::new();
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    // A misspelled field is an error, not an empty cell.
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    // The file extension decides the escaping: `.html` is escaped; `.css` and `.js` are text of the
    // program.
    environment.set_auto_escape_callback(|name| match name.ends_with(".html") {
        true => minijinja::AutoEscape::Html,
        false => minijinja::AutoEscape::None,
    });
    for (name, text) in [
        ("base.html", include_str!("page/base.html")),
        ("chart.html", include_str!("page/chart.html")),
        ("doctor.html", include_str!("page/doctor.html")),
        ("report.html", include_str!("page/report.html")),
        ("run.html", include_str!("page/run.html")),
        ("script.js", include_str!("page/script.js")),
        ("style.css", include_str!("page/style.css")),
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
