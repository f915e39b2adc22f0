//! The full record of a run. The checker can check every property from it alone, again and
//! elsewhere. `history.jsonl` contains one [`Header`] and then one [`Record`] on each line.
//!
//! All times are nanoseconds on one clock since the run began, that is, since all clients were
//! ready. Earlier times are negative. A time that is not known exactly is a [`Window`]: it lies
//! within.
//!
//! [`Event`] is the closed list of events, [`Act`] the effect of a command on a key, also of the
//! lock's own commands. The orchestrator and the backend write histories. The checker and the
//! reports read them; the checker reads nothing else. This module checks nothing and reads no
//! clock.

use std::collections::HashSet;
use std::fmt;
use std::io::{self, BufRead, Write};
use std::time::Duration;

use super::client_protocol::{Capability, ClientReply, Request};
use super::name::Name;
use super::{AccessKind, Class, is_default};
use crate::Scenario;
use redquorum_protocol::wire::KeyEffect;
use redquorum_protocol::{Key, Token};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// The version of the history format.
pub const SCHEMA: u32 = 4;

/// Nanoseconds since the run began.
pub type Ns = i64;

/// The first line of the file.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The scenario of the run, with variants and counts spelled out.
    pub scenario: Scenario,
    /// The seed. Real masters and clients do not follow it.
    pub seed: u64,
    /// `process`, `container`, ….
    pub backend: String,
    /// The program that runs the masters, as readable text.
    pub masters: String,
    /// The command that starts the clients; none: the built-in client.
    pub client: Option<String>,
    /// The name and the version of the lock, as its clients announce them.
    pub lock: Option<String>,
    /// The version of the harness.
    pub harness: String,
    /// The number of lines that follow in the file, so that a missing one shows.
    pub records: Option<usize>,
}

impl Header {
    /// The header of a run of this version of the harness.
    pub fn new(scenario: Scenario, seed: u64, backend: &str, masters: String) -> Self {
        let (backend, harness) = (backend.to_owned(), env!("CARGO_PKG_VERSION").to_owned());
        let (client, lock, records) = (None, None, None);
        Self { schema: SCHEMA, scenario, seed, backend, masters, client, lock, harness, records }
    }

    /// Combines this header with the records of the run.
    #[must_use]
    pub fn with(self, records: Vec<Record>) -> History {
        History { header: self, records }
    }
}

/// One line of the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// When the event was recorded.
    pub ns: Ns,
    /// The event.
    #[serde(flatten)]
    pub event: Event,
}

/// The time between two instants, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Window {
    /// The earliest possible instant.
    pub from: Ns,
    /// The latest possible instant.
    pub to: Ns,
}

impl Window {
    /// From an instant to another one.
    pub const fn new(from: Ns, to: Ns) -> Self {
        Self { from, to }
    }

    /// An instant that is exactly known.
    pub const fn at(ns: Ns) -> Self {
        Self::new(ns, ns)
    }

    /// The window with its ends in the right order.
    pub fn tidy(self) -> Self {
        Self::new(self.from.min(self.to), self.from.max(self.to))
    }

    /// Whether it ends where it begins, or before.
    pub const fn is_empty(self) -> bool {
        self.from >= self.to
    }

    /// How long it is; never negative.
    pub fn length(self) -> Ns {
        if self.is_empty() { 0 } else { self.to.saturating_sub(self.from) }
    }

    /// Whether an instant lies in it.
    pub fn contains(self, at: Ns) -> bool {
        (self.from..=self.to).contains(&at)
    }

    /// The common part of both windows, if it is not empty: windows that only touch do not meet.
    pub fn meet(self, other: Self) -> Option<Self> {
        let both = Self::new(self.from.max(other.from), self.to.min(other.to));
        (!both.is_empty()).then_some(both)
    }

    /// Whether the windows have an instant in common, with the ends included. This is for
    /// obstacles, where a doubt counts.
    pub const fn touches(self, other: Self) -> bool {
        self.from <= other.to && other.from <= self.to
    }

    /// From the beginning of the earlier window to the end of the later one.
    pub fn and_what_is_between(self, other: Self) -> Self {
        Self::new(self.from.min(other.from), self.to.max(other.to))
    }
}

/// A whole run.
#[derive(Clone, Debug, PartialEq)]
pub struct History {
    /// The first line of the file.
    pub header: Header,
    /// The other lines, in the order in which they were recorded.
    pub records: Vec<Record>,
}

impl History {
    /// The duration of the run, from its beginning to its last record.
    pub fn length(&self) -> Option<Duration> {
        let last = self.records.last()?.ns;
        u64::try_from(last).ok().map(Duration::from_nanos)
    }

    /// Writes the history.
    ///
    /// # Errors
    /// Returns the errors of the writer.
    pub fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let header = Header { records: Some(self.records.len()), ..self.header.clone() };
        serde_json::to_writer(&mut *to, &header)?;
        for record in &self.records {
            to.write_all(b"\n")?;
            serde_json::to_writer(&mut *to, record)?;
        }
        to.write_all(b"\n")
    }

    /// Reads a history. If its last line was cut in half, the line is dropped, and the history has
    /// no end: it broke off.
    ///
    /// # Errors
    /// Returns why this program cannot read the file: it is not the whole and unchanged record of a
    /// run, or a run that broke off.
    pub fn read(mut from: impl BufRead) -> Result<Self, Unreadable> {
        let mut number = 0;
        let mut next = || {
            number += 1;
            let mut line = String::new();
            let defect =
                |why: &dyn fmt::Display| Unreadable::Defect(format!("line {number}: {why}"));
            let read = from.read_line(&mut line).map_err(|why| defect(&why))?;
            Ok((number, line, read > 0))
        };
        let (_, first, any) = next()?;
        if !any {
            return Err(Unreadable::Defect("it is empty".to_owned()));
        }
        let no_header = |why| Unreadable::Defect(format!("line 1 is no header: {why}"));
        // The schema comes first: the rest of an old header may be different, too.
        let Version { schema, harness } = serde_json::from_str(&first).map_err(no_header)?;
        if schema != SCHEMA {
            return Err(Unreadable::OtherSchema { schema, harness });
        }
        let header: Header = serde_json::from_str(&first).map_err(no_header)?;
        let mut course = Course::default();
        let mut records: Vec<Record> = Vec::new();
        loop {
            let (number, line, any) = next()?;
            if !any {
                break;
            }
            let defect =
                |why: &dyn fmt::Display| Unreadable::Defect(format!("line {number}: {why}"));
            let record: Record = match serde_json::from_str(&line) {
                Ok(record) => record,
                Err(_) if !line.ends_with('\n') => {
                    records.retain(|record| !record.event.is_end());
                    return Ok(Self { header, records });
                }
                Err(why) => return Err(defect(&why)),
            };
            course.take(&record).map_err(|why| defect(&why))?;
            records.push(record);
        }
        let ended = records.iter().any(|record| record.event.is_end());
        match header.records {
            Some(all) if all < records.len() || all > records.len() && ended => {
                let found = records.len();
                let why = format!("it has {found} of {all} lines after the header");
                Err(Unreadable::Defect(why))
            }
            _ => Ok(Self { header, records }),
        }
    }
}

/// The course of a run while its lines are read. A line that cannot come where it stands was moved,
/// or others are missing before it.
#[derive(Default)]
struct Course {
    now: Ns,
    phase: Option<Phase>,
    last_request: u64,
    open: HashSet<u64>,
}

impl Course {
    /// Takes the next record, or returns what is wrong with it.
    fn take(&mut self, record: &Record) -> Result<(), String> {
        let Record { ns, event } = record;
        if *ns < 0 {
            return Err(format!("its time is {ns}, before the run began"));
        }
        if *ns < self.now {
            return Err("it is earlier than the line before".to_owned());
        }
        self.now = *ns;
        match event {
            Event::Phase { phase } => {
                if self.phase.is_some_and(|before| before >= *phase) {
                    return Err("this phase is over".to_owned());
                }
                self.phase = Some(*phase);
            }
            Event::Requested(request) => {
                if request.id <= self.last_request {
                    return Err(format!("request {} was made before", request.id));
                }
                self.last_request = request.id;
                self.open.insert(request.id);
            }
            Event::Replied { reply, .. } if !self.open.remove(&reply.id) => {
                return Err(format!("it answers request {}, which is not open", reply.id));
            }
            Event::Command { sent, replied, delivered, .. } => {
                let times = [Some(*sent), *replied, *delivered];
                if !times.iter().flatten().is_sorted() {
                    return Err("its reply is earlier than its command".to_owned());
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// The part of a [`Header`] that every version of the format has.
#[derive(Deserialize)]
struct Version {
    schema: u32,
    harness: String,
}

/// Why a history cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// Another version of the program wrote it, in another format.
    OtherSchema {
        /// The [`SCHEMA`] of that format.
        schema: u32,
        /// The version of the program.
        harness: String,
    },
    /// The file is not a history. The text has the number of the line.
    Defect(String),
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherSchema { schema, harness } => write!(
                f,
                "it has schema {schema}, from redquorum-chaos {harness}, and this program, {}, \
                 reads schema {SCHEMA}",
                env!("CARGO_PKG_VERSION")
            ),
            Self::Defect(why) => f.write_str(why),
        }
    }
}

/// An event of a run. The list is closed: a reader needs to handle no others.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// A phase begins: `run`, `heal`, `final-acquire`, `drain`, `end`, in this order.
    Phase {
        /// The phase that begins.
        phase: Phase,
    },
    /// A client process is ready.
    Ready {
        /// The process.
        process: Name,
        /// The features that it supports.
        can: Vec<Capability>,
    },
    /// The harness sends a request to a client. Its number is unique in a run.
    Requested(Request),
    /// A client answers a request.
    Replied {
        /// The client.
        client: Name,
        /// The reply. Its stamps are times of the run.
        #[serde(flatten)]
        reply: ClientReply,
    },
    /// A client was notified that its lease is lost.
    Lost {
        /// The client.
        client: Name,
        /// The resource.
        resource: Name,
        /// When, by the client's own stamp.
        at: Ns,
    },
    /// A client's watchdog extended its lease, or a cancelled request did.
    Extended {
        /// The client.
        client: Name,
        /// The resource.
        resource: Name,
        /// The new deadline.
        deadline: Ns,
    },
    /// The caller of a request did not poll the future of its library for a while: as in a
    /// `select!` that runs another branch. A request for several resources has the number of the
    /// first.
    Unpolled {
        /// The client.
        client: Name,
        /// The number of the request.
        id: u64,
        /// When the caller stopped.
        from: Ns,
        /// When the caller polled the future again, or dropped it.
        to: Ns,
    },
    /// A client accessed a register, exactly at the time of this record.
    Touched {
        /// The client.
        client: Name,
        /// The register.
        register: Name,
        /// The kind of access.
        way: AccessKind,
        /// For a write, the version that it was based on. For other accesses, the version that was
        /// found.
        seen: u64,
        /// The version of the register after the access.
        version: u64,
        /// When the client sent the access, if it was delayed on the way.
        sent: Option<Ns>,
        /// The fencing token that came with the access.
        fence: Option<u64>,
        /// Whether the register refused: it had seen a larger token, or this token was never
        /// presented to it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        refused: bool,
    },
    /// A master received a command that touches a key. If the command took effect at all, it did so
    /// between `sent` and `replied`. Recorded when its result is known.
    Command {
        /// The client process that sent it.
        process: Name,
        /// The master.
        node: usize,
        /// The connection, unique in a run.
        connection: u64,
        /// The position of the command on the connection, from 1.
        number: u64,
        /// The effect of the command on a key.
        #[serde(flatten)]
        act: Act,
        /// When the command was passed on to the master.
        sent: Ns,
        /// When the master's reply arrived. None: no reply arrived; the master may have executed
        /// the command, or may still do so.
        replied: Option<Ns>,
        /// When the reply was passed on to the client; none: the reply was lost.
        delivered: Option<Ns>,
        /// The master's reply.
        result: Outcome,
        /// What the key's fencing counter stands at, by a reply that shows it. Only in virtual
        /// time.
        fence: Option<u64>,
    },
    /// A fault struck, or failed to strike.
    Struck {
        /// The number of the fault in the scenario, from 1.
        fault: usize,
        /// The masters that the fault hit.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        nodes: Vec<usize>,
        /// The processes that the fault hit.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        processes: Vec<Name>,
        /// When the fault struck.
        at: Window,
        /// Why the fault failed to strike.
        failed: Option<String>,
    },
    /// A fault is healed: the effect of the [`Event::Struck`] with the same number is undone.
    Healed {
        /// The number of the fault.
        fault: usize,
        /// When the fault was healed.
        at: Window,
        /// Why the healing failed.
        failed: Option<String>,
    },
    /// The state that a master kept over a fault that may have made it forget. It has everything
    /// that it executed before `until`, and nothing that it executed after. Recorded before
    /// [`Event::Struck`].
    Kept {
        /// The number of the fault.
        fault: usize,
        /// The master.
        node: usize,
        /// The instant up to which the master's state was kept.
        until: Window,
    },
    /// A setting of a master's wall clock. From `since` on, the clock shows
    /// `real + ahead + (now - since) * (rate - 1)`. In every odd interval of `strobe_every` since
    /// then, it shows `strobe_by` more. Real time passes at the rate of the run's clock.
    Clock {
        /// The master.
        node: usize,
        /// When the setting began.
        since: Window,
        /// How far the clock is ahead.
        ahead: Ns,
        /// The rate of the clock, in seconds per second.
        rate: f64,
        /// How far the clock jumps.
        #[serde(default, skip_serializing_if = "is_default")]
        strobe_by: Ns,
        /// How long the clock stays there.
        #[serde(default, skip_serializing_if = "is_default")]
        strobe_every: Ns,
    },
    /// A client process ended without a request to do so, or violated the protocol.
    Broken {
        /// The process.
        process: Name,
        /// How the process failed.
        why: String,
    },
    /// The keys of a master at the end of the run; none: the master could not be asked.
    Keys {
        /// The master.
        node: usize,
        /// The keys.
        #[serialize_always]
        keys: Option<Vec<LeftKey>>,
    },
}

impl Event {
    /// Whether the run is over.
    pub const fn is_end(&self) -> bool {
        matches!(self, Self::Phase { phase: Phase::End })
    }
}

/// A phase of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// The scripts and the faults run.
    Run,
    /// All faults are healed.
    Heal,
    /// Final acquires: each client process that lives acquires each resource once more.
    FinalAcquire,
    /// Drain: pending clean-ups complete, and keys that are left expire.
    Drain,
    /// The run is over.
    End,
}

/// The effect of a command on a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "act", rename_all = "kebab-case")]
pub enum Act {
    /// Sets the key if it does not exist.
    Set {
        /// The key.
        key: Name,
        /// The value.
        token: Name,
        /// The TTL; none: the key never expires.
        ttl_ms: Option<u64>,
        /// Whether the value is one of those that share the key: others may be there too. If an
        /// exclusive value is there, nothing is set.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        shared: bool,
    },
    /// Prolongs the key if it has this value; may create it.
    Keep {
        /// The key.
        key: Name,
        /// The value that the key must have; none: any.
        token: Option<Name>,
        /// The new TTL, from now on.
        ttl_ms: Option<u64>,
        /// Whether the value is one of those that share the key.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        shared: bool,
    },
    /// Deletes the key if it has this value.
    Delete {
        /// The key.
        key: Name,
        /// The value that the key must have; none: any.
        token: Option<Name>,
    },
    /// Raises the key's fencing counter if the key has this value, and leaves the key as it is.
    Certify {
        /// The key.
        key: Name,
        /// The value that the key must have; none: any.
        token: Option<Name>,
    },
    /// Any other command: its effect is unknown.
    Other {
        /// The first key that the command names, if any.
        key: Option<Name>,
        /// The name of the command.
        command: Name,
    },
}

impl Act {
    /// The key that the command touches.
    pub fn key(&self) -> Option<&str> {
        match self {
            Self::Set { key, .. }
            | Self::Keep { key, .. }
            | Self::Delete { key, .. }
            | Self::Certify { key, .. } => Some(key),
            Self::Other { key, .. } => key.as_deref(),
        }
    }

    /// Whether the command sets or prolongs a value that shares its key with others.
    pub const fn is_shared(&self) -> bool {
        matches!(self, Self::Set { shared: true, .. } | Self::Keep { shared: true, .. })
    }

    /// The value that the command sets or compares with.
    pub fn token(&self) -> Option<&str> {
        match self {
            Self::Set { token, .. } => Some(token),
            Self::Keep { token, .. } | Self::Delete { token, .. } | Self::Certify { token, .. } => {
                token.as_deref()
            }
            Self::Other { .. } => None,
        }
    }
}

/// The reply of a master to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The command took effect: the key is set, prolonged, deleted or certified.
    Done,
    /// `Keep` only: the key was missing and was created.
    Created,
    /// The command had no effect: the key exists, has another value, or is missing.
    Refused,
    /// The master replied with an error.
    Error,
    /// The master sent no reply.
    Silent,
}

/// A key that is left at the end of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftKey {
    /// The name of the key.
    pub key: Name,
    /// The value of the key, as in [`Event::Command`].
    pub value: Name,
    /// The rest of its TTL; none: it has no TTL.
    pub ttl_ms: Option<u64>,
}

/// The tokens that share a key and are not over, each with the rest of its time. They come with
/// their ends, and the key, which is left for `ttl_ms`, ends with the last of them.
pub fn left_of_each<T>(ends: Vec<(T, u64)>, ttl_ms: u64) -> impl Iterator<Item = (T, u64)> {
    let last = ends.iter().map(|(_, end)| *end).max().unwrap_or_default();
    ends.into_iter().filter_map(move |(token, end)| Some((token, ttl_ms.checked_sub(last - end)?)))
}

/// What the tokens begin with that a client can mean by this text, if it reports only the start of
/// one: `1a2b…` means one that begins with the bytes 1a 2b.
pub fn start_of_token(reported: &str) -> Option<String> {
    reported.strip_suffix('…').map(|digits| format!("hex:{digits}"))
}

/// The text of a token or a key: the bytes themselves if they are plain text, else `hex:…`.
pub fn text_of(bytes: &[u8]) -> Name {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.starts_with("hex:") && !text.chars().any(char::is_control) => text.into(),
        _ => {
            let mut hex = vec![0; 4 + 2 * bytes.len()];
            hex[..4].copy_from_slice(b"hex:");
            let (pairs, _) = hex[4..].as_chunks_mut();
            for (pair, byte) in pairs.iter_mut().zip(bytes) {
                *pair = [byte >> 4, byte & 15].map(|half| DIGITS[usize::from(half)]);
            }
            match std::str::from_utf8(&hex) {
                Ok(hex) => hex.into(),
                Err(_) => unreachable!("digits are text"),
            }
        }
    }
}

const DIGITS: &[u8; 16] = b"0123456789abcdef";

impl Act {
    /// The effect of a command of the lock on a key, if it has one. `key` and `token` give the
    /// texts for the history.
    pub fn of(
        effect: KeyEffect<'_>,
        key: impl FnOnce(&Key) -> Name,
        token: impl FnOnce(Token) -> Name,
    ) -> Option<Self> {
        Some(match effect {
            KeyEffect::None | KeyEffect::Queue => return None,
            KeyEffect::Set { key: of, token: to, ttl_ms } => {
                let (ttl_ms, shared) = (Some(ttl_ms), to.is_shared());
                Self::Set { key: key(of), token: token(to), ttl_ms, shared }
            }
            KeyEffect::Keep { key: of, token: compared, ttl_ms } => {
                let (ttl_ms, shared) = (Some(ttl_ms), compared.is_shared());
                Self::Keep { key: key(of), token: Some(token(compared)), ttl_ms, shared }
            }
            KeyEffect::Delete { key: of, token: compared } => {
                Self::Delete { key: key(of), token: Some(token(compared)) }
            }
            KeyEffect::Certify { key: of, token: compared } => {
                Self::Certify { key: key(of), token: Some(token(compared)) }
            }
        })
    }

    /// The same effect of a command that compares no value.
    pub fn uncompared(mut self) -> Self {
        if let Self::Keep { token, .. } | Self::Delete { token, .. } | Self::Certify { token, .. } =
            &mut self
        {
            *token = None;
        }
        self
    }
}

impl Class {
    /// The class of a command of the lock with this effect.
    pub const fn of(effect: KeyEffect<'_>) -> Self {
        match effect {
            KeyEffect::Set { .. } | KeyEffect::Certify { .. } => Self::Acquire,
            KeyEffect::Keep { .. } => Self::Extend,
            KeyEffect::Delete { .. } => Self::Release,
            KeyEffect::Queue => Self::Queue,
            KeyEffect::None => Self::Any,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client_protocol::{ClientReply, Op, Request};

    /// A run with one request, as a file.
    fn file() -> String {
        let text =
            "name = \"x\"\nabout = \"A test.\"\n[[client]]\nid = \"c1\"\nscript = [\"acquire L\"]";
        let op = Op::Release { resource: "L".into() };
        let reply = ClientReply { id: 1, ok: true, ..ClientReply::default() };
        let events = [
            Event::Phase { phase: Phase::Run },
            Event::Requested(Request { id: 1, client: "c1".into(), op }),
            Event::Replied { client: "c1".into(), reply },
            Event::Phase { phase: Phase::End },
        ];
        let records = events.into_iter().zip(0..).map(|(event, ns)| Record { ns, event });
        let header = Header::new(crate::read("x.toml", text).unwrap(), 0, "sim", String::new());
        let mut file = Vec::new();
        header.with(records.collect()).write(&mut file).unwrap();
        String::from_utf8(file).unwrap()
    }

    fn read(lines: &[&str]) -> Result<usize, String> {
        let file = lines.join("\n") + "\n";
        let read = History::read(file.as_bytes());
        read.map(|history| history.records.len()).map_err(|why| why.to_string())
    }

    #[test]
    fn only_the_whole_record_of_a_run_is_read() {
        let file = file();
        let lines: Vec<&str> = file.lines().collect();
        let [header, run, asks, replies, end] = lines[..] else { panic!("{file}") };
        assert_eq!(read(&lines), Ok(4));
        let of = |lines: &[&str]| read(lines).unwrap_err();
        assert_eq!(of(&[header, run, asks, end]), "it has 3 of 4 lines after the header");
        assert_eq!(
            of(&[header, run, replies, end]),
            "line 3: it answers request 1, which is not open"
        );
        assert_eq!(
            of(&[header, run, replies, asks, end]),
            "line 3: it answers request 1, which is not open"
        );
        assert_eq!(
            of(&[header, asks, run, replies, end]),
            "line 3: it is earlier than the line before"
        );
        assert_eq!(
            of(&[header, run, asks, asks, replies, end]),
            "line 4: request 1 was made before"
        );
        let negative = run.replace("\"ns\":0", "\"ns\":-1");
        assert_eq!(of(&[header, &negative]), "line 2: its time is -1, before the run began");
        let other = header.replace("\"schema\":4", "\"schema\":3");
        assert!(of(&[&other]).contains("it has schema 3, from redquorum-chaos "));
    }

    #[test]
    fn a_last_line_that_was_cut_in_half_is_dropped() {
        let file = file();
        let cut = |bytes: usize| {
            let history = History::read(&file.as_bytes()[..file.len() - bytes]).unwrap();
            let ended = history.records.iter().any(|record| record.event.is_end());
            (history.records.len(), ended)
        };
        assert_eq!((cut(1), cut(2)), ((4, true), (3, false)));
        // A run that broke off, with whole lines.
        let end = file.lines().next_back().unwrap().len() + 1;
        assert_eq!(cut(end), (3, false));
    }
}
