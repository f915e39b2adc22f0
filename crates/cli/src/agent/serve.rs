//! Serves the requests of other programs: of one on standard input, or of many by a Unix socket.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream as BlockingStream;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use nix::sys::stat::{Mode, umask};
use redquorum::{Builder, Shards};
use redquorum_scenario::client_protocol::{ClientLine, NODES_VARIABLE, OPTIONS_VARIABLE};
use redquorum_scenario::units::millis;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::requests::RequestHandler;
use super::{Lines, Output, line, read_lines, ready, write};
use crate::codes::Code;
use crate::options::{LockOptions, build};
use crate::{complain, runtime};

pub(crate) const HELP: &str = "\
A request is one JSON object on a line, and so is a reply; docs/command.md lists both:
  {\"id\": 1, \"op\": \"acquire\", \"resource\": \"invoice:42\", \"wait_ms\": 5000}
  {\"id\": 2, \"op\": \"keep_alive\", \"resource\": \"invoice:42\", \"max_ms\": 60000}
  {\"id\": 3, \"op\": \"release\", \"resource\": \"invoice:42\"}

Exit codes:
  0    its input has ended, or it got SIGTERM or SIGINT: all leases were given back
  64   the command line or an option is wrong
  65   a line of standard input is no request: it has no number
  71   the operating system refused something";

/// Where requests come from.
#[derive(Debug, Args)]
pub(crate) struct AgentOptions {
    /// Listen on this Unix socket instead of standard input. Each connection has leases of its own
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// The permissions of the socket, as `chmod` takes them
    #[arg(long, value_name = "MODE", default_value = "600", value_parser = mode)]
    #[arg(requires = "socket")]
    mode: u32,
    /// Ask for no fencing tokens
    #[arg(long)]
    no_fencing: bool,
    #[command(flatten)]
    lock: LockOptions,
}

fn mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| "write three octal digits, such as 660".to_owned())
}

/// The longest line of a request: a resource may have 1 MiB, and JSON may write each byte as six.
const LONGEST: u64 = 8 << 20;

/// The most messages that wait for a program that does not read.
const MOST_WAITING: usize = 1_000;

/// Serves until the input ends. A harness that starts it gets its built-in client.
pub(crate) fn serve(options: AgentOptions) -> Result<Code, Code> {
    let of_harness = [NODES_VARIABLE, OPTIONS_VARIABLE];
    if of_harness.iter().all(|name| std::env::var_os(name).is_some()) {
        return Ok(super::main());
    }
    runtime()?.block_on(async {
        let (stop, stopped) = watch::channel(false);
        for kind in [SignalKind::terminate(), SignalKind::interrupt()] {
            let mut signals = signal(kind).map_err(|why| refused("signals", &why))?;
            let stop = stop.clone();
            tokio::spawn(async move {
                signals.recv().await;
                stop.send_replace(true);
            });
        }
        let builder = options.lock.builder()?;
        let defaults = Defaults::of(&builder);
        let service = Service { defaults, shards: build(builder).await?, options, stopped };
        let ended = match &service.options.socket {
            Some(path) => service.listen(path).await,
            None => service.standard_input().await,
        };
        if let Err(unfinished) = service.shards.shutdown(Duration::from_secs(1)).await {
            eprintln!("redquorum: {unfinished}");
        }
        ended.map(|()| Code::SUCCESS)
    })
}

fn refused(what: &str, why: &std::io::Error) -> Code {
    complain(Code::SYSTEM, &format!("{what}: {why}"), "look at permissions and limits")
}

/// What a request that does not say it gets.
#[derive(Clone, Copy)]
struct Defaults {
    ttl_ms: u64,
    wait_ms: u64,
}

impl Defaults {
    fn of(builder: &Builder) -> Self {
        Self { ttl_ms: millis(builder.default_ttl()), wait_ms: millis(builder.default_wait()) }
    }

    /// Handles a line. What it leaves out is filled in. Returns whether it has a number: to any
    /// other line there is no reply, so whoever sent it would wait for ever.
    fn handle(self, handler: &Arc<RequestHandler>, output: &Output, line: &str) -> bool {
        let Self { ttl_ms, wait_ms } = self;
        let mut is_numbered = false;
        let request = serde_json::from_str::<Value>(line).and_then(|mut value| {
            if let Value::Object(fields) = &mut value {
                is_numbered = fields.get("id").is_some_and(Value::is_u64);
                fields.entry("client").or_insert_with(|| "agent".into());
                let op = fields.get("op").and_then(Value::as_str).unwrap_or_default();
                if op.starts_with("acquire") {
                    fields.entry("ttl_ms").or_insert_with(|| ttl_ms.into());
                    fields.entry("wait_ms").or_insert_with(|| wait_ms.into());
                } else if op == "step" {
                    fields.entry("name").or_insert_with(|| "check".into());
                } else if op == "extend" {
                    fields.entry("ttl_ms").or_insert_with(|| ttl_ms.into());
                }
            }
            serde_json::from_value(value)
        });
        match request {
            Ok(request) => handler.handle(request),
            Err(why) => output.refuse_line(line, &why),
        }
        is_numbered
    }
}

/// The lock, and what ends its use.
struct Service {
    options: AgentOptions,
    shards: Shards,
    defaults: Defaults,
    /// Whether a signal asked for the end.
    stopped: watch::Receiver<bool>,
}

impl Service {
    fn handler(&self, output: &Output) -> Arc<RequestHandler> {
        output.tell(ready());
        let (shards, fencing) = (self.shards.clone(), !self.options.no_fencing);
        RequestHandler::new(output.clone(), shards, fencing, Box::new(|| None))
    }

    fn end(&self) -> impl Future<Output = ()> + use<> {
        let mut stopped = self.stopped.clone();
        async move {
            // The sender lives as long as this.
            _ = stopped.wait_for(|stopped| *stopped).await;
        }
    }

    async fn standard_input(&self) -> Result<(), Code> {
        let (output, mut messages, overflow) = outlet();
        // A program that does not read stops this thread alone.
        let writer = std::thread::spawn(move || {
            while messages.blocking_recv().is_some_and(|message| write(&message)) {}
        });
        let handler = self.handler(&output);
        let mut lines = read_lines(|| ());
        let reads = async {
            while let Some(line) = lines.recv().await {
                if !self.defaults.handle(&handler, &output, &line) {
                    let fix = "write one JSON object with an `id` on each line";
                    return Err(complain(Code::DATA, "a line without a number", fix));
                }
            }
            Ok(())
        };
        let ended = tokio::select! {
            ended = reads => ended,
            () = overflow.notified() => Ok(()),
            () = self.end() => Ok(()),
        };
        handler.close().await;
        drop((handler, output));
        // The last replies, if anybody reads them.
        for _ in 0..100 {
            if writer.is_finished() {
                break;
            }
            sleep(Duration::from_millis(1)).await;
        }
        ended
    }

    /// Serves connections until a signal.
    async fn listen(&self, path: &Path) -> Result<(), Code> {
        let listener = bind(path, self.options.mode)?;
        let mut connections = JoinSet::new();
        let mut end = pin!(self.end());
        loop {
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => drop(connections.spawn(self.connection(stream))),
                    // Too many open files, mostly: they are fewer when a connection has ended.
                    Err(why) => {
                        eprintln!("redquorum: a connection was not accepted: {why}");
                        sleep(Duration::from_millis(100)).await;
                    }
                },
                Some(_) = connections.join_next() => {}
                () = &mut end => break,
            }
        }
        drop(fs::remove_file(path));
        connections.join_all().await;
        Ok(())
    }

    fn connection(&self, stream: UnixStream) -> impl Future<Output = ()> + use<> {
        let (output, messages, overflow) = outlet();
        let (handler, defaults, end) = (self.handler(&output), self.defaults, self.end());
        async move {
            tokio::select! {
                () = converse(stream, messages, |line| defaults.handle(&handler, &output, line)) => {}
                () = overflow.notified() => {}
                () = end => {}
            }
            handler.close().await;
        }
    }
}

/// The output of a connection, the messages that it is told, and the notice that they are too many.
fn outlet() -> (Output, mpsc::Receiver<ClientLine>, Arc<Notify>) {
    let (to, messages) = mpsc::channel(MOST_WAITING);
    let overflow = Arc::new(Notify::new());
    (Output::Connection(Lines { to, overflow: overflow.clone() }), messages, overflow)
}

/// Reads requests and writes messages until the other end closes.
async fn converse(
    mut stream: UnixStream,
    mut messages: mpsc::Receiver<ClientLine>,
    mut handle: impl FnMut(&str) -> bool,
) {
    let (reader, mut writer) = stream.split();
    let mut reader = BufReader::new(reader);
    let reads = async {
        loop {
            let mut line = Vec::new();
            let read = (&mut reader).take(LONGEST).read_until(b'\n', &mut line).await;
            match read {
                Ok(1..) if line.ends_with(b"\n") && handle(&String::from_utf8_lossy(&line)) => {}
                // The end, a line without one, or one that is no request.
                _ => return,
            }
        }
    };
    let writes = async {
        while let Some(message) = messages.recv().await {
            if writer.write_all(&line(&message)).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = reads => {}
        () = writes => {}
    }
}

fn is_socket(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket())
}

/// Binds the socket. One that a dead agent has left is replaced.
fn bind(path: &Path, mode: u32) -> Result<UnixListener, Code> {
    let failed = |why: &std::io::Error| {
        let wrong = format!("the socket {}: {why}", path.display());
        complain(Code::SYSTEM, &wrong, "name a path in a folder that exists and is yours")
    };
    match BlockingStream::connect(path) {
        Ok(_) => {
            let wrong = format!("another program listens on {}", path.display());
            return Err(complain(Code::SYSTEM, &wrong, "end it, or name another path"));
        }
        // A file of another kind refuses connections, too.
        Err(why) if why.kind() == ErrorKind::ConnectionRefused && is_socket(path) => {
            fs::remove_file(path).map_err(|why| failed(&why))?;
        }
        Err(_) => {}
    }
    // Nobody else can connect before the permissions are set.
    let before = umask(Mode::from_bits_truncate(0o177));
    let bound = UnixListener::bind(path);
    umask(before);
    let listener = bound.map_err(|why| failed(&why))?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(|why| failed(&why))?;
    Ok(listener)
}
