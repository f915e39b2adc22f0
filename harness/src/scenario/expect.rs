//! What is expected of a run: a verdict per layer, causes, and what must have happened for the
//! verdict to mean anything.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::length::Length;

/// A layer of judgement.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Layer {
    /// Two clients believe at the same moment that they hold the resource.
    MutualExclusion,
    /// An update is lost in a register that is read after the grant and written at the end.
    UnfencedResource,
    /// An update is lost in a register that is presented to, read and written under the fencing token;
    /// or a token is not unique, or not larger than one whose acquire had returned before.
    FencedResource,
    /// A lease is handed out late, promises more than the masters keep, or ends untold.
    Validity,
    /// An acquire fails or is slow although a majority is reachable and nobody is in the way.
    Progress,
    /// After everything is healed, nobody can acquire.
    Liveness,
    /// A key is left that nobody holds, or somebody deleted another's.
    Hygiene,
}

impl Layer {
    /// All of them, in the order of reports.
    pub const ALL: [Self; 7] = [
        Self::MutualExclusion,
        Self::UnfencedResource,
        Self::FencedResource,
        Self::Validity,
        Self::Progress,
        Self::Liveness,
        Self::Hygiene,
    ];

    /// Its name, as in TOML and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::MutualExclusion => "mutual-exclusion",
            Self::UnfencedResource => "unfenced-resource",
            Self::FencedResource => "fenced-resource",
            Self::Validity => "validity",
            Self::Progress => "progress",
            Self::Liveness => "liveness",
            Self::Hygiene => "hygiene",
        }
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a layer is expected to show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Wanted {
    /// Nothing bad.
    #[default]
    Safe,
    /// A violation: a run that does not show it has gone blind.
    Violated,
}

/// What must come of a run. A layer that is not named is expected to be safe.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Expect {
    /// Believed holds of one resource do not overlap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mutual_exclusion: Option<Wanted>,
    /// No update is lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unfenced_resource: Option<Wanted>,
    /// No update is lost under fencing tokens, and they grow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fenced_resource: Option<Wanted>,
    /// Leases are handed out in time, are true, and end aloud.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validity: Option<Wanted>,
    /// Acquires succeed in time where nothing is in the way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<Wanted>,
    /// After healing, an acquire succeeds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub liveness: Option<Wanted>,
    /// No key is left, no other's key is deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hygiene: Option<Wanted>,
    /// Causes of the violations that must be found, each by the name of its fault
    /// (`clock.step`, `node.restart`, `client.pause`), or `node-lists`, or `late-write`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub because: Vec<Cause>,
    /// How the acquires of each client, or of all of a kind that has a `count`, must have ended, or the
    /// run shows nothing.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub acquires: BTreeMap<String, Acquires>,
    /// The margin that the first grant of each client must have had, or the run shows nothing:
    /// how many of the masters that granted would have to forget before a rival can win.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub margin: BTreeMap<String, usize>,
    /// How long each grant of a client, or of all of a kind, may have taken at most, from the call to the
    /// grant. Who is not granted is a matter of `acquires`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub within: BTreeMap<String, Length>,
    /// How many commands that touch a key may be sent at most until everything is healed: by the process
    /// of a client, or by those of a kind together.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub commands: BTreeMap<String, usize>,
    /// How often any one other process may have got the resource before a client that waited for it, or before any
    /// of a kind, by acquires that began when that one stood in line.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub overtaken: BTreeMap<String, Overtaken>,
}

impl Expect {
    /// What is expected of a layer.
    pub fn of(&self, layer: Layer) -> Wanted {
        let wanted = match layer {
            Layer::MutualExclusion => self.mutual_exclusion,
            Layer::UnfencedResource => self.unfenced_resource,
            Layer::FencedResource => self.fenced_resource,
            Layer::Validity => self.validity,
            Layer::Progress => self.progress,
            Layer::Liveness => self.liveness,
            Layer::Hygiene => self.hygiene,
        };
        wanted.unwrap_or_default()
    }

    /// Whether any violation is expected.
    pub fn any_violation(&self) -> bool {
        Layer::ALL.iter().any(|layer| self.of(*layer) == Wanted::Violated)
    }
}

/// How the acquires of a client ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Acquires {
    /// At least one was granted.
    Granted,
    /// Every one was granted, and there was one.
    AllGranted,
    /// None was granted, for whatever reason, and there was one.
    Refused,
    /// None was granted, and one because somebody else holds the resource.
    Taken,
    /// None was granted, and one because too few masters answered.
    NoQuorum,
    /// None was granted, and one because nothing was left of the TTL.
    Late,
    /// None was granted, and the reason of one names a master that is distrusted, since it may have
    /// forgotten. For locks with a guard.
    Distrusted,
}

/// How often others who come later may get what somebody waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "how often at most, such as 0, or \"some\"")]
pub enum Overtaken {
    /// So often at most, by each process.
    AtMost(usize),
    /// `"some"`: at least once, or the run shows nothing.
    Is(Often),
}

/// How often, in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Often {
    /// At least once.
    Some,
}

/// Why a violation was possible. The name is the fault's; `node-lists`, `late-write`, `bug` and
/// `unknown` are no faults.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[non_exhaustive]
pub enum Cause {
    /// A master's clock was set forward.
    #[serde(rename = "clock.step")]
    ClockStep,
    /// A master's clock ran faster than the drift allowance.
    #[serde(rename = "clock.rate")]
    ClockRate,
    /// A master's clock jumped to and fro.
    #[serde(rename = "clock.strobe")]
    ClockStrobe,
    /// A master forgot at a restart.
    #[serde(rename = "node.restart")]
    NodeRestart,
    /// Somebody ran `FLUSHALL` on a master.
    #[serde(rename = "node.flush")]
    NodeFlush,
    /// A master evicted keys that have a TTL.
    #[serde(rename = "node.evict")]
    NodeEvict,
    /// A master lost its power, and what it had not synced.
    #[serde(rename = "node.power-loss")]
    NodePowerLoss,
    /// A replica took over from a master, and lacked what it had not got.
    #[serde(rename = "node.failover")]
    NodeFailover,
    /// Somebody set the fencing counters of masters to their end, so that they grant no more.
    #[serde(rename = "node.counter")]
    NodeCounter,
    /// A client's wall clock was behind: counters that masters lost began anew at a smaller number.
    #[serde(rename = "client.clock")]
    ClientClock,
    /// The clock by which a client measures its leases ran slower than the drift allowance.
    #[serde(rename = "client.rate")]
    ClientRate,
    /// A client was paused between its last look at the deadline and its write.
    #[serde(rename = "client.pause")]
    ClientPause,
    /// What a client sent to a register before the end of its lease came after it.
    #[serde(rename = "resource.delay")]
    ResourceDelay,
    /// Clients know different masters, and their quorums have none in common; or one knows fewer masters
    /// than its quorum.
    #[serde(rename = "node-lists")]
    NodeLists,
    /// A client has a guard of another longest TTL than others, and so distrusts masters that they marked.
    #[serde(rename = "max-ttl")]
    MaxTtl,
    /// A client wrote after its lease had ended, awake: it did not look.
    #[serde(rename = "late-write")]
    LateWrite,
    /// No fault explains it: the lock is wrong.
    #[serde(rename = "bug")]
    Bug,
    /// What was recorded does not tell.
    #[serde(rename = "unknown")]
    Unknown,
}

impl Cause {
    /// Its name, as in TOML and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ClockStep => "clock.step",
            Self::ClockRate => "clock.rate",
            Self::ClockStrobe => "clock.strobe",
            Self::NodeRestart => "node.restart",
            Self::NodeFlush => "node.flush",
            Self::NodeEvict => "node.evict",
            Self::NodePowerLoss => "node.power-loss",
            Self::NodeFailover => "node.failover",
            Self::NodeCounter => "node.counter",
            Self::ClientClock => "client.clock",
            Self::ClientRate => "client.rate",
            Self::ClientPause => "client.pause",
            Self::ResourceDelay => "resource.delay",
            Self::NodeLists => "node-lists",
            Self::MaxTtl => "max-ttl",
            Self::LateWrite => "late-write",
            Self::Bug => "bug",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
