//! The built-in client: a process that speaks the client protocol of [`talk`](crate::talk) with the
//! library `redquorum`.
//!
//! It is what a scenario runs unless it is told another command, and the example for a driver of
//! any other lock. What lives here is its start and its reading; `settings.rs` has what it is told at first, `voice.rs`
//! all that it says, `desk.rs` what becomes of a request, `several.rs` of one for
//! several resources, `owner.rs` the task that a lease belongs to.
//!
//! It ends when its standard input does, at once and without cleaning up: then the harness is gone,
//! or wants to see what a client leaves behind that dies.

use std::io::{BufRead, stdin};
use std::process::{ExitCode, exit};
use std::thread;
use std::time::Duration;

use redquorum::Redlock;
use tokio::sync::mpsc;

use self::desk::Desk;
use self::voice::Voice;
use crate::talk::{Can, FENCING_MEMORY, Notice, Options, PROTOCOL};

mod desk;
mod owner;
pub(crate) mod settings;
mod several;
pub(crate) mod voice;

/// Started by somebody who does not speak the protocol.
const USAGE: u8 = 64;

/// How long a connection may take. It is the library's own default, as users have it.
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
    // Few: several clients run on one machine, and each has little to do at a time. Two, so that
    // what is told in time (a loss) does not wait behind what is worked on.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|why| why.to_string())?;
    // Before the lock is built: who hangs up meanwhile is not waited for.
    let mut lines = read_lines();
    runtime.block_on(async {
        let lock = build(&nodes, &options).await?;
        Voice.tell(&Notice::Ready {
            protocol: PROTOCOL,
            can: Can::ALL.to_vec(),
            name: Some(concat!("redquorum ", env!("CARGO_PKG_VERSION")).to_owned()),
        });
        let desk = Desk::new(lock, options.fencing);
        while let Some(line) = lines.recv().await {
            desk.take(&line);
        }
        // The reader ends the process with the last line; this is only in case it panicked.
        exit(0)
    })
}

async fn build(nodes: &[String], options: &Options) -> Result<Redlock, String> {
    let node_timeout = Duration::from_millis(options.node_timeout_ms);
    let builder = Redlock::builder()
        .urls(nodes)
        .ttl(options.ttl())
        .grace(Duration::from_millis(options.grace_ms))
        .node_timeout(node_timeout)
        .connect_timeout(CONNECT_TIMEOUT.max(node_timeout))
        .fencing_memory(FENCING_MEMORY)
        .wake_ups(options.wake_ups)
        .fair(options.fair)
        .drift(options.drift_ppm, Duration::from_millis(options.drift_ms));
    let guard = options.guard_ms.map(Duration::from_millis);
    let builder = match guard {
        Some(max_ttl) => builder.guard(max_ttl),
        None => builder,
    };
    let builder = match options.clock_guard_ms.map(Duration::from_millis) {
        Some(bound) => builder.clock_guard(bound),
        None => builder,
    };
    let builder = match &options.fleet {
        Some(name) => builder.fleet(name),
        None => builder,
    };
    builder.build().await.map_err(|why| why.to_string())
}

/// Reads requests in a thread of its own, as standard input can only be waited for by blocking.
fn read_lines() -> mpsc::UnboundedReceiver<String> {
    let (out, lines) = mpsc::unbounded_channel();
    thread::spawn(move || {
        for line in stdin().lock().lines().map_while(Result::ok) {
            // Nobody to hear it: the client is ending.
            let _ = out.send(line);
        }
        exit(0);
    });
    lines
}
