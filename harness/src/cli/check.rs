//! `check`: judges a recorded run again.

use std::fs::File;
use std::io::BufReader;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::list::Shape;
use super::words::{complain, say, say_json};
use super::{CheckOptions, Code, Tally};
use crate::history::History;
use crate::judge;
use crate::report::human;

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
    // The history may be anyone's; the judge is ours.
    let Ok(verdict) = catch_unwind(AssertUnwindSafe(|| judge::judge(&history))) else {
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
    if said == Code::AsExpected { tally.code() } else { said }
}
