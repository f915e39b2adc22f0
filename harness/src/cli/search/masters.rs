//! `search --on process`, and on containers: random scenarios on real masters, at the pace of the
//! clock, with the library's own client or any other lock. Each scenario is written as a file, so
//! that `run` plays it again. Real masters repeat no run exactly, so nothing is shrunk.

use std::fmt::Display;
use std::fs;
use std::time::{Duration, Instant};

use super::{SearchOptions, USUALLY};
use crate::cli::run::{prepared, this_lock};
use crate::cli::{
    Chosen, Code, Plan, ScenarioRunner as _, Shape, complain, run_drawn, unwritten, usual_folder,
};
use crate::real::{Backend, BackendKind, Failure, Setup};
use crate::report::{Format, Out, Reports, Session, shell_word};
use redquorum_scenario::Scenario;
use redquorum_scenario::client_protocol::Capability;
use redquorum_scenario::history::Event;
use redquorum_search::plan::Space;
use redquorum_search::scenario_file::{drawn, toml};
use redquorum_simulator::orchestrator::missing;

pub(super) fn main(options: &SearchOptions) -> Result<Code, Code> {
    let usage = |wrong: &str, fix: &str| Err(complain(Code::Usage, wrong, fix));
    match options {
        SearchOptions { on: BackendKind::All, .. } => {
            return usage("a search is on one backend", "name one with --on");
        }
        SearchOptions { outside: true, .. } => {
            let fix = "leave out --outside, or search with --on sim";
            return usage("on real masters only what a lock must survive is drawn", fix);
        }
        SearchOptions { require_coverage: true, .. } => {
            let fix = "leave out --require-coverage, or search with --on sim";
            return usage("goals are for searches in virtual time, which reach them", fix);
        }
        _ => {}
    }
    let setup = Setup { backend: options.on, client: options.client.clone(), ..Setup::default() };
    let backend = prepared(&setup, "search in virtual time: leave out --on")?;
    let folder = options.out.clone().unwrap_or_else(usual_folder).join("random");
    let out = Out::create(&folder);
    let out = unwritten(out, "results", &folder, super::FIX)?;
    let seed = options.seed();
    let client = options.client.as_deref();
    let plan = Plan {
        // Runs share this machine, and delays show in the record.
        jobs: options.jobs.map_or(1, usize::from),
        seed,
        check: redquorum_search::check_drawn,
        again: client.map_or_else(String::new, |it| format!(" --client {}", shell_word(it))),
        ..Plan::default()
    };
    let session = Session {
        seed,
        backend: backend.backend().to_owned(),
        masters: backend.describe(),
        client: options.client.clone(),
        lock: client.is_none().then(this_lock),
        runs: options.runs.and_then(|runs| usize::try_from(runs).ok()).unwrap_or_default(),
        widest: format!("chance-{seed}").len() + 1,
        explain: false,
    };
    let format = if options.format == Shape::Json { Format::Json } else { Format::Human };
    let mut reports = Reports::new(format, session, out.clone());
    let can = capabilities(&backend)?;
    let space = Space { inside: true, nodes: options.nodes.map(usize::from) };
    let mut random = (0..).map(|index| drawn(space, seed.wrapping_add(index)));
    let mut left = options.runs.unwrap_or(u64::MAX);
    let time = if options.runs.is_some() { Duration::MAX } else { options.time.unwrap_or(USUALLY) };
    let (start, mut stopped) = (Instant::now(), None);
    let draw = |jobs: usize| {
        let jobs = if start.elapsed() < time { left.min(jobs as u64) } else { 0 };
        left -= jobs;
        let fits = random.by_ref().take(MOST_DRAWN).filter(|run| fits(run, &backend, &can));
        let jobs = usize::try_from(jobs).unwrap_or_default();
        let chosen = fits.take(jobs).map(|run| chosen(run, &out));
        let chosen = chosen.collect::<Result<Vec<Chosen>, Code>>().and_then(|chosen| {
            // A search that runs nothing must not look like one that finds nothing.
            match chosen.is_empty() && jobs > 0 {
                true => Err(nothing_fits()),
                false => Ok(chosen),
            }
        });
        chosen.unwrap_or_else(|code| {
            stopped = Some(code);
            Vec::new()
        })
    };
    let code = run_drawn(&backend, draw, &plan, &mut reports).code();
    stopped.map_or(Ok(code), Err)
}

/// How many scenarios are drawn at most for those that run at once. The less a client can do, the
/// fewer fit.
const MOST_DRAWN: usize = 100_000;

fn nothing_fits() -> Code {
    let wrong = format!("none of {MOST_DRAWN} random scenarios fits the client");
    complain(Code::Environment, &wrong, "see what `client-check` says that it can do")
}

/// What the clients can do, from a run in which nothing happens.
fn capabilities(backend: &Backend) -> Result<Vec<Capability>, Code> {
    const NOTHING: &str = "name = \"ready\"\nabout = \"What a client can do.\"\n[[client]]\n\
                           id = \"c1\"\nscript = [\"acquire L\", \"release L\"]\n";
    let failed = |why: &dyn Display| {
        let fix = "check the driver with `client-check`";
        complain(Code::Environment, &format!("the client does not start: {why}"), fix)
    };
    let scenario = redquorum_scenario::read("ready.toml", NOTHING).map_err(|why| failed(&why))?;
    let history = backend.run(&scenario, 0, None, &mut |_| ());
    let history = history.map_err(|failure| match failure {
        Failure::Interrupted => Code::Interrupted,
        other => failed(&other),
    })?;
    let can = history.records.into_iter().find_map(|record| match record.event {
        Event::Ready { can, .. } => Some(can),
        _ => None,
    });
    can.ok_or_else(|| failed(&"it is not ready"))
}

/// Whether the backend and its clients can play a scenario.
fn fits(run: &Scenario, backend: &Backend, can: &[Capability]) -> bool {
    let processes = run.clients.iter().map(|client| (client.process().clone(), can.to_vec()));
    backend.can(run).is_ok() && missing(run, &processes.collect()).is_none()
}

/// A random scenario, in a file of its own beside its history.
fn chosen(run: Scenario, out: &Out) -> Result<Chosen, Code> {
    let written = out.run(&run.name, 0).and_then(|folder| {
        let file = folder.join(format!("{}.toml", run.name));
        fs::write(&file, toml(&run)).map(|()| file)
    });
    let file = unwritten(written, &run.name, out.folder(), super::FIX)?;
    Ok(Chosen { run, file: Some(file), line: 1, skip: None })
}
