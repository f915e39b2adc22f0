//! Reports runs as they end: lines on standard output, and files in a folder. The files are written
//! during the run, so that they remain if the program is stopped. Only `report.html` is written
//! once, after the last run has ended or was interrupted.

use std::fs::File;
use std::io::{self, BufReader};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::ValueEnum;

use redquorum_checker::{Outcome, Verdict};
use redquorum_scenario::Expect;
use redquorum_scenario::history::History;

mod code;
pub(crate) mod github;
pub(crate) mod human;
mod json;
mod junit;
mod matrix;
mod out;
mod page;
mod screen;
mod timeline;
mod totals;
mod trace;
mod versus;
mod words;

pub(crate) use code::EXIT_CODES;
pub use code::{Code, Tally};
pub use json::{ResultFile, ResultLine, result_schema};
pub use out::Out;
pub(crate) use page::{render, render_diagnosis};
use screen::Screen;
pub(crate) use trace::trace;
pub(crate) use words::{colourful, shell_word};

/// The file to open first.
const PAGE: &str = "report.html";

/// The largest history for which a timeline is drawn.
const MOST_HISTORY: u64 = 64 << 20;

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
    pub ground: String,
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
    /// The path of its history.
    pub history: Option<PathBuf>,
    /// The file of its scenario, or `None` if it comes with the program.
    pub file: Option<PathBuf>,
    /// The line of its expectation there.
    pub line: usize,
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
            history: None,
            file: None,
            line: 1,
            again: String::new(),
            repeated: Vec::new(),
        }
    }

    /// Whether it needs no attention: it came out as expected, or it was skipped.
    pub fn is_good(&self) -> bool {
        match &self.ended {
            Ended::Checked(verdict) => verdict.outcome == Outcome::AsExpected,
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
            Format::Json => self.screen.json(&json::Line::Session(&self.result)),
            Format::Human | Format::Github => {
                let text = human::begin(&self.session, self.out.folder());
                self.screen.line(&text);
            }
        }
        self.keep();
    }

    /// Reports the progress of a run.
    pub fn phase(&mut self, name: &str, what: &str) {
        let (done, all) = (self.entries.len(), self.session.runs);
        self.screen.phase(&human::progress(done, all, self.began.elapsed()), name, what);
    }

    /// Reports a run that ended.
    pub fn finished(&mut self, entry: &Entry) {
        let line = ResultLine::new(entry, self.out.folder());
        match self.format {
            Format::Json => self.screen.json(&json::Line::Result(&line)),
            Format::Human | Format::Github => {
                let text = human::entry(entry, &self.session, self.screen.colour());
                self.screen.line(&text);
            }
        }
        if self.format == Format::Github && !entry.is_good() {
            self.screen.line(github::of(entry).trim_end());
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
                .json(&json::Line::Summary { exit: tally.code() as u8, result: &self.result }),
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
            self.note(github::summary(&self.session, &self.entries));
        }
        self.broken.take().map_or(Ok(()), Err)
    }

    /// Prints how the verdicts of several backends compare, and returns whether they agree.
    pub fn compare(&mut self) -> bool {
        let (agree, text) = versus::compare(&self.entries);
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
        let junit = junit::text(&self.session, &self.entries);
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
