//! `list`: prints the scenarios, and what each of them expects.

use clap::ValueEnum;
use serde::Serialize;

use super::words::{say, say_json};
use super::{Code, ListOptions};
use crate::scenario::{Cause, Property, Scenario, Wanted};

/// How to print.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Shape {
    /// For people.
    #[default]
    Human,
    /// As JSON.
    Json,
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

pub(super) fn main(options: &ListOptions) -> Code {
    let chosen = match options.selection.runs() {
        Ok(chosen) => chosen,
        Err(code) => return code,
    };
    let rows: Vec<Row<'_>> = chosen
        .iter()
        .map(|chosen| Row {
            name: &chosen.run.name,
            about: &chosen.run.about,
            source: chosen.run.source.as_deref(),
            file: chosen.file.as_ref().map(|file| file.display().to_string()),
            clients: chosen.run.clients.iter().map(|client| client.id.as_str()).collect(),
            faults: chosen.run.faults.iter().map(|fault| fault.fault_kind.name()).collect(),
            violated: violated(&chosen.run),
            because: &chosen.run.expect.because,
        })
        .collect();
    match options.format {
        Shape::Json => say_json(&rows),
        Shape::Human => say(&table(&rows)),
    }
}

fn violated(run: &Scenario) -> Vec<Property> {
    Property::ALL.into_iter().filter(|layer| run.expect.of(*layer) == Wanted::Violated).collect()
}

fn table(rows: &[Row<'_>]) -> String {
    let expectation = |row: &Row<'_>| match row.violated.as_slice() {
        [] => "safe".to_owned(),
        layers => {
            let layers: Vec<&str> = layers.iter().map(|layer| layer.name()).collect();
            format!("{} violated", layers.join(", "))
        }
    };
    let name = rows.iter().map(|row| row.name.len()).max().unwrap_or_default();
    let wide = rows.iter().map(|row| expectation(row).len()).max().unwrap_or_default();
    let lines = rows
        .iter()
        .map(|row| format!("{:name$}  {:wide$}  {}", row.name, expectation(row), row.about));
    lines.collect::<Vec<_>>().join("\n")
}
