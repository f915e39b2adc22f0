//! Shrinks a find and writes it as a scenario file.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use indicatif::{ProgressBar, ProgressStyle};

use crate::cli::words::{complain, program, unwritten};
use crate::real::interrupted;
use crate::report::{Code, Out, shell_word};
use redquorum_checker::{Outcome, check};
use redquorum_scenario;
use redquorum_scenario::Mutant;
use redquorum_search::chance::Search;
use redquorum_search::{Found, Kind, scenario_file, shrink};

/// A find after shrinking, and its file.
pub(super) struct Find {
    pub(super) kind: Kind,
    pub(super) small: Found,
    /// The number of the run that showed it.
    pub(super) number: u64,
    pub(super) file: PathBuf,
    /// The command that repeats it.
    pub(super) again: String,
}

/// Shrinks a find and writes it, under the name of its kind.
pub(super) fn keep(found: &Found, kind: &Kind, out: &Out) -> Result<Find, Code> {
    let small = shrunk(found, kind);
    let file = write(&scenario_file::name(kind, found.mutant), &small, kind, out)?;
    let again = again(&file, &small);
    Ok(Find { kind: kind.clone(), small, number: found.seed, file, again })
}

/// Writes the history of a find, under the name of its kind: the find is in the library, and
/// depends on its random choices.
pub(super) fn keep_history(
    search: &Search,
    found: &Found,
    kind: &Kind,
    out: &Out,
) -> Result<Find, Code> {
    let number = found.seed;
    let name = scenario_file::name(kind, found.mutant);
    let file = out.history(&name, 0, &search.history(number));
    let file = unwritten(file, &name, out.folder(), FIX)?;
    let outside = if search.space.inside { "" } else { " --outside" };
    let nodes = search.space.nodes.map(|nodes| format!(" --nodes {nodes}")).unwrap_or_default();
    let program = program();
    let again =
        format!("{program} search --through library --runs 1 --seed {number}{nodes}{outside}");
    Ok(Find { kind: kind.clone(), small: found.clone(), number, file, again })
}

const FIX: &str = "name another folder with --out";

/// A progress bar on standard error; hidden if standard error is no terminal.
pub(super) fn bar(length: u64, template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template);
    ProgressBar::new(length).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// The shrunk find. An interrupt ends the shrinker early, and the result is what it has at that
/// time.
pub(super) fn shrunk(found: &Found, kind: &Kind) -> Found {
    let bar = bar(0, "{spinner} {wide_msg}");
    let small = shrink::shrink_to(found, kind, shrink::EFFORT, &mut |progress| {
        if progress.tries.is_multiple_of(50) && !bar.is_hidden() {
            let (tries, faults) = (progress.tries, progress.best.faults.len());
            bar.set_message(format!("shrinking {kind}: {tries} tries, {faults} faults left"));
            bar.tick();
        }
        if interrupted() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    bar.finish_and_clear();
    small
}

/// Writes a find as it is, and runs the file once. A file that `run` refuses, or that differs from
/// its own expectation, is a defect of this program.
pub(super) fn write(name: &str, found: &Found, kind: &Kind, out: &Out) -> Result<PathBuf, Code> {
    let text = scenario_file::file_named(name, found, kind);
    let name = format!("{name}.toml");
    unwritten(out.replace(&name, text.as_bytes()), &name, out.folder(), FIX)?;
    let file = out.folder().join(&name);
    if let Err(why) = tried(&name, &text, found.seed) {
        let wrong = format!("{} cannot be used: {why}", file.display());
        let fix = "report this, with the command line and the seed";
        return Err(complain(Code::Internal, &wrong, fix));
    }
    Ok(file)
}

/// Reads the text of a file and runs it in virtual time, as `run` does.
fn tried(name: &str, text: &str, seed: u64) -> Result<(), String> {
    let scenario = redquorum_scenario::read(name, text).map_err(|problems| problems.to_string())?;
    match check(&redquorum_simulator::run(&scenario, seed, Mutant::None)).outcome {
        Outcome::AsExpected => Ok(()),
        outcome => Err(format!("it comes out as {outcome:?} from seed {seed}")),
    }
}

impl Find {
    /// Whether the lock is wrong, or this program. Outside the assumptions a violation is no error
    /// if a fault explains it.
    pub(super) fn is_wrong(&self, search: &Search) -> bool {
        search.space.inside || self.kind.is_unexplained()
    }
}

/// The command that repeats a find from its file.
fn again(file: &Path, small: &Found) -> String {
    let file = file.display().to_string();
    let (program, file) = (program(), shell_word(&file));
    match small.mutant {
        Mutant::None => format!("{program} run {file} --backend sim --seed {}", small.seed),
        mutant => format!(
            "{program} run {file} --backend process --client \"redquorum-mutant --mutant {mutant}\""
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_refused_or_differs_is_not_reported() {
        let [head, expect] = [
            "name = \"found\"\nabout = \"Nothing happens.\"\n[[client]]\nid = \"c1\"\n\
             script = [\"acquire L\", \"release L\"]\n[expect]\n",
            "acquires = { c1 = \"granted\" }\n",
        ];
        assert_eq!(tried("found.toml", &format!("{head}{expect}"), 1), Ok(()));
        let refused = tried("found.toml", &format!("{head}because = [\"max-ttl\"]\n{expect}"), 1);
        assert!(refused.unwrap_err().contains("because"));
        let differs = tried("found.toml", &format!("{head}acquires = {{ c1 = \"refused\" }}\n"), 1);
        assert_eq!(differs.unwrap_err(), "it comes out as NotSeen from seed 1");
    }
}
