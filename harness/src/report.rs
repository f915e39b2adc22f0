//! Reports runs as they end: lines on standard output, and files in a folder. The files are written
//! during the run, so that they remain if the program is stopped. Only `report.html` is written
//! once, after the last run has ended or was interrupted.

use std::fs::File;
use std::io::{self, BufReader, Read as _, Seek as _, SeekFrom};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::process::errors_files;
use clap::ValueEnum;
use out::Screen;
use redquorum_checker::{Outcome, Verdict};
use redquorum_scenario::Expect;
use redquorum_scenario::client_protocol::shown;
use redquorum_scenario::history::History;

pub(crate) mod files;
pub(crate) mod human;
mod out;
mod page;
mod timeline;
mod totals;

pub use files::{ResultFile, ResultLine, result_schema};
pub use out::{Out, write_judged};
pub(crate) use out::{colourful, shell_word, write_history};
pub(crate) use page::render;
pub(crate) use timeline::trace;

/// The file to open first.
const PAGE: &str = "report.html";

/// The largest history for which a timeline is drawn.
const MOST_HISTORY: u64 = 64 << 20;

/// How many client processes show what they wrote on standard error, how many bytes of it are read,
/// and how many lines are shown.
const MOST_PROCESSES: usize = 4;
const END_OF_ERRORS: u64 = 4 << 10;
const LINES_OF_ERRORS: usize = 12;

/// How to print what happens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// As readable text.
    #[default]
    Human,
    /// One JSON object a line.
    Json,
    /// As readable text, with annotations for GitHub.
    Github,
}

/// The facts that are known before the first run.
#[derive(Clone, Debug, Default)]
pub struct Session {
    /// The seed.
    pub seed: u64,
    /// `process`, `container`, ….
    pub backend: String,
    /// What runs the masters, and why.
    pub masters: String,
    /// The command of the clients; none: this project's lock.
    pub client: Option<String>,
    /// The name and the version of the lock under test; none: its clients have announced none yet.
    pub lock: Option<String>,
    /// How many runs there will be.
    pub runs: usize,
    /// The length of the longest name.
    pub widest: usize,
    /// Whether expected violations are explained on the terminal, too.
    pub explain: bool,
}

/// A run that has ended.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// What ran it.
    pub backend: String,
    /// Its seed.
    pub seed: u64,
    /// The number of its repetition with `--repeat`, counted from 0.
    pub time: usize,
    /// What was expected.
    pub expect: Expect,
    /// How it ended.
    pub ended: Ended,
    /// How long it took.
    pub took: Duration,
    /// The name and the version of the lock, as its clients announced them.
    pub lock: Option<String>,
    /// The path of its history.
    pub history: Option<PathBuf>,
    /// The file of its scenario, or `None` if it comes with the program.
    pub file: Option<PathBuf>,
    /// The line of its expectation there.
    pub line: usize,
    /// Whether it may miss what its scenario is about.
    pub lenient: bool,
    /// The command that repeats it.
    pub again: String,
    /// The reason for each repetition. Empty if it ran once.
    pub repeated: Vec<String>,
}

/// How a run ended.
#[derive(Clone, Debug)]
pub enum Ended {
    /// The checkers returned a verdict.
    Checked(Box<Verdict>),
    /// It was not run, and why.
    Skipped(String),
    /// The environment failed, and how.
    Environment(String),
    /// The program failed, and how.
    Internal(String),
}

impl Entry {
    /// The history, if its file still exists and can be drawn.
    fn read_history(&self) -> Option<History> {
        let file = File::open(self.history.as_ref()?).ok()?;
        let size = file.metadata().ok()?.len();
        if size > MOST_HISTORY { None } else { History::read(BufReader::new(file)).ok() }
    }

    /// The last lines that each client process wrote on standard error: the process, and its lines.
    fn errors(&self) -> Vec<(String, Vec<String>)> {
        let folder = self.history.as_ref().and_then(|history| history.parent());
        let files = folder.map(errors_files).unwrap_or_default();
        let files = files.into_iter().take(MOST_PROCESSES).filter_map(|(process, file)| {
            let mut file = File::open(file).ok()?;
            let size = file.metadata().ok()?.len();
            file.seek(SeekFrom::Start(size.saturating_sub(END_OF_ERRORS))).ok()?;
            let mut end = Vec::new();
            file.read_to_end(&mut end).ok()?;
            let end = String::from_utf8_lossy(&end);
            let lines: Vec<String> = end.trim().lines().map(shown).collect();
            Some((process, lines[lines.len().saturating_sub(LINES_OF_ERRORS)..].to_vec()))
        });
        files.collect()
    }

    #[cfg(test)]
    fn of(name: &str, ended: Ended) -> Self {
        Self {
            name: name.to_owned(),
            backend: "sim".to_owned(),
            seed: 1,
            time: 0,
            expect: Expect::default(),
            ended,
            took: Duration::ZERO,
            lock: None,
            history: None,
            file: None,
            line: 1,
            lenient: false,
            again: String::new(),
            repeated: Vec::new(),
        }
    }

    /// Whether it needs no attention: it came out as expected, was skipped, or missed what its
    /// scenario is about and may.
    pub fn is_good(&self) -> bool {
        match &self.ended {
            Ended::Checked(verdict) => match verdict.outcome {
                Outcome::AsExpected => true,
                Outcome::NotSeen => self.lenient,
                _ => false,
            },
            Ended::Skipped(_) => true,
            Ended::Environment(_) | Ended::Internal(_) => false,
        }
    }

    /// The word for how it ended: an outcome, or `environment`, or `internal`.
    pub fn word(&self) -> &'static str {
        match &self.ended {
            Ended::Checked(verdict) => verdict.outcome.name(),
            Ended::Skipped(_) => Outcome::Skipped.name(),
            Ended::Environment(_) => "environment",
            Ended::Internal(_) => "internal",
        }
    }

    /// Why it does not come out as expected, a line for each reason.
    pub fn differences(&self) -> &[String] {
        match &self.ended {
            Ended::Checked(verdict) => &verdict.differences,
            Ended::Skipped(why) | Ended::Environment(why) | Ended::Internal(why) => {
                std::slice::from_ref(why)
            }
        }
    }
}

/// Prints the reports, and writes them to files.
#[derive(Debug)]
pub struct Reports {
    format: Format,
    session: Session,
    out: Out,
    screen: Screen,
    began: Instant,
    /// When the files were last written, and how long that took.
    kept: Instant,
    keeping: Duration,
    entries: Vec<Entry>,
    result: ResultFile,
    /// The first error from writing a file.
    broken: Option<io::Error>,
}

impl Reports {
    /// Creates the reports; the output goes to standard output. Prints nothing yet.
    pub fn new(format: Format, session: Session, out: Out) -> Self {
        Self::on(Screen::new(format != Format::Json), format, session, out)
    }

    /// Sends the output to this writer instead of standard output.
    pub fn to(to: Box<dyn io::Write + Send>, format: Format, session: Session, out: Out) -> Self {
        Self::on(Screen::plain(to), format, session, out)
    }

    fn on(screen: Screen, format: Format, session: Session, out: Out) -> Self {
        let result = ResultFile::new(&session);
        Self {
            format,
            session,
            out,
            screen,
            began: Instant::now(),
            kept: Instant::now(),
            keeping: Duration::ZERO,
            entries: Vec::new(),
            result,
            broken: None,
        }
    }

    /// The folder of the files.
    pub const fn out(&self) -> &Out {
        &self.out
    }

    /// Reports that the runs begin.
    pub fn begin(&mut self) {
        match self.format {
            Format::Json => self.screen.json(&files::Line::Session(&self.result)),
            Format::Human | Format::Github => {
                let text = human::begin(&self.session, self.out.folder());
                self.screen.line(&text);
            }
        }
        self.keep();
    }

    /// Notes how many runs there will be, if more than were known.
    pub fn expect(&mut self, runs: usize) {
        self.session.runs = self.session.runs.max(runs);
        self.result.runs = self.session.runs;
    }

    /// Reports the progress of a run.
    pub fn phase(&mut self, name: &str, what: &str) {
        let (done, all) = (self.entries.len(), self.session.runs);
        self.screen.phase(&human::progress(done, all, self.began.elapsed()), name, what);
    }

    /// Reports a run that ended.
    pub fn finished(&mut self, entry: &Entry) {
        let line = ResultLine::new(entry, self.out.folder());
        let is_named = self.session.lock.is_none() && entry.lock.is_some();
        if is_named {
            self.session.lock.clone_from(&entry.lock);
            self.result.lock.clone_from(&entry.lock);
        }
        match self.format {
            Format::Json => self.screen.json(&files::Line::Result(&line)),
            Format::Human | Format::Github => {
                if is_named {
                    self.screen.line(&human::lock(&self.session));
                }
                let text = human::entry(entry, &self.session, self.screen.colour());
                self.screen.line(&text);
            }
        }
        if self.format == Format::Github && !entry.is_good() {
            self.screen.line(files::annotations(entry).trim_end());
        }
        self.result.scenarios.push(line);
        self.entries.push(entry.clone());
        // The files grow with every run. Rewriting them takes a twentieth of the time at most.
        if self.kept.elapsed() >= self.keeping.saturating_mul(20) {
            self.keep();
        }
    }

    /// Reports that all runs have ended.
    ///
    /// # Errors
    ///
    /// A file could not be written. The output names it.
    pub fn end(&mut self, tally: &Tally) -> io::Result<()> {
        self.result.finished = !tally.interrupted;
        self.keep();
        let report = self.keep_page();
        match self.format {
            Format::Json => self
                .screen
                .json(&files::Line::Summary { exit: tally.code() as u8, result: &self.result }),
            Format::Human | Format::Github => {
                let text =
                    human::summary(&self.entries, tally, &self.session, self.began.elapsed());
                self.screen.line(&text);
                if let Some(path) = report {
                    self.screen.line(&format!("report   {}", path.display()));
                }
            }
        }
        if self.format == Format::Github {
            self.note(files::github_summary(&self.session, &self.entries));
        }
        self.broken.take().map_or(Ok(()), Err)
    }

    /// Prints how the verdicts of several backends compare, and returns whether they agree.
    pub fn compare(&mut self) -> bool {
        let (agree, text) = totals::compare(&self.entries);
        if self.format != Format::Json {
            self.screen.line(&text);
        }
        agree
    }

    /// Writes both files in their current state, each atomically.
    fn keep(&mut self) {
        let start = Instant::now();
        let result = serde_json::to_vec_pretty(&self.result).map_err(io::Error::from);
        let result = result.and_then(|bytes| self.out.replace("result.json", &bytes));
        self.note(result);
        let junit = files::junit(&self.session, &self.entries);
        let junit = junit.and_then(|text| self.out.replace("junit.xml", text.as_bytes()));
        self.note(junit);
        (self.kept, self.keeping) = (Instant::now(), start.elapsed());
    }

    /// Writes `report.html` for all runs, and returns its path.
    fn keep_page(&mut self) -> Option<PathBuf> {
        let page = page::render(&self.session, &self.entries, self.out.folder(), None);
        let done = page.and_then(|text| self.out.replace(PAGE, text.as_bytes()));
        let path = done.is_ok().then(|| self.out.folder().join(PAGE));
        self.note(done);
        path
    }

    fn note(&mut self, done: io::Result<()>) {
        if let Err(error) = done
            && self.broken.is_none()
        {
            let folder = self.out.folder().display();
            self.screen.complain(&format!(
                "error: results cannot be written to {folder}: {error}\n  = help: make room, or \
                 name another folder with --out"
            ));
            self.broken = Some(error);
        }
    }
}

pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0    every run came out as its scenario expects (some may have been skipped)
  1    a run differs: a violation that was not expected, or one with another cause
  2    an expected violation did not show, or the record does not show it
  3    the environment: no server, no engine, nowhere to write, nothing that could be run here
  64   the command line or a scenario file is wrong
  70   a fault of this program
  130  interrupted";

/// An exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Code {
    /// As expected.
    AsExpected = 0,
    /// Something differs.
    Differs = 1,
    /// An expected violation was not observed, or the result is uncertain.
    NotSeen = 2,
    /// The environment.
    Environment = 3,
    /// The command line or a scenario.
    Usage = 64,
    /// A fault of this program.
    Internal = 70,
    /// Interrupted.
    Interrupted = 130,
}

/// The outcomes of all runs: how many runs ended in which way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// As expected.
    pub as_expected: usize,
    /// Differs.
    pub differs: usize,
    /// Not seen.
    pub not_seen: usize,
    /// Whether runs may miss what their scenarios are about, as long as any run shows it.
    pub lenient: bool,
    /// Inconclusive.
    pub inconclusive: usize,
    /// Skipped.
    pub skipped: usize,
    /// The environment failed.
    pub environment: usize,
    /// The program failed.
    pub internal: usize,
    /// Whether it was interrupted.
    pub interrupted: bool,
}

impl Tally {
    /// Counts one more.
    pub fn count(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::AsExpected => self.as_expected += 1,
            Outcome::Differs => self.differs += 1,
            Outcome::NotSeen => self.not_seen += 1,
            Outcome::Inconclusive => self.inconclusive += 1,
            Outcome::Skipped => self.skipped += 1,
        }
    }

    /// How many runs there were.
    pub const fn runs(&self) -> usize {
        let Self { as_expected, differs, not_seen, inconclusive, skipped, .. } = *self;
        as_expected + differs + not_seen + inconclusive + skipped + self.environment + self.internal
    }

    /// The exit code. An error of the program takes precedence, because it makes all other results
    /// doubtful. An interrupt follows, because the user knows the reason. Then come 3, 1, 2 and 0.
    /// Wrong usage (64) ends the program before any run.
    pub const fn code(&self) -> Code {
        if self.internal > 0 {
            Code::Internal
        } else if self.interrupted {
            Code::Interrupted
        } else if self.environment > 0 {
            Code::Environment
        } else if self.differs > 0 {
            Code::Differs
        } else if self.inconclusive > 0
            || self.not_seen > 0 && !(self.lenient && self.as_expected > 0)
        {
            Code::NotSeen
        } else if self.as_expected == 0 && self.skipped > 0 {
            // If nothing ran, the result shows nothing.
            Code::Environment
        } else {
            Code::AsExpected
        }
    }
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> Self {
        Self::from(code as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_wins() {
        let none = Tally::default();
        let table = [
            (none, Code::AsExpected),
            (Tally { as_expected: 2, skipped: 3, ..none }, Code::AsExpected),
            (Tally { skipped: 3, ..none }, Code::Environment),
            (Tally { as_expected: 2, not_seen: 1, ..none }, Code::NotSeen),
            (Tally { as_expected: 2, inconclusive: 1, ..none }, Code::NotSeen),
            (Tally { not_seen: 4, differs: 1, ..none }, Code::Differs),
            (Tally { as_expected: 1, not_seen: 4, lenient: true, ..none }, Code::AsExpected),
            (Tally { not_seen: 4, lenient: true, ..none }, Code::NotSeen),
            (Tally { as_expected: 1, inconclusive: 1, lenient: true, ..none }, Code::NotSeen),
            (Tally { differs: 1, lenient: true, ..none }, Code::Differs),
            (Tally { not_seen: 4, differs: 1, environment: 1, ..none }, Code::Environment),
            (Tally { differs: 1, environment: 1, interrupted: true, ..none }, Code::Interrupted),
            (Tally { as_expected: 9, interrupted: true, ..none }, Code::Interrupted),
            (Tally { differs: 1, interrupted: true, internal: 1, ..none }, Code::Internal),
        ];
        for (tally, code) in table {
            assert_eq!(tally.code(), code, "{tally:?}");
        }
    }
}
