//! Mutants on real masters: a client process with a deliberate bug, which implements the client
//! protocol. [`redquorum_simulator::mutants`] has the bugs.
//!
//! It is simple rather than fast. One thread decides everything: it waits for the next line, the
//! next bytes, or the next wake-up, and writes. One thread for each connection dials and then reads
//! it. The messages come from `client.rs`.

use std::convert::Infallible;
use std::io::{self, BufRead, Read, Write, stdin};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::process::exit;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::client::Output;
use crate::{client, stamp};
use redquorum_protocol::wire::{Command, Greeting, Hello, MAX_REPLY, is_out_of_band, parse, woken};
use redquorum_protocol::{Backoff, Cause, Reply, Rng, TOKEN_LEN, Time, Token};
use redquorum_redis_model::Value;
use redquorum_scenario::Mutant;
use redquorum_scenario::client_protocol::{Capability, Notice, PROTOCOL};
use redquorum_simulator::client_machine::{
    Clocks, InputContext, Process, ProcessEffect, ProcessEvent,
};
use redquorum_simulator::mutants;

/// Timeout of a connection attempt.
const CONNECT: Duration = Duration::from_secs(1);

struct Shell {
    mutant: Mutant,
    urls: Vec<String>,
    limit: Duration,
    process: Process<Mutant>,
    wires: Vec<Vec<Wire>>,
    events: Sender<Event>,
}

/// Randomness from the system.
struct SystemRng;

impl Rng for SystemRng {
    fn token(&mut self) -> Token {
        Token::new(rand::random::<[u8; TOKEN_LEN]>())
    }

    fn hint(&mut self) -> u64 {
        clocks().wall.as_nanos() / 1000
    }

    fn pause(&mut self, attempt: u32) -> Duration {
        Backoff::default().pause(attempt, rand::random())
    }

    fn random(&mut self) -> u64 {
        rand::random()
    }
}

/// Runs a mutant that implements the client protocol on standard input and output. Ends when its
/// input ends.
///
/// # Errors
///
/// The environment is not the one that the harness sets up.
pub fn run(mutant: Mutant) -> Result<Infallible, String> {
    let (urls, options) = client::read_settings()?;
    let (out, events) = channel();
    let lines = out.clone();
    thread::spawn(move || {
        for line in stdin().lock().lines().map_while(Result::ok) {
            // The loop lives as long as the process.
            let _ = lines.send(Event::Line(line));
        }
        exit(0);
    });
    let limit = CONNECT.max(Duration::from_millis(options.node_timeout_ms));
    let mut effects = Vec::new();
    let mut context = InputContext { clocks: clocks(), rng: &mut SystemRng, out: &mut effects };
    let process = Process::start(options, urls.len(), mutant, &mut context);
    process.fits().map_err(|bad| bad.to_string())?;
    let wires = urls.iter().map(|_| Vec::new()).collect();
    let mut shell = Shell { mutant, urls, limit, process, wires, events: out };
    shell.carry_out(effects);
    shell.turn(&events)
}

impl Shell {
    fn turn(&mut self, events: &Receiver<Event>) -> ! {
        let mut ready = false;
        loop {
            if !ready && self.process.is_ready() {
                ready = true;
                let name = Some(format!("mutant {}", self.mutant));
                Output::Stdout.tell(Notice::Ready {
                    protocol: PROTOCOL,
                    can: Capability::of_this_lock(),
                    name,
                    version: None,
                });
            }
            let clocks = clocks();
            let wake = self.process.next_wake(clocks);
            let event = if wake == Time::NEVER {
                events.recv().map_err(|_| RecvTimeoutError::Disconnected)
            } else {
                events.recv_timeout(wake.since(clocks.monotonic))
            };
            match event {
                Ok(event) => self.happen(event),
                Err(RecvTimeoutError::Timeout) => self.tell(ProcessEvent::Wake),
                Err(RecvTimeoutError::Disconnected) => {
                    unreachable!("the loop itself can send events")
                }
            }
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Line(line) => match serde_json::from_str(&line) {
                Ok(request) => self.tell(ProcessEvent::Requested(request)),
                Err(why) => Output::Stdout.refuse_line(&line, &why),
            },
            Event::Dialled { node, epoch, opened } if self.process.awaits(node, epoch) => {
                match opened {
                    Ok((stream, greeting)) => {
                        self.wires[node].push(Wire { epoch, stream, incoming: Vec::new() });
                        self.tell(ProcessEvent::Connected { node, epoch, greeting });
                    }
                    Err(why) => self.closed(node, epoch, &why),
                }
            }
            // The link no longer wants this connection, which is dropped.
            Event::Dialled { .. } => {}
            Event::Bytes { node, epoch, bytes } => {
                if let Some(wire) = self.wire(node, epoch) {
                    wire.incoming.extend(bytes);
                    self.read(node, epoch);
                }
            }
            Event::Closed { node, epoch, why } => self.closed(node, epoch, &why),
        }
    }

    /// Passes an event to the process and carries out its effects.
    fn tell(&mut self, event: ProcessEvent) {
        let mut effects = Vec::new();
        let mut context = InputContext { clocks: clocks(), rng: &mut SystemRng, out: &mut effects };
        self.process.handle(event, &mut context);
        self.carry_out(effects);
    }

    fn carry_out(&mut self, effects: Vec<ProcessEffect>) {
        for effect in effects {
            match effect {
                ProcessEffect::Tell(message) => Output::Stdout.tell(message),
                ProcessEffect::Write { node, epoch, command } => self.write(node, epoch, &command),
                ProcessEffect::Dial { node, epoch } => {
                    let how = (self.limit, self.process.is_guarded());
                    dial(self.urls[node].clone(), (node, epoch), how, self.events.clone());
                }
                ProcessEffect::Close { node, epoch } => {
                    self.wires[node].retain(|wire| wire.epoch != epoch);
                }
                ProcessEffect::Refuse { node, epoch, why } => {
                    // Reported later, by the loop, like any other end.
                    let why = why.to_string();
                    let _ = self.events.send(Event::Closed { node, epoch, why });
                }
            }
        }
    }

    fn write(&mut self, node: usize, epoch: u64, command: &Command) {
        let mut bytes = Vec::new();
        mutants::request(self.mutant, command.clone()).encode(&mut bytes);
        if self.mutant == Mutant::SendsAgain
            && matches!(command, Command::Set { .. } | Command::Guarded { .. })
        {
            send_again(self.urls[node].clone(), bytes.clone(), self.limit);
        }
        if let Some(wire) = self.wire(node, epoch) {
            wire.write(&bytes);
        }
    }

    fn wire(&mut self, node: usize, epoch: u64) -> Option<&mut Wire> {
        self.wires[node].iter_mut().find(|wire| wire.epoch == epoch)
    }

    fn closed(&mut self, node: usize, epoch: u64, why: &str) {
        self.wires[node].retain(|wire| wire.epoch != epoch);
        let random = rand::random();
        self.tell(ProcessEvent::Closed { node, epoch, why: Arc::from(why), random });
    }

    /// Passes the replies that have arrived to the process.
    fn read(&mut self, node: usize, epoch: u64) {
        loop {
            let expects = self.process.expects(node);
            let Some(wire) = self.wire(node, epoch) else { return };
            // The machines read only the reply.
            let replied = |reply| ProcessEvent::Replied { node, epoch, reply, value: Value::Null };
            let (event, length) = match parse(&wire.incoming, MAX_REPLY) {
                Ok(None) => return,
                Ok(Some((frame, length))) if is_out_of_band(&frame) => {
                    let woken = woken(&frame);
                    (woken.map(|waiter_id| ProcessEvent::Woken { node, epoch, waiter_id }), length)
                }
                Ok(Some((frame, length))) => {
                    // The link decides about a reply to no command.
                    let reply = expects.map_or(Reply::Alive, |expect| expect.read(&frame));
                    (Some(replied(reply)), length)
                }
                Err(_) => (Some(replied(Reply::Unknown(Cause::Garbage))), 0),
            };
            wire.incoming.drain(..length);
            if let Some(event) = event {
                self.tell(event);
            }
        }
    }
}

/// Reads the clocks. The wall clock is read through libc, where a preloaded library can replace it.
fn clocks() -> Clocks {
    let now = Time::from_nanos(u64::try_from(stamp::now()).unwrap_or(0));
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // A real run never suspends the machine.
    Clocks { monotonic: now, awake: now, wall: Time::ZERO.plus(wall) }
}

/// Timeout of a write, which blocks the loop. No write exceeds what a socket buffers.
const WRITE: Duration = Duration::from_millis(100);

/// An input of the loop.
enum Event {
    /// A line from the harness.
    Line(String),
    /// A connection attempt succeeded or failed.
    Dialled { node: usize, epoch: u64, opened: Result<(TcpStream, Greeting), String> },
    /// Bytes from a master.
    Bytes { node: usize, epoch: u64, bytes: Vec<u8> },
    /// A connection broke.
    Closed { node: usize, epoch: u64, why: String },
}

/// An open connection. A thread of its own reads it.
struct Wire {
    epoch: u64,
    stream: TcpStream,
    /// Bytes that have arrived and are not read as replies.
    incoming: Vec<u8>,
}

impl Wire {
    /// Writes a command, in bytes. If that fails, the thread that reads reports the end.
    fn write(&mut self, bytes: &[u8]) {
        if self.stream.write_all(bytes).is_err() {
            let _ = self.stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        // Wakes the thread that reads. A connection that is broken already needs no shutdown.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

/// Delay of the second copy of a SET: longer than a short hold takes until its release.
const AGAIN: Duration = Duration::from_millis(300);

/// Opens a connection in a thread, makes the handshake, and then passes on all bytes that arrive.
fn dial(url: String, (node, epoch): (usize, u64), how: (Duration, bool), events: Sender<Event>) {
    thread::spawn(move || {
        let opened = open(&url, how).map_err(|why| why.to_string());
        let reader = opened.as_ref().ok().and_then(|(stream, _)| stream.try_clone().ok());
        // Sent before any bytes that arrive on the connection.
        let sent = events.send(Event::Dialled { node, epoch, opened });
        if let (Ok(()), Some(stream)) = (sent, reader) {
            read(stream, (node, epoch), &events);
        }
    });
}

/// Sends these bytes once more, later, on a connection of their own, in a thread. Ignores the
/// reply.
fn send_again(url: String, bytes: Vec<u8>, limit: Duration) {
    thread::spawn(move || {
        thread::sleep(AGAIN);
        if let Ok((mut stream, _)) = open(&url, (limit, false))
            && stream.write_all(&bytes).is_ok()
        {
            // Waits until the master has replied: before that, it may not have read them.
            let _ = stream.read(&mut [0; 64]);
        }
    });
}

fn read(mut stream: TcpStream, (node, epoch): (usize, u64), events: &Sender<Event>) {
    let mut chunk = [0; 8 * 1024];
    loop {
        let event = match stream.read(&mut chunk) {
            Ok(0) => Event::Closed { node, epoch, why: "closed by the master".to_owned() },
            Ok(count) => Event::Bytes { node, epoch, bytes: chunk[..count].to_vec() },
            Err(why) => Event::Closed { node, epoch, why: why.to_string() },
        };
        let over = matches!(event, Event::Closed { .. });
        if events.send(event).is_err() || over {
            return;
        }
    }
}

/// Connects and makes the handshake. Mutants do not support masters with a password.
fn open(url: &str, (limit, guarded): (Duration, bool)) -> io::Result<(TcpStream, Greeting)> {
    let address = url.strip_prefix("redis://").unwrap_or(url);
    let address = address.split('/').next().unwrap_or_default();
    let address = address.to_socket_addrs()?.next();
    let address = address.ok_or_else(|| io::Error::other("it has no address"))?;
    let mut stream = TcpStream::connect_timeout(&address, limit)?;
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(WRITE))?;
    stream.set_read_timeout(Some(limit))?;
    let hello = Hello::default();
    let mut bytes = Vec::new();
    let handshake = hello.handshake(guarded);
    handshake.encode(&mut bytes);
    stream.write_all(&bytes)?;
    let (mut greeting, mut replies) = (Greeting::default(), 0);
    let (mut incoming, mut chunk) = (Vec::new(), [0; 8 * 1024]);
    while replies < handshake.replies() {
        match stream.read(&mut chunk)? {
            0 => return Err(io::Error::other("closed by the master before it answered")),
            count => incoming.extend_from_slice(&chunk[..count]),
        }
        while let Some((frame, used)) = parse(&incoming, MAX_REPLY).map_err(io::Error::other)? {
            let read = handshake.read(replies, &frame, &mut greeting);
            read.map_err(|unfit| io::Error::other(unfit.0.to_string()))?;
            replies += 1;
            incoming.drain(..used);
        }
    }
    stream.set_read_timeout(None)?;
    Ok((stream, greeting))
}
