//! The real master: a `redis-server` whose clock stands still between two steps.
//!
//! So all results are exact: nothing depends on the duration of a step. Redis looks for expired
//! keys only in the steps that ask for it.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::compare::{ReceivedMessage, Runs, Seen};
use crate::plan::{End, Leave, Planned, SLOTS, Step};
use redquorum_protocol::wire::{Command, Frame, Greeting, Hello, is_out_of_band, parse};
use redquorum_redis_model::{Persistence, Request, ServerReply, Value, Wall};
use redquorum_rig::trials::Talk;
use redquorum_rig::{ClockChange, Masters};

/// A client id that no client has.
pub(crate) const NOBODY: u64 = u64::MAX >> 1;

const BEGIN: Wall = 1_700_000_000_000_300_000;

pub(crate) struct Real {
    masters: Masters,
    persistence: Persistence,
    paused: bool,
    short: bool,
    /// The open connections with their numbers, oldest first. Closed slots have `None`.
    open: Vec<(usize, Option<usize>, Socket)>,
    opened: usize,
    greeted: [u64; SLOTS],
    runs: Runs,
    /// The synced length of the file, and the latest second of a sync.
    synced: u64,
    latest: Wall,
}

impl Real {
    pub(crate) fn start(persistence: Persistence) -> Self {
        let masters = Masters::builder()
            .count(1)
            .clocks()
            .persistence(persistence)
            .within(Duration::from_secs(60))
            .config("hz", "500")
            .config("enable-debug-command", "yes")
            // In protected mode, Redis refuses a connection that was reset before it was accepted.
            .config("protected-mode", "no")
            .start()
            .unwrap();
        let real = Self {
            masters,
            persistence,
            paused: false,
            short: false,
            open: Vec::new(),
            opened: 0,
            greeted: [NOBODY; SLOTS],
            runs: Runs::default(),
            synced: 0,
            latest: 0,
        };
        real.change(ClockChange::Rate(0.0));
        // The same instant every time, within a millisecond, so a plan always gives the same
        // result.
        let nanos = BEGIN.cast_signed() - real.wall().cast_signed();
        real.change(ClockChange::Step { nanos });
        real.expire();
        real
    }

    pub(crate) fn step(&mut self, step: &Step) -> Seen {
        match step {
            Step::Send(slot, asks) => self.say(*slot, asks),
            Step::Leave(slot, asks, how) => {
                self.say(*slot, asks);
                self.leave(*slot, *how);
            }
            Step::Clock(nanos) => self.change(ClockChange::Step { nanos: *nanos }),
            Step::Run(rate) => {
                self.change(ClockChange::Rate(*rate));
                sleep(Duration::from_micros(1500));
                self.change(ClockChange::Rate(0.0));
            }
            Step::Pause => {
                self.written();
                self.masters.pause(1).unwrap();
                self.paused = true;
            }
            Step::Resume if self.paused => {
                self.masters.resume(1).unwrap();
                self.paused = false;
            }
            Step::Restart(end, nanos) => return self.restart(*end, *nanos),
            Step::Sync if !self.paused => self.sync(),
            Step::Expire if !self.paused => self.expire(),
            Step::Memory(short) if !self.paused => {
                self.short = *short;
                self.set_memory(*short);
            }
            Step::Resume | Step::Sync | Step::Expire | Step::Memory(_) => {}
        }
        self.look()
    }

    /// The time that the clock shows.
    fn wall(&self) -> Wall {
        self.masters.clock(1).unwrap().setting().shown(0)
    }

    fn port(&self) -> u16 {
        self.masters.port(1)
    }

    /// Sends a command on a connection of its own, which the server accepts after all others.
    fn admin(&self, words: &str) -> String {
        Talk::connect(self.port()).ask(words)
    }

    fn change(&self, change: ClockChange) {
        self.masters.clock(1).unwrap().change(change).unwrap();
    }

    fn say(&mut self, slot: usize, asks: &[Planned]) {
        if !self.open.iter().any(|(_, of, _)| *of == Some(slot)) {
            let mut socket = Socket::connect(self.port()).unwrap();
            socket.write(vec![Request::Hello]);
            self.opened += 1;
            self.open.push((self.opened, Some(slot), socket));
            if !self.paused {
                self.read(self.open.len() - 1);
            }
        }
        let requests = asks.iter().map(|request| self.request(request)).collect();
        let (_, _, socket) = self.open.iter_mut().find(|(_, of, _)| *of == Some(slot)).unwrap();
        socket.write(requests);
    }

    fn request(&self, request: &Planned) -> Request {
        match request {
            Planned::Request(request) => request.clone(),
            Planned::Kill(slot) => Request::Lock(Command::Kill { client_id: self.greeted[*slot] }),
        }
    }

    fn leave(&mut self, slot: usize, how: Leave) {
        let index = self.open.iter().position(|(_, of, _)| *of == Some(slot)).unwrap();
        let (number, _, socket) = self.open.remove(index);
        if let Some(socket) = socket.close(how) {
            self.open.insert(index, (number, None, socket));
        }
    }

    /// Reads all replies. A paused master has none.
    fn look(&mut self) -> Seen {
        let mut seen = Seen { wall: self.wall(), ..Seen::default() };
        if self.paused {
            return seen;
        }
        let mut messages: Vec<ReceivedMessage> =
            (0..self.open.len()).map(|index| self.read(index)).collect();
        // After this reply, all earlier commands are executed, the connections are closed for them,
        // and the push messages have arrived.
        seen.count = Some(self.count());
        for ((_, slot, socket), messages) in self.open.iter_mut().zip(&mut messages) {
            while !messages.dropped {
                match socket.overhear() {
                    Ok(Some(woken)) => messages.replies.push(woken),
                    Ok(None) => break,
                    Err(_) => messages.dropped = true,
                }
            }
            if messages.dropped {
                seen.cut.push(messages.number);
            }
            // If the client closed its half, the master closes the connection, too, which is no
            // event.
            messages.dropped &= slot.is_some();
        }
        let stays =
            |number| messages.iter().any(|it: &ReceivedMessage| it.number == number && !it.dropped);
        self.open.retain(|(number, slot, _)| slot.is_some() && stays(*number));
        messages.retain(|messages| messages.dropped || !messages.replies.is_empty());
        seen.messages = messages;
        seen
    }

    fn read(&mut self, index: usize) -> ReceivedMessage {
        let (number, slot, socket) = &mut self.open[index];
        let mut messages = ReceivedMessage { number: *number, ..ReceivedMessage::default() };
        while socket.waits() && !messages.dropped {
            match socket.read() {
                Ok(mut reply) => {
                    if let ServerReply::Greeting(greeting) = &mut reply {
                        if let Some(slot) = slot {
                            self.greeted[*slot] = greeting.client_id.unwrap();
                        }
                        self.runs.rename(greeting);
                    }
                    messages.replies.push(reply);
                }
                Err(_) => messages.dropped = true,
            }
        }
        messages
    }

    fn count(&self) -> usize {
        self.admin("DBSIZE")[1..].parse().unwrap()
    }

    fn set_memory(&self, short: bool) {
        self.admin(&format!("CONFIG SET maxmemory {}", u8::from(short)));
    }

    /// Lets Redis look for expired keys. A key in another database, already expired when it is
    /// written, shows when it has. During a rehash, Redis may check some keys twice and miss
    /// others, so the search runs several times.
    fn expire(&self) {
        let canary = format!("SET canary x PXAT {}", self.wall() / 1_000_000 - 1);
        let mut other = Talk::connect(self.port());
        other.ask("SELECT 1");
        for _ in 0..4 {
            self.set_memory(false);
            assert_eq!(other.ask(&canary), "+OK");
            self.set_memory(self.short);
            self.admin("DEBUG SET-ACTIVE-EXPIRE 1");
            let began = Instant::now();
            while other.ask("DBSIZE") != ":0" {
                let policy = Duration::from_secs(20);
                assert!(began.elapsed() < policy, "Redis looks for no expired keys");
                sleep(Duration::from_micros(500));
            }
            self.admin("DEBUG SET-ACTIVE-EXPIRE 0");
        }
    }

    fn file(&self) -> Option<PathBuf> {
        let dir = std::fs::read_dir(self.masters.dir(1).join("appendonlydir")).ok()?;
        let files = dir.map(|entry| entry.unwrap().path());
        files.into_iter().find(|path| path.to_string_lossy().ends_with(".incr.aof"))
    }

    fn size(&self) -> u64 {
        self.file().map_or(0, |file| file.metadata().unwrap().len())
    }

    /// The test decides what is synced. It does so a second later, when Redis would have synced.
    fn sync(&mut self) {
        let ahead = self.latest.max(self.wall()) + 1_000_000_000 - self.wall();
        self.change(ClockChange::forward(Duration::from_nanos(ahead)));
        self.latest = self.wall();
        self.written();
        self.synced = self.size();
    }

    /// Waits until Redis has passed all its writes to the system. Under `everysec` it may delay
    /// that while an earlier sync is slow.
    fn written(&self) {
        let waits = |info: &str| {
            info.lines().any(|line| line.starts_with("aof_buffer_length:") && !line.ends_with(":0"))
        };
        while waits(&self.admin("INFO persistence")) {
            sleep(Duration::from_millis(1));
        }
    }

    fn restart(&mut self, end: End, nanos: i64) -> Seen {
        if !self.paused {
            self.written();
        }
        // A paused master must resume before it stops, and the order of its first actions is
        // random.
        if end == End::Stop && !self.paused {
            self.masters.stop(1).unwrap();
            self.synced = self.size();
        } else {
            self.masters.kill(1).unwrap();
        }
        if end == End::PowerLoss && self.persistence == Persistence::AofEverysec {
            let file = std::fs::File::options().write(true).open(self.file().unwrap()).unwrap();
            file.set_len(self.synced).unwrap();
        }
        assert!(Socket::connect(self.port()).is_err(), "a dead master accepts");
        self.change(ClockChange::Step { nanos });
        self.latest = self.latest.max(self.wall());
        self.masters.restart(1).unwrap();
        (self.paused, self.short) = (false, false);
        self.expire();
        let mut seen = Seen { wall: self.wall(), count: Some(self.count()), ..Seen::default() };
        for (number, slot, socket) in &mut self.open {
            assert!(
                socket.waits() || socket.overhear().is_err(),
                "a connection outlived its master"
            );
            if slot.is_some() {
                seen.messages.push(ReceivedMessage {
                    number: *number,
                    dropped: true,
                    ..ReceivedMessage::default()
                });
            }
        }
        self.open.clear();
        // Ids count from the start again, and the rig's own connections have some: an id of an
        // earlier run could belong to any connection.
        self.greeted = [NOBODY; SLOTS];
        seen
    }
}

// The connection. Requests are bytes, and the library's code reads the replies.

/// The limit for a reply on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(20);

pub(crate) struct Socket {
    stream: TcpStream,
    bytes: Vec<u8>,
    /// The requests without a reply.
    asked: VecDeque<Request>,
}

/// The master closed the connection.
pub(crate) struct Gone;

impl Socket {
    pub(crate) fn connect(port: u16) -> std::io::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        Ok(Self { stream, bytes: Vec::new(), asked: VecDeque::new() })
    }

    /// Writes all requests at once. The next read shows a closed connection.
    pub(crate) fn write(&mut self, requests: Vec<Request>) {
        let mut bytes = Vec::new();
        requests.iter().for_each(|request| request.encode(&mut bytes));
        self.asked.extend(requests);
        drop(self.stream.write_all(&bytes));
    }

    pub(crate) fn waits(&self) -> bool {
        !self.asked.is_empty()
    }

    /// The next reply, or a push message before it.
    pub(crate) fn read(&mut self) -> Result<ServerReply, Gone> {
        if let Some(Request::Hello) = self.asked.front() {
            self.asked.pop_front();
            return self.read_hello();
        }
        let (reply, out_of_band) =
            self.frame(|frame| (Value::from(frame), is_out_of_band(frame)))?;
        if !out_of_band {
            self.asked.pop_front().expect("something was asked");
        }
        Ok(ServerReply::Value(reply))
    }

    /// A push message that has already arrived. The connection must have no other bytes to read.
    pub(crate) fn overhear(&mut self) -> Result<Option<ServerReply>, Gone> {
        while !self.is_whole() {
            self.stream.set_nonblocking(true).unwrap();
            let messages = self.receive();
            self.stream.set_nonblocking(false).unwrap();
            if !messages? {
                return Ok(None);
            }
        }
        let (message, out_of_band) = self.take(|frame| (Value::from(frame), is_out_of_band(frame)));
        assert!(out_of_band, "a reply to no request: {message:?}");
        Ok(Some(ServerReply::Value(message)))
    }

    fn read_hello(&mut self) -> Result<ServerReply, Gone> {
        let (hello, mut greeting) = (Hello::default(), Greeting::default());
        let handshake = hello.handshake(true);
        let mut unfit = false;
        for index in 0..handshake.replies() {
            unfit |= self.frame(|frame| handshake.read(index, frame, &mut greeting))?.is_err();
        }
        Ok(if unfit {
            ServerReply::Value(Value::Error(b"unfit".into()))
        } else {
            ServerReply::Greeting(greeting)
        })
    }

    fn frame<T>(&mut self, with: impl FnOnce(&Frame<'_>) -> T) -> Result<T, Gone> {
        self.fill()?;
        Ok(self.take(with))
    }

    fn fill(&mut self) -> Result<(), Gone> {
        while !self.is_whole() {
            assert!(self.receive()?, "no reply within {TIMEOUT:?}");
        }
        Ok(())
    }

    fn is_whole(&self) -> bool {
        parse(&self.bytes, usize::MAX).expect("Redis's protocol").is_some()
    }

    fn take<T>(&mut self, with: impl FnOnce(&Frame<'_>) -> T) -> T {
        let (frame, used) = parse(&self.bytes, usize::MAX).unwrap().expect("complete");
        let value = with(&frame);
        self.bytes.drain(..used);
        value
    }

    /// Reads some bytes. Returns whether any arrived.
    fn receive(&mut self) -> Result<bool, Gone> {
        let mut chunk = [0; 4096];
        match self.stream.read(&mut chunk) {
            Ok(0) => Err(Gone),
            Ok(count) => {
                self.bytes.extend(&chunk[..count]);
                Ok(true)
            }
            Err(error) if silent(&error) => Ok(false),
            Err(_) => Err(Gone),
        }
    }

    /// Closes the connection. Returns `None` if nothing more can arrive.
    pub(crate) fn close(self, how: Leave) -> Option<Self> {
        match how {
            Leave::Half => {
                drop(self.stream.shutdown(Shutdown::Write));
                return Some(self);
            }
            Leave::Whole => {}
            Leave::Reset => {
                let socket = socket2::SockRef::from(&self.stream);
                socket.set_linger(Some(Duration::ZERO)).unwrap();
            }
        }
        None
    }
}

fn silent(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}
