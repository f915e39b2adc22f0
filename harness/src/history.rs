//! The full record of a run. The checker can check every property from it alone, again and
//! elsewhere. `history.jsonl` contains one [`Header`] and then one [`Record`] on each line.
//!
//! All times are nanoseconds on one clock since the run began, that is, since all clients were
//! ready. Earlier times are negative. A time that is not known exactly is a [`Window`]: it lies
//! within.
//!
//! `event.rs` has the closed list of events, `command.rs` the effect of a command on a key, and
//! `file.rs` reads and writes the file. The orchestrator and the backend write histories. The
//! checker and the reports read them; the checker reads nothing else. This module checks nothing
//! and reads no clock.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::scenario::Scenario;

mod command;
mod event;
mod file;

pub use command::{Act, LeftKey, Outcome, text_of};
pub use event::{Event, Phase};

/// The version of the history format.
pub const SCHEMA: u32 = 2;

/// Nanoseconds since the run began.
pub type Ns = i64;

/// The first line of the file.
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
    /// The program that runs the masters, as text for people.
    pub masters: String,
    /// The command that starts the clients; none: the built-in client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// The version of the harness.
    pub harness: String,
}

impl Header {
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

/// A whole run.
#[derive(Clone, Debug, PartialEq)]
pub struct History {
    /// The first line of the file.
    pub header: Header,
    /// The other lines, in the order in which they were recorded.
    pub records: Vec<Record>,
}
