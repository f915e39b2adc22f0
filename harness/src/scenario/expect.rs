//! The expected result of a run: a verdict per property, the causes of violations, and the events
//! without which the verdict means nothing.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::length::Length;
use crate::named::named;

named! {
    /// A property that the checker examines. Each text says how the property is violated.
    #[non_exhaustive]
    pub enum Property {
        /// Two clients believe at the same moment that they hold the resource.
        MutualExclusion = "mutual-exclusion",
        /// A register loses an update, although the client reads it after the grant and writes it
        /// at the end.
        UnfencedResource = "unfenced-resource",
        /// A register loses an update, although clients present, read and write it under the
        /// fencing token. Or a token is not unique, or not larger than a token whose acquire had
        /// returned before.
        FencedResource = "fenced-resource",
        /// A lease is granted late, promises more than the masters keep, or ends without a
        /// notification.
        Validity = "validity",
        /// An acquire fails or is slow, although a majority is reachable and no other client is in
        /// the way.
        Progress = "progress",
        /// No client can acquire after all faults are healed.
        Liveness = "liveness",
        /// A key without a holder is left, or a client deleted another client's key.
        Hygiene = "hygiene",
    }
}

/// The expected verdict on a property.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Wanted {
    /// No violation.
    #[default]
    Safe,
    /// A violation. If the run shows none, the scenario has lost its purpose.
    Violated,
}

/// The result that a run must have. A property that is not named must be safe.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Expect {
    /// Believed holds of one resource do not overlap.
    pub mutual_exclusion: Option<Wanted>,
    /// No update is lost.
    pub unfenced_resource: Option<Wanted>,
    /// No update is lost under fencing tokens, and the tokens grow.
    pub fenced_resource: Option<Wanted>,
    /// Leases are granted in time, promise no more than the masters keep, and end with a
    /// notification.
    pub validity: Option<Wanted>,
    /// Acquires succeed in time when nothing is in the way.
    pub progress: Option<Wanted>,
    /// After healing, an acquire succeeds.
    pub liveness: Option<Wanted>,
    /// No key is left, and no client deletes another client's key.
    pub hygiene: Option<Wanted>,
    /// The causes of violations that the checker must find. Each is the name of a fault
    /// (`clock.step`, `node.restart`, `client.pause`), or `node-lists`, or `late-write`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub because: Vec<Cause>,
    /// How the acquires must have ended, for each client or for all clients of a kind that has a
    /// `count`. Otherwise the run shows nothing.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub acquires: BTreeMap<String, Acquires>,
    /// The margin that the first grant of each client must have had: the number of granting masters
    /// that would have to forget before a rival can win. Otherwise the run shows nothing.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub margin: BTreeMap<String, usize>,
    /// The longest time that a grant may take, from the call to the grant, for each client or for
    /// all clients of a kind. Requests without a grant count in `acquires` only.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub within: BTreeMap<String, Length>,
    /// The largest number of commands that touch a key, sent until all faults are healed: by the
    /// process of a client, or by the processes of a kind together.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub commands: BTreeMap<String, usize>,
    /// How often a single other process may have got the resource before a client that waited for
    /// it, or before any client of a kind. Only acquires count that began when the waiting client
    /// was in the fair queue.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub overtaken: BTreeMap<String, Overtaken>,
}

impl Expect {
    /// The expected verdict on a property.
    pub fn of(&self, property: Property) -> Wanted {
        let wanted = match property {
            Property::MutualExclusion => self.mutual_exclusion,
            Property::UnfencedResource => self.unfenced_resource,
            Property::FencedResource => self.fenced_resource,
            Property::Validity => self.validity,
            Property::Progress => self.progress,
            Property::Liveness => self.liveness,
            Property::Hygiene => self.hygiene,
        };
        wanted.unwrap_or_default()
    }

    /// Whether any violation is expected.
    pub fn any_violation(&self) -> bool {
        Property::ALL.iter().any(|property| self.of(*property) == Wanted::Violated)
    }
}

/// How the acquires of a client ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Acquires {
    /// At least one was granted.
    Granted,
    /// Every one was granted, and there was at least one.
    AllGranted,
    /// None was granted, for whatever reason, and there was at least one.
    Refused,
    /// None was granted, and one failed because another client holds the resource.
    Taken,
    /// None was granted, and one failed because too few masters replied.
    NoQuorum,
    /// None was granted, and one failed because nothing was left of the TTL.
    Late,
    /// None was granted, and the reason of one names a master that is distrusted because it may
    /// have forgotten leases. For locks with a guard.
    Distrusted,
}

/// How often later requests may overtake a waiting client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "how often at most, such as 0, or \"some\"")]
pub enum Overtaken {
    /// At most this often, by each process.
    AtMost(usize),
    /// `"some"`: at least once. Otherwise the run shows nothing.
    Is(Count),
}

/// A frequency in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Count {
    /// At least once.
    Some,
}

named! {
    /// The cause of a violation. Most are named after a fault; `node-lists`, `max-ttl`,
    /// `late-write`, `bug` and `unknown` are not faults.
    #[non_exhaustive]
    pub enum Cause {
        /// A master's clock was set forward.
        ClockStep = "clock.step",
        /// A master's clock ran faster than the drift allowance.
        ClockRate = "clock.rate",
        /// A master's clock jumped ahead and back.
        ClockStrobe = "clock.strobe",
        /// A master forgot keys at a restart.
        NodeRestart = "node.restart",
        /// An administrator ran `FLUSHALL` on a master.
        NodeFlush = "node.flush",
        /// A master evicted keys that have a TTL.
        NodeEvict = "node.evict",
        /// A master lost its power, and the data that it had not synced.
        NodePowerLoss = "node.power-loss",
        /// A replica took over from a master, and lacked the data that it had not received.
        NodeFailover = "node.failover",
        /// An administrator set the fencing counters of masters to their end, so that the masters
        /// grant no more.
        NodeCounter = "node.counter",
        /// A client's wall clock was behind: counters that masters lost began again at a smaller
        /// number.
        ClientClock = "client.clock",
        /// The clock that measures a client's leases ran slower than the drift allowance.
        ClientRate = "client.rate",
        /// A client was paused between its last look at the deadline and its write.
        ClientPause = "client.pause",
        /// A request that a client sent to a register before the end of its lease arrived after it.
        ResourceDelay = "resource.delay",
        /// Clients know different masters, and their quorums have none in common; or a client knows
        /// fewer masters than its quorum.
        NodeLists = "node-lists",
        /// The guard of a client has another longest TTL than that of others, so the client
        /// distrusts masters that they marked.
        MaxTtl = "max-ttl",
        /// A client that was not paused wrote after its lease had ended: it did not check the
        /// deadline.
        LateWrite = "late-write",
        /// No fault explains the violation: a bug of the lock under test.
        Bug = "bug",
        /// The records do not show the cause.
        Unknown = "unknown",
    }
}
