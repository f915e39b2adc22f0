//! The full record of a run. The checker can check every property from it alone, again and
//! elsewhere. `history.jsonl` contains one [`Header`] and then one [`Record`] on each line.
//!
//! All times are nanoseconds on one clock since the run began, that is, since all clients were
//! ready. Earlier times are negative. A time that is not known exactly is a [`Window`]: it lies
//! within.
//!
//! `event.rs` has the closed list of events, `command.rs` the effect of a command on a key, and
//! `lock_command.rs` what the lock's own commands do. The orchestrator and the backend write
//! histories. The checker and the reports read them; the checker reads nothing else. This module
//! checks nothing and reads no clock.

use std::fmt;
use std::io::{self, BufRead, Write};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::Scenario;

mod command;
mod event;
mod lock_command;

pub use command::{Act, LeftKey, Outcome, text_of};
pub use event::{Event, Phase};

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
    /// The version of the harness.
    pub harness: String,
}

impl Header {
    /// The header of a run of this version of the harness.
    pub fn new(scenario: Scenario, seed: u64, backend: &str, masters: String) -> Self {
        let (backend, harness) = (backend.to_owned(), env!("CARGO_PKG_VERSION").to_owned());
        Self { schema: SCHEMA, scenario, seed, backend, masters, client: None, harness }
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
        serde_json::to_writer(&mut *to, &self.header)?;
        for record in &self.records {
            to.write_all(b"\n")?;
            serde_json::to_writer(&mut *to, record)?;
        }
        to.write_all(b"\n")
    }

    /// Reads a history.
    ///
    /// # Errors
    /// Returns why this program cannot read the file.
    pub fn read(from: impl BufRead) -> Result<Self, Unreadable> {
        let defect = |number: usize| {
            move |why: &dyn fmt::Display| Unreadable::Defect(format!("line {number}: {why}"))
        };
        let mut lines = from.lines().enumerate();
        let Some((_, first)) = lines.next() else {
            return Err(Unreadable::Defect("it is empty".to_owned()));
        };
        let first = first.map_err(|why| defect(1)(&why))?;
        let no_header = |why| Unreadable::Defect(format!("line 1 is no header: {why}"));
        // The schema comes first: the rest of an old header may be different, too.
        let Version { schema, harness } = serde_json::from_str(&first).map_err(no_header)?;
        if schema != SCHEMA {
            return Err(Unreadable::OtherSchema { schema, harness });
        }
        let header = serde_json::from_str(&first).map_err(no_header)?;
        let mut records = Vec::new();
        for (index, line) in lines {
            let line = line.map_err(|why| defect(index + 1)(&why))?;
            records.push(serde_json::from_str(&line).map_err(|why| defect(index + 1)(&why))?);
        }
        Ok(Self { header, records })
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
