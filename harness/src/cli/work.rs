//! Runs every selected run on its backend, checks its history, and reports it as soon as it ends.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Instant;

use super::{Chosen, ScenarioRunner, program};
use crate::real::{self, Failure};
use crate::report::{Ended, Entry, Out, Reports, Tally, shell_word, write_history};
use redquorum_checker::{self, Observed, Outcome, Verdict};
use redquorum_scenario::history::History;
use redquorum_scenario::{Property, Scenario, Wanted};

/// How often a run is repeated at most because this machine was slow.
const REPEATS: usize = 2;

/// How to execute the selected runs.
#[derive(Clone)]
#[non_exhaustive]
pub struct Plan {
    /// How many runs execute at once.
    pub jobs: usize,
    /// How often each run is repeated.
    pub repeat: u32,
    /// The seed of the first repetition.
    pub seed: u64,
    /// Whether to execute each run twice and compare the results.
    pub twice: bool,
    /// Whether to stop at the first run that does not come out as expected.
    pub fail_fast: bool,
    /// Whether a run may miss what its scenario is about: not every lock can do all that the
    /// scenarios need.
    pub lenient: bool,
    /// The command-line options that a repetition needs in addition to scenario and seed.
    pub again: String,
    /// The function that checks a history.
    pub check: fn(&History) -> Verdict,
    /// Whether the user has interrupted the program.
    pub interrupted: fn() -> bool,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            jobs: 1,
            repeat: 1,
            seed: 0,
            twice: false,
            fail_fast: false,
            lenient: false,
            again: String::new(),
            check: redquorum_checker::check,
            interrupted: real::interrupted,
        }
    }
}

/// Runs everything on one backend after the other, and reports each run as it ends.
pub fn run_all(
    stages: &[&dyn ScenarioRunner],
    chosen: &[Chosen],
    plan: &Plan,
    reports: &mut Reports,
) -> Tally {
    reported(plan, reports, |reports, tally| {
        for stage in stages {
            let out = match stages {
                [_] => Ok(reports.out().clone()),
                _ => reports.out().within(stage.backend()),
            };
            match out {
                Ok(out) => play(*stage, chosen, plan, &out, reports, tally),
                Err(_) => tally.environment += 1,
            }
        }
    })
}

/// Runs what is drawn on a backend, as many runs at a time as there are jobs, until nothing more is
/// drawn, or the user interrupts the program.
pub(super) fn run_drawn(
    stage: &dyn ScenarioRunner,
    mut draw: impl FnMut(usize) -> Vec<Chosen>,
    plan: &Plan,
    reports: &mut Reports,
) -> Tally {
    reported(plan, reports, |reports, tally| {
        let out = reports.out().clone();
        while !(plan.interrupted)() {
            let drawn = draw(plan.jobs);
            if drawn.is_empty() {
                return;
            }
            reports.expect(tally.runs() + drawn.len());
            play(stage, &drawn, plan, &out, reports, tally);
        }
    })
}

/// Reports the beginning and the end of runs, and counts how they end.
fn reported(
    plan: &Plan,
    reports: &mut Reports,
    runs: impl FnOnce(&mut Reports, &mut Tally),
) -> Tally {
    let mut tally = Tally { lenient: plan.lenient, ..Tally::default() };
    reports.begin();
    runs(reports, &mut tally);
    tally.interrupted = (plan.interrupted)();
    // If a result file cannot be written, the exit code reports that: a program that reads the file
    // would miss the result.
    if reports.end(&tally).is_err() {
        tally.environment += 1;
    }
    tally
}

fn play(
    stage: &dyn ScenarioRunner,
    chosen: &[Chosen],
    plan: &Plan,
    out: &Out,
    reports: &mut Reports,
    tally: &mut Tally,
) {
    let work =
        Work { stage, chosen, plan, next: AtomicUsize::new(0), stop: AtomicBool::new(false) };
    let (sender, events) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..plan.jobs.clamp(1, work.total().max(1)) {
            let (sender, work) = (sender.clone(), &work);
            scope.spawn(move || work.go_on(&sender, out));
        }
        drop(sender);
        for event in events {
            match event {
                RunEvent::Phase(name, what) => reports.phase(&name, &what),
                RunEvent::Ended(entry) => {
                    match &entry.ended {
                        Ended::Checked(verdict) => tally.count(verdict.outcome),
                        Ended::Skipped(_) => tally.count(Outcome::Skipped),
                        Ended::Environment(_) => tally.environment += 1,
                        Ended::Internal(_) => tally.internal += 1,
                    }
                    reports.finished(&entry);
                }
            }
        }
    });
}

enum RunEvent {
    Phase(String, String),
    Ended(Box<Entry>),
}

struct Work<'a> {
    stage: &'a dyn ScenarioRunner,
    chosen: &'a [Chosen],
    plan: &'a Plan,
    next: AtomicUsize,
    stop: AtomicBool,
}

impl Work<'_> {
    fn total(&self) -> usize {
        self.chosen.len().saturating_mul(usize::try_from(self.plan.repeat).unwrap_or(usize::MAX))
    }

    fn go_on(&self, sender: &Sender<RunEvent>, out: &Out) {
        loop {
            if self.stop.load(Ordering::Acquire) || (self.plan.interrupted)() {
                return;
            }
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            if index >= self.total() {
                return;
            }
            let chosen = &self.chosen[index % self.chosen.len()];
            let time = index / self.chosen.len();
            let Some(entry) = self.one(chosen, time, sender, out) else { return };
            if self.plan.fail_fast && !entry.is_good() {
                self.stop.store(true, Ordering::Release);
            }
            // The receiver lives as long as this scope.
            drop(sender.send(RunEvent::Ended(Box::new(entry))));
        }
    }

    /// Executes one run, or returns nothing after an interrupt. On real masters it repeats the run
    /// if a slow machine explains the difference, and this machine was slow.
    fn one(
        &self,
        chosen: &Chosen,
        time: usize,
        sender: &Sender<RunEvent>,
        out: &Out,
    ) -> Option<Entry> {
        let mut repeated = Vec::new();
        loop {
            let lateness = self.stage.lateness();
            let mut entry = self.once(chosen, time, sender, out)?;
            let late = lateness();
            let bound = chosen.run.lock.node_timeout.0 / 2;
            if late >= bound && repeated.len() < REPEATS && may_be_slowness(&entry) {
                repeated.push(format!(
                    "repeated, as this machine stood still for {} ms: {}",
                    late.as_millis(),
                    entry.differences().join("; ").lines().next().unwrap_or_default()
                ));
                continue;
            }
            entry.repeated = repeated;
            return Some(entry);
        }
    }

    fn once(
        &self,
        chosen: &Chosen,
        time: usize,
        sender: &Sender<RunEvent>,
        out: &Out,
    ) -> Option<Entry> {
        let run = &chosen.run;
        let seed = self.plan.seed.wrapping_add(u64::try_from(time).unwrap_or_default());
        let start = Instant::now();
        let (mut history_file, mut lock, mut virtual_time) = (None, None, None);
        let unwritten = |what: &str, error: io::Error| {
            let folder = out.folder().display();
            let why = format!("its {what} cannot be written to {folder}: {error}");
            Failed::Run(Failure::Environment(why))
        };
        let can = match &chosen.skip {
            Some(why) => Err(why.clone()),
            None => self.stage.can(run),
        };
        let can = can.map_err(|why| Failed::Run(Failure::Skipped(why)));
        let folder =
            can.and_then(|()| out.run(&run.name, time).map_err(|error| unwritten("files", error)));
        let result = folder.and_then(|folder| {
            let history = self.history(run, seed, &folder, sender)?;
            if (self.plan.interrupted)() {
                return Err(Failed::Run(Failure::Interrupted));
            }
            lock.clone_from(&history.header.lock);
            // A run in virtual time reports nothing else.
            virtual_time = history.length().filter(|_| self.stage.is_virtual());
            // Writes the history before the check, so that it remains if the checkers panic.
            let file = write_history(&folder, &history);
            history_file = Some(file.map_err(|error| unwritten("history", error))?);
            caught("the checker panicked", || (self.plan.check)(&history))
        });
        let ended = match result {
            Ok(verdict) if verdict.outcome == Outcome::Skipped => {
                Ended::Skipped(verdict.differences.join("; "))
            }
            Ok(verdict) => Ended::Checked(Box::new(verdict)),
            Err(Failed::Panic(why)) => Ended::Internal(why),
            Err(Failed::Run(Failure::Skipped(why))) => Ended::Skipped(why),
            Err(Failed::Run(Failure::Environment(why))) => Ended::Environment(why),
            Err(Failed::Run(Failure::Interrupted)) => return None,
        };
        Some(Entry {
            name: run.name.clone(),
            backend: self.stage.backend().to_owned(),
            seed,
            time,
            expect: run.expect.clone(),
            ended,
            took: virtual_time.unwrap_or_else(|| start.elapsed()),
            lock,
            history: history_file,
            file: chosen.file.clone(),
            line: chosen.line,
            lenient: self.plan.lenient,
            again: self.command(chosen, seed),
            repeated: Vec::new(),
        })
    }

    fn history(
        &self,
        run: &Scenario,
        seed: u64,
        folder: &Path,
        sender: &Sender<RunEvent>,
    ) -> Result<History, Failed> {
        let mut progress = |what: &str| {
            drop(sender.send(RunEvent::Phase(run.name.clone(), what.to_owned())));
        };
        progress("");
        let played = caught("it panicked", || {
            let history = self.stage.run(run, seed, Some(folder), &mut progress)?;
            if self.plan.twice {
                let again = self.stage.run(run, seed, Some(folder), &mut progress)?;
                assert!(
                    bytes_of(&history) == bytes_of(&again),
                    "the same seed gave another history the second time"
                );
            }
            Ok(history)
        });
        played?.map_err(Failed::Run)
    }

    /// The command that repeats a run.
    fn command(&self, chosen: &Chosen, seed: u64) -> String {
        let what = match &chosen.file {
            None => shell_word(&chosen.run.name).into_owned(),
            Some(file) => {
                let file = shell_word(&file.display().to_string()).into_owned();
                match chosen.run.name.contains('/') {
                    true => format!("{file} --filter {}", shell_word(&chosen.run.name)),
                    false => file,
                }
            }
        };
        let backend = self.stage.backend();
        let program = program();
        format!("{program} run {what} --seed {seed} --backend {backend}{}", self.plan.again)
    }
}

/// Whether a slow machine may explain why a run differs: clients acquired nothing, or too late. No
/// delay lets two clients hold one resource, so a violation of safety stands.
fn may_be_slowness(entry: &Entry) -> bool {
    let Ended::Checked(verdict) = &entry.ended else { return false };
    let unsafe_now = verdict.observed.iter().any(|(property, seen)| {
        !matches!(property, Property::Progress | Property::Liveness)
            && *seen == Observed::Violated
            && entry.expect.of(*property) != Wanted::Violated
    });
    verdict.outcome != Outcome::AsExpected && !unsafe_now
}

fn bytes_of(history: &History) -> Vec<u8> {
    let mut bytes = Vec::new();
    // Writing to memory cannot fail.
    drop(history.write(&mut bytes));
    bytes
}

/// Why there is no verdict.
enum Failed {
    Run(Failure),
    Panic(String),
}

/// Calls code that may panic.
fn caught<T>(what: &str, call: impl FnOnce() -> T) -> Result<T, Failed> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        Failed::Panic(format!("{what}: {}", text.unwrap_or_else(|| "no text".to_owned())))
    })
}
