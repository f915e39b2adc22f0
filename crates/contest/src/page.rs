//! The report of a contest: one HTML file that needs no network and no JavaScript.
//!
//! The modules below derive rows and coordinates from the contest; the template only places them.

mod format;
mod plots;
mod tables;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, UndefinedBehavior};
use serde::Serialize;

use crate::recommend::recommend;
use crate::results::{Contest, Server};

#[derive(Serialize)]
struct Page<'a> {
    contest: &'a Contest,
    facts: [(&'static str, String); 6],
    decisions: Vec<tables::Decision>,
    correctness: tables::Correctness,
    throughput: Vec<plots::Panel>,
    latency: Vec<plots::Panel>,
    faults: tables::Faults,
    runs: Vec<tables::RunRow<'a>>,
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
        contest,
        facts: facts(contest),
        decisions: tables::decisions(&recommendation),
        correctness: tables::Correctness::new(contest, assessments),
        throughput: plots::throughput(contest, assessments),
        latency: plots::latency(contest, assessments),
        faults: tables::Faults::new(assessments),
        runs: tables::runs(contest),
    };
    environment.get_template("report.html")?.render(Serde(&page))
}

fn facts(contest: &Contest) -> [(&'static str, String); 6] {
    let server = |Server { product, version, place }: &Server| {
        let name = format!("{product} {version}");
        [name.trim(), place].into_iter().filter(|it| !it.is_empty()).collect::<Vec<_>>().join(", ")
    };
    let Contest { machine, started, seconds, runs, .. } = contest;
    let runs = format::count(runs.len() as u64);
    [
        ("Database", server(&contest.database)),
        ("Redis masters", server(&contest.masters)),
        ("Machine", format!("{}, {} logical processors", machine.os, machine.processors)),
        ("Started", started.clone()),
        ("Runs", format!("{runs} in {}", format::duration(*seconds))),
        ("redquorum", contest.version.clone()),
    ]
}
