//! A find, shrunk and written as a scenario file.

use std::ops::ControlFlow;
use std::path::PathBuf;

use indicatif::{ProgressBar, ProgressStyle};

use crate::cli::Code;
use crate::cli::words::{complain, shell_word};
use crate::real::interrupted;
use crate::report::Out;
use crate::sabotage::Lie;
use crate::search::chance::Search;
use crate::search::{Found, Kind, shrink, story};

/// What is left of a find, and where it is.
pub(super) struct Find {
    pub(super) kind: Kind,
    pub(super) small: Found,
    /// The number of the run that it came from.
    pub(super) number: u64,
    pub(super) file: PathBuf,
}

/// Shrinks a find and writes it, under the name of its kind.
pub(super) fn keep(found: &Found, kind: &Kind, out: &Out) -> Result<Find, Code> {
    let small = shrunk(found, kind);
    let file = write(&story::name(kind, found.lie), &small, kind, out)?;
    Ok(Find { kind: kind.clone(), small, number: found.seed, file })
}

/// What is left of a find. Whoever interrupts gets it as it is then.
pub(super) fn shrunk(found: &Found, kind: &Kind) -> Found {
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg}") {
        bar.set_style(style);
    }
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

/// Writes a find as it is.
pub(super) fn write(name: &str, found: &Found, kind: &Kind, out: &Out) -> Result<PathBuf, Code> {
    let text = story::file_named(name, found, kind);
    let name = format!("{name}.toml");
    match out.replace(&name, text.as_bytes()) {
        Ok(()) => Ok(out.folder().join(name)),
        Err(error) => {
            let wrong = format!("{name} cannot be written: {error}");
            complain(&wrong, "name another folder with --out");
            Err(Code::Environment)
        }
    }
}

impl Find {
    /// Whether the lock is wrong, or this program: outside of the assumptions it is no wonder that
    /// something breaks, if it breaks for a reason.
    pub(super) fn is_wrong(&self, search: &Search) -> bool {
        search.space.inside || self.kind.is_unexplained()
    }

    /// The command that shows it again.
    pub(super) fn again(&self) -> String {
        let program =
            if std::env::var_os("CARGO").is_some() { "cargo chaos" } else { "redquorum-chaos" };
        let file = self.file.display().to_string();
        let file = shell_word(&file);
        match self.small.lie {
            Lie::None => {
                format!("{program} run {file} --backend sim --seed {}", self.small.seed)
            }
            lie => format!(
                "{program} run {file} --backend process --client \"redquorum-mutant --mutant {lie}\""
            ),
        }
    }
}
