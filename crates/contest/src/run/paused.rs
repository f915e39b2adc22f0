//! An applicant that is paused inside its critical section: a child process that is stopped with
//! SIGSTOP, or a task that waits, where only the servers are to fail.
//!
//! The child reports that it is inside, and waits for a line before it writes: it is stopped
//! between its read and its write however the machine schedules it.

use std::{
    path::Path,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use redquorum_rig::Process;
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{
        UnixListener, UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::{Notify, Semaphore},
    task::JoinHandle,
};

use super::{
    applicant::{self, End},
    setup::Setup,
};
use crate::{
    database::{Pool, Target},
    masters::Addresses,
    results::{Fault, Needs},
    strategy::{Application, Context, Kind, PauseHook, Reply},
    tally::Tally,
    temporary,
};

/// How long it may take until the applicant is inside.
const PAUSE_TIMEOUT: Duration = Duration::from_secs(15);
/// The volunteer of the paused applicant.
const VOLUNTEER: i64 = 1;

/// What a child process is to do.
#[derive(Debug, Serialize, Deserialize)]
struct ApplicantConfig {
    strategy: String,
    database: String,
    addresses: Addresses,
    ttl_ms: u64,
    prefix: String,
    recruitment: i64,
    timeout_ms: u64,
}

/// What a child process reports at its end.
#[derive(Debug, Serialize, Deserialize)]
struct ApplicantReport {
    accepted: bool,
    error: Option<String>,
    retries: u64,
    deadlocks: u64,
    statements: u64,
    commands: u64,
}

/// The paused applicant.
pub(super) struct Paused {
    setup: Arc<Setup>,
    start: Instant,
    inner: Inner,
}

enum Inner {
    Task { gate: Arc<Semaphore>, task: JoinHandle<()> },
    Child { process: Process, lines: BufReader<OwnedReadHalf>, out: OwnedWriteHalf },
}

impl Paused {
    /// Starts it, and returns when it is paused inside its critical section.
    pub(super) async fn start(setup: &Arc<Setup>, fault: Fault) -> Result<Self, String> {
        let start = Instant::now();
        // The queue and its worker are one process, which the contest itself is: the worker waits.
        let is_child = fault == Fault::PausePastTtl && setup.kind.needs() != Needs::Worker;
        let inner = if is_child { child_inside(setup).await? } else { task_inside(setup).await? };
        Ok(Self { setup: setup.clone(), start, inner })
    }

    /// Resumes it, and returns at its end.
    pub(super) async fn resume(&mut self) -> Result<(), String> {
        match &mut self.inner {
            Inner::Task { gate, task } => {
                gate.add_permits(1);
                task.await.map_err(|error| format!("an applicant's task ended: {error}"))
            }
            Inner::Child { process, lines, out } => {
                let gone = |error: std::io::Error| format!("the stopped applicant: {error}");
                process.resume().map_err(gone)?;
                out.write_all(b"go\n").await.map_err(gone)?;
                let most = self.setup.timeout() + PAUSE_TIMEOUT;
                let line = line(lines, most).await.map_err(|why| {
                    format!("the stopped applicant did not end: {why}\n{}", process.log())
                })?;
                let report: ApplicantReport = serde_json::from_str(&line)
                    .map_err(|error| format!("the stopped applicant reported {line:?}: {error}"))?;
                record(&self.setup, self.start, &report);
                Ok(())
            }
        }
    }
}

/// Adds what a child reported to the figures.
fn record(setup: &Setup, start: Instant, report: &ApplicantReport) {
    let tally = &setup.tally;
    tally.retries.fetch_add(report.retries, Ordering::Relaxed);
    tally.deadlocks.fetch_add(report.deadlocks, Ordering::Relaxed);
    setup.add_child_statements(report.statements);
    setup.commands.fetch_add(report.commands, Ordering::Relaxed);
    match &report.error {
        Some(error) => tally.fail(start, error.clone()),
        None if report.accepted => tally.accept(start),
        None => tally.refuse(start),
    }
}

/// A task that waits at a gate.
async fn task_inside(setup: &Arc<Setup>) -> Result<Inner, String> {
    let (arrived, gate) = (Arc::new(Notify::new()), Arc::new(Semaphore::new(0)));
    let hook: PauseHook = {
        let (arrived, gate) = (arrived.clone(), gate.clone());
        Arc::new(move || {
            let (arrived, gate) = (arrived.clone(), gate.clone());
            Box::pin(async move {
                arrived.notify_one();
                // The semaphore is never closed.
                let _open = gate.acquire().await;
            })
        })
    };
    let applicant = setup.clone();
    let task = tokio::spawn(async move {
        let application = applicant.application(applicant.first, VOLUNTEER, Some(hook));
        let (strategy, tally) = (&*applicant.strategy, &applicant.tally);
        applicant::apply(strategy, applicant.kind, &application, tally).await;
    });
    if tokio::time::timeout(PAUSE_TIMEOUT, arrived.notified()).await.is_err() {
        let why = setup.tally.last_error().unwrap_or_default();
        return Err(format!("no applicant entered its critical section: {why}"));
    }
    Ok(Inner::Task { gate, task })
}

/// A child process that is stopped.
async fn child_inside(setup: &Arc<Setup>) -> Result<Inner, String> {
    let failed = |error: std::io::Error| format!("no applicant process starts: {error}");
    let program = std::env::current_exe().map_err(failed)?;
    let dir = temporary::path();
    let socket = dir.join("socket");
    let args = ["applicant".as_ref(), socket.as_os_str()];
    let process = Process::new(&dir, &program, &args).map_err(failed)?;
    let listener = UnixListener::bind(&socket).map_err(failed)?;
    process.launch().map_err(failed)?;
    let accepted = tokio::time::timeout(PAUSE_TIMEOUT, listener.accept()).await;
    let (stream, _) = accepted
        .map_err(|_| format!("no applicant process starts: {}", process.log()))?
        .map_err(failed)?;
    let (input, mut out) = stream.into_split();
    let mut lines = BufReader::new(input);
    let config = ApplicantConfig {
        strategy: setup.kind.name().to_owned(),
        database: setup.target.to_text(),
        addresses: setup.context.addresses.clone(),
        ttl_ms: ms(setup.context.ttl),
        prefix: setup.context.prefix.clone(),
        recruitment: setup.first,
        timeout_ms: ms(setup.timeout()),
    };
    let config = serde_json::to_string(&config).map_err(|error| error.to_string())?;
    out.write_all(format!("{config}\n").as_bytes()).await.map_err(failed)?;
    let text = line(&mut lines, PAUSE_TIMEOUT).await;
    match text.as_deref() {
        Ok("inside") => {}
        Ok(other) => return Err(format!("the applicant process ended early: {other}")),
        Err(why) => return Err(format!("the applicant process: {why}\n{}", process.log())),
    }
    process.pause().map_err(failed)?;
    Ok(Inner::Child { process, lines, out })
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// One line, without its end.
async fn line(lines: &mut BufReader<OwnedReadHalf>, most: Duration) -> Result<String, String> {
    let mut text = String::new();
    match tokio::time::timeout(most, lines.read_line(&mut text)).await {
        Ok(Ok(1..)) => Ok(text.trim_end().to_owned()),
        Ok(Ok(0)) => Err("it ended".to_owned()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("it sent nothing within {most:?}")),
    }
}

/// The child process: applies once, and waits inside the critical section until it is
/// resumed.
pub(crate) async fn child(socket: &Path) -> Result<(), String> {
    let failed = |error: std::io::Error| error.to_string();
    let stream = UnixStream::connect(socket).await.map_err(failed)?;
    let (input, mut out) = stream.into_split();
    let mut lines = BufReader::new(input);
    let config = line(&mut lines, PAUSE_TIMEOUT).await?;
    let config: ApplicantConfig =
        serde_json::from_str(&config).map_err(|error| error.to_string())?;
    let kind: Kind = config.strategy.parse()?;
    let context = Context {
        addresses: config.addresses,
        ttl: Duration::from_millis(config.ttl_ms),
        prefix: config.prefix,
        commands: Arc::default(),
    };
    let target = Target::parse(&config.database)?;
    let pool = Pool::connect(&target, 2).await.map_err(|error| error.to_string())?;
    let strategy = kind.build(&context).await?;
    context.commands.store(0, Ordering::Relaxed);
    let (arrived, resumed) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (tally, application) = (
        Tally::default(),
        Application {
            pool: pool.clone(),
            recruitment: config.recruitment,
            volunteer: VOLUNTEER,
            deadline: Instant::now() + Duration::from_millis(config.timeout_ms),
            pause_hook: Some(hook(&arrived, &resumed)),
            pause_reached: Arc::default(),
        },
    );
    let applying = applicant::until_replied(&*strategy, kind, &application, &tally);
    let pausing = async {
        arrived.notified().await;
        out.write_all(b"inside\n").await.map_err(failed)?;
        // This process is stopped while it waits here.
        let _go = line(&mut lines, Duration::from_secs(600)).await?;
        resumed.notify_one();
        Ok::<_, String>(())
    };
    let end = {
        tokio::pin!(applying);
        tokio::select! {
            end = &mut applying => end,
            paused = pausing => {
                paused?;
                applying.await
            }
        }
    };
    strategy.finish().await;
    let report = ApplicantReport {
        accepted: end == End::Replied(Reply::Accepted),
        error: if let End::Failed(error) = end { Some(error) } else { None },
        retries: tally.retries.load(Ordering::Relaxed),
        deadlocks: tally.deadlocks.load(Ordering::Relaxed),
        statements: pool.statements(),
        commands: context.commands.load(Ordering::Relaxed),
    };
    let report = serde_json::to_string(&report).map_err(|error| error.to_string())?;
    out.write_all(format!("{report}\n").as_bytes()).await.map_err(failed)
}

/// Reports the arrival, and waits.
fn hook(arrived: &Arc<Notify>, resumed: &Arc<Notify>) -> PauseHook {
    let (arrived, resumed) = (arrived.clone(), resumed.clone());
    Arc::new(move || {
        let (arrived, resumed) = (arrived.clone(), resumed.clone());
        Box::pin(async move {
            arrived.notify_one();
            resumed.notified().await;
        })
    })
}
