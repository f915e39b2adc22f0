//! The program: starts what the options say, makes the runs in order, and prints how they ended.

use std::{
    fmt::Display,
    fs, io,
    path::Path,
    process::ExitCode,
    time::{Duration, Instant, SystemTime},
};

use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::{
    database::Database,
    fault::{Verdict, expectation},
    masters::Source,
    options::{Command, Options, code},
    results::{Contest, Fault, Machine, Outcome, Run, Server, Workload},
    run::{self, Environment, Plan},
    strategy::Kind,
    table,
};

/// Runs the program.
pub fn main() -> ExitCode {
    let options = match Options::try_parse() {
        Ok(options) => options,
        Err(error) => {
            // Help and version go to standard output.
            let _printed = error.print();
            return ExitCode::from(if error.use_stderr() { code::USAGE } else { 0 });
        }
    };
    if options.list {
        list();
        return ExitCode::SUCCESS;
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("contest: the runtime does not start: {error}");
            return ExitCode::from(code::INTERNAL);
        }
    };
    let exit = runtime.block_on(async {
        match &options.command {
            Some(Command::Applicant { socket }) => match run::child(socket).await {
                Ok(()) => 0,
                Err(error) => {
                    eprintln!("applicant: {error}");
                    code::INTERNAL
                }
            },
            None => contest(&options).await,
        }
    });
    // A server that hangs does not keep the process.
    runtime.shutdown_timeout(std::time::Duration::from_millis(500));
    ExitCode::from(exit)
}

fn list() {
    let print = |heading: &str, names: &[(&str, &str)]| {
        println!("{heading}:");
        names.iter().for_each(|(name, title)| println!("  {name:<18} {title}"));
    };
    print("strategies", &Kind::ALL.map(|kind| (kind.name(), kind.title())));
    print("\nworkloads", &Workload::ALL.map(|workload| (workload.name(), workload.title())));
    print("\nfaults", &Fault::ALL.map(|fault| (fault.name(), fault.title())));
}

/// Runs the contest; returns the exit code.
async fn contest(options: &Options) -> u8 {
    let mut signals = match signals() {
        Ok(signals) => signals,
        Err(error) => return fail(code::INTERNAL, &format!("signals cannot be caught: {error}")),
    };
    if let Err(error) = fs::create_dir_all(&options.out) {
        let shown = options.out.display();
        return fail(code::ENVIRONMENT, &format!("{shown} cannot be made: {error}: use --out"));
    }
    let setting_up = set_up(options);
    let (mut environment, mut contest, notes) = tokio::select! {
        result = setting_up => match result {
            Ok(ready) => ready,
            Err(error) => return fail(code::ENVIRONMENT, &error),
        },
        () = next(&mut signals) => return fail(code::INTERRUPTED, "interrupted before the first run"),
    };
    let plans = plans(options);
    print_header(&contest, &notes, plans.len());
    let start = Instant::now();
    let (mut worst, progress) = (Verdict::Expected, progress(plans.len()));
    let stopped = tokio::select! {
        stopped = all(&mut environment, &plans, &mut contest, &mut worst, &progress) => stopped,
        () = next(&mut signals) => Some(("interrupted".to_owned(), code::INTERRUPTED)),
    };
    progress.finish_and_clear();
    contest.seconds = start.elapsed().as_secs_f64();
    contest.stopped = stopped.as_ref().map(|(why, _)| why.clone());
    table::print(&contest, environment.database.target.product);
    let written = write(&contest, &options.out);
    if options.keep {
        println!("\nto look at the database: {}", environment.database.how_to_look());
        if environment.database.ends_with_process() && stopped.is_none() {
            println!("Ctrl-C ends the server");
            next(&mut signals).await;
        }
    }
    close(environment, options.keep).await;
    match (written, stopped) {
        (Err(error), _) => fail(code::ENVIRONMENT, &error),
        (Ok(()), Some((why, code))) => fail(code, &format!("{why}: the results are partial")),
        (Ok(()), None) => match worst {
            Verdict::Expected => 0,
            Verdict::NotCaught => code::NOT_CAUGHT,
            Verdict::Wrong => code::WRONG,
        },
    }
}

fn fail(code: u8, why: &str) -> u8 {
    eprintln!("contest: {why}");
    code
}

async fn set_up(options: &Options) -> Result<(Environment, Contest, Vec<String>), String> {
    let (source, masters, mut notes) = Source::choose(options.masters.clone()).await?;
    let keep_in = options.keep.then_some(options.out.as_path());
    let mut database = Database::open(&options.database, keep_in).await?;
    notes.append(&mut database.notes);
    let contest = empty(options, database.server.clone(), masters);
    let environment = Environment::new(database, source).await?;
    Ok((environment, contest, notes))
}

/// Ends the servers, and removes what the contest created.
async fn close(environment: Environment, kept: bool) {
    let Environment { database, admin, .. } = environment;
    // Connections that are in use by applicants of a stopped run end with their tasks.
    let _closed = tokio::time::timeout(Duration::from_secs(2), admin.close()).await;
    if !kept {
        database.close().await;
    }
}

fn empty(options: &Options, database: Server, masters: Server) -> Contest {
    let args: Vec<String> = std::env::args().skip(1).map(|arg| without_password(&arg)).collect();
    let command = format!("cargo contest {}", args.join(" "));
    Contest {
        format: 1,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        command: command.trim_end().to_owned(),
        started: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
        seconds: 0.0,
        stopped: None,
        machine: Machine {
            os: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
        },
        database,
        masters,
        strategies: options.kinds().into_iter().map(|kind| kind.info()).collect(),
        runs: Vec::new(),
    }
}

/// An argument as it may be shown: the passwords of URLs are not.
fn without_password(arg: &str) -> String {
    let hidden = |url: &str| match url.split_once("://").zip(url.rsplit_once('@')) {
        Some(((scheme, rest), (_, host))) => {
            let user = rest.split([':', '@']).next().unwrap_or_default();
            format!("{scheme}://{user}:PASSWORD@{host}")
        }
        None => url.to_owned(),
    };
    arg.split(',').map(hidden).collect::<Vec<_>>().join(",")
}

/// The runs in their order: workload by workload, then fault by fault.
fn plans(options: &Options) -> Vec<Plan> {
    let mut plans = Vec::new();
    let workloads = options.workloads().into_iter().map(|workload| (workload, None));
    let faults = options.faults().into_iter().map(|fault| (Workload::Rush, Some(fault)));
    for (workload, fault) in workloads.chain(faults) {
        for network_ms in &options.network_ms {
            for repetition in 1..=options.repeat {
                for kind in options.kinds() {
                    plans.push(Plan {
                        kind,
                        workload,
                        fault,
                        network_ms: *network_ms,
                        repetition,
                        seconds: options.seconds,
                    });
                }
            }
        }
    }
    plans
}

/// Makes all runs. Why it ended early, with the exit code.
async fn all(
    environment: &mut Environment,
    plans: &[Plan],
    contest: &mut Contest,
    worst: &mut Verdict,
    progress: &ProgressBar,
) -> Option<(String, u8)> {
    for plan in plans {
        let fault = plan.fault.map_or(plan.workload.name(), Fault::name);
        progress.set_message(format!("{fault}: {}", plan.kind.name()));
        let outcome = run::run(environment, plan).await;
        let failed = matches!(outcome, Outcome::Failed { .. });
        let verdict = match &outcome {
            Outcome::Measured(figures) => {
                let product = environment.database.target.product;
                expectation(plan.kind, plan.workload, plan.fault, product)
                    .verdict(plan.workload, figures)
            }
            Outcome::NotOffered { .. } => Verdict::Expected,
            Outcome::Failed { .. } => Verdict::Wrong,
        };
        *worst = verdict.max(*worst);
        contest.runs.push(Run {
            strategy: plan.kind.name().to_owned(),
            workload: plan.workload,
            fault: plan.fault,
            network_ms: plan.network_ms,
            repetition: plan.repetition,
            outcome,
        });
        progress.inc(1);
        if failed && !environment.database.is_alive().await {
            let log = environment.database.log();
            let why = format!("the database stopped responding\n{log}");
            return Some((why.trim_end().to_owned(), code::ENVIRONMENT));
        }
    }
    None
}

/// What is compared, on what, and what is skipped.
fn print_header(contest: &Contest, notes: &[String], runs: usize) {
    let shown = |server: &Server| {
        let name = format!("{} {}", server.product, server.version);
        format!("{} ({})", name.trim_end(), server.place)
    };
    println!("database: {}", shown(&contest.database));
    println!("masters:  {}", shown(&contest.masters));
    for note in notes {
        println!("note:     {note}");
    }
    println!("runs:     {runs}\n");
}

/// A progress bar, which is hidden if standard error is no terminal.
fn progress(runs: usize) -> ProgressBar {
    let bar = ProgressBar::new(u64::try_from(runs).unwrap_or(u64::MAX));
    if let Ok(style) = ProgressStyle::with_template("{wide_bar} {pos}/{len} {msg:<36} {elapsed}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(250));
    bar
}

/// Writes `contest.json` and the report. The JSON is written under another name first, so that no
/// half of it is ever there.
fn write(contest: &Contest, out: &Path) -> Result<(), String> {
    let (file, page) = (out.join("contest.json"), out.join("report.html"));
    let failed =
        |path: &Path, why: &dyn Display| format!("{} cannot be written: {why}", path.display());
    let text = serde_json::to_string_pretty(contest).map_err(|error| failed(&file, &error))?;
    let partial = out.join("contest.json.new");
    let written = fs::write(&partial, text + "\n").and_then(|()| fs::rename(&partial, &file));
    written.map_err(|error| failed(&file, &error))?;
    let html = crate::page::render(contest).map_err(|error| failed(&page, &error))?;
    fs::write(&page, html).map_err(|error| failed(&page, &error))?;
    println!("\nresults: {}\nreport:  {}", file.display(), page.display());
    Ok(())
}

/// Ctrl-C, and the end that a CI server sends.
fn signals() -> io::Result<[Signal; 2]> {
    Ok([signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?])
}

async fn next([interrupt, terminate]: &mut [Signal; 2]) {
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_not_shown() {
        assert_eq!(without_password("mysql://u:s@h:1/d"), "mysql://u:PASSWORD@h:1/d");
        let two = without_password("redis://:s@a,redis://b");
        assert_eq!(two, "redis://:PASSWORD@a,redis://b");
        assert_eq!(without_password("--quick"), "--quick");
    }
}
