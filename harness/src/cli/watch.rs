//! `run --watch`: runs the scenarios again whenever one of their files changes. It compares the
//! modification times and sizes of the files; scenarios are few and small.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, SystemTime};

use super::RunOptions;
use super::choose::folder;
use super::words::{complain, new_seed};
use crate::real;
use crate::report::Code;

/// The time between two looks at the files. A file that an editor is still writing changes within
/// it.
const PERIOD: Duration = Duration::from_millis(150);

/// When each file was written, and its size. A file that does not exist is missing.
type Files = BTreeMap<PathBuf, (SystemTime, u64)>;

/// Runs the scenarios until an interrupt: at once, and after each change. A run that fails, for
/// example because of an error in a file, does not end the program.
pub(super) fn main(
    options: &RunOptions,
    run: impl Fn(&RunOptions) -> Result<Code, Code>,
) -> Result<Code, Code> {
    let paths = &options.selection.paths;
    if let Some(path) = paths.iter().find(|path| !path.exists()) {
        let wrong = format!("there is no file or folder {} to watch", path.display());
        let fix = "name scenario files, or folders of them; `new` writes one";
        return Err(complain(Code::Usage, &wrong, fix));
    }
    // Every run has the same seed, so that a result changes only if a scenario does.
    let seed = options.seed.unwrap_or_else(new_seed);
    let options = RunOptions { seed: Some(seed), ..options.clone() };
    loop {
        let files = look(paths);
        if matches!(run(&options), Ok(Code::Interrupted) | Err(Code::Interrupted)) {
            return Ok(Code::Interrupted);
        }
        note("waiting for a change; Ctrl-C ends");
        let Some(changes) = next_change(paths, &files) else { return Ok(Code::Interrupted) };
        if io::stdout().is_terminal() {
            // Clears the screen and the lines that have scrolled off it.
            drop(io::stdout().write_all(b"\x1b[H\x1b[2J\x1b[3J"));
        }
        changes.iter().for_each(|change| note(change));
    }
}

/// Standard output may be JSON.
fn note(text: &str) {
    drop(writeln!(io::stderr(), "{text}"));
}

fn look(paths: &[PathBuf]) -> Files {
    let mut files = Files::new();
    for path in paths {
        let all = if path.is_dir() { folder(path).unwrap_or_default() } else { vec![path.clone()] };
        for file in all {
            let state = file.metadata().and_then(|data| Ok((data.modified()?, data.len())));
            files.extend(state.ok().map(|state| (file, state)));
        }
    }
    files
}

/// Waits until files differ from `before` and no longer change. Describes each change. Returns
/// nothing after an interrupt.
fn next_change(paths: &[PathBuf], before: &Files) -> Option<Vec<String>> {
    let mut last = before.clone();
    loop {
        if real::interrupted() {
            return None;
        }
        thread::sleep(PERIOD);
        let now = look(paths);
        if now == last && now != *before {
            return Some(changes(before, &now, SystemTime::now()));
        }
        last = now;
    }
}

/// `2026-11-23T15:51:03Z  scenarios/calm.toml changed`.
fn changes(before: &Files, now: &Files, seen: SystemTime) -> Vec<String> {
    let line = |at: SystemTime, path: &Path, what: &str| {
        format!("{}  {} {what}", humantime::format_rfc3339_seconds(at), path.display())
    };
    let written = now.iter().filter(|(path, state)| before.get(*path) != Some(state));
    let written = written.map(|(path, (at, _))| {
        line(*at, path, if before.contains_key(path) { "changed" } else { "is new" })
    });
    let removed = before.keys().filter(|path| !now.contains_key(*path));
    written.chain(removed.map(|path| line(seen, path, "is gone"))).collect()
}
