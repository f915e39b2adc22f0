//! A node in front of a master: it counts commands, and in memory it also delays, forbids and
//! publishes.
//!
//! Masters in memory reply in no time and allow everything. The proxy charges each command to its
//! master, which executes one command after the other, as Redis does.

use std::collections::{HashSet, VecDeque};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redquorum::connect::{Connecting, Connection, Hello, Node};
use redquorum_protocol::wire::{Frame, is_unasked, parse, scripts, write_command};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf, duplex, split};
use tokio::sync::{broadcast, mpsc};
use tokio::time::{Instant, sleep_until};

use crate::plan::Rng;

/// Microseconds that a master takes for a command without a script.
const COMMAND_US: u64 = 4;
/// Microseconds that a master takes for a script; the number of waiters does not matter.
const SCRIPT_US: u64 = 25;

/// One master, shared by all its proxies.
pub(crate) struct Meter {
    commands: AtomicU64,
    /// Whether commands take time. Real masters need no such model.
    charged: bool,
    /// When the master has executed all commands so far.
    done: Mutex<Instant>,
    published: broadcast::Sender<Arc<Vec<u8>>>,
}

impl Meter {
    pub(crate) fn new(charged: bool) -> Arc<Self> {
        let done = Mutex::new(Instant::now());
        let published = broadcast::channel(64).0;
        Arc::new(Self { commands: AtomicU64::new(0), charged, done, published })
    }

    pub(crate) fn commands(&self) -> u64 {
        self.commands.load(Ordering::Relaxed)
    }

    /// Whether this is a master in memory, of which the proxy models the cost and the permissions.
    pub(crate) const fn is_charged(&self) -> bool {
        self.charged
    }

    /// Sends a message on every channel.
    pub(crate) fn publish(&self, message: Vec<u8>) {
        // No connection may be open.
        let _ = self.published.send(Arc::new(message));
    }

    /// Counts a command, and returns when the master has executed it.
    fn charge(&self, args: &[&[u8]]) -> Instant {
        self.commands.fetch_add(1, Ordering::Relaxed);
        let now = Instant::now();
        if !self.charged {
            return now;
        }
        let micros = if script(args).is_some() { SCRIPT_US } else { COMMAND_US };
        let mut done = self.done.lock().unwrap();
        *done = (*done).max(now) + Duration::from_micros(micros);
        *done
    }
}

/// The text of the script that a command calls.
fn script(args: &[&[u8]]) -> Option<&'static str> {
    let [b"EVALSHA", sha, ..] = args else { return None };
    scripts(true).find(|script| script.sha1.as_bytes() == *sha).map(|script| script.source)
}

/// The connection of one process to one master.
#[derive(Clone)]
pub(crate) struct Proxy {
    pub(crate) inner: Arc<dyn Node>,
    pub(crate) meter: Arc<Meter>,
    /// Commands that get an error instead of an execution, also where a script calls them.
    pub(crate) forbidden: &'static [&'static str],
    /// Each write is delayed by up to this many milliseconds.
    pub(crate) latency: u64,
    pub(crate) seed: u64,
}

impl Node for Proxy {
    fn name(&self) -> String {
        self.inner.name()
    }

    fn hello(&self) -> Hello {
        self.inner.hello()
    }

    fn connect(&self) -> Connecting<'_> {
        Box::pin(async {
            let master = self.inner.connect().await?;
            let (client, ours) = duplex(64 * 1024);
            tokio::spawn(self.clone().serve(ours, master));
            Ok(Box::new(client) as Box<dyn Connection>)
        })
    }
}

/// The state of one connection.
#[derive(Default)]
struct Dialogue {
    /// Commands without a reply, and whether they were forbidden.
    asked: Mutex<VecDeque<bool>>,
    channels: Mutex<HashSet<Vec<u8>>>,
}

impl Proxy {
    async fn serve(self, client: DuplexStream, master: Box<dyn Connection>) {
        let ((from_client, to_client), (from_master, to_master)) = (split(client), split(master));
        let dialogue = Dialogue::default();
        tokio::select! {
            _ = self.requests(from_client, to_master, &dialogue) => {}
            _ = self.replies(from_master, to_client, &dialogue) => {}
        }
    }

    async fn requests(
        &self,
        mut from: ReadHalf<DuplexStream>,
        to: WriteHalf<Box<dyn Connection>>,
        dialogue: &Dialogue,
    ) -> io::Result<()> {
        let (sender, delayed) = mpsc::unbounded_channel();
        let read = async {
            let (mut rng, mut due) = (Rng::new(self.seed), Instant::now());
            let mut chunk = vec![0; 64 * 1024];
            loop {
                let length = from.read(&mut chunk).await?;
                let latency = Duration::from_millis(rng.below(self.latency + 1));
                due = due.max(Instant::now() + latency);
                if length == 0 || sender.send((due, chunk[..length].to_vec())).is_err() {
                    return io::Result::Ok(());
                }
            }
        };
        tokio::select! {
            ended = read => ended,
            ended = self.forward(delayed, to, dialogue) => ended,
        }
    }

    async fn forward(
        &self,
        mut delayed: mpsc::UnboundedReceiver<(Instant, Vec<u8>)>,
        mut to: WriteHalf<Box<dyn Connection>>,
        dialogue: &Dialogue,
    ) -> io::Result<()> {
        let mut bytes = Vec::new();
        while let Some((due, chunk)) = delayed.recv().await {
            if due > Instant::now() {
                sleep_until(due).await;
            }
            bytes.extend(chunk);
            let (mut used, mut ready) = (0, Vec::new());
            while let Ok(Some((Frame::Array(args), length))) = parse(&bytes[used..], usize::MAX) {
                let args: Vec<&[u8]> = args.iter().map(bulk).collect();
                let done = self.meter.charge(&args);
                if done > Instant::now() + Duration::from_millis(1) {
                    to.write_all(&std::mem::take(&mut ready)).await?;
                    sleep_until(done).await;
                }
                let denied = self.denies(&args);
                dialogue.asked.lock().unwrap().push_back(denied);
                if denied {
                    write_command(&mut ready, &[b"PING"]);
                } else {
                    dialogue.follow(&args);
                    ready.extend_from_slice(&bytes[used..used + length]);
                }
                used += length;
            }
            bytes.drain(..used);
            to.write_all(&ready).await?;
        }
        Ok(())
    }

    fn denies(&self, args: &[&[u8]]) -> bool {
        let source = script(args).unwrap_or_default();
        self.forbidden.iter().any(|command| {
            args[0] == command.as_bytes()
                || source.contains(&format!("redis.call('{command}'"))
                || *command == "GET" && source.contains("redis.pcall('GET', KEYS[1])")
        })
    }

    async fn replies(
        &self,
        mut from: ReadHalf<Box<dyn Connection>>,
        mut to: WriteHalf<DuplexStream>,
        dialogue: &Dialogue,
    ) -> io::Result<()> {
        let mut published = self.meter.published.subscribe();
        let mut bytes = Vec::new();
        loop {
            let mut ready = Vec::new();
            bytes.reserve(64 * 1024);
            tokio::select! {
                read = from.read_buf(&mut bytes) => if read? == 0 { return Ok(()) },
                Ok(text) = published.recv() => {
                    for channel in dialogue.channels.lock().unwrap().iter() {
                        ready.extend(b">3\r\n");
                        for part in [b"message", channel.as_slice(), &text] {
                            ready.extend(format!("${}\r\n", part.len()).into_bytes());
                            ready.extend([part, b"\r\n"].concat());
                        }
                    }
                }
            }
            let mut used = 0;
            while let Ok(Some((frame, length))) = parse(&bytes[used..], usize::MAX) {
                let reply = !is_unasked(&frame);
                if reply && dialogue.asked.lock().unwrap().pop_front() == Some(true) {
                    ready.extend(b"-NOPERM this user has no permissions to run this command\r\n");
                } else {
                    ready.extend_from_slice(&bytes[used..used + length]);
                }
                used += length;
            }
            bytes.drain(..used);
            to.write_all(&ready).await?;
        }
    }
}

impl Dialogue {
    /// Records the channels to which the connection is subscribed.
    fn follow(&self, args: &[&[u8]]) {
        if let [b"SUBSCRIBE", channel] = args {
            self.channels.lock().unwrap().insert(channel.to_vec());
        }
    }
}

fn bulk<'a>(frame: &Frame<'a>) -> &'a [u8] {
    if let Frame::Bulk(bytes) = frame { bytes } else { b"" }
}
