//! `list`: prints the scenarios, and what each of them expects.

use clap::Args;
use serde::Serialize;

use super::Selection;
use super::words::{Shape, say, say_json};
use crate::report::Code;
use redquorum_scenario::{Cause, Property, Wanted};

/// What to list.
#[derive(Debug, Args)]
pub(super) struct ListOptions {
    #[command(flatten)]
    selection: Selection,
    /// How to print it
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    format: Shape,
}

#[derive(Serialize)]
struct Row<'a> {
    name: &'a str,
    about: &'a str,
    source: Option<&'a str>,
    file: Option<String>,
    clients: Vec<&'a str>,
    faults: Vec<&'a str>,
    violated: Vec<Property>,
    because: &'a [Cause],
}

pub(super) fn main(options: &ListOptions) -> Result<Code, Code> {
    let chosen = options.selection.runs()?;
    let rows = chosen.iter().map(|chosen| {
        let (run, violated) =
            (&chosen.run, |of: &Property| chosen.run.expect.of(*of) == Wanted::Violated);
        Row {
            name: &run.name,
            about: &run.about,
            source: run.source.as_deref(),
            file: chosen.file.as_ref().map(|file| file.display().to_string()),
            clients: run.clients.iter().map(|client| client.id.as_str()).collect(),
            faults: run.faults.iter().map(|fault| fault.kind.name()).collect(),
            violated: Property::ALL.into_iter().filter(violated).collect(),
            because: &run.expect.because,
        }
    });
    let rows: Vec<Row<'_>> = rows.collect();
    match options.format {
        Shape::Json => say_json(&rows),
        Shape::Human => say(&table(&rows)),
    }
}

fn table(rows: &[Row<'_>]) -> String {
    let expectation = |row: &Row<'_>| {
        let violated: Vec<&str> = row.violated.iter().map(|property| property.name()).collect();
        if violated.is_empty() {
            "safe".to_owned()
        } else {
            format!("{} violated", violated.join(", "))
        }
    };
    let name = rows.iter().map(|row| row.name.len()).max().unwrap_or_default();
    let wide = rows.iter().map(|row| expectation(row).len()).max().unwrap_or_default();
    let lines = rows
        .iter()
        .map(|row| format!("{:name$}  {:wide$}  {}", row.name, expectation(row), row.about));
    lines.collect::<Vec<_>>().join("\n")
}
