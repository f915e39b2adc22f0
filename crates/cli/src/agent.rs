//! The agent: a process that implements the [client protocol](redquorum_scenario::client_protocol)
//! with the library `redquorum`, so that a program in any language has its leases.
//!
//! It reads requests from standard input, or from the connections of a Unix socket. Where its input
//! ends, the program at the other end is gone, and the agent gives its leases back.
//!
//! It is also the built-in client of the fault injector, which runs it unless you name another
//! command, and the example for a driver of any other lock. That one ends when its standard input
//! ends, at once and without clean-up: then either the harness is gone, or a scenario examines the
//! keys that a dying client leaves behind.
//!
//! This file starts the agent, reads its settings and its input, and writes its output.
//! `requests.rs` has the handler of requests.

use std::future::poll_fn;
use std::io::{BufRead, Write, stdin, stdout};
use std::pin::pin;
use std::process::exit;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use std::{env, thread};

use self::requests::RequestHandler;
use crate::codes::Code;
use redquorum::connect::IntoMaster;
use redquorum::{Builder, Redlock};
use redquorum_scenario::client_protocol::{
    Call, Capability, ClientLine, FENCING_COUNTER_TTL, FailureReason, NODES_VARIABLE, Notice,
    OPTIONS_VARIABLE, Options, PROTOCOL, RequestError,
};
use redquorum_scenario::units::nanos;
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep};

pub mod requests;
mod serve;

pub(crate) use serve::{AgentOptions, HELP, serve};

/// The timeout of a connection. It is the library's own default, which users have.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Runs a client of the harness, until the end of standard input.
pub fn main() -> Code {
    match start() {
        Ok(never) => match never {},
        Err(why) => {
            eprintln!("redquorum client: {why}");
            Code::USAGE
        }
    }
}

fn start() -> Result<std::convert::Infallible, String> {
    let (nodes, options) = read_settings()?;
    // Few threads, since several clients run on one machine and each has little to do at a time.
    // Two, so that urgent notifications (a loss) do not wait behind other work.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|why| why.to_string())?;
    // Start to read before the lock is built: if the harness closes standard input meanwhile, the
    // client ends at once.
    let mut lines = read_lines(|| exit(0));
    runtime.block_on(async {
        let lock = build(builder(&nodes, &options), &options).await?;
        Output::Stdout.tell(ready());
        let handler =
            RequestHandler::new(Output::Stdout, lock.into(), options.fencing, Box::new(|| None));
        while let Some(line) = lines.recv().await {
            handler.take(&line);
        }
        // The reader ends the process after the last line. This line runs only if the reader
        // panicked.
        exit(0)
    })
}

/// The first message of a client.
pub fn ready() -> Notice {
    Notice::Ready {
        protocol: PROTOCOL,
        can: Capability::of_this_lock(),
        name: Some("redquorum".to_owned()),
        version: Some(env!("CARGO_PKG_VERSION").to_owned()),
    }
}

/// A builder over these masters, or of a lock that moves from some to others.
pub fn builder<M: IntoMaster + Clone>(nodes: &[M], options: &Options) -> Builder {
    let Some(moving) = &options.moving else {
        return Redlock::builder().masters(nodes.iter().cloned());
    };
    let to = moving.to.iter().filter_map(|place| nodes.get(place.checked_sub(1)?)).cloned();
    let builder = Redlock::builder().masters(nodes.iter().take(moving.from).cloned());
    set(builder.moving_to(to), moving.masters_id.as_deref(), Builder::moving_to_id)
}

/// Builds the lock of a client. The builder has the masters already.
pub async fn build(builder: Builder, options: &Options) -> Result<Redlock, String> {
    let node_timeout = Duration::from_millis(options.node_timeout_ms);
    let builder = builder
        .ttl(options.ttl())
        .lock_delay(Duration::from_millis(options.lock_delay_ms))
        .node_timeout(node_timeout)
        .connect_timeout(CONNECT_TIMEOUT.max(node_timeout))
        .fencing_counter_ttl(FENCING_COUNTER_TTL)
        .wake_ups(options.wake_ups)
        .fair(options.fair)
        .drift(options.drift_ppm, Duration::from_millis(options.drift_ms));
    let millis = |ms: Option<u64>| ms.map(Duration::from_millis);
    let builder = set(builder, millis(options.restart_guard_ms), Builder::restart_guard);
    let builder = set(builder, millis(options.clock_guard_ms), Builder::clock_guard);
    let builder = set(builder, options.name.as_deref(), Builder::name);
    let builder = set(builder, options.masters_id.as_deref(), Builder::masters_id);
    builder.build().await.map_err(|why| why.to_string())
}

/// Sets an option that a lock may have.
fn set<T>(builder: Builder, value: Option<T>, set: impl FnOnce(Builder, T) -> Builder) -> Builder {
    match value {
        Some(value) => set(builder, value),
        None => builder,
    }
}

/// Reads requests in a thread of its own, since reads of standard input block. Behind the last one
/// it calls `end`.
fn read_lines(end: impl FnOnce() + Send + 'static) -> mpsc::UnboundedReceiver<String> {
    let (out, lines) = mpsc::unbounded_channel();
    thread::spawn(move || {
        for line in stdin().lock().lines().map_while(Result::ok) {
            // The send fails only if the client is ending.
            let _ = out.send(line);
        }
        end();
    });
    lines
}

/// The URLs of the masters, and the options of the lock, from the environment.
///
/// # Errors
/// A variable is missing or wrong.
pub fn read_settings() -> Result<(Vec<String>, Options), String> {
    let nodes = variable(NODES_VARIABLE)?;
    let nodes = nodes.split(',').map(str::trim).filter(|url| !url.is_empty());
    let options = serde_json::from_str(&variable(OPTIONS_VARIABLE)?)
        .map_err(|why| format!("{OPTIONS_VARIABLE} is not understood: {why}"))?;
    Ok((nodes.map(str::to_owned).collect(), options))
}

fn variable(name: &str) -> Result<String, String> {
    env::var(name).map_err(|why| {
        format!("{name}: {why}; this command is started by the harness, which sets it")
    })
}

/// The messages for a connection.
#[derive(Clone)]
pub struct Lines {
    to: mpsc::Sender<ClientLine>,
    /// The other end does not read: its messages are more than memory is kept for.
    overflow: Arc<Notify>,
}

impl Lines {
    fn tell(&self, message: ClientLine) {
        // It is closed if the connection is over.
        if let Err(mpsc::error::TrySendError::Full(_)) = self.to.try_send(message) {
            self.overflow.notify_one();
        }
    }
}

/// The only writer of messages to the harness, and the clock of their stamps. The mutants use it,
/// too.
#[derive(Clone)]
pub enum Output {
    /// Writes whole lines to standard output, at once, and ends the process when nobody reads them
    /// any more. Stamps are of `CLOCK_MONOTONIC`.
    Stdout,
    /// Sends messages to a connection. Stamps are of `CLOCK_MONOTONIC`.
    Connection(Lines),
    /// Sends messages to the harness in the same process. Stamps are of Tokio's clock, counted from
    /// this instant.
    Channel(mpsc::UnboundedSender<ClientLine>, Instant),
}

impl Output {
    /// The current time, as a stamp.
    pub fn now(&self) -> i64 {
        match self {
            Self::Stdout | Self::Connection(_) => stamp::now(),
            Self::Channel(_, origin) => nanos(origin.elapsed()),
        }
    }

    /// Sends a message.
    pub fn tell(&self, message: impl Into<ClientLine>) {
        let message = message.into();
        match self {
            Self::Stdout => {
                if !write(&message) {
                    exit(0);
                }
            }
            Self::Connection(lines) => lines.tell(message),
            // The send fails only if the run is over.
            Self::Channel(to, _) => drop(to.send(message)),
        }
    }

    /// A call of the library that begins now.
    pub fn call(&self, id: u64) -> Call {
        Call { id, from_ns: self.now() }
    }

    /// Replies to a request that needs no call of the library, or failed before it.
    pub fn done(&self, id: u64, result: Result<(), RequestError>) {
        let call = self.call(id);
        self.tell(call.reply(call.from_ns, result));
    }

    /// Replies to a line that is not a valid request, if it has at least the number of one.
    pub fn refuse_line(&self, line: &str, error: &serde_json::Error) {
        /// The part of a request that a reply needs.
        #[derive(serde::Deserialize)]
        struct Numbered {
            id: u64,
            #[serde(default)]
            op: String,
        }
        match serde_json::from_str::<Numbered>(line) {
            Ok(Numbered { id, op }) if error.to_string().starts_with("unknown variant") => {
                let why = format!("there is no op {op:?} here");
                self.done(id, Err(RequestError::new(FailureReason::Unsupported, why)));
            }
            Ok(Numbered { id, .. }) => {
                let why = format!("the request is not understood: {error}");
                self.done(id, Err(RequestError::new(FailureReason::Error, why)));
            }
            Err(_) => eprintln!("no request: {error}: {line}"),
        }
    }
}

/// The line of a message.
fn line(message: &ClientLine) -> Vec<u8> {
    let mut line = serde_json::to_vec(message)
        .unwrap_or_else(|why| unreachable!("numbers, texts and enums are always JSON, but: {why}"));
    line.push(b'\n');
    line
}

/// Writes a message to standard output. Returns whether there is a reader.
fn write(message: &ClientLine) -> bool {
    let line = line(message);
    // The lock covers both calls, so that lines do not mix.
    let mut out = stdout().lock();
    out.write_all(&line).and_then(|()| out.flush()).is_ok()
}

/// How a caller neglects the future of a request: it drops the future instead of a poll, or leaves
/// it alone for a while, as in a `select!` that runs another branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neglect {
    /// How often the caller polls the future before.
    pub polls: u32,
    /// How long the caller leaves it alone.
    pub idle: Duration,
    /// Whether the caller then drops the future. Otherwise it polls it to its end.
    pub drops: bool,
}

/// Chooses for each request whether and how its caller neglects it.
pub type ChooseNeglect = dyn Fn() -> Option<Neglect> + Send + Sync;

/// Awaits a future, and neglects it if told so. When the future is woken once more than it may be
/// polled, it is left alone, and `tell` is called if that takes any time. `None`: the future was
/// dropped. It may have had a result then that it did not return.
pub async fn limited<F: Future>(
    neglect: Option<Neglect>,
    future: F,
    tell: impl FnOnce(Duration),
) -> Option<F::Output> {
    let mut future = pin!(future);
    let Some(Neglect { mut polls, idle, drops }) = neglect else { return Some(future.await) };
    let polled = poll_fn(|context| {
        if polls == 0 {
            return Poll::Ready(None);
        }
        polls -= 1;
        future.as_mut().poll(context).map(Some)
    });
    if let Some(result) = polled.await {
        return Some(result);
    }
    if !idle.is_zero() {
        tell(idle);
        sleep(idle).await;
    }
    if drops { None } else { Some(future.await) }
}

/// Stamps: readings of `CLOCK_MONOTONIC` in nanoseconds, which all processes of one machine share.
pub mod stamp {
    use std::time::Duration;

    use redquorum_scenario::units::nanos;

    /// The current time.
    pub fn now() -> i64 {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        now.tv_sec.saturating_mul(1_000_000_000).saturating_add(now.tv_nsec)
    }

    /// The stamp plus a length of time, saturating at the last instant.
    pub fn later(stamp: i64, by: Duration) -> i64 {
        stamp.saturating_add(nanos(by))
    }
}
