//! `run`: turns the command line into a plan, a backend and reports. `work.rs` executes the plan.

use std::path::{Path, PathBuf};
use std::thread;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::words::{complain, shell_word};
use super::work::run_on;
use super::{Backend, Chosen, Code, Plan, RunOptions, ScenarioRunner, run_all};
use crate::real::{self, Failure, RealBackend, Setup};
use crate::report::{Out, Reports, Session};

pub(super) fn main(options: &RunOptions) -> Code {
    listen();
    let mut chosen = match options.selection.runs() {
        Ok(chosen) => chosen,
        Err(code) => return code,
    };
    if let Some(number) = options.without_fault {
        chosen = match without_fault(chosen, number) {
            Ok(chosen) => chosen,
            Err(code) => return code,
        };
    }
    if let Some(quorum) = options.quorum {
        chosen = match with_quorum(chosen, quorum.into()) {
            Ok(chosen) => chosen,
            Err(code) => return code,
        };
    }
    let plan = Plan {
        jobs: usize::from(options.jobs),
        repeat: options.repeat,
        twice: options.check_determinism,
        // The seed is short enough to type, and every JSON reader keeps the number exactly.
        seed: options.seed.unwrap_or_else(|| u64::from(rand::random::<u32>())),
        fail_fast: options.fail_fast,
        again: again(options),
        ..Plan::default()
    };
    let folder = options.out.clone().unwrap_or_else(usual_folder);
    let out = match Out::create(&folder) {
        Ok(out) => out,
        Err(error) => {
            let wrong = format!("results cannot be written to {}: {error}", folder.display());
            complain(&wrong, "name another folder with --out");
            return Code::Environment;
        }
    };
    let setup = Setup {
        choice: options.backend.into(),
        client: options.client.clone(),
        image: options.image.clone(),
        ready_timeout: options.ready_timeout,
    };
    if options.backend == Backend::All {
        return on_all(&setup, &chosen, &plan, options, out);
    }
    let ground = match RealBackend::prepare(&setup) {
        Ok(ground) => ground,
        Err(Failure::Interrupted) => return Code::Interrupted,
        Err(Failure::Environment(why) | Failure::Skipped(why)) => {
            complain(&why, "see `redquorum-chaos run --help` for --backend, --client and --image");
            return Code::Environment;
        }
    };
    if plan.twice && !ground.is_virtual() {
        complain("real masters are not deterministic", "add --backend sim to --check-determinism");
        return Code::Usage;
    }
    let session = Session {
        seed: plan.seed,
        backend: ground.backend().to_owned(),
        ground: ground.describe(),
        runs: runs(&chosen, &plan),
        widest: widest(&chosen),
    };
    let mut reports = Reports::new(options.format, session, out);
    run_all(&ground, &chosen, &plan, &mut reports).code()
}

/// Runs on every available backend, and compares the verdicts.
fn on_all(setup: &Setup, chosen: &[Chosen], plan: &Plan, options: &RunOptions, out: Out) -> Code {
    let (grounds, missing) = RealBackend::all(setup);
    if grounds.len() < 2 || plan.twice {
        let mend = match missing.first() {
            _ if plan.twice => "add --backend sim to --check-determinism".to_owned(),
            Some(why) => why.clone(),
            None => "name one with --backend".to_owned(),
        };
        complain("there are not several backends to compare", &mend);
        return if plan.twice { Code::Usage } else { Code::Environment };
    }
    let told: Vec<String> = grounds
        .iter()
        .map(|ground| format!("{}: {}", ground.backend(), ground.describe()))
        .chain(missing.iter().map(|why| format!("not at hand: {why}")))
        .collect();
    let session = Session {
        seed: plan.seed,
        backend: "all".to_owned(),
        ground: told.join("; "),
        runs: runs(chosen, plan) * grounds.len(),
        widest: widest(chosen),
    };
    let stages: Vec<&dyn ScenarioRunner> =
        grounds.iter().map(|ground| ground as &dyn ScenarioRunner).collect();
    let mut reports = Reports::new(options.format, session, out);
    let code = run_on(&stages, chosen, plan, &mut reports).code();
    let agree = reports.compare();
    // Two backends that both come out as expected cannot differ. If one does not come out as
    // expected, the report says so.
    if code == Code::AsExpected && !agree { Code::Differs } else { code }
}

fn runs(chosen: &[Chosen], plan: &Plan) -> usize {
    chosen.len().saturating_mul(usize::try_from(plan.repeat).unwrap_or(usize::MAX))
}

fn widest(chosen: &[Chosen]) -> usize {
    chosen.iter().map(|chosen| chosen.run.name.len()).max().unwrap_or_default()
}

/// The options that a repetition needs in addition to scenario, seed and backend.
fn again(options: &RunOptions) -> String {
    let mut words = String::new();
    for (option, value) in [("--client", &options.client), ("--image", &options.image)] {
        if let Some(value) = value {
            words += &format!(" {option} {}", shell_word(value));
        }
    }
    if let Some(timeout) = options.ready_timeout {
        let timeout = humantime::format_duration(timeout).to_string();
        words += &format!(" --ready-timeout {}", shell_word(&timeout));
    }
    if let Some(quorum) = options.quorum {
        words += &format!(" --quorum {quorum}");
    }
    if let Some(number) = options.without_fault {
        words += &format!(" --without-fault {number}");
    }
    words
}

/// Removes the fault with this number from every run that has it.
fn without_fault(chosen: Vec<Chosen>, number: u32) -> Result<Vec<Chosen>, Code> {
    let index = usize::try_from(number - 1).unwrap_or(usize::MAX);
    let most = chosen.iter().map(|chosen| chosen.run.faults.len()).max().unwrap_or_default();
    let fewer: Vec<Chosen> = chosen
        .into_iter()
        .filter(|chosen| index < chosen.run.faults.len())
        .map(|mut chosen| {
            chosen.run.faults.remove(index);
            chosen
        })
        .collect();
    if fewer.is_empty() {
        let mend = format!("none of the chosen scenarios has more than {most}");
        complain(&format!("there is no fault {number} to leave out"), &mend);
        return Err(Code::Usage);
    }
    Ok(fewer)
}

/// Lets every client know only as many masters as make this quorum. Margins are those of other
/// quorums, so they are not expected any more.
fn with_quorum(chosen: Vec<Chosen>, quorum: usize) -> Result<Vec<Chosen>, Code> {
    let nodes = 2 * quorum - 1;
    let fits = |chosen: &Chosen| {
        chosen.run.cluster.nodes >= nodes
            && chosen.run.clients.iter().all(|client| client.nodes.is_none())
    };
    let mut chosen: Vec<Chosen> = chosen.into_iter().filter(fits).collect();
    if chosen.is_empty() {
        let mend = format!("it takes clients that know all masters, and masters: {nodes}");
        complain(&format!("no chosen scenario can have a quorum of {quorum}"), &mend);
        return Err(Code::Usage);
    }
    for run in chosen.iter_mut().map(|chosen| &mut chosen.run) {
        run.expect.margin.clear();
        for client in &mut run.clients {
            client.nodes = Some((1..=nodes).collect());
        }
    }
    Ok(chosen)
}

/// In Cargo's target folder if there is a Cargo project, else in the current folder.
pub(super) fn usual_folder() -> PathBuf {
    let project = Path::new("target").is_dir() || Path::new("Cargo.toml").is_file();
    PathBuf::from(if project { "target/chaos" } else { "chaos-out" })
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
