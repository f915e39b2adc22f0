//! Helpers that several commands share: output, errors, times, seeds.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;
use serde::Serialize;

use crate::report::Code;

/// How to print a result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Shape {
    /// As readable text.
    #[default]
    Human,
    /// As JSON.
    Json,
}

/// Prints an error and its remedy on standard error. Returns the exit code.
pub(super) fn complain(code: Code, wrong: &str, fix: &str) -> Code {
    // If standard error is closed, the message is dropped.
    drop(writeln!(io::stderr(), "error: {wrong}\n  = help: {fix}"));
    code
}

/// Prints why something cannot be written, if it cannot.
pub(super) fn unwritten<T>(
    written: io::Result<T>,
    what: &str,
    path: &Path,
    fix: &str,
) -> Result<T, Code> {
    written.map_err(|error| {
        let wrong = format!("{what} cannot be written to {}: {error}", path.display());
        complain(Code::Environment, &wrong, fix)
    })
}

/// Prints a line. A closed pipe is not an error.
pub(super) fn say(text: &str) -> Result<Code, Code> {
    match writeln!(io::stdout(), "{text}") {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            let wrong = format!("standard output cannot be written: {error}");
            Err(complain(Code::Environment, &wrong, "look where it leads"))
        }
        _ => Ok(Code::AsExpected),
    }
}

/// Prints a value as JSON.
pub(super) fn say_json(value: &impl Serialize) -> Result<Code, Code> {
    let text = serde_json::to_string_pretty(value).map_err(|error| {
        complain(Code::Internal, &format!("this is no JSON: {error}"), "please report it")
    })?;
    say(&text)
}

/// Reads the time of an option, which is not zero.
pub(super) fn time(text: &str) -> Result<Duration, &'static str> {
    match humantime::parse_duration(text) {
        Ok(time) if !time.is_zero() => Ok(time),
        _ => Err("write a number with a unit, such as 100ms, 90s or 10m"),
    }
}

/// A seed that is short enough to type, and that every JSON reader keeps exactly.
pub(super) fn new_seed() -> u64 {
    u64::from(rand::random::<u32>())
}

/// The folder for results without an option for it: in Cargo's target folder if there is a Cargo
/// project, else in the current folder.
pub(super) fn usual_folder() -> PathBuf {
    let project = Path::new("target").is_dir() || Path::new("Cargo.toml").is_file();
    PathBuf::from(if project { "target/chaos" } else { "chaos-out" })
}

/// This program, in commands for the user to repeat. In a Cargo project the alias works.
pub(super) fn program() -> &'static str {
    if std::env::var_os("CARGO").is_some() { "cargo chaos" } else { "redquorum-chaos" }
}
