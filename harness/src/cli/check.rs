//! `check`: runs the checkers again on a recorded run.

use std::fs::{self, File};
use std::io::{self, BufReader};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use clap::Args;

use super::words::{Shape, complain, say, say_json, unwritten};
use crate::report::{self, Code, Ended, Entry, Session, Tally, human, shell_word};
use redquorum_checker::{self, Verdict};
use redquorum_scenario::history::{History, Unreadable};

/// The run to check.
#[derive(Debug, Args)]
pub(super) struct CheckOptions {
    /// The recorded run: a `history.jsonl`
    #[arg(value_name = "HISTORY.jsonl")]
    history: PathBuf,
    /// Write its timeline to this file, as HTML
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
    /// Write its timeline to this file, in the Trace Event format that Perfetto opens
    #[arg(long, value_name = "FILE.json")]
    trace: Option<PathBuf>,
    /// How to print the verdict
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    format: Shape,
}

pub(super) fn main(options: &CheckOptions) -> Result<Code, Code> {
    let path = options.history.display();
    let file = File::open(&options.history).map_err(|error| {
        let fix = "name the history.jsonl of a run; runs leave theirs under target/chaos";
        complain(Code::Usage, &format!("{path} cannot be read: {error}"), fix)
    })?;
    let history = History::read(BufReader::new(file)).map_err(|why| {
        let (what, fix) = match why {
            Unreadable::OtherSchema { .. } => {
                ("cannot be checked", "check it with the program that wrote it, or run it again")
            }
            Unreadable::Defect(_) => {
                ("is no history", "name the history.jsonl of a run, whole and unchanged")
            }
        };
        complain(Code::Usage, &format!("{path} {what}: {why}"), fix)
    })?;
    // The history may come from any program, so a panic of the checkers must not end this one.
    let verdict =
        catch_unwind(AssertUnwindSafe(|| redquorum_checker::check(&history))).map_err(|_| {
            let wrong =
                format!("the checker failed on {path} (`{}`)", history.header.scenario.name);
            complain(Code::Internal, &wrong, "please report it with the file")
        })?;
    let mut tally = Tally::default();
    tally.count(verdict.outcome);
    let printed = match options.format {
        Shape::Json => say_json(&verdict),
        Shape::Human => say(&human::verdict(&history, &verdict)),
    };
    if let Some(page) = &options.report {
        let text = render(page, &options.history, &history, &verdict);
        let written = text.and_then(|text| fs::write(page, text));
        unwritten(written, "the report", page, "make room, or name another file with --report")?;
    }
    if let Some(file) = &options.trace {
        let written = fs::write(file, report::trace(&history).to_string());
        unwritten(written, "the trace", file, "make room, or name another file with --trace")?;
    }
    printed?;
    Ok(tally.code())
}

/// The report of this run alone, with its timeline.
fn render(page: &Path, path: &Path, history: &History, verdict: &Verdict) -> io::Result<String> {
    let header = &history.header;
    let session = Session {
        seed: header.seed,
        backend: header.backend.clone(),
        ground: header.masters.clone(),
        runs: 1,
        ..Session::default()
    };
    let entry = Entry {
        name: header.scenario.name.clone(),
        backend: header.backend.clone(),
        seed: header.seed,
        time: 0,
        expect: header.scenario.expect.clone(),
        ended: Ended::Checked(Box::new(verdict.clone())),
        took: history.length().unwrap_or_default(),
        history: Some(path.to_owned()),
        file: None,
        line: 1,
        again: format!("redquorum-chaos check {}", shell_word(&path.display().to_string())),
        repeated: Vec::new(),
    };
    let folder = page.parent().unwrap_or_else(|| Path::new(""));
    report::render(&session, &[entry], folder, Some(history))
}
