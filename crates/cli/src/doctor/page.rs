//! The page of `doctor --html`, in the style of the fault injector's reports.

use std::io;
use std::time::SystemTime;

use serde::Serialize;

use super::{Diagnosis, Finding, Level, Master};
use crate::page::{environment, fill};

#[derive(Serialize)]
struct Page<'a> {
    verdict: String,
    time: String,
    masters: &'a [Master],
    rows: Vec<Row<'a>>,
}

/// A finding, of one master or of several.
#[derive(Serialize)]
struct Row<'a> {
    class: &'static str,
    symbol: &'static str,
    finding: &'a Finding,
    /// Their numbers, from 1; empty if it concerns all masters together.
    masters: Vec<usize>,
}

/// Renders the findings.
///
/// # Errors
///
/// The templates are part of the program, so an error is a defect of the program.
pub(super) fn render(diagnosis: &Diagnosis) -> io::Result<String> {
    let rows = diagnosis.groups().into_iter().map(|group| {
        let (class, symbol) = match group.finding.level {
            Level::Ok => ("holds", "✓"),
            Level::Warn => ("open", "!"),
            Level::Error => ("wrong", "✗"),
        };
        Row { class, symbol, finding: group.finding, masters: group.masters }
    });
    let page = Page {
        verdict: diagnosis.verdict(),
        time: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
        masters: &diagnosis.masters,
        rows: rows.collect(),
    };
    let mut environment = environment().map_err(io::Error::other)?;
    environment
        .add_template("doctor.html", include_str!("../page/doctor.html"))
        .map_err(io::Error::other)?;
    fill(&environment, "doctor.html", &page)
}
