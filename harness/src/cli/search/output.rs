//! The output of a search: as text, and as JSON with one object a line.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use serde_json::json;

use super::Through;
use super::finds::Find;
use redquorum_scenario::Mutant;
use redquorum_scenario::units::plural;
use redquorum_search::Found;
use redquorum_search::chance::{Goal, Report, Search};

/// How a search ended.
pub(super) struct End<'a> {
    pub(super) report: &'a Report,
    pub(super) through: Through,
    pub(super) took: Duration,
    pub(super) interrupted: bool,
}

/// The header before the first run; the seed comes first.
pub(super) fn begin(search: &Search, through: Through) -> String {
    let Search { space, seed, mutant, jobs, .. } = search;
    let masters = space.nodes.map_or("1 to 5".to_owned(), |nodes| nodes.to_string());
    let faults = if space.inside {
        "only faults that the lock must survive"
    } else {
        "all faults, also those outside its assumptions"
    };
    let mutants = match mutant {
        Mutant::None if through == Through::Library => {
            "\nclients  the library, whose callers drop futures, or do not poll them".to_owned()
        }
        Mutant::None => String::new(),
        mutant => format!("\nclients  {mutant}: {}", mutant.about()),
    };
    format!("seed     {seed}, {jobs} threads\nmasters  {masters}\nfaults   {faults}{mutants}\n")
}

/// Runs a second, rounded.
pub(super) fn rate(runs: u64, took: Duration) -> u64 {
    let millis = u64::try_from(took.as_millis()).unwrap_or(u64::MAX).max(1);
    runs.saturating_mul(1_000) / millis
}

/// One kind of violation.
pub(super) fn find(search: &Search, find: &Find, runs: u64) -> String {
    let (sign, times) = (if find.is_wrong(search) { '✗' } else { '·' }, plural(runs, "run"));
    let scenario = &find.small.scenario;
    let mut names: Vec<&str> = scenario.faults.iter().map(|fault| fault.kind.name()).collect();
    names.dedup();
    let faults = match names.as_slice() {
        [] => "no fault".to_owned(),
        names => names.join(", "),
    };
    let mut text = format!("{sign} {}, in {times}, first in {}\n", find.kind, find.number);
    let clients = plural(scenario.clients.len(), "client");
    let masters = plural(scenario.cluster.nodes, "master");
    let _ = writeln!(text, "  it takes {faults}; {clients}, {masters}");
    let _ = writeln!(text, "  {}", find.file.display());
    let _ = writeln!(text, "  {}", find.again);
    text
}

/// The summary at the end of a search.
pub(super) fn end(end: &End<'_>) -> String {
    let End { report, through, took, interrupted } = end;
    let mut text = String::new();
    let many = plural(report.runs, "run");
    let rate = rate(report.runs, *took);
    let seconds = took.as_secs_f64();
    let found = match report.kinds.len() {
        0 => "no violation".to_owned(),
        1 => "one kind of violation".to_owned(),
        kinds => format!("{kinds} kinds of violations"),
    };
    let _ = write!(text, "{found} in {many}, {rate} a second for {seconds:.1} s");
    text += if *interrupted { ", interrupted\n" } else { "\n" };
    let _ = writeln!(text, "{} of virtual time", long(report.passed));
    let library = *through == Through::Library;
    let all = Goal::all(library).count();
    let reached = all - report.missed(library).count();
    let _ = write!(text, "{reached} of {all} situations occurred; the number of runs with each:");
    for goal in Goal::all(library) {
        match report.goals.get(&goal) {
            Some(runs) => {
                let _ = write!(text, "\n{runs:>10}  {}", goal.about());
            }
            None => {
                let _ = write!(text, "\n     never  {}", goal.about());
            }
        }
    }
    text
}

/// A long duration as text.
fn long(time: Duration) -> String {
    const DAY: f64 = 86_400.0;
    match time.as_secs_f64() {
        seconds if seconds < 100.0 => format!("{seconds:.1} s"),
        seconds if seconds < 6_000.0 => format!("{:.1} minutes", seconds / 60.0),
        seconds if seconds < DAY => format!("{:.1} hours", seconds / 3_600.0),
        seconds if seconds < 365.25 * DAY => format!("{:.1} days", seconds / DAY),
        seconds => format!("{:.2} years", seconds / (365.25 * DAY)),
    }
}

pub(super) fn find_json(search: &Search, find: &Find, runs: u64) -> String {
    let Found { scenario, seed, .. } = &find.small;
    let faults = scenario.faults.iter().map(|fault| fault.kind.name());
    json!({
        "event": "find",
        "property": find.kind.property,
        "because": find.kind.causes,
        "wrong": find.is_wrong(search),
        "runs": runs,
        "first": find.number,
        "masters": scenario.cluster.nodes,
        "clients": scenario.clients.len(),
        "faults": faults.collect::<Vec<_>>(),
        "seed": seed,
        "file": find.file.display().to_string(),
        "again": find.again,
    })
    .to_string()
}

pub(super) fn end_json(search: &Search, end: &End<'_>) -> String {
    let End { report, through, took, interrupted } = end;
    let library = *through == Through::Library;
    let runs = |goal: Goal| report.goals.get(&goal).copied().unwrap_or(0);
    let goals: BTreeMap<&str, u64> =
        Goal::all(library).map(|goal| (goal.name(), runs(goal))).collect();
    json!({
        "event": "end",
        "seed": search.seed,
        "runs": report.runs,
        "events": report.events,
        "virtual_seconds": report.passed.as_secs_f64(),
        "seconds": took.as_secs_f64(),
        "interrupted": interrupted,
        "goals": goals,
    })
    .to_string()
}
