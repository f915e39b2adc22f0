//! The command line: runs on a fake backend, reports of every kind, and the program itself.
//!
//! This file has the fake backend and a fake checker, which follow the name of the scenario, and a
//! folder for each test.

#![cfg(unix)]

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use std::{fs, io};

use redquorum_checker::{Measures, Observed, Outcome, Verdict, Violation};
use redquorum_harness::cli::{Chosen, Plan, ScenarioRunner, Selection, run_all};
use redquorum_harness::real::Failure;
use redquorum_harness::report::{Format, Out, Reports, Session, Tally};
use redquorum_scenario::history::{Event, Header, History, Phase, Record};
use redquorum_scenario::{Cause, Property, Scenario};

#[path = "../support/folder.rs"]
mod folder;
mod program;
mod runs;

use folder::folder;

fn text(name: &str) -> String {
    format!(
        "name = \"{name}\"\nabout = \"To be played.\"\n\n[[client]]\nid = \"c1\"\n\
         script = [\"acquire L\", \"release L\"]\n\n[[fault]]\nat = \"0s\"\n\
         clock.step = {{ node = 1, by = \"3s\" }}\n\n[expect]\nmutual-exclusion = \"violated\"\n"
    )
}

/// Writes scenario files with these names, and selects them.
fn chosen(folder: &Path, names: &[&str]) -> Vec<Chosen> {
    let mut paths = Vec::new();
    for name in names {
        let path = folder.join(format!("{name}.toml"));
        fs::write(&path, text(name)).unwrap();
        paths.push(path);
    }
    Selection { paths, ..Selection::default() }.runs().unwrap()
}

/// A backend that records runs. It follows the name: `skip…`, `nothing…` (the environment fails),
/// `panic…`; all other names run.
#[derive(Default)]
struct Fake {
    played: Mutex<Vec<(String, u64)>>,
    /// How late the machine seems to be.
    late: Duration,
    /// Called before each run, with the number of runs so far.
    before: Option<Box<dyn Fn(usize) + Sync>>,
}

impl ScenarioRunner for Fake {
    fn describe(&self) -> String {
        "a fake, for tests".to_owned()
    }

    fn backend(&self) -> &str {
        "fake"
    }

    fn can(&self, scenario: &Scenario) -> Result<(), String> {
        if scenario.name.starts_with("skip") { Err("it cannot be".to_owned()) } else { Ok(()) }
    }

    fn run(
        &self,
        scenario: &Scenario,
        seed: u64,
        folder: Option<&Path>,
        progress: &mut dyn FnMut(&str),
    ) -> Result<History, Failure> {
        progress("playing");
        assert!(!scenario.name.starts_with("panic"), "as its name says");
        if scenario.name.starts_with("nothing") {
            return Err(Failure::Environment(
                "there is nothing here\ninstall something".to_owned(),
            ));
        }
        let mut played = self.played.lock().unwrap();
        self.before.iter().for_each(|before| before(played.len()));
        played.push((scenario.name.clone(), seed));
        if let Some(folder) = folder.filter(|_| scenario.name.starts_with("differs")) {
            fs::write(folder.join("c1.stderr.txt"), "one\n\x1b[1mKeyError: 'L'\n").unwrap();
        }
        Ok(history(scenario, seed))
    }

    fn lateness(&self) -> Box<dyn Fn() -> Duration> {
        let late = self.late;
        Box::new(move || late)
    }
}

fn history(scenario: &Scenario, seed: u64) -> History {
    let end = Record { ns: 0, event: Event::Phase { phase: Phase::End } };
    let header = Header::new(scenario.clone(), seed, "fake", "none".to_owned());
    Header { lock: Some("a lock 1.2".to_owned()), ..header }.with(vec![end])
}

/// Gives the verdict that the name of the scenario asks for.
fn check(history: &History) -> Verdict {
    let name = history.header.scenario.name.as_str();
    let (outcome, seen) = match name.split(['-', '/']).next().unwrap() {
        "differs" => (Outcome::Differs, Observed::Violated),
        "blind" => (Outcome::NotSeen, Observed::Safe),
        "unsure" => (Outcome::Inconclusive, Observed::Inconclusive),
        "injudicable" => panic!("no verdict on this"),
        _ => (Outcome::AsExpected, Observed::Violated),
    };
    let bad = outcome != Outcome::AsExpected;
    let mut observed: std::collections::BTreeMap<Property, Observed> =
        Property::ALL.into_iter().map(|property| (property, Observed::Safe)).collect();
    observed.insert(Property::MutualExclusion, seen);
    Verdict {
        outcome,
        observed,
        differences: if bad { vec![format!("{name} is <not> & as expected")] } else { Vec::new() },
        findings: if seen == Observed::Safe {
            Vec::new()
        } else {
            vec![Violation {
                property: Property::MutualExclusion,
                seen,
                explanation: vec![
                    "c1 believed L from 1.0 to 9.0".to_owned(),
                    "so did c2".to_owned(),
                ],
                causes: vec![Cause::ClockStep],
                from: 1_000_000,
                to: 9_000_000,
            }]
        },
        because: if seen == Observed::Violated { vec![Cause::ClockStep] } else { Vec::new() },
        measures: Measures { grants: 2, margins: vec![1, 1], ..Measures::default() },
    }
}

/// A plan with the checker above, without an interrupt.
fn plan() -> Plan {
    let mut plan = Plan::default();
    plan.seed = 7;
    plan.check = check;
    plan.interrupted = || false;
    plan
}

/// Runs all scenarios on a fake. The results go to `out` in the folder.
fn play(folder: &Path, names: &[&str], plan: &Plan) -> (Tally, Vec<(String, u64)>) {
    let chosen = chosen(folder, names);
    let fake = Fake::default();
    let (mut reports, _) = reports(folder, chosen.len(), Format::Json);
    let tally = run_all(&[&fake], &chosen, plan, &mut reports);
    (tally, fake.played.into_inner().unwrap())
}

/// The report of a fake run.
fn printed(folder: &Path, names: &[&str], format: Format) -> String {
    let chosen = chosen(folder, names);
    let (mut reports, printed) = reports(folder, chosen.len(), format);
    run_all(&[&Fake::default()], &chosen, &plan(), &mut reports);
    printed.text()
}

#[derive(Clone, Default)]
struct Printed(Arc<Mutex<Vec<u8>>>);

impl Printed {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl io::Write for Printed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn reports(folder: &Path, runs: usize, format: Format) -> (Reports, Printed) {
    let session = Session {
        seed: 7,
        backend: "fake".to_owned(),
        masters: "a fake, for tests".to_owned(),
        client: Some("a command".to_owned()),
        runs,
        widest: 12,
        ..Session::default()
    };
    let out = Out::create(&folder.join("out")).unwrap();
    let printed = Printed::default();
    (Reports::to(Box::new(printed.clone()), format, session, out), printed)
}
