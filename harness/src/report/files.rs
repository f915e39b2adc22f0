//! The forms of a report that other programs read: `result.json` and the lines of `--format json`,
//! `junit.xml`, and annotations and the job summary in GitHub's format.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::human::{self, observed};
use super::out::label;
use super::{Ended, Entry, Session, totals};
use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};
use redquorum_checker::{Measures, Observed, Outcome, Violation};
use redquorum_scenario::{Cause, Property, Wanted};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The version of the format.
const SCHEMA: u32 = 1;

/// `result.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct ResultFile {
    /// The version of the format: 1.
    pub schema: u32,
    /// What ran the masters: `process`, `container`, ….
    pub backend: String,
    /// The seed of the first time.
    pub seed: u64,
    /// What ran the masters, as readable text.
    pub masters: String,
    /// The command of the clients; none: this project's lock.
    pub client: Option<String>,
    /// The name and the version of the lock under test; none: its clients have not announced them.
    pub lock: Option<String>,
    /// The version of the harness.
    pub harness: String,
    /// How many runs there are to be.
    pub runs: usize,
    /// Whether it came to its end: not while it runs, and not if it was interrupted.
    pub finished: bool,
    /// Every run that ended, in that order.
    pub scenarios: Vec<ResultLine>,
}

/// A run in `result.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct ResultLine {
    /// Its name: `scenario` or `scenario/variant`.
    pub name: String,
    /// What ran it.
    pub backend: String,
    /// Its seed.
    pub seed: u64,
    /// `as-expected`, `differs`, `not-seen`, `inconclusive`, `skipped`; or, when it could not be
    /// run to its end, `environment` or `internal`.
    pub outcome: String,
    /// What was expected of each property.
    pub expected: BTreeMap<Property, Wanted>,
    /// What was seen of each property; empty if it was not checked.
    pub observed: BTreeMap<Property, Observed>,
    /// How many acquires returned a lease.
    pub grants: usize,
    /// How long the run took.
    pub duration_ms: u64,
    /// The causes of the violations.
    pub because: Vec<Cause>,
    /// Why the outcome is what it is, if not as expected.
    pub differences: Vec<String>,
    /// The violations and possible violations, in the order of time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<Violation>,
    /// What was measured; none: it was not checked.
    pub measures: Option<Measures>,
    /// Its history, relative to this file.
    pub history: Option<String>,
    /// The file of the scenario; none: it came with the program.
    pub file: Option<String>,
    /// The command that repeats it.
    pub again: String,
    /// Why it was repeated, once for each time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub repeated: Vec<String>,
}

/// A line of `--format json`.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub(super) enum Line<'a> {
    /// The first.
    Session(&'a ResultFile),
    /// One a run.
    Result(&'a ResultLine),
    /// The last.
    Summary { exit: u8, result: &'a ResultFile },
}

impl ResultFile {
    pub(super) fn new(session: &Session) -> Self {
        Self {
            schema: SCHEMA,
            backend: session.backend.clone(),
            seed: session.seed,
            masters: session.masters.clone(),
            client: session.client.clone(),
            lock: session.lock.clone(),
            harness: env!("CARGO_PKG_VERSION").to_owned(),
            runs: session.runs,
            finished: false,
            scenarios: Vec::new(),
        }
    }
}

impl ResultLine {
    pub(super) fn new(entry: &Entry, folder: &Path) -> Self {
        let verdict = match &entry.ended {
            Ended::Checked(verdict) => Some(verdict),
            _ => None,
        };
        let history = entry.history.as_deref();
        let history = history.map(|path| path.strip_prefix(folder).unwrap_or(path));
        Self {
            name: entry.name.clone(),
            backend: entry.backend.clone(),
            seed: entry.seed,
            outcome: entry.word().to_owned(),
            expected: Property::ALL.into_iter().map(|one| (one, entry.expect.of(one))).collect(),
            observed: verdict.map(|verdict| verdict.observed.clone()).unwrap_or_default(),
            grants: verdict.map(|verdict| verdict.measures.grants).unwrap_or_default(),
            duration_ms: u64::try_from(entry.took.as_millis()).unwrap_or(u64::MAX),
            because: verdict.map(|verdict| verdict.because.clone()).unwrap_or_default(),
            differences: entry.differences().to_vec(),
            findings: verdict.map(|verdict| verdict.findings.clone()).unwrap_or_default(),
            measures: verdict.map(|verdict| verdict.measures.clone()),
            history: history.map(|path| path.display().to_string()),
            file: entry.file.as_ref().map(|file| file.display().to_string()),
            again: entry.again.clone(),
            repeated: entry.repeated.clone(),
        }
    }
}

/// The JSON Schema of `result.json`.
pub fn result_schema() -> serde_json::Value {
    schemars::schema_for!(ResultFile).into()
}

const NAME: &str = "redquorum-chaos";

pub(super) fn junit(session: &Session, entries: &[Entry]) -> io::Result<String> {
    let mut suite = TestSuite::new(NAME);
    suite.add_property(("seed", session.seed.to_string().as_str()));
    suite.add_property(("backend", session.backend.as_str()));
    suite.add_property(("masters", session.masters.as_str()));
    for (name, value) in [("client", &session.client), ("lock", &session.lock)] {
        if let Some(value) = value {
            suite.add_property((name, value.as_str()));
        }
    }
    suite.set_time(entries.iter().map(|entry| entry.took).sum());
    for entry in entries {
        let mut case = TestCase::new(entry.name.as_str(), status(entry));
        case.set_classname(format!("{NAME}.{}", entry.backend));
        case.set_time(entry.took);
        case.add_property(("seed", entry.seed.to_string().as_str()));
        case.add_property(("again", entry.again.as_str()));
        suite.add_test_case(case);
    }
    let mut report = Report::new(NAME);
    report.add_test_suite(suite);
    report.to_string().map_err(io::Error::other)
}

fn status(entry: &Entry) -> TestCaseStatus {
    let kind = match &entry.ended {
        Ended::Checked(verdict) if verdict.outcome == Outcome::AsExpected => {
            return TestCaseStatus::success();
        }
        Ended::Skipped(why) => {
            let mut status = TestCaseStatus::skipped();
            status.set_message(why.as_str());
            return status;
        }
        Ended::Checked(_) if entry.is_good() => {
            let mut status = TestCaseStatus::skipped();
            status.set_message(format!("not seen: {}", entry.differences().join("; ")));
            return status;
        }
        Ended::Checked(_) => NonSuccessKind::Failure,
        Ended::Environment(_) | Ended::Internal(_) => NonSuccessKind::Error,
    };
    let mut status = TestCaseStatus::non_success(kind);
    let first = entry.differences().first().map_or("no reason was given", String::as_str);
    let text = format!("{}\n{}", human::observed(entry), human::details(entry, false));
    status.set_message(first).set_type(entry.word()).set_description(text);
    status
}

pub(crate) fn annotation(file: Option<&Path>, line: usize, title: &str, text: &str) -> String {
    let place = match file {
        Some(file) => format!("file={},line={line},", property(&file.display().to_string())),
        None => String::new(),
    };
    format!("::error {place}title={}::{}\n", property(title), data(text))
}

/// The annotations of a run that needs attention: one for each kind of unexpected violation, or one
/// for a run without any.
pub(super) fn annotations(entry: &Entry) -> String {
    // The file of a scenario that comes with the program exists when the program runs in its own
    // repository.
    let base = entry.name.split('/').next().unwrap_or_default();
    let own = PathBuf::from(format!("scenarios/{base}.toml"));
    let file = entry.file.clone().or_else(|| Some(own).filter(|own| own.is_file()));
    let one = |title: &str, lines: &[String]| {
        let title = format!("{}: {title}", entry.name);
        let text = format!("{}\nagain: {}", lines.join("\n"), entry.again);
        annotation(file.as_deref(), entry.line, &title, &text)
    };
    let found = totals::unexpected(entry);
    if found.is_empty() {
        return one(entry.word(), entry.differences());
    }
    let each = found.into_iter().map(|(property, cause, first)| {
        let cause = cause.map_or("no known cause", label);
        one(&format!("{property} violated, {cause}"), &first.explanation)
    });
    each.collect()
}

/// Appends to the job summary, if the environment names one.
pub(super) fn github_summary(session: &Session, entries: &[Entry]) -> io::Result<()> {
    let Some(path) = std::env::var_os("GITHUB_STEP_SUMMARY").filter(|path| !path.is_empty()) else {
        return Ok(());
    };
    let mut file = OpenOptions::new().append(true).create(true).open(path)?;
    file.write_all(github_table(session, entries).as_bytes())
}

fn github_table(session: &Session, entries: &[Entry]) -> String {
    let cell = |text: &str| text.replace('|', "\\|").replace('\n', "<br>");
    let lock = [("lock", &session.lock), ("client", &session.client)];
    let lock =
        lock.map(|(what, of)| of.as_ref().map(|of| format!("{what} `{of}`, ")).unwrap_or_default());
    let mut text = format!(
        "### redquorum-chaos\n\n{}seed `{}`, {}: {}\n\n\
         | | outcome | scenario | observed |\n|---|---|---|---|\n",
        lock.concat(),
        session.seed,
        session.backend,
        cell(&session.masters)
    );
    for entry in entries {
        let sign = if entry.is_good() { "✅" } else { "❌" };
        _ = writeln!(
            text,
            "| {sign} | {} | `{}` | {} |",
            entry.word(),
            entry.name,
            cell(&observed(entry))
        );
    }
    text
}

fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::super::Ended;
    use super::*;
    use redquorum_checker::Verdict;

    #[test]
    fn the_summary_is_a_table_that_no_text_breaks() {
        let entry = Entry::of("a/b", Ended::Skipped("this | that".to_owned()));
        let text = github_table(&Session::default(), &[entry]);
        assert!(text.ends_with("\n|---|---|---|---|\n| ✅ | skipped | `a/b` | this \\| that |\n"));
    }

    #[test]
    fn each_kind_of_violation_has_an_annotation_and_a_run_without_one_has_its_own() {
        let finding = |property, cause, line: &str| Violation {
            property,
            seen: Observed::Violated,
            explanation: vec![line.to_owned()],
            causes: vec![cause],
            from: 0,
            to: 0,
        };
        let bug = |line| finding(Property::Validity, Cause::Bug, line);
        let findings = vec![
            bug("first"),
            bug("second"),
            finding(Property::MutualExclusion, Cause::ClockStep, "third"),
        ];
        let verdict = |findings| Verdict {
            outcome: Outcome::Differs,
            observed: BTreeMap::new(),
            differences: vec!["why".to_owned()],
            findings,
            because: Vec::new(),
            measures: Measures::default(),
        };
        let text =
            |findings| annotations(&Entry::of("a", Ended::Checked(Box::new(verdict(findings)))));
        assert_eq!(
            text(findings),
            "::error title=a%3A mutual-exclusion violated%2C clock.step::third%0Aagain: \n\
             ::error title=a%3A validity violated%2C a bug of the lock::first%0Aagain: \n"
        );
        assert_eq!(text(Vec::new()), "::error title=a%3A differs::why%0Aagain: \n");
    }

    #[test]
    fn separators_in_an_annotation_are_escaped() {
        let line = annotation(Some(Path::new("a,b.toml")), 3, "x: y", "100 %\nnext: one");
        assert_eq!(line, "::error file=a%2Cb.toml,line=3,title=x%3A y::100 %25%0Anext: one\n");
    }
}
