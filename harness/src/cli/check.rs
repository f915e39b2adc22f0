//! `check`: runs the checkers again on a recorded run.

use std::fs::File;
use std::io::{self, BufReader};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use super::list::Shape;
use super::words::{complain, say, say_json, shell_word};
use super::{CheckOptions, Code, Tally};
use crate::checker::{self, Verdict};
use crate::history::History;
use crate::report::{self, Ended, Entry, Session, human};

pub(super) fn main(options: &CheckOptions) -> Code {
    let path = options.history.display();
    let file = match File::open(&options.history) {
        Ok(file) => file,
        Err(error) => {
            let mend = "name the history.jsonl of a run; runs leave theirs under target/chaos";
            complain(&format!("{path} cannot be read: {error}"), mend);
            return Code::Usage;
        }
    };
    let history = match History::read(BufReader::new(file)) {
        Ok(history) => history,
        Err(why) => {
            let mend = "name the history.jsonl of a run, whole and unchanged";
            complain(&format!("{path} is no history: {why}"), mend);
            return Code::Usage;
        }
    };
    let name = history.header.scenario.name.clone();
    // The history may come from any program, so a panic of the checkers must not end this one.
    let Ok(verdict) = catch_unwind(AssertUnwindSafe(|| checker::judge(&history))) else {
        complain(
            &format!("the judge failed on {path} (`{name}`)"),
            "please report it with the file",
        );
        return Code::Internal;
    };
    let mut tally = Tally::default();
    tally.count(verdict.outcome);
    let said = match options.format {
        Shape::Json => say_json(&verdict),
        Shape::Human => say(&human::verdict(&history.header.scenario, &verdict)),
    };
    if let Some(page) = &options.report
        && let Err(error) = report(page, &options.history, &history, &verdict)
    {
        let wrong = format!("the report cannot be written to {}: {error}", page.display());
        complain(&wrong, "make room, or name another file with --report");
        return Code::Environment;
    }
    if let Some(file) = &options.trace
        && let Err(error) = std::fs::write(file, report::trace(&history).to_string())
    {
        let wrong = format!("the trace cannot be written to {}: {error}", file.display());
        complain(&wrong, "make room, or name another file with --trace");
        return Code::Environment;
    }
    if said == Code::AsExpected { tally.code() } else { said }
}

/// Writes the report of this run alone, with its timeline.
fn report(page: &Path, path: &Path, history: &History, verdict: &Verdict) -> io::Result<()> {
    let header = &history.header;
    let session = Session {
        seed: header.seed,
        backend: header.backend.clone(),
        ground: header.masters.clone(),
        runs: 1,
        widest: 0,
    };
    let entry = Entry {
        name: header.scenario.name.clone(),
        backend: header.backend.clone(),
        seed: header.seed,
        time: 0,
        expect: header.scenario.expect.clone(),
        ended: Ended::Judged(Box::new(verdict.clone())),
        took: history.length().unwrap_or_default(),
        history: Some(path.to_owned()),
        file: None,
        line: 1,
        again: format!("redquorum-chaos check {}", shell_word(&path.display().to_string())),
        repeated: Vec::new(),
    };
    let folder = page.parent().unwrap_or_else(|| Path::new(""));
    let text = report::render(&session, &[entry], folder, Some(history))?;
    std::fs::write(page, text)
}
