//! The scenarios on the command line: selects those to run, from files, from folders, or by name
//! from those that come with the program; `list` and `new`.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::{Shape, commands, complain, say, say_json};
use crate::report::{Code, colourful, files};
use clap::{Args, ValueEnum};
use redquorum_scenario;
use redquorum_scenario::{
    Cause, FaultKind, Problems, Property, Scenario, Wanted, is_name_char, near,
};
use serde::Serialize;

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
    /// Only those that say something about this kind of lock without options of its own, in about a
    /// minute
    #[arg(long, value_enum, value_name = "KIND", conflicts_with = "paths")]
    pub profile: Option<Profile>,
}

/// A kind of lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Profile {
    /// A lock over several masters.
    Redlock,
    /// A lock on a single server. `run` sets `--quorum 1`.
    Single,
}

/// The runs for a lock on a single server.
const SINGLE: [&str; 21] = [
    "calm",
    "cancelled-acquire",
    "client-wall-clock",
    "client-wall-clock/forward",
    "clock-back-in-acquire",
    "clock-steps-back",
    "connections-reset",
    "duplicated-set",
    "extend-too-late",
    "herd",
    "holder-cut-off",
    "holder-dies",
    "pause-in-critical-section",
    "pause-in-flight",
    "pause-then-check",
    "release-lost",
    "reply-lost",
    "slow-grant",
    "slow-replies",
    "ttl-of-a-fraction",
    "zombie-set",
];

/// The further runs for a lock over several masters.
const REDLOCK: [&str; 18] = [
    "clock-step-one-holder",
    "clock-step-one-holder/full-grant",
    "crash-restart-forgets",
    "even-masters",
    "extend-needs-a-quorum",
    "flushall",
    "majority-killed",
    "masters-full",
    "masters-full/two",
    "minority-killed",
    "minority-partitioned",
    "minority-partitioned/replies-only",
    "one-master-hung",
    "restart-delayed-by-ttl",
    "rolling-kills",
    "split-votes",
    "token-reused",
    "waiter-cut-off",
];

impl Profile {
    fn has(self, run: &str) -> bool {
        SINGLE.contains(&run) || self == Self::Redlock && REDLOCK.contains(&run)
    }
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
    /// Why it is skipped, if it is.
    pub skip: Option<String>,
}

impl Selection {
    /// The runs that the options select. Prints all errors first and returns the exit code if there
    /// are any.
    ///
    /// # Errors
    ///
    /// [`Code::Usage`].
    pub fn runs(&self) -> Result<Vec<Chosen>, Code> {
        let mut read = Reader::default();
        if self.paths.is_empty() {
            for (name, text) in redquorum_scenario::embedded() {
                read.text(&format!("{name}.toml"), text, None);
            }
        }
        self.paths.iter().for_each(|path| read.path(path));
        if read.wrong {
            return Err(Code::Usage);
        }
        // `run name/variant` selects only that run.
        let names: Vec<&str> = self
            .paths
            .iter()
            .filter(|path| !path.exists())
            .filter_map(|path| path.to_str())
            .collect();
        let mut all = Vec::new();
        for ScenarioFile { scenario, text, file } in &read.files {
            for run in scenario.runs() {
                let is_named = |name: &&str| *name == scenario.name || *name == run.name;
                if file.is_some() || self.paths.is_empty() || names.iter().any(is_named) {
                    let line = redquorum_scenario::line_of(text, &run.name);
                    all.push(Chosen { run, file: file.clone(), line, skip: None });
                }
            }
        }
        if let Some(profile) = self.profile {
            all.retain(|chosen| profile.has(&chosen.run.name));
        }
        let Some(filter) = &self.filter else { return Ok(all) };
        let names: Vec<String> = all.iter().map(|chosen| chosen.run.name.clone()).collect();
        all.retain(|chosen| chosen.run.name.contains(filter.as_str()));
        if all.is_empty() {
            // A filter matches a part of a name, so suggestions come from the words of names and
            // from whole names.
            let words = names.iter().flat_map(|name| name.split(['-', '/']).chain([name.as_str()]));
            let fix = match near(filter, words) {
                Some(near) => format!("did you mean `{near}`? `redquorum-chaos list` shows all"),
                None => format!("the names are {}", some_of(&names)),
            };
            let wrong = format!("no scenario's name contains `{filter}`");
            return Err(complain(Code::Usage, &wrong, &fix));
        }
        Ok(all)
    }
}

/// The first few of many.
fn some_of(names: &[String]) -> String {
    const FEW: usize = 12;
    let more = if names.len() > FEW { ", … (`redquorum-chaos list` shows all)" } else { "" };
    names[..names.len().min(FEW)].join(", ") + more
}

/// A scenario, and the file that contains it.
struct ScenarioFile {
    scenario: Scenario,
    text: String,
    file: Option<PathBuf>,
}

/// Reads scenarios, and prints all errors.
#[derive(Default)]
struct Reader {
    files: Vec<ScenarioFile>,
    wrong: bool,
}

impl Reader {
    fn wrong(&mut self, wrong: &str, fix: &str) {
        complain(Code::Usage, wrong, fix);
        self.wrong = true;
    }

    fn path(&mut self, path: &Path) {
        let shown = path.display();
        if !path.exists() {
            self.name(path);
        } else if path.is_dir() {
            match folder(path) {
                Ok(files) if files.is_empty() => {
                    let fix = "scenarios are files that end in .toml; name their folder";
                    self.wrong(&format!("no scenario lies in {shown}"), fix);
                }
                Ok(files) => files.iter().for_each(|file| self.path(file)),
                Err(error) => self.unreadable(path, &error),
            }
        } else {
            match fs::read(path).map(String::from_utf8) {
                Ok(Ok(text)) => self.text(&path.to_string_lossy(), &text, Some(path)),
                Ok(Err(_)) => {
                    let fix = "name scenario files only, saved as UTF-8";
                    self.wrong(&format!("{shown} is not UTF-8 text"), fix);
                }
                Err(error) => self.unreadable(path, &error),
            }
        }
    }

    fn unreadable(&mut self, path: &Path, error: &io::Error) {
        let wrong = format!("{} cannot be read: {error}", path.display());
        self.wrong(&wrong, "look at its permissions");
    }

    /// Selects one of the scenarios that come with the program, by name.
    fn name(&mut self, path: &Path) {
        let name = path.to_str().unwrap_or_default();
        let all = || redquorum_scenario::embedded().map(|(name, _)| name);
        let (base, variant) = name.split_once('/').unwrap_or((name, ""));
        if let Some((_, text)) = redquorum_scenario::embedded().find(|(known, _)| *known == base) {
            let before = self.files.len();
            self.text(&format!("{base}.toml"), text, None);
            let Some(file) = self.files.get(before) else { return };
            let names: Vec<&str> =
                file.scenario.variants.iter().map(|one| one.name.as_str()).collect();
            if !variant.is_empty() && !names.contains(&variant) {
                let fix = format!("its variants are {}", names.join(", "));
                self.wrong(&format!("`{base}` has no variant `{variant}`"), &fix);
            }
            return;
        }
        // `run list` probably means the command `list`.
        let words = commands();
        let known = all().chain(words.iter().map(String::as_str)).filter(|known| *known != base);
        let fix = match near(base, known) {
            Some(near) => format!("did you mean `{near}`?"),
            None if !base.is_empty() && all().any(|name| name.contains(base)) => {
                format!("`--filter {base}` runs those whose names contain it")
            }
            None => "name a scenario file, a folder of them, or one that `redquorum-chaos list` \
                     shows"
                .to_owned(),
        };
        self.wrong(&format!("there is no file and no scenario `{}`", path.display()), &fix);
    }

    fn text(&mut self, name: &str, text: &str, file: Option<&Path>) {
        let mut own = self.files.iter().filter(|known| known.file.is_none());
        if file.is_none() && own.any(|known| known.text == text) {
            // A file that is named twice, for example with two of its variants, is read once.
            return;
        }
        let scenario = match redquorum_scenario::read(name, text) {
            Ok(scenario) => scenario,
            Err(problems) => {
                self.wrong = true;
                return show(&problems);
            }
        };
        let mut known = self.files.iter();
        if let Some(other) = known.find(|known| known.scenario.name == scenario.name) {
            let of = |file: Option<&Path>| match file {
                Some(file) => file.display().to_string(),
                None => "one that comes with the program".to_owned(),
            };
            let (one, two) = (of(other.file.as_deref()), of(file));
            let wrong = format!("two scenarios are called `{}`: {one} and {two}", scenario.name);
            return self.wrong(&wrong, "their results would overwrite each other: leave one out");
        }
        let (text, file) = (text.to_owned(), file.map(Path::to_owned));
        self.files.push(ScenarioFile { scenario, text, file });
    }
}

/// Prints the problems of a file, on GitHub as annotations, too.
fn show(problems: &Problems) {
    let text = problems.render(colourful(&io::stderr()));
    drop(writeln!(io::stderr(), "{text}\n"));
    if std::env::var_os("GITHUB_ACTIONS").is_some() {
        let file = Some(Path::new(problems.file()));
        for problem in problems.list() {
            let line = files::annotation(file, problem.line, &problem.message, &problem.fix);
            drop(io::stdout().write_all(line.as_bytes()));
        }
    }
}

/// The scenario files of a folder, in the order of their names.
pub(super) fn folder(path: &Path) -> io::Result<Vec<PathBuf>> {
    let files: io::Result<Vec<PathBuf>> =
        fs::read_dir(path)?.map(|entry| entry.map(|entry| entry.path())).collect();
    let mut files = files?;
    files.retain(|path| path.extension().is_some_and(|end| end == "toml"));
    files.sort();
    Ok(files)
}

/// What to list.
#[derive(Debug, Args)]
pub(super) struct ListOptions {
    #[command(flatten)]
    selection: Selection,
    /// How to print it
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    format: Shape,
}

#[derive(Serialize)]
struct Row<'a> {
    name: &'a str,
    about: &'a str,
    source: Option<&'a str>,
    file: Option<String>,
    clients: Vec<&'a str>,
    faults: Vec<&'a str>,
    violated: Vec<Property>,
    because: &'a [Cause],
}

/// `list`: prints the scenarios, and what each of them expects.
pub(super) fn list(options: &ListOptions) -> Result<Code, Code> {
    let chosen = options.selection.runs()?;
    let rows = chosen.iter().map(|chosen| {
        let (run, violated) =
            (&chosen.run, |of: &Property| chosen.run.expect.of(*of) == Wanted::Violated);
        Row {
            name: &run.name,
            about: &run.about,
            source: run.source.as_deref(),
            file: chosen.file.as_ref().map(|file| file.display().to_string()),
            clients: run.clients.iter().map(|client| client.id.as_str()).collect(),
            faults: run.faults.iter().map(|fault| fault.kind.name()).collect(),
            violated: Property::ALL.into_iter().filter(violated).collect(),
            because: &run.expect.because,
        }
    });
    let rows: Vec<Row<'_>> = rows.collect();
    match options.format {
        Shape::Json => say_json(&rows),
        Shape::Human => say(&list_table(&rows)),
    }
}

fn list_table(rows: &[Row<'_>]) -> String {
    let expectation = |row: &Row<'_>| {
        let violated: Vec<&str> = row.violated.iter().map(|property| property.name()).collect();
        if violated.is_empty() {
            "safe".to_owned()
        } else {
            format!("{} violated", violated.join(", "))
        }
    };
    let name = rows.iter().map(|row| row.name.len()).max().unwrap_or_default();
    let wide = rows.iter().map(|row| expectation(row).len()).max().unwrap_or_default();
    let lines = rows
        .iter()
        .map(|row| format!("{:name$}  {:wide$}  {}", row.name, expectation(row), row.about));
    lines.collect::<Vec<_>>().join("\n")
}

/// `new`: writes a scenario to start from, which can run as it is.
pub(super) fn new(name: &str) -> Result<Code, Code> {
    if name.is_empty() || !name.chars().all(is_name_char) {
        let fix = "use lower-case letters, digits and `-`, as in `two-masters-restart`";
        return Err(complain(Code::Usage, &format!("`{name}` is no name for a scenario"), fix));
    }
    let folder = Path::new(if Path::new("scenarios").is_dir() { "scenarios" } else { "" });
    let path = folder.join(format!("{name}.toml"));
    // Creates the file only if it does not exist, so that it overwrites nothing.
    let file = OpenOptions::new().write(true).create_new(true).open(&path);
    let written = file.and_then(|mut file| file.write_all(new_text(name).as_bytes()));
    let path = path.display();
    match written {
        Ok(()) => say(&format!("{path} is written; run it: redquorum-chaos {path}")),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let fix = "choose another name, or edit that file";
            Err(complain(Code::Usage, &format!("{path} exists already"), fix))
        }
        Err(error) => {
            let wrong = format!("{path} cannot be written: {error}");
            Err(complain(Code::Environment, &wrong, "look at the folder's permissions"))
        }
    }
}

/// The text of a new scenario.
fn new_text(name: &str) -> String {
    let names = FaultKind::names();
    let group = |name: &&str| name.split_once('.').map(|(group, _)| group.to_owned());
    let groups = names.chunk_by(|one, next| group(one) == group(next));
    let faults: Vec<String> = groups.flat_map(lines).collect();
    include_str!("template.toml").replace("#   FAULTS\n", &faults.concat()).replace("NAME", name)
}

/// The names of faults in lines of a comment.
fn lines(names: &[&str]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for (index, name) in names.iter().enumerate() {
        let word = if index + 1 < names.len() { format!("{name}, ") } else { (*name).to_owned() };
        match lines.last_mut() {
            Some(line) if line.len() + word.len() <= 96 => line.push_str(&word),
            _ => lines.push(format!("#   {word}")),
        }
    }
    lines.iter().map(|line| format!("{}\n", line.trim_end())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_runs_of_a_profile_exist() {
        for (profile, runs) in
            [(Profile::Single, SINGLE.len()), (Profile::Redlock, SINGLE.len() + REDLOCK.len())]
        {
            let selection = Selection { profile: Some(profile), ..Selection::default() };
            assert_eq!(selection.runs().unwrap().len(), runs, "{profile:?}");
        }
    }

    #[test]
    fn a_new_scenario_names_all_faults_and_can_be_read() {
        let text = new_text("mine");
        for name in FaultKind::names() {
            let is_name = |word: &str| word.trim_end_matches(',') == name;
            assert!(text.split_whitespace().any(is_name), "{name}");
        }
        assert!(text.lines().all(|line| line.len() <= 100), "{text}");
        assert!(redquorum_scenario::read("mine.toml", &text).is_ok());
    }
}
