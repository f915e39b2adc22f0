//! `run`: turns the command line into a plan, a backend and reports. `work.rs` executes the plan.

use std::thread;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::words::{complain, new_seed, unwritten, usual_folder};
use super::{Backend, Chosen, Plan, RunOptions, ScenarioRunner, run_all, watch};
use crate::real::{self, Failure, RealBackend, Setup};
use crate::report::{Code, Out, Reports, Session, shell_word};

pub(super) fn main(options: &RunOptions) -> Result<Code, Code> {
    listen();
    if options.watch { watch::main(options, once) } else { once(options) }
}

fn once(options: &RunOptions) -> Result<Code, Code> {
    let mut chosen = options.selection.runs()?;
    if let Some(number) = options.without_fault {
        leave_out(&mut chosen, number)?;
    }
    if let Some(quorum) = options.quorum {
        limit(&mut chosen, quorum.into())?;
    }
    let plan = Plan {
        jobs: usize::from(options.jobs),
        repeat: options.repeat,
        twice: options.check_determinism,
        seed: options.seed.unwrap_or_else(new_seed),
        fail_fast: options.fail_fast,
        again: again(options),
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
    };
    let runs = chosen.len().saturating_mul(usize::try_from(plan.repeat).unwrap_or(usize::MAX));
    let session = |backend: &str, ground: String, backends: usize| Session {
        seed: plan.seed,
        backend: backend.to_owned(),
        ground,
        runs: runs * backends,
        widest: chosen.iter().map(|chosen| chosen.run.name.len()).max().unwrap_or_default(),
        explain: options.explain,
    };
    if options.backend != Backend::All {
        let ground = RealBackend::prepare(&setup).map_err(|failure| match failure {
            Failure::Interrupted => Code::Interrupted,
            Failure::Environment(why) | Failure::Skipped(why) => {
                let fix = "see `redquorum-chaos run --help` for --backend, --client and --image";
                complain(Code::Environment, &why, fix)
            }
        })?;
        if plan.twice && !ground.is_virtual() {
            let fix = "add --backend sim to --check-determinism";
            return Err(complain(Code::Usage, "real masters are not deterministic", fix));
        }
        let session = session(ground.backend(), ground.describe(), 1);
        let mut reports = Reports::new(options.format, session, out);
        return Ok(run_all(&[&ground], &chosen, &plan, &mut reports).code());
    }

    let (grounds, missing) = RealBackend::all(&setup);
    if plan.twice || grounds.len() < 2 {
        let (code, fix) = match missing.first() {
            _ if plan.twice => (Code::Usage, "add --backend sim to --check-determinism"),
            Some(why) => (Code::Environment, why.as_str()),
            None => (Code::Environment, "name one with --backend"),
        };
        return Err(complain(code, "there are not several backends to compare", fix));
    }
    let described = grounds.iter().map(|one| format!("{}: {}", one.backend(), one.describe()));
    let described = described.chain(missing.iter().map(|why| format!("not at hand: {why}")));
    let described = described.collect::<Vec<_>>().join("; ");
    let mut reports = Reports::new(options.format, session("all", described, grounds.len()), out);
    let stages: Vec<&dyn ScenarioRunner> =
        grounds.iter().map(|ground| ground as &dyn ScenarioRunner).collect();
    let code = run_all(&stages, &chosen, &plan, &mut reports).code();
    let agree = reports.compare();
    // Two backends that both come out as expected cannot differ. If one does not come out as
    // expected, the report says so.
    Ok(if code == Code::AsExpected && !agree { Code::Differs } else { code })
}

/// The options that a repetition needs in addition to scenario, seed and backend.
fn again(options: &RunOptions) -> String {
    let timeout = options.ready_timeout.map(|time| humantime::format_duration(time).to_string());
    [
        ("--client", options.client.clone()),
        ("--image", options.image.clone()),
        ("--ready-timeout", timeout),
        ("--quorum", options.quorum.map(|quorum| quorum.to_string())),
        ("--without-fault", options.without_fault.map(|number| number.to_string())),
    ]
    .into_iter()
    .filter_map(|(option, value)| Some(format!(" {option} {}", shell_word(&value?))))
    .collect()
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
    for Chosen { run, .. } in chosen {
        run.expect.margin.clear();
        for client in &mut run.clients {
            client.nodes = Some((1..=nodes).collect());
        }
    }
    Ok(())
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
