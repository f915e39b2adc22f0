//! `exec`: a command that runs while a lease lasts, and is stopped before it ends.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Args;
use nix::sys::signal::Signal;
use redquorum::{AcquireError, Builder, Lease, Lost, Shards};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::codes::Code;
use crate::options::{LockOptions, build};
use crate::supervisor::{Change, Running, stop};
use crate::{complain, permits, runtime, tell, time, told};

pub(crate) const HELP: &str = "\
The command gets REDQUORUM_RESOURCE, REDQUORUM_FENCING_TOKEN (of several resources, with commas
between), REDQUORUM_DEADLINE (seconds since 1970; the lease ends then unless it is extended) and,
of a semaphore, REDQUORUM_PERMIT.

Exit codes:
  that of the command; 128 + N if signal N ended it
  64   the command line or an option is wrong
  69   no quorum of masters answered
  70   a fault of this program
  71   the operating system refused something
  74   the lease was lost or about to end, and the command was stopped
  75   somebody else has the resource (or that of --taken-exit-code)
  124  the command ran for --max-hold, and was stopped
  126  the command cannot be executed
  127  there is no such command
  128 + N if signal N ended the wait for the resource

Examples:
  redquorum exec nightly-report -- ./report.sh
  redquorum exec --no-wait --taken-exit-code 0 --at-least 50s tick -- ./every-minute.sh
  redquorum exec --permits 4 gpu -- ./render.sh
  redquorum exec --shared config -- ./read-it.sh";

/// The resource, the command, and how long it may run.
#[derive(Debug, Args)]
pub(crate) struct ExecOptions {
    /// What to lock. If there are several, all or none
    #[arg(required = true, value_name = "RESOURCE")]
    resources: Vec<OsString>,
    /// The command, behind `--`
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
    /// Do not wait for the resource: the same as --wait 0s
    #[arg(short = 'n', long, conflicts_with = "wait")]
    no_wait: bool,
    /// The exit code if somebody else has the resource
    #[arg(short = 'E', long, value_name = "CODE", default_value_t = Code::TAKEN.0)]
    taken_exit_code: u8,
    /// Stop the command after this time at the latest
    #[arg(long, value_name = "TIME", value_parser = time)]
    max_hold: Option<Duration>,
    /// Take a shared lease: others may have one, too, but no exclusive one
    #[arg(long)]
    shared: bool,
    /// Take one of so many permits of the resource
    #[arg(long, value_name = "N", value_parser = permits, conflicts_with = "shared")]
    permits: Option<usize>,
    /// Ask for no fencing token
    #[arg(long)]
    no_fencing: bool,
    /// Keep others out for at least this long, even if the command ends sooner, or this machine
    /// dies. It may be up to a TTL more
    #[arg(long, value_name = "TIME", value_parser = time)]
    at_least: Option<Duration>,
    /// When to send SIGTERM: this long before the lease ends [default: 3/10 of the TTL]
    #[arg(long, value_name = "TIME", value_parser = time)]
    term_before: Option<Duration>,
    /// When to send SIGKILL: this long before the lease ends [default: 1/10 of the TTL]
    #[arg(long, value_name = "TIME", value_parser = time)]
    kill_before: Option<Duration>,
    /// Kill the command if this program is killed. Only on Linux
    #[arg(long)]
    die_with_parent: bool,
    /// Print errors only
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    lock: LockOptions,
}

/// A command that ends with the process that started it: see `--die-with-parent`.
#[derive(Debug, Args)]
pub(crate) struct TiedOptions {
    parent: u32,
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// Asks for the end of this process with its parent, and becomes the command. Between a fork and
/// the command only unsafe code could do so.
pub(crate) fn tied(options: TiedOptions) -> Result<Code, Code> {
    #[cfg(target_os = "linux")]
    {
        let system = |why: io::Error| {
            complain(
                Code::SYSTEM,
                &format!("no end with the parent: {why}"),
                "leave the option out",
            )
        };
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
            .map_err(|why| system(why.into()))?;
        // It may have ended before.
        if std::os::unix::process::parent_id() != options.parent {
            return Ok(Code::of_signal(Signal::SIGKILL as i32));
        }
    }
    let error = command(&options.command).exec();
    Err(not_started(&options.command, &error))
}

fn command(words: &[OsString]) -> Command {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    command
}

fn not_started(words: &[OsString], error: &io::Error) -> Code {
    let name = words[0].display();
    match error.kind() {
        io::ErrorKind::NotFound => {
            let fix = "correct its name, or PATH; for the syntax of a shell: sh -c '…'";
            complain(Code::NOT_FOUND, &format!("there is no command {name:?}"), fix)
        }
        io::ErrorKind::OutOfMemory | io::ErrorKind::WouldBlock => {
            let wrong = format!("{name:?} could not be started: {error}");
            complain(Code::SYSTEM, &wrong, "look at the limits of processes and memory")
        }
        _ => {
            let wrong = format!("{name:?} cannot be executed: {error}");
            complain(Code::NOT_EXECUTABLE, &wrong, "make it executable, or start its interpreter")
        }
    }
}

/// Runs the command. See [`HELP`].
pub(crate) fn main(options: ExecOptions) -> Result<Code, Code> {
    if options.permits.is_some() && options.resources.len() > 1 {
        let fix = "name one resource with --permits";
        return Err(complain(Code::USAGE, "permits of several resources", fix));
    }
    if options.at_least.is_some() && options.resources.len() > 1 {
        let fix = "name one resource with --at-least, which stands for all";
        return Err(complain(Code::USAGE, "--at-least of several resources", fix));
    }
    if !is_there(&options.command[0]) {
        // Before others are kept out for nothing.
        return Err(not_started(&options.command, &io::ErrorKind::NotFound.into()));
    }
    let builder = options.lock.builder()?;
    let margins = Margins::of(&options, builder.default_ttl())?;
    runtime()?.block_on(run(options, builder, margins))
}

async fn run(options: ExecOptions, builder: Builder, margins: Margins) -> Result<Code, Code> {
    let mut signals = Signals::listen()?;
    let shards = tokio::select! {
        shards = build(builder) => shards?,
        signal = signals.next() => return Ok(Code::of_signal(signal as i32)),
    };
    let ended = held(&options, &shards, margins, &mut signals).await;
    // What is left on a master that does not answer expires by itself.
    if let Err(unfinished) = shards.shutdown(Duration::from_secs(1)).await {
        options.tell(&unfinished.to_string());
    }
    told();
    ended
}

async fn held(
    options: &ExecOptions,
    shards: &Shards,
    margins: Margins,
    signals: &mut Signals,
) -> Result<Code, Code> {
    let acquired = tokio::select! {
        acquired = options.acquire(shards) => acquired,
        signal = signals.next() => return Ok(Code::of_signal(signal as i32)),
    };
    let leases = acquired.map_err(|error| options.not_acquired(&error))?;
    let mut keeper = Keeper::of(leases, options, margins).await;
    let started = match keeper.command(options, shards) {
        // This machine was stopped since the grant.
        _ if keeper.left() <= margins.term_before => None,
        Err(error) => Some(Err(error)),
        Ok(mut command) => Some(Running::start(&mut command)),
    };
    let code = match &started {
        Some(Ok(running)) => keeper.watch(running, signals, options).await,
        _ => Code::LOST,
    };
    // A lease that keeps others out is left as it is, whether or not it was lost.
    let lost = keeper.loss().map(|lost| lost.to_string());
    let lost = release(keeper.leases).await.or(lost);
    match (started, lost) {
        (Some(Err(error)), _) => Err(not_started(&options.command, &error)),
        (None, _) => {
            let fix = "try again; a longer --ttl bears longer pauses";
            Err(complain(code, "the lease was granted too late to begin", fix))
        }
        (Some(Ok(_)), Some(lost)) if keeper.stage != Stage::Killed => {
            let wrong =
                format!("{lost}: what the command did last, it may have done without a lock");
            Err(complain(Code::LOST, &wrong, "compare fencing tokens: docs/fencing.md"))
        }
        _ => Ok(code),
    }
}

/// Gives all leases back. The text of one that was lost before.
async fn release(leases: Vec<Lease>) -> Option<String> {
    let mut all = JoinSet::new();
    for lease in leases {
        all.spawn(lease.release());
    }
    let released = all.join_all().await;
    released.into_iter().find(redquorum::Released::was_lost).map(|lost| lost.to_string())
}

impl ExecOptions {
    /// Prints what is no error.
    fn tell(&self, text: &str) {
        if !self.quiet {
            tell(format!("redquorum: {text}\n"));
        }
    }

    async fn acquire(&self, shards: &Shards) -> Result<Vec<Lease>, AcquireError> {
        let names = || self.resources.iter().map(|name| name.as_bytes());
        let fenced = !self.no_fencing && !self.shared;
        /// All requests have these methods.
        macro_rules! send {
            ($request:expr) => {{
                let request = $request;
                let request = if fenced { request.fenced() } else { request };
                let request = if self.shared { request.shared() } else { request };
                if self.no_wait { request.wait(Duration::ZERO) } else { request }
            }};
        }
        let at_least = self.at_least.unwrap_or_default();
        match (self.permits, self.resources.as_slice()) {
            (Some(permits), [name, ..]) => {
                let request = send!(shards.semaphore(name.as_bytes(), permits).acquire());
                Ok(vec![request.at_least(at_least).await?])
            }
            (None, [name]) => {
                Ok(vec![send!(shards.acquire(name.as_bytes())).at_least(at_least).await?])
            }
            _ => Ok(send!(shards.acquire_all(names())).await?.into_iter().collect()),
        }
    }

    fn not_acquired(&self, error: &AcquireError) -> Code {
        match Code::of_acquire(error) {
            Code::TAKEN => {
                let holder = error.report().and_then(redquorum::report::Report::holder);
                let resource = error.resource().unwrap_or_default().escape_ascii();
                self.tell(&match holder {
                    Some(holder) => format!("{resource}: {holder}"),
                    None => error.to_string(),
                });
                Code(self.taken_exit_code)
            }
            code @ Code::UNAVAILABLE
                if error.report().is_some_and(|report| report.distrusted() > 0) =>
            {
                let fix = "wait; or, if the masters are new: redquorum doctor --init";
                complain(code, &error.to_string(), fix)
            }
            code @ Code::UNAVAILABLE => {
                complain(code, &error.to_string(), "look at the masters: redquorum doctor")
            }
            code => complain(code, &error.to_string(), "correct the command line"),
        }
    }
}

/// Whether there is a file of this name, by itself or in `PATH`.
fn is_there(name: &OsStr) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    name.as_bytes().contains(&b'/') && Path::new(name).exists()
        || std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
}

/// When the command is stopped.
#[derive(Clone, Copy)]
struct Margins {
    /// The TTL of the lock.
    ttl: Duration,
    term_before: Duration,
    kill_before: Duration,
}

impl Margins {
    fn of(options: &ExecOptions, ttl: Duration) -> Result<Self, Code> {
        let term = options.term_before.unwrap_or(ttl * 3 / 10);
        let kill_before = options.kill_before.unwrap_or((ttl / 10).min(term));
        let term_before = options.term_before.unwrap_or(term.max(kill_before));
        // The watchdog extends the lease when a third of the TTL is over, at the latest.
        if kill_before > term_before || term_before > ttl / 2 {
            let wrong = format!(
                "SIGTERM {term_before:?} and SIGKILL {kill_before:?} before the end do not suit a \
                 TTL of {ttl:?}"
            );
            let fix = "SIGTERM comes first, and at most half of the TTL before the end";
            return Err(complain(Code::USAGE, &wrong, fix));
        }
        Ok(Self { ttl, term_before, kill_before })
    }
}

/// How far the end of the command is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Running,
    /// SIGTERM was sent.
    Asked,
    /// SIGKILL was sent.
    Killed,
}

/// The leases of a command, and when it is stopped for them.
struct Keeper {
    leases: Vec<Lease>,
    /// By `--max-hold`.
    until: Option<Instant>,
    term_before: Duration,
    kill_before: Duration,
    stage: Stage,
    /// Why it was stopped.
    code: Code,
}

/// The longest time that a command without `--max-hold` is given: 136 years.
const FOR_EVER: Duration = Duration::from_secs(u32::MAX as u64);

impl Keeper {
    async fn of(leases: Vec<Lease>, options: &ExecOptions, margins: Margins) -> Self {
        let Margins { ttl, term_before, kill_before } = margins;
        // The command gets SIGTERM at its end, and the lease covers the time until it has ended.
        let max_hold = options.max_hold.unwrap_or(FOR_EVER).saturating_add(ttl);
        for lease in &leases {
            // With `--at-least`, a lease lasts longer than the TTL at first. From now on it is
            // extended by the TTL: others stay kept out, a loss is noticed in time, and no
            // extension keeps others out for that long time anew.
            if lease.validity() > ttl {
                // If it fails, the watchdog repeats it.
                drop(lease.extend_to(ttl).await);
            }
            lease.keep_alive(max_hold);
        }
        let until = options.max_hold.and_then(|max| Instant::now().checked_add(max));
        let (stage, code) = (Stage::Running, Code::LOST);
        Self { leases, until, term_before, kill_before, stage, code }
    }

    /// The command, with its variables.
    fn command(&self, options: &ExecOptions, shards: &Shards) -> io::Result<Command> {
        let mut command = if options.die_with_parent {
            let mut tied = Command::new(std::env::current_exe()?);
            tied.arg("tied").arg(std::process::id().to_string()).arg("--").args(&options.command);
            tied
        } else {
            command(&options.command)
        };
        let resources: Vec<&[u8]> = self.leases.iter().map(Lease::resource).collect();
        let ends = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default() + self.left();
        command.env("REDQUORUM_RESOURCE", OsString::from_vec(resources.join(&b","[..])));
        command.env("REDQUORUM_DEADLINE", format!("{:.3}", ends.as_secs_f64()));
        let tokens: Option<Vec<String>> = self
            .leases
            .iter()
            .map(|lease| lease.fencing_token().map(|token| token.to_string()))
            .collect();
        match tokens {
            Some(tokens) => command.env("REDQUORUM_FENCING_TOKEN", tokens.join(",")),
            // That of a command around this one means another resource.
            None => command.env_remove("REDQUORUM_FENCING_TOKEN"),
        };
        let slot = options.permits.and_then(|permits| {
            shards.semaphore(options.resources[0].as_bytes(), permits).slot(&self.leases[0])
        });
        match slot {
            Some(slot) => command.env("REDQUORUM_PERMIT", slot.to_string()),
            None => command.env_remove("REDQUORUM_PERMIT"),
        };
        Ok(command)
    }

    /// How long the lease that ends first lasts, as it is now.
    fn left(&self) -> Duration {
        self.leases.iter().map(Lease::validity).min().unwrap_or_default()
    }

    fn loss(&self) -> Option<Lost> {
        self.leases.iter().find_map(Lease::loss)
    }

    /// The next stage, the time until then, and whether `--max-hold` is the reason.
    fn next(&self) -> (Duration, Stage, bool) {
        let (stage, before, grace) = match self.stage {
            Stage::Running => (Stage::Asked, self.term_before, Duration::ZERO),
            _ => (Stage::Killed, self.kill_before, self.term_before - self.kill_before),
        };
        let lease = self.left().saturating_sub(before);
        let hold = self.until.map_or(Duration::MAX, |until| {
            (until + grace).saturating_duration_since(Instant::now())
        });
        (lease.min(hold), stage, hold <= lease)
    }

    /// Waits for the end of the command, forwards signals to it, and stops it before the lease
    /// ends. Returns the exit code.
    async fn watch(
        &mut self,
        running: &Running,
        signals: &mut Signals,
        options: &ExecOptions,
    ) -> Code {
        loop {
            self.act(running, options);
            while let Some(change) = running.change() {
                match change {
                    Change::Stopped => self.stopped(running, options),
                    Change::Exited(code) => {
                        return self.ended(running, Code(code.to_le_bytes()[0]), options).await;
                    }
                    Change::Killed(signal) => {
                        return self.ended(running, Code::of_signal(signal), options).await;
                    }
                }
            }
            let (next, stage, _) = self.next();
            tokio::select! {
                signal = signals.any() => match signal {
                    Signal::SIGCHLD => {}
                    Signal::SIGTSTP => {
                        // The lease goes on meanwhile, and its end is seen first.
                        running.signal(Signal::SIGSTOP);
                        stop();
                        self.act(running, options);
                        running.signal(Signal::SIGCONT);
                    }
                    Signal::SIGCONT => {
                        // This program was stopped, and the lease went on.
                        self.act(running, options);
                        running.signal(Signal::SIGCONT);
                    }
                    signal => running.signal(signal),
                },
                // The clock of timers does not count the time of a suspended machine.
                () = sleep(next.min(NAP)), if self.stage < stage => {}
            }
        }
    }

    /// Stops the command if it is time.
    fn act(&mut self, running: &Running, options: &ExecOptions) {
        while let (Duration::ZERO, stage, max_hold) = self.next()
            && self.stage < stage
        {
            if self.stage == Stage::Running && max_hold {
                self.code = Code::TIME_OUT;
            }
            let (why, signal) = match (stage, self.loss()) {
                (_, Some(lost)) => (lost.to_string(), Signal::SIGKILL),
                (Stage::Killed, _) => {
                    ("the command has not ended in time".to_owned(), Signal::SIGKILL)
                }
                _ if max_hold => ("--max-hold is over".to_owned(), Signal::SIGTERM),
                _ => {
                    let left = self.left();
                    let why = format!("the lease cannot be extended, and ends in {left:.1?}");
                    (why, Signal::SIGTERM)
                }
            };
            running.signal(signal);
            options.tell(&format!("{why}: {signal} to the command"));
            self.stage = if signal == Signal::SIGKILL { Stage::Killed } else { stage };
        }
    }

    /// The command was stopped. From a terminal, this program stops with it.
    fn stopped(&mut self, running: &Running, options: &ExecOptions) {
        if running.stop_with_it() {
            // The lease may have ended meanwhile: then the command does not go on.
            self.act(running, options);
            running.resume();
        } else {
            options.tell("the command stands still, by a signal or since it waits for a terminal");
        }
    }

    /// The command has ended. If it was asked to, what it has started must end as well.
    async fn ended(&mut self, running: &Running, code: Code, options: &ExecOptions) -> Code {
        if self.stage == Stage::Running {
            running.reap();
            if running.has_processes() {
                options.tell("processes that the command started go on without the lease");
            }
            return code;
        }
        while running.has_processes() && (self.stage < Stage::Killed || !self.left().is_zero()) {
            self.act(running, options);
            running.reap();
            sleep(Duration::from_millis(10)).await;
        }
        self.code
    }
}

/// The longest sleep.
const NAP: Duration = Duration::from_millis(250);

/// The signals that this program gets, each once for all that were sent at the same time.
struct Signals(mpsc::UnboundedReceiver<Signal>);

impl Signals {
    /// Listens from now on. A signal that is ignored, as behind `nohup`, stays so.
    fn listen() -> Result<Self, Code> {
        let (sender, signals) = mpsc::unbounded_channel();
        let ignored = ignored();
        for kind in [
            Signal::SIGCHLD,
            Signal::SIGCONT,
            Signal::SIGHUP,
            Signal::SIGINT,
            Signal::SIGQUIT,
            Signal::SIGTERM,
            Signal::SIGTSTP,
            Signal::SIGUSR1,
            Signal::SIGUSR2,
        ] {
            if ignored & (1 << (kind as i32 - 1)) != 0 && kind != Signal::SIGCHLD {
                continue;
            }
            let mut listener = signal(SignalKind::from_raw(kind as i32)).map_err(|why| {
                let wrong = format!("{kind} cannot be listened to: {why}");
                complain(Code::SYSTEM, &wrong, "look at the limits of this process")
            })?;
            let sender = sender.clone();
            tokio::spawn(async move {
                while listener.recv().await.is_some() && sender.send(kind).is_ok() {}
            });
        }
        Ok(Self(signals))
    }

    async fn any(&mut self) -> Signal {
        match self.0.recv().await {
            Some(signal) => signal,
            None => std::future::pending().await,
        }
    }

    /// The next one that ends a wait.
    async fn next(&mut self) -> Signal {
        loop {
            match self.any().await {
                Signal::SIGCHLD | Signal::SIGCONT => {}
                Signal::SIGTSTP => stop(),
                signal => return signal,
            }
        }
    }
}

/// The signals that are ignored, as a bit each. Only Linux says so.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default()
}
