//! Shell: the loop that drives lying claims, and honest links, on real masters.
//!
//! One thread decides everything: it waits for the next line, the next bytes, or the next wake-up.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::convert::Infallible;
use std::io::{BufRead, stdin};
use std::net::TcpStream;
use std::process::exit;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redquorum_protocol::wire::{Command, Greeting};
use redquorum_protocol::{
    Answer, Backoff, Bounds, Cause, Dice, Drift, Effect, Input, Key, Link, LinkEffect, LinkInput,
    NodeId, Step, TOKEN_LEN, Terms, Time, Token,
};

use super::claim::{Clocks, LyingClaim};
use super::lie::Lie;
use super::talk::Lease;
use super::wires::{Wire, dial, send_again};
use crate::client::settings;
use crate::client::voice::Voice;
use crate::name::Name;
use crate::stamp;
use crate::talk::{Can, Notice, Options, PROTOCOL};

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(1);

/// What happens to the loop.
pub(super) enum Event {
    /// The harness said something.
    Line(String),
    /// A connection came up, or did not.
    Dialled { node: usize, epoch: u64, opened: Result<(TcpStream, Greeting), String> },
    /// A master said something.
    Bytes { node: usize, epoch: u64, bytes: Vec<u8> },
    /// A connection broke.
    Closed { node: usize, epoch: u64, why: String },
}

/// What a link gets back with an answer: the number of the claim, and what was asked.
type Tag = (u64, Step);

pub(super) struct Shell {
    pub(super) lie: Lie,
    pub(super) options: Options,
    urls: Vec<String>,
    links: Vec<Link<Tag>>,
    wires: Vec<Vec<Wire>>,
    pub(super) leases: BTreeMap<u64, Lease>,
    /// Who holds what, by the number of the claim.
    pub(super) held: HashMap<(Name, Name), u64>,
    /// One token for each client, of which its others are made if it has but one.
    roots: HashMap<Name, Token>,
    /// Answers that claims are yet to be told. Never told at once: a claim that fails in the middle of
    /// its own effects would have its clean-up written before its last SET.
    told: VecDeque<(u64, Input)>,
    events: Sender<Event>,
}

/// Randomness from the system.
pub(super) struct SystemDice;

impl Dice for SystemDice {
    fn token(&mut self) -> Token {
        Token::new(rand::random::<[u8; TOKEN_LEN]>())
    }

    fn pause(&mut self, attempt: u32) -> Duration {
        Backoff::default().pause(attempt, rand::random())
    }
}

/// Speaks the client protocol on standard input and output, with a lie; ends when its input does.
///
/// # Errors
/// The environment is not what the harness makes of it.
pub fn run(lie: Lie) -> Result<Infallible, String> {
    let (urls, options) = settings::read()?;
    let (out, events) = channel();
    let lines = out.clone();
    thread::spawn(move || {
        for line in stdin().lock().lines().map_while(Result::ok) {
            // The loop lives as long as the process.
            let _ = lines.send(Event::Line(line));
        }
        exit(0);
    });
    let mut shell = Shell {
        lie,
        urls,
        links: Vec::new(),
        wires: Vec::new(),
        leases: BTreeMap::new(),
        held: HashMap::new(),
        roots: HashMap::new(),
        told: VecDeque::new(),
        events: out,
        options,
    };
    shell.terms(shell.options.ttl_ms)?;
    shell.start();
    shell.turn(&events)
}

impl Shell {
    fn start(&mut self) {
        let bounds = Bounds::for_node_timeout(self.node_timeout());
        for node in 0..self.urls.len() {
            let mut effects = Vec::new();
            self.links.push(Link::start(bounds, &mut effects));
            self.wires.push(Vec::new());
            self.carry_out(node, effects);
        }
    }

    fn turn(&mut self, events: &Receiver<Event>) -> ! {
        let mut ready = false;
        loop {
            while let Some((number, input)) = self.told.pop_front() {
                self.drive(number, input);
            }
            if !ready && !self.links.iter().any(Link::is_first_dial) {
                ready = true;
                self.say_ready();
            }
            let event = match self.sleeps() {
                Some(sleep) => events.recv_timeout(sleep),
                None => events.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match event {
                Ok(event) => self.happen(event),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    unreachable!("the loop itself can send events")
                }
            }
            self.wake();
        }
    }

    fn say_ready(&self) {
        let can = vec![Can::Deadline, Can::Extend, Can::Wait, Can::KeepAlive, Can::Lost];
        let name = Some(format!("mutant {}", self.lie));
        Voice.tell(&Notice::Ready { protocol: PROTOCOL, can, name });
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Line(line) => match serde_json::from_str(&line) {
                Ok(request) => self.request(request),
                Err(why) => Voice.refuse_line(&line, &why),
            },
            Event::Dialled { node, epoch, opened } if self.links[node].awaits(epoch) => {
                match opened {
                    Ok((stream, Greeting { client_id, run_id })) => {
                        self.wires[node].push(Wire::new(epoch, stream));
                        self.link(node, LinkInput::Connected { epoch, client_id, run_id });
                    }
                    Err(why) => self.closed(node, epoch, &why),
                }
            }
            // The link has changed its mind: the connection is dropped.
            Event::Dialled { .. } => {}
            Event::Bytes { node, epoch, bytes } => {
                if let Some(wire) = self.wire(node, epoch) {
                    wire.arrived(&bytes);
                    self.read(node, epoch);
                }
            }
            Event::Closed { node, epoch, why } => self.closed(node, epoch, &why),
        }
    }

    fn wire(&mut self, node: usize, epoch: u64) -> Option<&mut Wire> {
        self.wires[node].iter_mut().find(|wire| wire.epoch == epoch)
    }

    fn closed(&mut self, node: usize, epoch: u64, why: &str) {
        self.wires[node].retain(|wire| wire.epoch != epoch);
        let random = rand::random();
        self.link(node, LinkInput::Closed { epoch, why: Arc::from(why), random });
    }

    /// Gives the link the answers that have come.
    fn read(&mut self, node: usize, epoch: u64) {
        loop {
            let oldest = self.links[node].oldest();
            let Some(wire) = self.wire(node, epoch) else { return };
            let answer = match wire.first() {
                Ok(None) => return,
                Ok(Some((frame, length))) => {
                    // An answer to no command is for the link to judge.
                    let answer = oldest.map_or(Answer::Alive, |(expect, _)| expect.read(&frame));
                    wire.consume(length);
                    answer
                }
                Err(_) => Answer::Unknown(Cause::Garbage),
            };
            self.link(node, LinkInput::Answered { epoch, answer });
        }
    }

    fn link(&mut self, node: usize, input: LinkInput<Tag>) {
        let mut effects = Vec::new();
        self.links[node].handle(now(), input, &mut effects);
        self.carry_out(node, effects);
    }

    fn carry_out(&mut self, node: usize, effects: Vec<LinkEffect<Tag>>) {
        for effect in effects {
            match effect {
                LinkEffect::Write(command) => {
                    let lie = self.lie;
                    if lie == Lie::SendsAgain && matches!(command, Command::Set { .. }) {
                        let mut bytes = Vec::new();
                        lie.encode(&command, &mut bytes);
                        send_again(self.urls[node].clone(), bytes, CONNECT);
                    }
                    if let Some(epoch) = self.links[node].epoch()
                        && let Some(wire) = self.wire(node, epoch)
                    {
                        lie.encode(&command, wire.outgoing());
                    }
                }
                LinkEffect::Dial(epoch) => {
                    let limit = CONNECT.max(self.node_timeout());
                    dial(self.urls[node].clone(), (node, epoch), limit, self.events.clone());
                }
                LinkEffect::Close(epoch) => self.wires[node].retain(|wire| wire.epoch != epoch),
                LinkEffect::Tell((number, step), answer) => {
                    let node = NodeId::new(node);
                    self.told.push_back((number, Input::Answered { node, step, answer }));
                }
                other => unreachable!("an effect that this shell does not know: {other:?}"),
            }
        }
        for wire in &mut self.wires[node] {
            if let Err(why) = wire.flush() {
                let (epoch, why) = (wire.epoch, why.to_string());
                // Not now: the link is told of it by the loop, like of any other end.
                let _ = self.events.send(Event::Closed { node, epoch, why });
            }
        }
    }

    /// Gives a claim one input, carries out what it says, and tells what came of it.
    pub(super) fn drive(&mut self, number: u64, input: Input) {
        self.advance(number, input);
        self.attend(number);
    }

    /// Gives a claim one input and carries out what it says.
    pub(super) fn advance(&mut self, number: u64, input: Input) {
        let Some(lease) = self.leases.get_mut(&number) else { return };
        let mut effects = Vec::new();
        lease.claim.handle(clocks(), input, &mut SystemDice, &mut effects);
        let key = lease.key.clone();
        self.send(number, &key, effects);
    }

    pub(super) fn send(&mut self, number: u64, key: &Key, effects: Vec<Effect>) {
        for effect in effects {
            let key = key.clone();
            match effect {
                Effect::Send { node, step, ask } => {
                    self.link(node.index(), LinkInput::Send { key, ask, tag: (number, step) });
                }
                Effect::Settle { node, step, token } => {
                    self.link(node.index(), LinkInput::Settle { key, token, tag: (number, step) });
                }
                // Whoever waits for the claim looks at it after every input.
                _ => {}
            }
        }
    }

    fn sleeps(&self) -> Option<Duration> {
        let (now, clocks) = (now(), clocks());
        let links = self.links.iter().map(Link::next_wake).filter(|wake| *wake != Time::NEVER);
        let links = links.map(|wake| wake.since(now));
        links.chain(self.leases.values().filter_map(|lease| lease.claim.sleeps(clocks))).min()
    }

    /// Wakes what is due.
    fn wake(&mut self) {
        for node in 0..self.links.len() {
            if self.links[node].next_wake() <= now() {
                self.link(node, LinkInput::Wake);
            }
        }
        let clocks = clocks();
        let due = |claim: &LyingClaim| claim.sleeps(clocks) == Some(Duration::ZERO);
        let due = self.leases.iter().filter(|(_, lease)| due(&lease.claim));
        for number in due.map(|(number, _)| *number).collect::<Vec<_>>() {
            self.drive(number, Input::Wake);
        }
    }

    fn node_timeout(&self) -> Duration {
        Duration::from_millis(self.options.node_timeout_ms)
    }

    /// The terms of a request.
    pub(super) fn terms(&self, ttl_ms: u64) -> Result<Terms, String> {
        let fixed = Duration::from_millis(self.options.drift_ms);
        let drift = self.lie.drift(Drift { ppm: self.options.drift_ppm, fixed });
        let ttl = Duration::from_millis(ttl_ms);
        Terms::new(self.urls.len(), ttl, drift, self.node_timeout()).map_err(|bad| bad.to_string())
    }

    pub(super) fn root(&mut self, client: &str) -> Token {
        *self.roots.entry(client.into()).or_insert_with(|| SystemDice.token())
    }
}

fn now() -> Time {
    Time::from_nanos(u64::try_from(stamp::now()).unwrap_or(0))
}

/// What the clocks show. The wall clock is asked through libc, where it can be preloaded.
pub(super) fn clocks() -> Clocks {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // Nobody suspends the machine of a real run.
    Clocks { monotonic: now(), awake: now(), wall: Time::ZERO.plus(wall) }
}
