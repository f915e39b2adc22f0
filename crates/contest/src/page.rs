//! The report of a contest: one HTML file that needs no network and no JavaScript.
//!
//! The modules below derive rows and coordinates from the contest; the template only places them.

mod correctness;
mod decisions;
mod faults;
mod format;
mod header;
mod latency;
mod notes;
mod plot;
mod runs;
mod throughput;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, UndefinedBehavior};
use serde::Serialize;

use crate::recommend::recommend;
use crate::results::Contest;

/// The sections of the page, in their order.
#[derive(Serialize)]
struct Page {
    header: header::Header,
    decisions: Vec<decisions::Row>,
    correctness: correctness::Correctness,
    throughput: Vec<throughput::Panel>,
    latency: Vec<latency::Panel>,
    faults: faults::Faults,
    runs: Vec<runs::Row>,
}

/// Renders the report of a contest as one HTML file.
///
/// Text of the contest is escaped: an error message of a server cannot add markup.
///
/// # Errors
///
/// Returns the error of the template engine. The templates are part of the program, so that an
/// error is a defect of the program.
pub fn render(contest: &Contest) -> Result<String, minijinja::Error> {
    let mut environment = Environment::new();
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    // A misspelled field is an error, not an empty cell.
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    // The ending decides the escaping: `.html` is escaped, `.css` is not.
    environment.add_template("report.html", include_str!("page/report.html"))?;
    environment.add_template("plots.html", include_str!("page/plots.html"))?;
    environment.add_template("tables.html", include_str!("page/tables.html"))?;
    environment.add_template("style.css", include_str!("page/style.css"))?;

    let recommendation = recommend(contest);
    let assessments = &recommendation.assessments;
    let page = Page {
        header: header::Header::new(contest),
        decisions: decisions::rows(&recommendation),
        correctness: correctness::Correctness::new(contest, assessments),
        throughput: throughput::panels(contest, assessments),
        latency: latency::panels(contest, assessments),
        faults: faults::Faults::new(assessments),
        runs: runs::rows(contest),
    };
    environment.get_template("report.html")?.render(Serde(&page))
}
