//! `search`: looks for runs in which the lock violates its guarantees. Defines the options and the
//! exit code. The random search is here, with a file for each find; `exhaustive.rs` runs all
//! schedules of a few faults.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use super::run::{BackendKind, listen};
use super::{Shape, complain, program, say, time, unwritten, usual_folder};
use crate::library;
use crate::real::interrupted;
use crate::report::{Code, Out, shell_word, write_history, write_judged};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use redquorum_checker::{Outcome, Verdict, check};
use redquorum_scenario;
use redquorum_scenario::Mutant;
use redquorum_scenario::history::History;
use redquorum_scenario::units::plural;
use redquorum_search::chance::{Goal, Report, Search};
use redquorum_search::plan::Space;
use redquorum_search::{Found, Kind, scenario_file, shrink};
use serde_json::json;

mod exhaustive;
mod masters;

/// Each of this many seeds is short enough to type.
const SEEDS: u64 = u32::MAX as u64;

/// What to search, where, and for how long.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(super) struct SearchOptions {
    /// How many masters. Default: 1 to 5, by chance; with --faults 5
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=9))]
    nodes: Option<u8>,
    /// Instead of random scenarios run all schedules of up to this many faults, on a few base
    /// scenarios
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u8).range(0..=9),
        conflicts_with_all = ["runs", "seed", "outside", "require_coverage"])]
    faults: Option<u8>,
    /// With --faults: run the same schedules once more with the lock's defences switched on, and
    /// print a table of the differences. The files are of violations that the defences do not
    /// prevent
    #[arg(long, requires = "faults")]
    defended: bool,
    /// For how long, such as 90s or 10m. Default: 60s; with --faults until all is done
    #[arg(long = "for", value_name = "TIME", value_parser = time, conflicts_with = "runs")]
    time: Option<Duration>,
    /// How many runs, instead of a time
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    runs: Option<u64>,
    /// The number of the first run. The same seed and number of runs give the same result, on any
    /// number of threads. Default: a random one
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Use all faults, including those that no lock can survive: shows how the lock fails, and
    /// counts as wrong only a failure that no fault explains
    #[arg(long)]
    outside: bool,
    /// Use a mutant of the clients, to see whether and how soon the search detects it
    #[arg(long, value_name = "NAME", default_value_t = Mutant::None, hide_default_value = true)]
    mutant: Mutant,
    /// Where the scenarios run. `sim`: the shipped machines, in virtual time (default). `library`:
    /// the library itself, in virtual time; the callers of some requests drop their futures, or do
    /// not poll them for a while; a find is written as its history. `process`, `container`: real
    /// masters; each scenario is written, too
    #[arg(long, value_enum, value_name = "BACKEND", default_value_t = BackendKind::Sim,
        hide_default_value = true, hide_possible_values = true,
        conflicts_with_all = ["faults", "mutant"])]
    on: BackendKind,
    /// The clients: a command as for `run --client`. Only on real masters, and there this project's
    /// lock by default
    #[arg(long, value_name = "CMD", conflicts_with_all = ["faults", "mutant"])]
    client: Option<String>,
    /// How many threads; on real masters: how many scenarios run at once. Default: all cores, and
    /// there 1
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    jobs: Option<u16>,
    /// The folder for the scenario files of finds, which go to `found` in it. Default: target/chaos
    /// in a Cargo project, else chaos-out
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Write the history of every run to this file, `-` for standard output, and behind each the
    /// verdict on it, for a program that judges them again. Nothing else is printed, and no find is
    /// shrunk
    #[arg(long, value_name = "FILE", conflicts_with_all = ["faults", "require_coverage", "out", "client"])]
    histories: Option<PathBuf>,
    /// How to print it
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    format: Shape,
    /// Exit with 2 if the search never reached a coverage goal that it should reach
    #[arg(long)]
    require_coverage: bool,
}

const HELP: &str = "\
Each kind of violation is shrunk to what it takes and written as a scenario file, which `run` repeats.

Exit codes:
  0    no violation; with --outside: no violation without a cause
  1    something went wrong
  2    with --require-coverage: a coverage goal was never reached; on real masters: a run is
       inconclusive
  3    the environment: nowhere to write
  64   the command line is wrong
  70   a fault of this program
  130  interrupted; what was found until then is printed and written";

impl SearchOptions {
    fn jobs(&self) -> usize {
        let cores = || thread::available_parallelism().map_or(1, NonZeroUsize::get);
        self.jobs.map_or_else(cores, usize::from)
    }

    fn seed(&self) -> u64 {
        self.seed.unwrap_or_else(|| rand::random::<u64>() % SEEDS)
    }

    /// The random search that the options describe.
    fn search(&self) -> Search {
        Search {
            space: Space { inside: !self.outside, nodes: self.nodes.map(usize::from) },
            seed: self.seed(),
            runs: self.runs.unwrap_or(u64::MAX),
            mutant: self.mutant,
            play: if self.on == BackendKind::Library {
                |scenario, seed, _| library::run_with_neglect(scenario, seed)
            } else {
                redquorum_simulator::run
            },
            jobs: self.jobs(),
        }
    }

    /// How long it takes at most, if the number of runs is not given.
    fn time(&self) -> Option<Duration> {
        if self.runs.is_some() { None } else { Some(self.time.unwrap_or(USUALLY)) }
    }
}

pub(super) fn main(options: &SearchOptions) -> Result<Code, Code> {
    listen();
    let in_virtual_time = matches!(options.on, BackendKind::Sim | BackendKind::Library);
    if let Some(file) = &options.histories {
        if !in_virtual_time {
            let wrong = "--histories is for runs in virtual time";
            let fix = "search with --on sim or --on library; on real masters every run leaves its \
                       history in the folder of --out";
            return Err(complain(Code::Usage, wrong, fix));
        }
        return histories(options, file);
    }
    if !in_virtual_time {
        return masters::main(options);
    }
    if options.client.is_some() {
        let wrong = "clients of other locks run on real masters only";
        return Err(complain(Code::Usage, wrong, "add --on process or --on container"));
    }
    let folder = options.out.clone().unwrap_or_else(usual_folder).join("found");
    let out = Out::create(&folder);
    let out = unwritten(out, "finds", &folder, FIX)?;
    match options.faults {
        Some(faults) => exhaustive::main(options, usize::from(faults), &out),
        None => random(options, &out),
    }
}

/// The duration of a search without an option for it.
const USUALLY: Duration = Duration::from_secs(60);

/// The random search, from its options to its exit code.
fn random(options: &SearchOptions, out: &Out) -> Result<Code, Code> {
    let through_library = options.on == BackendKind::Library;
    let search = options.search();
    let time = options.time();
    if options.format == Shape::Human {
        say(&begin_text(&search, through_library))?;
    }
    let start = Instant::now();
    // One of them is there.
    let length = options.runs.or(time.map(millis)).unwrap_or(0);
    let bar = bar(length, "{spinner} {bar:24} {msg}, {eta} left");
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
        let kept = if through_library {
            keep_history(&search, &found, kind, out)
        } else {
            keep(Some(search.space), &found, kind, out)
        };
        match kept {
            Ok(find) => {
                wrong |= find.is_wrong(&search);
                say(&match options.format {
                    Shape::Human => find_text(&search, &find, sight.runs),
                    Shape::Json => find_json(&search, &find, sight.runs),
                })?;
            }
            // An error with one find does not keep the others from being reported.
            Err(Code::Internal) => broken = true,
            Err(code) => return Err(code),
        }
    }
    let end = End { report: &report, library: through_library, took, interrupted: interrupted() };
    say(&match options.format {
        Shape::Human => end_text(&end),
        Shape::Json => end_json(&search, &end),
    })?;
    let missed = options.require_coverage && report.missed(through_library).next().is_some();
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

/// Writes the history of every run and the verdict on it. The file may be a pipe whose reader has
/// seen enough.
fn histories(options: &SearchOptions, file: &Path) -> Result<Code, Code> {
    let to: io::Result<Box<dyn Write + Send>> = match file.to_str() {
        Some("-") => Ok(Box::new(io::stdout())),
        _ => File::create(file).map(|file| Box::new(file) as _),
    };
    let mut to = unwritten(to, "the histories", file, "name another file")?;
    let (start, time) = (Instant::now(), options.time());
    let mut written = Ok(());
    let text = |history: &History, verdict: &Verdict| {
        let mut text = Vec::new();
        write_judged(&mut text, history, verdict).map(|()| text)
    };
    options.search().each(text, |text| {
        written = text.and_then(|text| to.write_all(&text));
        written.is_ok() && !interrupted() && time.is_none_or(|time| start.elapsed() < time)
    });
    match written.and_then(|()| to.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => unwritten(written, "the histories", file, "make room, or name another file"),
    }?;
    Ok(if interrupted() { Code::Interrupted } else { Code::AsExpected })
}

fn show(bar: &ProgressBar, report: &Report, passed: Duration, time: Option<Duration>) {
    if bar.is_hidden() {
        return;
    }
    bar.set_position(time.map_or(report.runs, |_| millis(passed)));
    let rate = rate(report.runs, passed);
    bar.set_message(format!(
        "{} runs, {rate}/s, {} kinds of violations",
        report.runs,
        report.kinds.len()
    ));
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// A find after shrinking, and its file.
struct Find {
    kind: Kind,
    small: Found,
    /// The number of the run that showed it.
    number: u64,
    file: PathBuf,
    /// The command that repeats it.
    again: String,
}

/// Shrinks a find and writes it, under the name of its kind.
fn keep(space: Option<Space>, found: &Found, kind: &Kind, out: &Out) -> Result<Find, Code> {
    let small = shrunk(space, found, kind);
    let file = write_find(&scenario_file::name(kind, found.mutant), &small, kind, out)?;
    let again = again(&file, &small);
    Ok(Find { kind: kind.clone(), small, number: found.seed, file, again })
}

/// Writes the history of a find, under the name of its kind: the find is in the library, and
/// depends on its random choices.
fn keep_history(search: &Search, found: &Found, kind: &Kind, out: &Out) -> Result<Find, Code> {
    let number = found.seed;
    let name = scenario_file::name(kind, found.mutant);
    let folder = out.run(&name, 0);
    let file = folder.and_then(|folder| write_history(&folder, &search.history(number)));
    let file = unwritten(file, &name, out.folder(), FIX)?;
    let outside = if search.space.inside { "" } else { " --outside" };
    let nodes = search.space.nodes.map(|nodes| format!(" --nodes {nodes}")).unwrap_or_default();
    let program = program();
    let again = format!("{program} search --on library --runs 1 --seed {number}{nodes}{outside}");
    Ok(Find { kind: kind.clone(), small: found.clone(), number, file, again })
}

const FIX: &str = "name another folder with --out";

/// A progress bar on standard error; hidden if standard error is no terminal.
fn bar(length: u64, template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template);
    ProgressBar::new(length).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// The shrunk find. An interrupt ends the shrinker early, and the result is what it has at that
/// time.
fn shrunk(space: Option<Space>, found: &Found, kind: &Kind) -> Found {
    let bar = bar(0, "{spinner} {wide_msg}");
    let small = shrink::shrink_to(space, found, kind, shrink::EFFORT, &mut |progress| {
        if progress.tries.is_multiple_of(50) && !bar.is_hidden() {
            let (tries, faults) = (progress.tries, progress.best.faults.len());
            bar.set_message(format!("shrinking {kind}: {tries} tries, {faults} faults left"));
            bar.tick();
        }
        if interrupted() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    bar.finish_and_clear();
    small
}

/// Writes a find as it is, and runs the file once. A file that `run` refuses, or that differs from
/// its own expectation, is a defect of this program.
fn write_find(name: &str, found: &Found, kind: &Kind, out: &Out) -> Result<PathBuf, Code> {
    let text = scenario_file::file_named(name, found, kind);
    let name = format!("{name}.toml");
    unwritten(out.replace(&name, text.as_bytes()), &name, out.folder(), FIX)?;
    let file = out.folder().join(&name);
    if let Err(why) = tried(&name, &text, found.seed) {
        let wrong = format!("{} cannot be used: {why}", file.display());
        let fix = "report this, with the command line and the seed";
        return Err(complain(Code::Internal, &wrong, fix));
    }
    Ok(file)
}

/// Reads the text of a file and runs it in virtual time, as `run` does.
fn tried(name: &str, text: &str, seed: u64) -> Result<(), String> {
    let scenario = redquorum_scenario::read(name, text).map_err(|problems| problems.to_string())?;
    match check(&redquorum_simulator::run(&scenario, seed, Mutant::None)).outcome {
        Outcome::AsExpected => Ok(()),
        outcome => Err(format!("it comes out as {outcome:?} from seed {seed}")),
    }
}

impl Find {
    /// Whether the lock is wrong, or this program. Outside the assumptions a violation is no error
    /// if a fault explains it.
    fn is_wrong(&self, search: &Search) -> bool {
        search.space.inside || self.kind.is_unexplained()
    }
}

/// The command that repeats a find from its file.
fn again(file: &Path, small: &Found) -> String {
    let file = file.display().to_string();
    let (program, file) = (program(), shell_word(&file));
    match small.mutant {
        Mutant::None => format!("{program} run {file} --backend sim --seed {}", small.seed),
        mutant => format!(
            "{program} run {file} --backend process --client \"redquorum-mutant --mutant {mutant}\""
        ),
    }
}

/// How a search ended.
struct End<'a> {
    report: &'a Report,
    /// Whether the clients were the library.
    library: bool,
    took: Duration,
    interrupted: bool,
}

/// The header before the first run; the seed comes first.
fn begin_text(search: &Search, library: bool) -> String {
    let Search { space, seed, mutant, jobs, .. } = search;
    let masters = space.nodes.map_or("1 to 5".to_owned(), |nodes| nodes.to_string());
    let faults = if space.inside {
        "only faults that the lock must survive"
    } else {
        "all faults, also those outside its assumptions"
    };
    let mutants = match mutant {
        Mutant::None if library => {
            "\nclients  the library, whose callers drop futures, or do not poll them".to_owned()
        }
        Mutant::None => String::new(),
        mutant => format!("\nclients  {mutant}: {}", mutant.about()),
    };
    format!("seed     {seed}, {jobs} threads\nmasters  {masters}\nfaults   {faults}{mutants}\n")
}

/// Runs a second, rounded.
fn rate(runs: u64, took: Duration) -> u64 {
    let millis = u64::try_from(took.as_millis()).unwrap_or(u64::MAX).max(1);
    runs.saturating_mul(1_000) / millis
}

/// One kind of violation.
fn find_text(search: &Search, find: &Find, runs: u64) -> String {
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
fn end_text(end: &End<'_>) -> String {
    let End { report, library, took, interrupted } = end;
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
    let all = Goal::all(*library).count();
    let reached = all - report.missed(*library).count();
    let _ =
        write!(text, "{reached} of {all} coverage goals reached; the number of runs with each:");
    for goal in Goal::all(*library) {
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

fn find_json(search: &Search, find: &Find, runs: u64) -> String {
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

fn end_json(search: &Search, end: &End<'_>) -> String {
    let End { report, library, took, interrupted } = end;
    let runs = |goal: Goal| report.goals.get(&goal).copied().unwrap_or(0);
    let goals: BTreeMap<&str, u64> =
        Goal::all(*library).map(|goal| (goal.name(), runs(goal))).collect();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_refused_or_differs_is_not_reported() {
        let [head, expect] = [
            "name = \"found\"\nabout = \"Nothing happens.\"\n[[client]]\nid = \"c1\"\n\
             script = [\"acquire L\", \"release L\"]\n[expect]\n",
            "acquires = { c1 = \"granted\" }\n",
        ];
        assert_eq!(tried("found.toml", &format!("{head}{expect}"), 1), Ok(()));
        let refused = tried("found.toml", &format!("{head}because = [\"max-ttl\"]\n{expect}"), 1);
        assert!(refused.unwrap_err().contains("because"));
        let differs = tried("found.toml", &format!("{head}acquires = {{ c1 = \"refused\" }}\n"), 1);
        assert_eq!(differs.unwrap_err(), "it comes out as NotSeen from seed 1");
    }
}
