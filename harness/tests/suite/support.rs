//! Runs the program as a user would, each time in a folder of its own.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use redquorum_harness::report::ResultFile;

#[path = "../support/folder.rs"]
mod folder;

pub(crate) use folder::folder;

pub(crate) const CHAOS: &str = env!("CARGO_BIN_EXE_redquorum-chaos");

pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) output: String,
    pub(crate) result: Option<ResultFile>,
}

impl Ended {
    pub(crate) fn outcome(&self) -> &str {
        let result = self.result.as_ref().unwrap_or_else(|| panic!("no result: {}", self.output));
        assert_eq!(result.scenarios.len(), 1, "{}", self.output);
        &result.scenarios[0].outcome
    }
}

/// The program with these arguments, in this folder.
pub(crate) fn program(folder: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(CHAOS);
    command.args(words).current_dir(folder).stdin(Stdio::null());
    command
}

/// The program that runs these scenarios on processes. The results go to `out`.
pub(crate) fn run(folder: &Path, words: &[&str]) -> Command {
    program(folder, &[&["run", "--backend", "process", "--out", "out"], words].concat())
}

/// The exit code and all output of a command.
pub(crate) fn ended(mut command: Command) -> (Option<i32>, String) {
    let ended = command.output().unwrap();
    let output = String::from_utf8([ended.stdout, ended.stderr].concat()).unwrap();
    (ended.status.code(), output)
}

/// The results in a folder, if it has any.
pub(crate) fn result(out: &Path) -> Option<ResultFile> {
    let bytes = fs::read(out.join("result.json")).ok()?;
    Some(serde_json::from_slice(&bytes).unwrap())
}

pub(crate) fn ask(folder: &Path, words: &[&str]) -> Ended {
    let (code, output) = ended(run(folder, words));
    Ended { code, output, result: result(&folder.join("out")) }
}

/// The text of a built-in scenario.
pub(crate) fn text(name: &str) -> &'static str {
    let mut all = redquorum_scenario::embedded();
    all.find(|(known, _)| *known == name).unwrap_or_else(|| panic!("no scenario {name}")).1
}

pub(crate) fn ask_text(folder: &Path, name: &str, text: &str, words: &[&str]) -> Ended {
    let file = format!("{name}.toml");
    fs::write(folder.join(&file), text).unwrap();
    ask(folder, &[&[file.as_str()], words].concat())
}
