//! The built-in client: a process that implements the [client
//! protocol](redquorum_scenario::client_protocol) with the library `redquorum`.
//!
//! A scenario runs this client unless you name another command. It is also the example for a driver
//! of any other lock. This file starts the client and reads its input. The submodules have the
//! rest:
//!
//! - `settings.rs`: the settings in the environment
//! - `output.rs`: the writer of all output
//! - `requests.rs`: the handler of requests
//! - `several.rs`: requests for several resources
//! - `limited.rs`: futures that are dropped at some poll, or not polled for a while
//! - `owner.rs`: the task that owns a lease
//!
//! The client ends when its standard input ends, at once and without clean-up. Then either the
//! harness is gone, or a scenario examines the keys that a dying client leaves behind.

use std::io::{BufRead, stdin};
use std::process::{ExitCode, exit};
use std::thread;
use std::time::Duration;

use redquorum::{Builder, Redlock};
use tokio::sync::mpsc;

use self::output::Output;
use self::requests::RequestHandler;
use redquorum_scenario::client_protocol::{
    Capability, FENCING_COUNTER_TTL, Notice, Options, PROTOCOL,
};

pub mod limited;
pub(crate) mod output;
mod owner;
pub(crate) mod requests;
pub(crate) mod settings;
mod several;

/// The exit code if the client was not started as the protocol requires.
const USAGE: u8 = 64;

/// The timeout of a connection. It is the library's own default, which users have.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Runs the client until the end of standard input.
pub fn main() -> ExitCode {
    match start() {
        Ok(never) => match never {},
        Err(why) => {
            eprintln!("redquorum client: {why}");
            ExitCode::from(USAGE)
        }
    }
}

fn start() -> Result<std::convert::Infallible, String> {
    let (nodes, options) = settings::read()?;
    // Few threads, since several clients run on one machine and each has little to do at a time.
    // Two, so that urgent notifications (a loss) do not wait behind other work.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|why| why.to_string())?;
    // Start to read before the lock is built: if the harness closes standard input meanwhile, the
    // client ends at once.
    let mut lines = read_lines();
    runtime.block_on(async {
        let lock = build(Redlock::builder().masters(&nodes), &options).await?;
        Output::Stdout.notify(ready());
        let handler = RequestHandler::new(Output::Stdout, lock, options.fencing, Box::new(|| None));
        while let Some(line) = lines.recv().await {
            handler.take(&line);
        }
        // The reader ends the process after the last line. This line runs only if the reader
        // panicked.
        exit(0)
    })
}

/// The first message of a client.
pub(crate) fn ready() -> Notice {
    Notice::Ready {
        protocol: PROTOCOL,
        can: Capability::ALL.to_vec(),
        name: Some(concat!("redquorum ", env!("CARGO_PKG_VERSION")).to_owned()),
    }
}

/// Builds the lock of a client. The builder has the masters already.
pub(crate) async fn build(builder: Builder, options: &Options) -> Result<Redlock, String> {
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

/// Reads requests in a thread of its own, since reads of standard input block.
fn read_lines() -> mpsc::UnboundedReceiver<String> {
    let (out, lines) = mpsc::unbounded_channel();
    thread::spawn(move || {
        for line in stdin().lock().lines().map_while(Result::ok) {
            // The send fails only if the client is ending.
            let _ = out.send(line);
        }
        exit(0);
    });
    lines
}
