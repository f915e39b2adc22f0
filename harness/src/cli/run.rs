//! `run`: turns the command line into a plan, a backend and reports. `work.rs` executes the plan.
//! `check`: runs the checkers again on a recorded run.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufReader, IsTerminal as _, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, SystemTime};

use super::scenarios::{Profile, folder};
use super::{
    Chosen, Plan, ScenarioRunner, Selection, Shape, client_check, complain, new_seed, run_all, say,
    say_json, unwritten, usual_folder,
};
use crate::client_check::USUAL_QUORUM;
use crate::real::{self, Backend, Failure, Setup};
use crate::report::{
    self, Code, Ended, Entry, Format, Out, Reports, Session, Tally, human, shell_word, trace,
};
use clap::Args;
use redquorum_checker;
use redquorum_checker::Verdict;
use redquorum_scenario::history::{History, Unreadable};
use redquorum_scenario::{Fault, Heals, Known, Nodes, OnLinks, Role, Scenario, near};
use serde::Deserialize;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

pub use crate::real::BackendKind;

/// The scenarios to run, the backend, and the output.
#[derive(Clone, Debug, Default, Args)]
pub struct RunOptions {
    /// The scenarios to run.
    #[command(flatten)]
    pub selection: Selection,
    /// What runs the masters
    #[arg(long, value_enum, default_value_t, value_name = "BACKEND")]
    pub backend: BackendKind,
    /// The seed of all random choices of the simulation; grows by one with each of --repeat. Real
    /// masters and clients do not follow it; it is only recorded with their results. Default: a
    /// random one
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// How many scenarios run at once. Their masters share this machine, and delays show in the
    /// record: use more than one only on an idle machine with many cores
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub jobs: u16,
    /// Run each scenario twice and compare the two results, byte by byte; only with --backend sim
    /// or library
    #[arg(long)]
    pub check_determinism: bool,
    /// Where report.html, result.json, junit.xml and the histories go. Default: target/chaos in a
    /// Cargo project, else chaos-out
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Stop at the first run that does not come out as expected
    #[arg(long)]
    pub fail_fast: bool,
    /// The clients: a command, as for a shell, that conforms to the client protocol (`client-check`
    /// checks it). Default: this project's lock
    #[arg(long, value_name = "CMD")]
    pub client: Option<String>,
    /// How long the clients of a run may take until they are ready: fifty interpreters on two cores
    /// need more than the default, 10s
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub ready_timeout: Option<Duration>,
    /// How long a client may take for an answer, in addition to the wait of its request. Default:
    /// 5s
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub answer_timeout: Option<Duration>,
    /// A file of violations that are known: they make no run fail, and new ones do
    #[arg(long, value_name = "FILE.toml")]
    pub known: Option<PathBuf>,
    /// With --client: fail, too, if a run does not show what its scenario is about (`not-seen`), as
    /// for this project's own lock
    #[arg(long)]
    pub strict: bool,
    /// How many masters must grant a lock: clients know only the first 2N - 1 masters. 1 checks a
    /// lock of a single server by its own promise. Leaves out scenarios whose clients have lists of
    /// masters of their own
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=5))]
    pub quorum: Option<u8>,
    /// The image of the masters; only with containers
    #[arg(long, value_name = "NAME")]
    pub image: Option<String>,
    /// How to print it; github adds annotations and a summary of the job
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    pub format: Format,
    /// Run everything this many times, each with the next seed
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub repeat: u32,
    /// Leave the n-th fault out, counted from 1: shows that the scenario would detect its absence
    /// (exit code 2 is then the good result)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub without_fault: Option<u32>,
    /// Run again whenever one of these files changes, or one is added to these folders, until
    /// Ctrl-C
    #[arg(long, requires = "paths")]
    pub watch: bool,
    /// Print the reasons and the timeline of expected violations too
    #[arg(long)]
    pub explain: bool,
}

pub(super) fn main(options: &RunOptions) -> Result<Code, Code> {
    listen();
    if options.watch { watch(options, once) } else { once(options) }
}

fn once(options: &RunOptions) -> Result<Code, Code> {
    let mut chosen = options.selection.runs()?;
    if let Some(number) = options.without_fault {
        leave_out(&mut chosen, number)?;
    }
    let single = options.selection.profile == Some(Profile::Single);
    let quorum = options.quorum.or(single.then_some(1));
    if let Some(quorum) = quorum {
        limit(&mut chosen, quorum.into())?;
    }
    if let Some(file) = &options.known {
        known(&mut chosen, file)?;
    }
    let lenient = options.client.is_some() && !options.strict;
    let plan = Plan {
        jobs: usize::from(options.jobs),
        repeat: options.repeat,
        twice: options.check_determinism,
        seed: options.seed.unwrap_or_else(new_seed),
        fail_fast: options.fail_fast,
        again: again(options, quorum),
        lenient,
        ..Plan::default()
    };
    let folder = options.out.clone().unwrap_or_else(usual_folder);
    let out = Out::create(&folder);
    let out = unwritten(out, "results", &folder, "name another folder with --out")?;
    let setup = Setup {
        backend: options.backend,
        client: options.client.clone(),
        image: options.image.clone(),
        ready_timeout: options.ready_timeout,
        answer_timeout: options.answer_timeout,
    };
    let runs = chosen.len().saturating_mul(usize::try_from(plan.repeat).unwrap_or(usize::MAX));
    let compares = options.backend == BackendKind::All;
    let (backends, masters) =
        if compares { all(&setup, plan.twice)? } else { one(&setup, plan.twice)? };
    let conforms = conforms(options, quorum)?;
    let session = Session {
        seed: plan.seed,
        backend: if compares { "all" } else { backends[0].backend() }.to_owned(),
        masters,
        client: options.client.clone(),
        lock: options.client.is_none().then(this_lock),
        runs: runs * backends.len(),
        widest: chosen.iter().map(|chosen| chosen.run.name.len()).max().unwrap_or_default(),
        explain: options.explain,
    };
    let mut reports = Reports::new(options.format, session, out);
    let stages: Vec<&dyn ScenarioRunner> =
        backends.iter().map(|backend| backend as &dyn ScenarioRunner).collect();
    let code = run_all(&stages, &chosen, &plan, &mut reports).code();
    // Two backends that both come out as expected cannot differ. If one does not come out as
    // expected, the report says so.
    let agree = !compares || reports.compare();
    Ok(if code == Code::AsExpected && !(conforms && agree) { Code::Differs } else { code })
}

/// The backend that runs the scenarios, and its description.
fn one(setup: &Setup, twice: bool) -> Result<(Vec<Backend>, String), Code> {
    let fix = "see `redquorum-chaos run --help` for --backend, --client and --image";
    let backend = prepared(setup, fix)?;
    if twice && !backend.is_virtual() {
        let fix = "add --backend sim to --check-determinism";
        return Err(complain(Code::Usage, "real masters are not deterministic", fix));
    }
    let described = backend.describe();
    Ok((vec![backend], described))
}

/// The backend; where it cannot be used, the error with its fix.
pub(super) fn prepared(setup: &Setup, fix: &str) -> Result<Backend, Code> {
    Backend::prepare(setup).map_err(|failure| match failure {
        Failure::Interrupted => Code::Interrupted,
        Failure::Environment(why) | Failure::Skipped(why) => complain(Code::Environment, &why, fix),
    })
}

/// All available backends, whose verdicts are compared, and their description.
fn all(setup: &Setup, twice: bool) -> Result<(Vec<Backend>, String), Code> {
    let (backends, missing) = Backend::all(setup);
    if twice || backends.len() < 2 {
        let (code, fix) = match missing.first() {
            _ if twice => (Code::Usage, "add --backend sim to --check-determinism"),
            Some(why) => (Code::Environment, why.as_str()),
            None => (Code::Environment, "name one with --backend"),
        };
        return Err(complain(code, "there are not several backends to compare", fix));
    }
    let described = backends.iter().map(|one| format!("{}: {}", one.backend(), one.describe()));
    let described = described.chain(missing.iter().map(|why| format!("not at hand: {why}")));
    let described = described.collect::<Vec<_>>().join("; ");
    Ok((backends, described))
}

/// The lock of this project, for reports.
pub(super) fn this_lock() -> String {
    concat!("redquorum ", env!("CARGO_PKG_VERSION")).to_owned()
}

/// With a profile, checks the client before its scenarios: `client-check` finds the mistakes of a
/// driver sooner, and says more clearly what they are. Prints what is wrong, and returns whether
/// all is well.
fn conforms(options: &RunOptions, quorum: Option<u8>) -> Result<bool, Code> {
    let (Some(command), Some(_)) = (&options.client, options.selection.profile) else {
        return Ok(true);
    };
    note("client-check: the driver, before its scenarios");
    let mut page = Vec::new();
    let well = client_check(command, quorum.unwrap_or(USUAL_QUORUM), &mut page)?;
    let page = String::from_utf8_lossy(&page);
    page.lines().filter(|_| !well).for_each(note);
    note(if well {
        "client-check: all is well"
    } else {
        "client-check: something is wrong; the exit code will not be 0"
    });
    Ok(well)
}

/// The options that a repetition needs in addition to scenario, seed and backend.
fn again(options: &RunOptions, quorum: Option<u8>) -> String {
    let time = |time: Duration| humantime::format_duration(time).to_string();
    let strict = if options.strict { " --strict" } else { "" };
    [
        ("--client", options.client.clone()),
        ("--known", options.known.as_ref().map(|file| file.display().to_string())),
        ("--image", options.image.clone()),
        ("--ready-timeout", options.ready_timeout.map(time)),
        ("--answer-timeout", options.answer_timeout.map(time)),
        ("--quorum", quorum.map(|quorum| quorum.to_string())),
        ("--without-fault", options.without_fault.map(|number| number.to_string())),
    ]
    .into_iter()
    .filter_map(|(option, value)| Some(format!(" {option} {}", shell_word(&value?))))
    .chain([strict.to_owned()])
    .collect()
}

/// The violations of a lock that are known.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KnownFile {
    #[serde(default)]
    known: Vec<KnownRow>,
}

#[derive(Deserialize)]
struct KnownRow {
    /// The full name of a run, as `list` shows it.
    scenario: String,
    #[serde(flatten)]
    violation: Known,
}

/// Adds the violations of a file to what the chosen runs know. Rows for other runs have no effect.
fn known(chosen: &mut [Chosen], path: &Path) -> Result<(), Code> {
    let shown = path.display();
    let usage = |wrong: &str, fix: &str| Err(complain(Code::Usage, wrong, fix));
    let rows = match fs::read_to_string(path).map(|text| toml::from_str::<KnownFile>(&text)) {
        Ok(Ok(file)) => file.known,
        Ok(Err(error)) => {
            let fix = "a row is [[known]] with scenario, property, because and reason, as in \
                       docs/test-your-own-lock.md";
            return usage(&format!("{shown}: {}", error.to_string().trim_end()), fix);
        }
        Err(error) => return usage(&format!("{shown} cannot be read: {error}"), "name it anew"),
    };
    let embedded = Selection::default().runs()?;
    let all = chosen.iter().chain(&embedded).map(|one| &one.run);
    for KnownRow { scenario, violation } in &rows {
        let Some(run) = all.clone().find(|run| run.name == *scenario) else {
            let fix = match near(scenario, all.map(|run| run.name.as_str())) {
                Some(near) => format!("did you mean `{near}`?"),
                None => "`redquorum-chaos list` shows the names, with their variants".to_owned(),
            };
            return usage(&format!("{shown}: there is no run `{scenario}`"), &fix);
        };
        if let Some((wrong, fix)) = violation.problem(&run.expect) {
            return usage(&format!("{shown}: `{scenario}`: {wrong}"), fix);
        }
    }
    for KnownRow { scenario, violation } in rows {
        for Chosen { run, .. } in chosen.iter_mut().filter(|one| one.run.name == scenario) {
            run.expect.known.push(violation.clone());
        }
    }
    Ok(())
}

/// Removes the fault with this number. Leaves out runs that have no such fault.
fn leave_out(chosen: &mut Vec<Chosen>, number: u32) -> Result<(), Code> {
    let index = usize::try_from(number - 1).unwrap_or(usize::MAX);
    let most = chosen.iter().map(|chosen| chosen.run.faults.len()).max().unwrap_or_default();
    chosen.retain(|chosen| index < chosen.run.faults.len());
    if chosen.is_empty() {
        let wrong = format!("there is no fault {number} to leave out");
        let fix = format!("none of the chosen scenarios has more than {most}");
        return Err(complain(Code::Usage, &wrong, &fix));
    }
    for chosen in chosen {
        chosen.run.faults.remove(index);
    }
    Ok(())
}

/// Lets every client know only as many masters as make this quorum. Margins are those of other
/// quorums, so they are not expected any more.
fn limit(chosen: &mut Vec<Chosen>, quorum: usize) -> Result<(), Code> {
    let nodes = 2 * quorum - 1;
    chosen.retain(|Chosen { run, .. }| {
        run.cluster.nodes >= nodes && run.clients.iter().all(|client| client.nodes.is_none())
    });
    if chosen.is_empty() {
        let wrong = format!("no chosen scenario can have a quorum of {quorum}");
        let fix = format!("it takes clients that know all masters, and masters: {nodes}");
        return Err(complain(Code::Usage, &wrong, &fix));
    }
    for Chosen { run, skip, .. } in chosen {
        *skip = without_quorum(run, nodes, quorum);
        run.expect.margin.clear();
        for client in &mut run.clients {
            client.nodes = Some((1..=nodes).collect());
        }
    }
    Ok(())
}

/// Why a scenario says nothing about clients that know only the first `nodes` masters: a fault
/// spares a majority of all masters, but these clients cannot reach a quorum.
fn without_quorum(run: &Scenario, nodes: usize, quorum: usize) -> Option<String> {
    if run.expect.any_violation() {
        return None;
    }
    let all = run.cluster.nodes;
    let bars = |fault: &Fault| {
        let row = fault.kind.row();
        matches!(row.heals, Heals::StartsAgain | Heals::Undone)
            && !matches!(row.links, OnLinks::Untouched)
    };
    run.faults.iter().enumerate().filter(|(_, fault)| bars(fault)).find_map(|(index, fault)| {
        let (hit, known) = match fault.nodes.as_ref()? {
            Nodes::Some(hit) => (hit.len(), hit.iter().filter(|node| **node <= nodes).count()),
            Nodes::Role(Role { granted: true, first: Some(first), .. }) => (*first, *first),
            Nodes::All | Nodes::Role(_) => return None,
        };
        (hit + all / 2 < all && known + quorum > nodes).then(|| {
            format!(
                "fault {} ({}) leaves no quorum of the masters that clients know with --quorum \
                 {quorum}",
                index + 1,
                fault.kind.name()
            )
        })
    })
}

/// The first Ctrl-C ends the run in order; the second ends the program.
pub(super) fn listen() {
    let Ok(mut signals) = Signals::new([SIGINT, SIGTERM]) else { return };
    thread::spawn(move || {
        for _ in signals.forever() {
            if real::interrupted() {
                // Separate guard processes clean up what this process leaves behind.
                std::process::exit(Code::Interrupted as i32);
            }
            real::interrupt();
        }
    });
}

/// The time between two looks at the files. A file that an editor is still writing changes within
/// it.
const PERIOD: Duration = Duration::from_millis(150);

/// When each file was written, and its size. A file that does not exist is missing.
type Files = BTreeMap<PathBuf, (SystemTime, u64)>;

/// `run --watch`: runs the scenarios until an interrupt: at once, and after each change of one of
/// their files. It compares the modification times and sizes of the files; scenarios are few and
/// small.
///
/// A run that fails, for example because of an error in a file, does not end the program.
pub(super) fn watch(
    options: &RunOptions,
    run: impl Fn(&RunOptions) -> Result<Code, Code>,
) -> Result<Code, Code> {
    let paths = &options.selection.paths;
    if let Some(path) = paths.iter().find(|path| !path.exists()) {
        let wrong = format!("there is no file or folder {} to watch", path.display());
        let fix = "name scenario files, or folders of them; `new` writes one";
        return Err(complain(Code::Usage, &wrong, fix));
    }
    // Every run has the same seed, so that a result changes only if a scenario does.
    let seed = options.seed.unwrap_or_else(new_seed);
    let options = RunOptions { seed: Some(seed), ..options.clone() };
    loop {
        let files = look(paths);
        if matches!(run(&options), Ok(Code::Interrupted) | Err(Code::Interrupted)) {
            return Ok(Code::Interrupted);
        }
        note("waiting for a change; Ctrl-C ends");
        let Some(changes) = next_change(paths, &files) else { return Ok(Code::Interrupted) };
        if io::stdout().is_terminal() {
            // Clears the screen and the lines that have scrolled off it.
            drop(io::stdout().write_all(b"\x1b[H\x1b[2J\x1b[3J"));
        }
        changes.iter().for_each(|change| note(change));
    }
}

/// Standard output may be JSON.
fn note(text: &str) {
    drop(writeln!(io::stderr(), "{text}"));
}

fn look(paths: &[PathBuf]) -> Files {
    let mut files = Files::new();
    for path in paths {
        let all = if path.is_dir() { folder(path).unwrap_or_default() } else { vec![path.clone()] };
        for file in all {
            let state = file.metadata().and_then(|data| Ok((data.modified()?, data.len())));
            files.extend(state.ok().map(|state| (file, state)));
        }
    }
    files
}

/// Waits until files differ from `before` and no longer change. Describes each change. Returns
/// nothing after an interrupt.
fn next_change(paths: &[PathBuf], before: &Files) -> Option<Vec<String>> {
    let mut last = before.clone();
    loop {
        if real::interrupted() {
            return None;
        }
        thread::sleep(PERIOD);
        let now = look(paths);
        if now == last && now != *before {
            return Some(changes(before, &now, SystemTime::now()));
        }
        last = now;
    }
}

/// `2026-11-23T15:51:03Z  scenarios/calm.toml changed`.
fn changes(before: &Files, now: &Files, seen: SystemTime) -> Vec<String> {
    let line = |at: SystemTime, path: &Path, what: &str| {
        format!("{}  {} {what}", humantime::format_rfc3339_seconds(at), path.display())
    };
    let written = now.iter().filter(|(path, state)| before.get(*path) != Some(state));
    let written = written.map(|(path, (at, _))| {
        line(*at, path, if before.contains_key(path) { "changed" } else { "is new" })
    });
    let removed = before.keys().filter(|path| !now.contains_key(*path));
    written.chain(removed.map(|path| line(seen, path, "is gone"))).collect()
}

/// The run to check.
#[derive(Debug, Args)]
pub(super) struct CheckOptions {
    /// The recorded run: a `history.jsonl`
    #[arg(value_name = "HISTORY.jsonl")]
    history: PathBuf,
    /// Write its timeline to this file, as HTML
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
    /// Write its timeline to this file, in the Trace Event format that Perfetto opens
    #[arg(long, value_name = "FILE.json")]
    trace: Option<PathBuf>,
    /// How to print the verdict
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    format: Shape,
}

/// `check`: runs the checkers again on a recorded run.
pub(super) fn check(options: &CheckOptions) -> Result<Code, Code> {
    let path = options.history.display();
    let file = File::open(&options.history).map_err(|error| {
        let fix = "name the history.jsonl of a run; runs leave theirs under target/chaos";
        complain(Code::Usage, &format!("{path} cannot be read: {error}"), fix)
    })?;
    let history = History::read(BufReader::new(file)).map_err(|why| {
        let (what, fix) = match why {
            Unreadable::OtherSchema { .. } => {
                ("cannot be checked", "check it with the program that wrote it, or run it again")
            }
            Unreadable::Defect(_) => {
                ("is no history", "name the history.jsonl of a run, whole and unchanged")
            }
        };
        complain(Code::Usage, &format!("{path} {what}: {why}"), fix)
    })?;
    // The history may come from any program, so a panic of the checkers must not end this one.
    let verdict =
        catch_unwind(AssertUnwindSafe(|| redquorum_checker::check(&history))).map_err(|_| {
            let wrong =
                format!("the checker failed on {path} (`{}`)", history.header.scenario.name);
            complain(Code::Internal, &wrong, "please report it with the file")
        })?;
    let mut tally = Tally::default();
    tally.count(verdict.outcome);
    let printed = match options.format {
        Shape::Json => say_json(&verdict),
        Shape::Human => say(&human::verdict(&history, &verdict)),
    };
    if let Some(page) = &options.report {
        let text = render(page, &options.history, &history, &verdict);
        let written = text.and_then(|text| fs::write(page, text));
        unwritten(written, "the report", page, "make room, or name another file with --report")?;
    }
    if let Some(file) = &options.trace {
        let written = fs::write(file, trace(&history).to_string());
        unwritten(written, "the trace", file, "make room, or name another file with --trace")?;
    }
    printed?;
    Ok(tally.code())
}

/// The report of this run alone, with its timeline.
fn render(page: &Path, path: &Path, history: &History, verdict: &Verdict) -> io::Result<String> {
    let header = &history.header;
    let session = Session {
        seed: header.seed,
        backend: header.backend.clone(),
        masters: header.masters.clone(),
        client: header.client.clone(),
        lock: header.lock.clone().or_else(|| header.client.is_none().then(this_lock)),
        runs: 1,
        ..Session::default()
    };
    let entry = Entry {
        name: header.scenario.name.clone(),
        backend: header.backend.clone(),
        seed: header.seed,
        time: 0,
        expect: header.scenario.expect.clone(),
        ended: Ended::Checked(Box::new(verdict.clone())),
        took: history.length().unwrap_or_default(),
        lock: header.lock.clone(),
        history: Some(path.to_owned()),
        file: None,
        line: 1,
        lenient: false,
        again: format!("redquorum-chaos check {}", shell_word(&path.display().to_string())),
        repeated: Vec::new(),
    };
    let folder = page.parent().unwrap_or_else(|| Path::new(""));
    report::render(&session, &[entry], folder, Some(history))
}
