//! `result.json`, and the lines of `--format json`.

use std::collections::BTreeMap;
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Ended, Entry, Session};
use redquorum_checker::{Measures, Observed, Violation};
use redquorum_scenario::{Cause, Property, Wanted};

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
