//! Selects the scenarios to run: from files, from folders, or by name from those that come with the
//! program.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::Args;

use super::words::{colourful, complain};
use super::{Code, commands};
use crate::scenario::{self, Scenario, near};

/// The scenarios to run.
#[derive(Clone, Debug, Default, Args)]
pub struct Selection {
    /// Scenario files, folders of them, or names of those that come with the program. Default: all
    /// of those
    #[arg(value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Only those whose name contains this
    #[arg(long, value_name = "TEXT")]
    pub filter: Option<String>,
}

/// A selected run.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Chosen {
    /// What to run: the scenario itself, or a variant in full.
    pub run: Scenario,
    /// The file that contains it, or `None` if it comes with the program.
    pub file: Option<PathBuf>,
    /// The line of its expectation in that file.
    pub line: usize,
}

/// A scenario file after parsing.
#[derive(Clone, Debug)]
pub(super) struct SelectedScenario {
    pub(super) scenario: Scenario,
    text: String,
    file: Option<PathBuf>,
}

impl Selection {
    /// The scenarios. Prints all errors first and returns the exit code if there are any.
    pub(super) fn lessons(&self) -> Result<Vec<SelectedScenario>, Code> {
        let mut read = Read::default();
        if self.paths.is_empty() {
            for (name, text) in scenario::embedded() {
                read.text(&format!("{name}.toml"), text, None);
            }
        }
        for path in &self.paths {
            read.path(path);
        }
        if read.wrong { Err(Code::Usage) } else { Ok(read.lessons) }
    }

    /// The runs that the options select. Prints all errors first and returns the exit code if there
    /// are any.
    ///
    /// # Errors
    ///
    /// [`Code::Usage`].
    pub fn runs(&self) -> Result<Vec<Chosen>, Code> {
        let lessons = self.lessons()?;
        let mut all = Vec::new();
        for lesson in &lessons {
            for run in lesson.scenario.runs() {
                let line = scenario::line_of(&lesson.text, &run.name);
                all.push(Chosen { run, file: lesson.file.clone(), line });
            }
        }
        // `run name/variant` selects only that run.
        let names: Vec<&str> = self
            .paths
            .iter()
            .filter(|path| !path.exists())
            .filter_map(|path| path.to_str())
            .collect();
        all.retain(|chosen| {
            let (base, variant) = chosen.run.name.split_once('/').unwrap_or((&chosen.run.name, ""));
            chosen.file.is_some()
                || self.paths.is_empty()
                || names
                    .iter()
                    .any(|name| *name == base || (!variant.is_empty() && *name == chosen.run.name))
        });
        let Some(filter) = &self.filter else { return Ok(all) };
        let names: Vec<String> = all.iter().map(|chosen| chosen.run.name.clone()).collect();
        all.retain(|chosen| chosen.run.name.contains(filter.as_str()));
        if all.is_empty() {
            // A filter matches a part of a name, so suggestions come from the words of names and
            // from whole names.
            let words = names.iter().flat_map(|name| name.split(['-', '/']).chain([name.as_str()]));
            let near = near(filter, words);
            let mend = match near {
                Some(near) => format!("did you mean `{near}`? `redquorum-chaos list` shows all"),
                None => format!("the names are {}", some_of(&names)),
            };
            complain(&format!("no scenario's name contains `{filter}`"), &mend);
            return Err(Code::Usage);
        }
        Ok(all)
    }
}

/// The first few of many.
fn some_of(names: &[String]) -> String {
    let few: Vec<&str> = names.iter().take(12).map(String::as_str).collect();
    let more =
        if names.len() > few.len() { ", … (`redquorum-chaos list` shows all)" } else { "" };
    few.join(", ") + more
}

#[derive(Default)]
struct Read {
    lessons: Vec<SelectedScenario>,
    wrong: bool,
}

impl Read {
    fn wrong(&mut self, wrong: &str, mend: &str) {
        complain(wrong, mend);
        self.wrong = true;
    }

    fn text(&mut self, name: &str, text: &str, file: Option<&Path>) {
        if file.is_none()
            && self.lessons.iter().any(|known| known.file.is_none() && known.text == text)
        {
            // A file that is named twice, for example with two of its variants, is read once.
            return;
        }
        match scenario::read(name, text) {
            Ok(scenario) => {
                let same = |known: &&SelectedScenario| known.scenario.name == scenario.name;
                if let Some(other) = self.lessons.iter().find(same) {
                    let of = |file: Option<&Path>| match file {
                        Some(file) => file.display().to_string(),
                        None => "one that comes with the program".to_owned(),
                    };
                    let (one, two) = (of(other.file.as_deref()), of(file));
                    let wrong =
                        format!("two scenarios are called `{}`: {one} and {two}", scenario.name);
                    self.wrong(&wrong, "their results would overwrite each other: leave one out");
                    return;
                }
                let file = file.map(Path::to_owned);
                self.lessons.push(SelectedScenario { scenario, text: text.to_owned(), file });
            }
            Err(problems) => {
                self.wrong = true;
                let text = problems.render(colourful(&io::stderr()));
                drop(io::Write::write_all(&mut io::stderr(), format!("{text}\n\n").as_bytes()));
                if std::env::var_os("GITHUB_ACTIONS").is_some() {
                    for problem in problems.list() {
                        let line = crate::report::github::annotation(
                            Some(Path::new(problems.file())),
                            problem.line,
                            &problem.message,
                            &problem.mend,
                        );
                        drop(io::Write::write_all(&mut io::stdout(), line.as_bytes()));
                    }
                }
            }
        }
    }

    fn path(&mut self, path: &Path) {
        if path.is_dir() {
            match folder(path) {
                Ok(files) if files.is_empty() => {
                    let wrong = format!("no scenario lies in {}", path.display());
                    self.wrong(&wrong, "scenarios are files that end in .toml; name their folder");
                }
                Ok(files) => files.iter().for_each(|file| self.file(file)),
                Err(error) => self.unreadable(path, &error),
            }
        } else if path.exists() {
            self.file(path);
        } else {
            self.name(path);
        }
    }

    /// Selects one of the scenarios that come with the program, by name.
    fn name(&mut self, path: &Path) {
        let name = path.to_str().unwrap_or_default();
        let all: Vec<(&str, &str)> = scenario::embedded().collect();
        let (base, variant) = name.split_once('/').unwrap_or((name, ""));
        if let Some((_, text)) = all.iter().find(|(known, _)| *known == base) {
            let before = self.lessons.len();
            self.text(&format!("{base}.toml"), text, None);
            let known = |lesson: &SelectedScenario| {
                lesson.scenario.variants.iter().any(|one| one.name == variant)
            };
            if variant.is_empty() || self.lessons.len() == before || known(&self.lessons[before]) {
                return;
            }
            let names = self.lessons[before].scenario.variants.iter().map(|one| one.name.as_str());
            let mend = format!("its variants are {}", names.collect::<Vec<_>>().join(", "));
            self.wrong(&format!("`{base}` has no variant `{variant}`"), &mend);
            return;
        }
        let words = commands();
        let known = all.iter().map(|(name, _)| *name).chain(words.iter().map(String::as_str));
        // `run list` probably means the command `list`.
        let known = known.filter(|known| *known != base);
        let part = !base.is_empty() && all.iter().any(|(name, _)| name.contains(base));
        let mend = match near(base, known) {
            Some(near) => format!("did you mean `{near}`?"),
            None if part => format!("`--filter {base}` runs those whose names contain it"),
            None => "name a scenario file, a folder of them, or one that `redquorum-chaos list` \
                     shows"
                .to_owned(),
        };
        self.wrong(&format!("there is no file and no scenario `{}`", path.display()), &mend);
    }

    fn file(&mut self, path: &Path) {
        match fs::read(path).map(String::from_utf8) {
            Ok(Ok(text)) => self.text(&path.to_string_lossy(), &text, Some(path)),
            Ok(Err(_)) => {
                let wrong = format!("{} is not UTF-8 text", path.display());
                self.wrong(&wrong, "name scenario files only, saved as UTF-8");
            }
            Err(error) => self.unreadable(path, &error),
        }
    }

    fn unreadable(&mut self, path: &Path, error: &io::Error) {
        let wrong = format!("{} cannot be read: {error}", path.display());
        self.wrong(&wrong, "look at its permissions");
    }
}

fn folder(path: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(path)? {
        let path = entry?.path();
        if path.extension().is_some_and(|end| end == "toml") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
