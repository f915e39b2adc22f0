//! An applicant that is paused inside its critical section: a child process that is stopped with
//! SIGSTOP, or a task that waits, where only the servers are to fail.
//!
//! The child reports that it is inside, and waits for a line before it writes: it is stopped
//! between its read and its write however the machine schedules it.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use redquorum_rig::Process;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{UnixListener, UnixStream},
    task::JoinHandle,
};

use super::{setup::Setup, try_to_sign_up};
use crate::{
    database::{Pool, Target, temporary_path},
    results::{Fault, Needs},
    strategy::{Application, Context, Kind, Pause, Reply},
    tally::Tally,
};

const PAUSE_TIMEOUT: Duration = Duration::from_secs(15);
const VOLUNTEER: i64 = 1;

#[derive(Debug, Serialize, Deserialize)]
struct ApplicantConfig {
    strategy: Kind,
    database: Target,
    context: Context,
    recruitment: i64,
    timeout: Duration,
}

#[derive(Debug, Serialize, Deserialize)]
struct ApplicantReport {
    result: Result<Reply, String>,
    retries: u64,
    deadlocks: u64,
    statements: u64,
    commands: u64,
}

pub(super) struct Paused {
    setup: Arc<Setup>,
    start: Instant,
    inner: Inner,
}

enum Inner {
    Task { pause: Arc<Pause>, task: JoinHandle<()> },
    Child { process: Process, lines: Lines },
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
        let setup = &self.setup;
        let (process, lines) = match &mut self.inner {
            Inner::Task { pause, task } => {
                pause.resumed.notify_one();
                return task.await.map_err(|error| format!("an applicant's task ended: {error}"));
            }
            Inner::Child { process, lines } => (process, lines),
        };
        let failed = |why: String| format!("the stopped applicant: {why}\n{}", process.log());
        process.resume().map_err(|error| failed(error.to_string()))?;
        lines.send(&"go").await.map_err(failed)?;
        let most = setup.timeout + PAUSE_TIMEOUT;
        let report: ApplicantReport = lines.receive(most).await.map_err(failed)?;
        {
            let mut counts = setup.tally.counts();
            counts.retries += report.retries;
            counts.deadlocks += report.deadlocks;
            counts.child_statements += report.statements;
            counts.child_commands += report.commands;
        }
        setup.tally.end(self.start, report.result);
        Ok(())
    }
}

async fn task_inside(setup: &Arc<Setup>) -> Result<Inner, String> {
    let pause = Arc::<Pause>::default();
    let task = tokio::spawn(setup.clone().apply(setup.first, VOLUNTEER, Some(pause.clone())));
    if tokio::time::timeout(PAUSE_TIMEOUT, pause.arrived.notified()).await.is_err() {
        let why = setup.tally.counts().last_error.clone().unwrap_or_default();
        return Err(format!("no applicant entered its critical section: {why}"));
    }
    Ok(Inner::Task { pause, task })
}

async fn child_inside(setup: &Arc<Setup>) -> Result<Inner, String> {
    let failed = |error: std::io::Error| format!("no applicant process starts: {error}");
    let program = std::env::current_exe().map_err(failed)?;
    let dir = temporary_path();
    let socket = dir.join("socket");
    let args = ["applicant".as_ref(), socket.as_os_str()];
    let process = Process::new(&dir, &program, &args).map_err(failed)?;
    let listener = UnixListener::bind(&socket).map_err(failed)?;
    process.launch().map_err(failed)?;
    let accepted = tokio::time::timeout(PAUSE_TIMEOUT, listener.accept()).await;
    let (stream, _) = accepted
        .map_err(|_| format!("no applicant process starts: {}", process.log()))?
        .map_err(failed)?;
    let mut lines = Lines(BufReader::new(stream));
    let config = ApplicantConfig {
        strategy: setup.kind,
        database: setup.target.clone(),
        context: setup.context.clone(),
        recruitment: setup.first,
        timeout: setup.timeout,
    };
    lines.send(&config).await?;
    let inside: Result<String, _> = lines.receive(PAUSE_TIMEOUT).await;
    inside.map_err(|why| format!("the applicant process: {why}\n{}", process.log()))?;
    process.pause().map_err(failed)?;
    Ok(Inner::Child { process, lines })
}

/// Messages between the contest and a child process: one JSON value in each line.
struct Lines(BufReader<UnixStream>);

impl Lines {
    async fn send(&mut self, value: &impl Serialize) -> Result<(), String> {
        let text = serde_json::to_string(value).map_err(|error| error.to_string())?;
        self.0.write_all(format!("{text}\n").as_bytes()).await.map_err(|error| error.to_string())
    }

    async fn receive<T: DeserializeOwned>(&mut self, most: Duration) -> Result<T, String> {
        let mut text = String::new();
        match tokio::time::timeout(most, self.0.read_line(&mut text)).await {
            Ok(Ok(1..)) => serde_json::from_str(&text).map_err(|why| format!("{text:?}: {why}")),
            Ok(Ok(0)) => Err("it ended".to_owned()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("it sent nothing within {most:?}")),
        }
    }
}

/// The child process: applies once, and waits inside the critical section until it is
/// resumed.
pub(crate) async fn child(socket: &Path) -> Result<(), String> {
    let stream = UnixStream::connect(socket).await.map_err(|error| error.to_string())?;
    let mut lines = Lines(BufReader::new(stream));
    let config: ApplicantConfig = lines.receive(PAUSE_TIMEOUT).await?;
    let ApplicantConfig { strategy: kind, database, context, recruitment, timeout } = config;
    let pool = Pool::connect(&database, 2).await.map_err(|error| error.to_string())?;
    let strategy = kind.build(&context).await?;
    let (tally, pause) = (Tally::default(), Arc::<Pause>::default());
    let application = Application {
        pool: pool.clone(),
        recruitment,
        volunteer: VOLUNTEER,
        deadline: Instant::now() + timeout,
        pause: Some(pause.clone()),
    };
    let mut applying = Box::pin(try_to_sign_up(&strategy, kind, &application, &tally));
    let pausing = async {
        pause.arrived.notified().await;
        lines.send(&"inside").await?;
        // This process is stopped while it waits here.
        let _go: String = lines.receive(Duration::from_secs(600)).await?;
        pause.resumed.notify_one();
        Ok::<_, String>(())
    };
    let result = tokio::select! {
        result = &mut applying => result,
        paused = pausing => {
            paused?;
            applying.await
        }
    };
    strategy.finish().await;
    let (retries, deadlocks) = {
        let counts = tally.counts();
        (counts.retries, counts.deadlocks)
    };
    let (statements, commands) = (pool.statements(), strategy.redis_commands());
    lines.send(&ApplicantReport { result, retries, deadlocks, statements, commands }).await
}
