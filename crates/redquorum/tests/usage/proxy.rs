//! A node in front of a master in memory: it delays, forbids and publishes, and makes trouble.
//!
//! Masters in memory reply in no time and allow everything. The proxy charges each command to its
//! master, which executes one command after the other, as Redis does.
//!
//! The rig's network cannot do this. It passes bytes between sockets in a thread of its own, in
//! real time. These tests run on a paused clock, which jumps to the next timer while a socket is
//! waited for, so every reply would come after its timeout. And the proxy decides about commands,
//! which it prices, forbids and answers in place of the master: the rig's rules decide about
//! messages.

use std::collections::{HashSet, VecDeque};
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redquorum::connect::{Connecting, Connection, Node};
use redquorum_protocol::Waiter;
use redquorum_protocol::wire::{Frame, is_out_of_band, parse, scripts, write_command};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf, duplex, split};
use tokio::sync::broadcast;
use tokio::time::{Instant, sleep_until};

use crate::plan::{Rng, Trouble};

/// Microseconds that a master takes for a command without a script.
const COMMAND_US: u64 = 4;
/// Microseconds that a master takes for a script; the number of waiters does not matter.
const SCRIPT_US: u64 = 25;

/// One master, shared by all its proxies.
pub(crate) struct Meter {
    started: Instant,
    /// When the master has executed all commands so far.
    done: Mutex<Instant>,
    published: broadcast::Sender<Arc<Vec<u8>>>,
}

impl Meter {
    pub(crate) fn new() -> Arc<Self> {
        let published = broadcast::channel(64).0;
        let started = Instant::now();
        Arc::new(Self { started, done: Mutex::new(started), published })
    }

    fn age(&self) -> Duration {
        self.started.elapsed()
    }

    /// Sends a message on every channel.
    pub(crate) fn publish(&self, message: Vec<u8>) {
        // No connection may be open.
        let _ = self.published.send(Arc::new(message));
    }

    /// Returns when the master has executed a command that arrives at this time.
    fn charge(&self, arrival: Instant, args: &[&[u8]]) -> Instant {
        let micros = if script(args).is_some() { SCRIPT_US } else { COMMAND_US };
        let mut done = self.done.lock().unwrap();
        *done = (*done).max(arrival) + Duration::from_micros(micros);
        *done
    }
}

fn script(args: &[&[u8]]) -> Option<&'static str> {
    let [b"EVALSHA", sha, ..] = args else { return None };
    scripts(true).find(|script| script.sha1.as_bytes() == *sha).map(|script| script.source)
}

#[derive(Clone)]
pub(crate) struct Proxy {
    pub(crate) inner: Arc<dyn Node>,
    /// The master to which a name leads that is wrong.
    pub(crate) next: Arc<dyn Node>,
    pub(crate) meter: Arc<Meter>,
    /// Commands that get an error instead of an execution, also where a script calls them.
    pub(crate) forbidden: &'static [&'static str],
    pub(crate) trouble: Trouble,
    /// Each write is delayed by up to this many milliseconds.
    pub(crate) latency: u64,
    pub(crate) seed: u64,
}

impl Node for Proxy {
    fn name(&self) -> String {
        self.inner.name()
    }

    fn connect(&self) -> Connecting<'_> {
        Box::pin(async {
            let node = match self.trouble {
                Trouble::Misleads(until) if self.meter.age() < ms(until) => &self.next,
                _ => &self.inner,
            };
            let master = node.connect().await?;
            let (client, ours) = duplex(64 * 1024);
            tokio::spawn(self.clone().serve(ours, master));
            Ok(Box::new(client) as Box<dyn Connection>)
        })
    }
}

const FORBIDDEN: &str = "-NOPERM this user has no permissions to run this command\r\n";
const BUSY: &str = "-BUSY Redis is busy running a script.\r\n";

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[derive(Default)]
struct Dialogue {
    /// Commands without a reply, each with the error that it gets instead of the master's reply.
    asked: Mutex<VecDeque<Option<&'static str>>>,
    /// The channels to which the connection is subscribed.
    channels: Mutex<HashSet<Vec<u8>>>,
}

/// A command that the master is to execute.
struct Waiting {
    due: Instant,
    command: Vec<u8>,
    error: Option<&'static str>,
    /// The channel to which it subscribes.
    channel: Option<Vec<u8>>,
}

impl Proxy {
    async fn serve(self, client: DuplexStream, master: Box<dyn Connection>) {
        let ((from_client, to_client), (from_master, to_master)) = (split(client), split(master));
        let dialogue = Dialogue::default();
        // Not all at once.
        let age = match self.trouble {
            Trouble::Recycles(age) => ms(age + age / 8 * (self.seed % 8)),
            _ => Duration::MAX,
        };
        tokio::select! {
            () = tokio::time::sleep(age) => {}
            _ = self.requests(from_client, to_master, &dialogue) => {}
            _ = self.replies(from_master, to_client, &dialogue) => {}
        }
    }

    /// Passes each command to the master when the master would have executed it.
    async fn requests(
        &self,
        mut from: ReadHalf<DuplexStream>,
        mut to: WriteHalf<Box<dyn Connection>>,
        dialogue: &Dialogue,
    ) -> io::Result<()> {
        let (mut rng, mut arrival) = (Rng::new(self.seed), Instant::now());
        let mut bytes = Vec::new();
        let mut waiting: VecDeque<Waiting> = VecDeque::new();
        loop {
            let next = waiting.front().map(|waiting| waiting.due);
            bytes.reserve(64 * 1024);
            tokio::select! {
                read = from.read_buf(&mut bytes) => {
                    if read? == 0 {
                        return Ok(());
                    }
                    let latency = Duration::from_millis(rng.below(self.latency + 1));
                    arrival = arrival.max(Instant::now() + latency);
                    let mut used = 0;
                    while let Ok(Some((Frame::Array(args), length))) =
                        parse(&bytes[used..], usize::MAX)
                    {
                        let args: Vec<&[u8]> = args.iter().map(bulk).collect();
                        let due = self.meter.charge(arrival, &args);
                        let is = |command: &str| args[0] == command.as_bytes();
                        let error = match self.trouble {
                            Trouble::HangsUp(command) if is(command) => return Ok(()),
                            Trouble::Busy(command, until)
                                if is(command) && self.meter.age() < ms(until) =>
                            {
                                Some(BUSY)
                            }
                            _ => self.denies(&args).then_some(FORBIDDEN),
                        };
                        let mut command = Vec::new();
                        if error.is_some() {
                            write_command(&mut command, &[b"PING"]);
                        } else {
                            command.extend_from_slice(&bytes[used..used + length]);
                        }
                        let channel = match args[..] {
                            [b"SUBSCRIBE", channel] if error.is_none() => Some(channel.to_vec()),
                            _ => None,
                        };
                        waiting.push_back(Waiting { due, command, error, channel });
                        used += length;
                    }
                    bytes.drain(..used);
                }
                () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {
                    let mut ready = Vec::new();
                    while waiting.front().is_some_and(|next| next.due <= Instant::now())
                        && let Some(next) = waiting.pop_front()
                    {
                        dialogue.asked.lock().unwrap().push_back(next.error);
                        dialogue.channels.lock().unwrap().extend(next.channel);
                        ready.extend(next.command);
                    }
                    to.write_all(&ready).await?;
                }
            }
        }
    }

    fn denies(&self, args: &[&[u8]]) -> bool {
        let source = script(args).unwrap_or_default();
        // The scripts add to sorted sets for waiters and for shared leases, and these plans have
        // none of the latter.
        let waits = args.get(4).is_some_and(|first| Waiter::parse(first).is_some());
        self.forbidden.iter().any(|command| {
            let calls = source.contains(&format!("redis.call('{command}'"));
            args[0] == command.as_bytes()
                || calls && (*command != "ZADD" || waits)
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
                let reply = !is_out_of_band(&frame);
                let asked = || dialogue.asked.lock().unwrap().pop_front().flatten();
                match reply.then(asked).flatten() {
                    Some(error) => ready.extend(error.as_bytes()),
                    None => ready.extend_from_slice(&bytes[used..used + length]),
                }
                used += length;
            }
            bytes.drain(..used);
            to.write_all(&ready).await?;
        }
    }
}

fn bulk<'a>(frame: &Frame<'a>) -> &'a [u8] {
    if let Frame::Bulk(bytes) = frame { bytes } else { b"" }
}
