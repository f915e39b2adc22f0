//! What happened in a run, in full: every layer can be judged from it alone, again and elsewhere.
//! `history.jsonl` is a [`Header`] and then one [`Record`] a line.
//!
//! All times are nanoseconds since the run began (all clients were ready), on one clock; what came
//! before is negative. Where an instant is not known exactly it is a [`Window`]: it lies within.
//!
//! `event.rs` is the closed list of what can happen, `command.rs` what a command is to a key,
//! `file.rs` reads and writes. The director and the backend write histories; the judge, which reads
//! nothing else, and the reports read them. Here nothing is judged, and no clock is read.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::scenario::Scenario;

mod command;
mod event;
mod file;

pub use command::{Act, Left, Outcome, text_of};
pub use event::{Event, Phase};

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
    /// The seed. Real masters and clients do not follow it.
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

impl Header {
    /// The whole run.
    #[must_use]
    pub fn with(self, records: Vec<Record>) -> History {
        History { header: self, records }
    }
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

/// A whole run.
#[derive(Clone, Debug, PartialEq)]
pub struct History {
    /// Its first line.
    pub header: Header,
    /// The others, in the order in which they were recorded.
    pub records: Vec<Record>,
}
