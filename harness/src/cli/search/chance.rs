//! The random search, from its options to its exit code.

use std::time::{Duration, Instant};

use indicatif::ProgressBar;

use super::finds;
use super::output::{self, End};
use super::{SearchOptions, Shape, Through};
use crate::cli::words::say;
use crate::library;
use crate::real::interrupted;
use crate::report::{Code, Out};
use redquorum_search::chance::{Report, Search};
use redquorum_search::plan::Space;

/// The duration of a search without an option for it.
const USUALLY: Duration = Duration::from_secs(60);

pub(super) fn main(options: &SearchOptions, out: &Out) -> Result<Code, Code> {
    let search = Search {
        space: Space { inside: !options.outside, nodes: options.nodes.map(usize::from) },
        seed: options.seed(),
        runs: options.runs.unwrap_or(u64::MAX),
        mutant: options.mutant,
        play: match options.through {
            Through::Machines => redquorum_simulator::run,
            Through::Library => |scenario, seed, _| library::run_with_neglect(scenario, seed),
        },
        jobs: options.jobs(),
    };
    let time = if options.runs.is_some() { None } else { Some(options.time.unwrap_or(USUALLY)) };
    if options.format == Shape::Human {
        say(&output::begin(&search, options.through))?;
    }
    let start = Instant::now();
    // One of them is there.
    let length = options.runs.or(time.map(millis)).unwrap_or(0);
    let bar = finds::bar(length, "{spinner} {bar:24} {msg}, {eta} left");
    let report = search.run(&|report| {
        let passed = start.elapsed();
        show(&bar, report, passed, time);
        !interrupted() && time.is_none_or(|time| passed < time)
    });
    let took = start.elapsed();
    bar.finish_and_clear();
    let (mut wrong, mut broken) = (false, false);
    for (kind, sight) in &report.kinds {
        let Some(found) = search.found(sight.first) else { continue };
        let kept = match options.through {
            Through::Machines => finds::keep(&found, kind, out),
            Through::Library => finds::keep_history(&search, &found, kind, out),
        };
        match kept {
            Ok(find) => {
                wrong |= find.is_wrong(&search);
                say(&match options.format {
                    Shape::Human => output::find(&search, &find, sight.runs),
                    Shape::Json => output::find_json(&search, &find, sight.runs),
                })?;
            }
            // An error with one find does not keep the others from being reported.
            Err(Code::Internal) => broken = true,
            Err(code) => return Err(code),
        }
    }
    let end = End { report: &report, through: options.through, took, interrupted: interrupted() };
    say(&match options.format {
        Shape::Human => output::end(&end),
        Shape::Json => output::end_json(&search, &end),
    })?;
    let library = options.through == Through::Library;
    let missed = options.require_coverage && report.missed(library).next().is_some();
    Ok(if broken {
        Code::Internal
    } else if end.interrupted {
        Code::Interrupted
    } else if wrong {
        Code::Differs
    } else if missed {
        Code::NotSeen
    } else {
        Code::AsExpected
    })
}

fn show(bar: &ProgressBar, report: &Report, passed: Duration, time: Option<Duration>) {
    if bar.is_hidden() {
        return;
    }
    bar.set_position(time.map_or(report.runs, |_| millis(passed)));
    let rate = output::rate(report.runs, passed);
    bar.set_message(format!(
        "{} runs, {rate}/s, {} kinds of violations",
        report.runs,
        report.kinds.len()
    ));
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
