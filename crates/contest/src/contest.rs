//! The order of the runs, what is printed, and how the contest ends.

use std::{
    fmt::Display,
    fs, io,
    io::IsTerminal,
    path::Path,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::{
    cli::{Options, code, exit_code},
    database::Database,
    fault::{Verdict, expectation},
    masters::Source,
    results::{Contest, Machine, Outcome, Run, Server, Workload},
    run::{self, Environment, Plan},
    table,
};

/// Runs the contest; returns the exit code.
pub(crate) async fn run(options: &Options) -> u8 {
    let mut signals = match Signals::new() {
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
        () = signals.next() => return fail(code::INTERRUPTED, "interrupted before the first run"),
    };
    let plans = plans(options);
    print_header(&contest, &notes, plans.len());
    let start = Instant::now();
    let (mut worst, progress) = (Verdict::Expected, progress(plans.len()));
    let stopped = tokio::select! {
        stopped = all(&mut environment, &plans, &mut contest, &mut worst, &progress) => stopped,
        () = signals.next() => Some(("interrupted".to_owned(), code::INTERRUPTED)),
    };
    progress.finish_and_clear();
    contest.seconds = start.elapsed().as_secs_f64();
    contest.stopped = stopped.as_ref().map(|(why, _)| why.clone());
    table::print(&contest, environment.database.product);
    let written = write(&contest, &options.out);
    let look = options.keep.then(|| environment.database.how_to_look());
    let kept = look.is_some();
    if let Some(look) = look {
        println!("\nto look at the database: {look}");
        if environment.database.ends_with_process() && stopped.is_none() {
            println!("Ctrl-C ends the server");
            signals.next().await;
        }
    }
    close(environment, kept).await;
    match (written, stopped) {
        (Err(error), _) => fail(code::ENVIRONMENT, &error),
        (Ok(()), Some((why, code))) => fail(code, &format!("{why}: the results are partial")),
        (Ok(()), None) => exit_code(worst),
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

/// A contest without runs.
fn empty(options: &Options, database: Server, masters: Server) -> Contest {
    let args: Vec<String> = std::env::args().skip(1).map(|arg| without_password(&arg)).collect();
    let command = format!("cargo contest {}", args.join(" "));
    Contest {
        format: 1,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        command: command.trim_end().to_owned(),
        started: rfc3339(SystemTime::now()),
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
        let fault = plan.fault.map_or(plan.workload.name(), crate::results::Fault::name);
        progress.set_message(format!("{fault}: {}", plan.kind.name()));
        let outcome = run::run(environment, plan).await;
        let failed = matches!(outcome, Outcome::Failed { .. });
        let verdict = match &outcome {
            Outcome::Measured(figures) => {
                let product = environment.database.product;
                expectation(plan.kind, plan.workload, plan.fault, product).verdict(figures)
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

/// A progress bar, if standard error is a terminal.
fn progress(runs: usize) -> ProgressBar {
    let runs = u64::try_from(runs).unwrap_or(u64::MAX);
    let bar = if io::stderr().is_terminal() {
        ProgressBar::new(runs)
    } else {
        ProgressBar::with_draw_target(Some(runs), ProgressDrawTarget::hidden())
    };
    if let Ok(style) = ProgressStyle::with_template("{wide_bar} {pos}/{len} {msg:<36} {elapsed}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(250));
    bar
}

/// Writes `contest.json` and the report. The JSON is written under another name first, so that no
/// half of it is ever there.
fn write(contest: &Contest, out: &Path) -> Result<(), String> {
    let file = out.join("contest.json");
    let failed = |error: io::Error| format!("{} cannot be written: {error}", file.display());
    let text = serde_json::to_string_pretty(contest).map_err(|error| error.to_string())?;
    let partial = out.join("contest.json.new");
    fs::write(&partial, text + "\n").map_err(failed)?;
    fs::rename(&partial, &file).map_err(failed)?;
    let page = out.join("report.html");
    let failed = |error: &dyn Display| format!("{} cannot be written: {error}", page.display());
    let html = crate::page::render(contest).map_err(|error| failed(&error))?;
    fs::write(&page, html).map_err(|error| failed(&error))?;
    println!("\nresults: {}\nreport:  {}", file.display(), page.display());
    Ok(())
}

/// Ctrl-C, and the end that a CI server sends.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        let interrupt = signal(SignalKind::interrupt())?;
        Ok(Self { interrupt, terminate: signal(SignalKind::terminate())? })
    }

    /// The next of them.
    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// A time as RFC 3339, in UTC, to the second.
fn rfc3339(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (days, of_day) = (seconds / 86_400, seconds % 86_400);
    // Days since 0000-03-01, by the algorithm of Howard Hinnant.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_rfc_3339() {
        let at = |seconds| rfc3339(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_827_696), "2000-02-29T12:34:56Z");
        assert_eq!(at(4_102_444_799), "2099-12-31T23:59:59Z");
    }

    #[test]
    fn passwords_are_not_shown() {
        assert_eq!(without_password("mysql://u:s@h:1/d"), "mysql://u:PASSWORD@h:1/d");
        let two = without_password("redis://:s@a,redis://b");
        assert_eq!(two, "redis://:PASSWORD@a,redis://b");
        assert_eq!(without_password("--quick"), "--quick");
    }
}
