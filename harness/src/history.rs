//! What happened in a run, in full: every layer can be judged from it alone, again and elsewhere.
//! `history.jsonl` is a [`Header`] and then one [`Record`] a line.
//!
//! All times are nanoseconds since the run began (all clients were ready), on one clock; what came
//! before is negative. Where an instant is not known exactly it is a [`Window`]: it lies within.

use std::io::{self, BufRead, Write};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::scenario::{Harm, Scenario, Way};
use crate::talk::{Can, Why};

/// The version of the format.
pub const SCHEMA: u32 = 1;

/// Nanoseconds since the run began.
pub type Ns = i64;

/// The first line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// [`SCHEMA`].
    pub schema: u32,
    /// What was run, variants and counts spelled out.
    pub scenario: Scenario,
    /// The seed.
    pub seed: u64,
    /// `process`, `container`, ….
    pub backend: String,
    /// What ran the masters, for people.
    pub masters: String,
    /// The clients' command; none: the built-in one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// The version of the harness.
    pub harness: String,
}

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// When it was recorded.
    pub ns: Ns,
    /// What.
    #[serde(flatten)]
    pub event: Event,
}

/// Between two instants, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Window {
    /// Not before.
    pub from: Ns,
    /// Not after.
    pub to: Ns,
}

/// What happened. The list is closed: a reader need know no others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// The run goes through `run`, `heal`, `witness`, `settle`, `end`.
    Phase {
        /// Which begins.
        phase: Phase,
    },
    /// A client process is ready.
    Ready {
        /// Which.
        process: String,
        /// What it can do.
        can: Vec<Can>,
    },
    /// A client is told to do something.
    Asked {
        /// Who.
        client: String,
        /// The request's number, unique in a run.
        id: u64,
        /// `acquire`, `extend`, `keep_alive`, `release`, `cancel`, `step`.
        op: String,
        /// The resource of the lease; of a step the one that is checked.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        resource: Option<String>,
        /// The TTL.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ttl_ms: Option<u64>,
        /// How long it may wait.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        wait_ms: Option<u64>,
    },
    /// A client answered.
    Answered {
        /// Who.
        client: String,
        /// To which request.
        id: u64,
        /// Whether it was done.
        ok: bool,
        /// The lock's value, as in [`Event::Command`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        token: Option<String>,
        /// When it called its library, if it says so.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<Ns>,
        /// When its library returned, if it says so.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at: Option<Ns>,
        /// The deadline of the lease, if it says so.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deadline: Option<Ns>,
        /// What is left of the lease, if it says that instead.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        valid_ms: Option<u64>,
        /// The fencing token.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fence: Option<u64>,
        /// Why not.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<Why>,
        /// The same for people.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        text: Option<String>,
    },
    /// A client was told that its lease is lost.
    Lost {
        /// Who.
        client: String,
        /// Which resource.
        resource: String,
        /// When, by its own stamp.
        at: Ns,
    },
    /// A client's watchdog extended its lease.
    Extended {
        /// Who.
        client: String,
        /// Which resource.
        resource: String,
        /// The new deadline.
        deadline: Ns,
    },
    /// A register was touched, at this very time.
    Touched {
        /// By whom.
        client: String,
        /// Which.
        register: String,
        /// Which way.
        way: Way,
        /// Read: the version that was found. Write: the version that it was based on.
        seen: u64,
        /// The version that is there now.
        version: u64,
    },
    /// A command that touches a key, at a master: it took effect, if at all, within the window.
    /// Recorded when its fate is known.
    Command {
        /// Whose.
        process: String,
        /// Which master.
        node: usize,
        /// The connection, unique in a run.
        connection: u64,
        /// Its place on the connection, from 1.
        number: u64,
        /// What it does.
        #[serde(flatten)]
        act: Act,
        /// When it was passed on to the master.
        sent: Ns,
        /// When the master's reply came; none: it never did, and the command may have been
        /// executed or may be yet.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        replied: Option<Ns>,
        /// When the reply was passed on to the client; none: it was lost.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        delivered: Option<Ns>,
        /// What the master said.
        result: Outcome,
    },
    /// A fault struck, or failed to.
    Struck {
        /// Its number in the scenario, from 1.
        fault: usize,
        /// What it does.
        harm: Harm,
        /// The masters that it hit.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        nodes: Vec<usize>,
        /// The processes that it hit.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        processes: Vec<String>,
        /// When.
        at: Window,
        /// Why it failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failed: Option<String>,
    },
    /// A fault was cured: what [`Event::Struck`] of the same number did is undone.
    Cured {
        /// Its number.
        fault: usize,
        /// When.
        at: Window,
        /// Why that failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failed: Option<String>,
    },
    /// From now on, the wall clock of a master shows `real + ahead + (now - since) * (rate - 1)`,
    /// and in every odd stretch of `strobe_every` since then `strobe_by` more. Real time passes as
    /// the run's does.
    Clock {
        /// Which master.
        node: usize,
        /// Since when.
        since: Window,
        /// How far it is ahead.
        ahead: Ns,
        /// Its seconds per second.
        rate: f64,
        /// How far it jumps.
        #[serde(default, skip_serializing_if = "is_zero")]
        strobe_by: Ns,
        /// How long it stays there.
        #[serde(default, skip_serializing_if = "is_zero")]
        strobe_every: Ns,
    },
    /// A client process came to an end that nobody asked for, or does not keep to the protocol.
    Broken {
        /// Which.
        process: String,
        /// What it did.
        why: String,
    },
    /// The keys of a master at the end of the run; none: it could not be asked.
    Keys {
        /// Which master.
        node: usize,
        /// What is there.
        keys: Option<Vec<Left>>,
    },
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants a reference")]
const fn is_zero(value: &Ns) -> bool {
    *value == 0
}

/// A part of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// The scripts and the faults.
    Run,
    /// Everything is cured.
    Heal,
    /// Each client process that lives acquires each resource once more.
    Witness,
    /// What is owed is paid, what is left expires.
    Settle,
    /// Nothing more.
    End,
}

/// What a command does to a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "act", rename_all = "kebab-case")]
pub enum Act {
    /// Sets it if it does not exist.
    Set {
        /// Which.
        key: String,
        /// Its value.
        token: String,
        /// For how long; none: for ever.
        ttl_ms: Option<u64>,
    },
    /// Prolongs it if it has this value; may create it.
    Keep {
        /// Which.
        key: String,
        /// The value that it must have; none: any.
        token: Option<String>,
        /// For how long from now.
        ttl_ms: Option<u64>,
    },
    /// Deletes it if it has this value.
    Delete {
        /// Which.
        key: String,
        /// The value that it must have; none: any.
        token: Option<String>,
    },
    /// Something else: who knows.
    Other {
        /// The first key that it names, if any.
        key: Option<String>,
        /// Its name.
        command: String,
    },
}

impl Act {
    /// The key that it touches.
    pub fn key(&self) -> Option<&str> {
        match self {
            Self::Set { key, .. } | Self::Keep { key, .. } | Self::Delete { key, .. } => Some(key),
            Self::Other { key, .. } => key.as_deref(),
        }
    }
}

/// What a master said to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It did it: the key is set, prolonged, deleted.
    Done,
    /// `Keep` only: the key was missing and was created.
    Created,
    /// It did not: the key exists, is another's, is missing.
    Refused,
    /// It said that it made an error.
    Error,
    /// It said nothing.
    Silent,
}

/// A key that is left at the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Left {
    /// Its name.
    pub key: String,
    /// Its value, as in [`Event::Command`].
    pub value: String,
    /// What is left of its TTL; none: it has none.
    pub ttl_ms: Option<u64>,
}

/// A whole run.
#[derive(Clone, Debug, PartialEq)]
pub struct History {
    /// Its first line.
    pub header: Header,
    /// The others, in the order in which they were recorded.
    pub records: Vec<Record>,
}

impl History {
    /// Writes it.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write(&self, to: &mut impl Write) -> io::Result<()> {
        serde_json::to_writer(&mut *to, &self.header)?;
        for record in &self.records {
            to.write_all(b"\n")?;
            serde_json::to_writer(&mut *to, record)?;
        }
        to.write_all(b"\n")
    }

    /// Reads it.
    ///
    /// # Errors
    /// What is wrong with it, with the number of the line.
    pub fn read(from: impl BufRead) -> Result<Self, String> {
        let mut lines = from.lines().enumerate();
        let Some((_, first)) = lines.next() else { return Err("it is empty".to_owned()) };
        let first = first.map_err(|why| why.to_string())?;
        let header: Header =
            serde_json::from_str(&first).map_err(|why| format!("line 1 is no header: {why}"))?;
        if header.schema != SCHEMA {
            let found = header.schema;
            return Err(format!("it has schema {found}, and this program reads {SCHEMA}"));
        }
        let mut records = Vec::new();
        for (index, line) in lines {
            let line = line.map_err(|why| format!("line {}: {why}", index + 1))?;
            let record =
                serde_json::from_str(&line).map_err(|why| format!("line {}: {why}", index + 1))?;
            records.push(record);
        }
        Ok(Self { header, records })
    }
}

/// The text of a token or a key: itself if it is plain text, else `hex:…`.
pub fn text_of(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.starts_with("hex:") && !text.chars().any(char::is_control) => {
            text.to_owned()
        }
        _ => bytes.iter().fold("hex:".to_owned(), |hex, byte| hex + &format!("{byte:02x}")),
    }
}
