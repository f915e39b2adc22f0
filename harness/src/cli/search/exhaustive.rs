//! The exhaustive search, from its options to its exit code. Prints the search space first, then
//! the counts and the table of smallest schedules, and writes a file for each class of failures.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use serde_json::json;

use super::super::{say, search, unwritten};
use super::{SearchOptions, Shape};
use crate::real::interrupted;
use crate::report::{Code, Out};
use redquorum_scenario::{Mutant, Scenario};
use redquorum_search::exhaustive::{
    Class, Plan, SEED, Tally, defences, listing, protection, table,
};
use redquorum_search::{Found, Kind};

/// The number of masters without an option for it.
const USUALLY: usize = 5;
/// A find must show from this many seeds, on links that are not all alike.
const SEEDS: u64 = 20;
/// The largest number of entries that the output lists in full.
const FEW: usize = 4;
/// The table has a column for each of these numbers of masters, and for the number that the option
/// asks for.
const COLUMNS: [usize; 4] = [1, 3, 4, 5];

pub(super) fn main(options: &SearchOptions, faults: usize, out: &Out) -> Result<Code, Code> {
    let nodes = options.nodes.map_or(USUALLY, usize::from);
    let plan = |nodes, faults| Plan {
        mutant: options.mutant,
        threads: options.jobs(),
        ..Plan::new(nodes, faults)
    };
    let human = options.format == Shape::Human;
    let asked = plan(nodes, faults);
    if human {
        for base in &asked.bases {
            say(&listing(base))?;
        }
    }
    let start = Instant::now();
    let mut tallies = vec![search(options, &asked, start)];
    if options.defended {
        tallies.push(search(options, &asked.defended(), start));
    }
    let took = start.elapsed();
    for (number, tally) in tallies.iter().enumerate() {
        let title = match (options.defended, number) {
            (false, _) => "",
            (true, 0) => "without defences: ",
            (true, _) => "with all defences: ",
        };
        say(&match options.format {
            Shape::Human => format!("{title}{}", summary(nodes, faults, tally, took)),
            Shape::Json => json(nodes, faults, tally, (took, number > 0)),
        })?;
    }
    if interrupted() {
        return Err(Code::Interrupted);
    }
    let finds = options.mutant == Mutant::None && faults > 0;
    if let (true, Some(tally)) = (finds, tallies.last()) {
        classes(options, tally, out)?;
    }
    match &tallies[..] {
        [without, with] if human => drop(say(&defences(without, with))?),
        [tally] if human && finds => {
            smallest(&plan, nodes, tally)?;
            say(&protection(tally))?;
        }
        _ => {}
    }
    for tally in &tallies {
        wrongs(options, tally, out)?;
    }
    let is_wrong = tallies.iter().any(|tally| tally.broken + tally.unexplained > 0);
    Ok(if is_wrong { Code::Differs } else { Code::AsExpected })
}

fn search(options: &SearchOptions, plan: &Plan, start: Instant) -> Tally {
    let bar = search::bar(0, "{spinner} {bar:24} {pos} of {len}, {eta} left");
    let tally = plan.search(&|done, all| {
        bar.set_length(wide(all));
        bar.set_position(wide(done));
        !interrupted() && options.time.is_none_or(|time| start.elapsed() < time)
    });
    bar.finish_and_clear();
    tally
}

/// The counts of a search.
fn summary(nodes: usize, faults: usize, tally: &Tally, took: Duration) -> String {
    let all: u64 = tally.schedules.iter().sum();
    let by_size: Vec<String> = tally.schedules.iter().map(u64::to_string).collect();
    let mut text = format!(
        "{all} schedules of up to {faults} faults for {nodes} masters ({} by their number of \
         faults), in {:.1} s\n",
        by_size.join(" + "),
        took.as_secs_f64(),
    );
    let Tally { inside, violated, broken, unexplained, parts, cut, .. } = tally;
    let _ = writeln!(text, "{inside} inside the assumptions: {broken} wrong");
    let outside = all - inside;
    let _ = writeln!(text, "{outside} outside: {unexplained} violated without a cause");
    let _ = writeln!(text, "{violated} violated, all in all");
    match cut {
        0 => text.push_str("nothing was cut\n"),
        _ => {
            let _ = writeln!(
                text,
                "cut for want of time: {cut} of {parts} first faults, with all that begins with \
                 them"
            );
        }
    }
    for ((property, cause), count) in &tally.kinds {
        let _ = writeln!(text, "  {property} ({cause}): {count}");
    }
    text
}

/// The table. Numbers of masters other than the requested one are searched with few faults.
fn smallest(plan: &dyn Fn(usize, usize) -> Plan, asked: usize, tally: &Tally) -> Result<(), Code> {
    let others = COLUMNS.into_iter().filter(|nodes| *nodes != asked);
    let others: Vec<(usize, Tally)> =
        others.map(|nodes| (nodes, plan(nodes, 1).search(&|_, _| !interrupted()))).collect();
    let mut columns: Vec<_> = others.iter().map(|(nodes, tally)| (*nodes, tally)).collect();
    columns.push((asked, tally));
    columns.sort_unstable_by_key(|(nodes, _)| *nodes);
    say(&table(&columns)).map(drop)
}

/// Writes a file for each class that the search found, with as few faults as possible.
fn classes(options: &SearchOptions, tally: &Tally, out: &Out) -> Result<(), Code> {
    for class in Class::ALL.iter().copied() {
        let none = [true, false].into_iter().all(|bare| tally.smallest(class, bare).is_none());
        if none {
            continue;
        }
        let Some((found, kind)) = smallest_of(class, tally) else {
            say(&format!("{}: only where all links are alike", class.about()))?;
            continue;
        };
        let name = match options.defended {
            true => format!("defended-{}", class.name()),
            false => class.name().to_owned(),
        };
        let file = search::write_find(&name, &found, &kind, out)?;
        if options.format == Shape::Human {
            let names = found.scenario.faults.iter().map(|fault| fault.kind.name());
            let names: Vec<&str> = names.collect();
            let names = if names.is_empty() { "no fault".to_owned() } else { names.join(", ") };
            say(&format!("{}: {names}\n  {}", class.about(), file.display()))?;
        }
    }
    Ok(())
}

/// The schedule to write for a class. Prefers one after a bare quorum if its number of faults is
/// small; otherwise takes the smallest schedule.
fn smallest_of(class: Class, tally: &Tally) -> Option<(Found, Kind)> {
    let mut least: Option<(Found, Kind)> = None;
    for bare in [true, false] {
        // The search found it where all links are alike; the file must show it with random
        // latencies too.
        let mut all = tally.smallest.get(&(class, bare)).into_iter().flatten();
        let Some((found, kind)) = all.find_map(|found| steady(class, &found.scenario)) else {
            continue;
        };
        // Shrinks the scenario if the result is still of that class and as steady. Where the
        // instant of a client's action matters, that instant stays: on real masters a fault cannot
        // strike between two steps of a client.
        let shrinks = class.forgets() || class == Class::NodeLists;
        let small = shrinks.then(|| search::shrunk(None, &found, &kind));
        let small = small.and_then(|small| steady(class, &small.scenario));
        let (found, kind) = small.unwrap_or((found, kind));
        let size = found.scenario.faults.len();
        if least.as_ref().is_none_or(|(least, _)| size < least.scenario.faults.len()) {
            least = Some((found, kind));
        }
        if size <= FEW {
            break;
        }
    }
    least
}

/// The scenario as a find of its class, if it shows the failure from every seed.
fn steady(class: Class, scenario: &Scenario) -> Option<(Found, Kind)> {
    let shown = |seed| {
        let history = redquorum_simulator::run(scenario, seed, Mutant::None);
        let found = Found::in_history(&history, Mutant::None)?;
        class.shown(&history, &found.verdict)?;
        let kind = found.kinds().into_iter().find(|kind| class.is_kind(kind))?;
        Some((found, kind))
    };
    let mut all = (SEED..SEED + SEEDS).map(shown);
    let first = all.next()??;
    all.all(|found| found.is_some()).then_some(first)
}

/// Writes a file for each kind of error.
fn wrongs(options: &SearchOptions, tally: &Tally, out: &Out) -> Result<(), Code> {
    let mut kinds: Vec<Kind> = Vec::new();
    for (number, wrong) in tally.wrong.iter().enumerate() {
        let found = Found::of(&wrong.scenario, SEED, options.mutant);
        let kind = found.as_ref().map(Found::kind);
        if kind.as_ref().is_some_and(|kind| kinds.contains(kind)) {
            continue;
        }
        let inside = if wrong.inside { "inside the assumptions" } else { "for no reason" };
        say(&format!("✗ {inside}: {}", wrong.lines.join("\n  ")))?;
        match (found, kind) {
            (Some(found), Some(kind)) => {
                let find = search::keep(None, &found, &kind, out)?;
                say(&format!("  {}", find.again))?;
                kinds.push(kind);
            }
            // The failure shows only where all links are alike.
            _ => {
                let text = toml::to_string(&wrong.scenario).unwrap_or_default();
                let name = format!("even-{number}.toml");
                let written = out.replace(&name, text.as_bytes());
                unwritten(written, &name, out.folder(), "name another folder with --out")?;
                say(&format!("  only where all links are alike: {name}"))?;
            }
        }
    }
    Ok(())
}

fn json(nodes: usize, faults: usize, tally: &Tally, (took, defended): (Duration, bool)) -> String {
    let smallest = tally.smallest.iter().map(|((class, bare), found)| {
        let first = found.first();
        json!({
            "class": class.name(),
            "bare-quorum": bare,
            "faults": first.map_or(0, |found| found.faults),
            "masters": first.map_or(0, |found| found.masters),
        })
    });
    json!({
        "event": "exhaustive",
        "nodes": nodes,
        "faults": faults,
        "defended": defended,
        "schedules": tally.schedules,
        "inside": tally.inside,
        "violated": tally.violated,
        "broken": tally.broken,
        "unexplained": tally.unexplained,
        "cut": tally.cut,
        "seconds": took.as_secs_f64(),
        "smallest": smallest.collect::<Vec<_>>(),
    })
    .to_string()
}

fn wide(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}
