//! The expected result of a run: a verdict per property, the causes of violations, and the events
//! without which the verdict means nothing.

use crate::named;
use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::length::Length;

named! {
    /// A property that the checker examines. Each text says how the property is violated.
    pub enum Property {
        MutualExclusion = "mutual-exclusion", "Two clients believe at once that they hold";
        /// The client reads the register after the grant, and writes it at the end.
        UnfencedResource = "unfenced-resource", "An update is lost";
        /// A register loses an update, although clients present, read and write it under the
        /// fencing token. Or a token is not unique, or not larger than a token whose acquire had
        /// returned before.
        FencedResource = "fenced-resource", "Fencing tokens do not protect";
        /// A lease is granted late, promises more than the masters keep, or ends without a
        /// notification.
        Validity = "validity", "A lease is not what it says";
        /// A majority is reachable, and no other client is in the way.
        Progress = "progress",
            "An acquire fails or is slow, or a lease ends, though no fault is in force";
        Liveness = "liveness", "After all faults are healed, no client can acquire";
        Hygiene = "hygiene",
            "A key is left that no client holds, or the key of another client is deleted";
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
    /// Acquires and extensions succeed in time while no fault is in force.
    pub progress: Option<Wanted>,
    /// After healing, an acquire succeeds.
    pub liveness: Option<Wanted>,
    /// No key is left, and no client deletes another client's key.
    pub hygiene: Option<Wanted>,
    /// The causes of violations that the checker must find. Each is the name of a fault
    /// (`clock.step`, `node.restart`, `client.pause`), or `node-lists`, `max-ttl`, `late-write`,
    /// `shared-write`, `bug` or `unknown`.
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
    /// The longest time that an acquire may take, from the call to the grant, for each client or
    /// for all clients of a kind. At least one must be granted (all, if `acquires` says so), and
    /// none may still wait by then.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub within: BTreeMap<String, Length>,
    /// How long each lease must last, for each client or for all clients of a kind, unless its
    /// holder releases it before.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub kept: BTreeMap<String, Length>,
    /// The largest number of commands that touch a key, sent until all faults are healed: by the
    /// process of a client, or by the processes of a kind together.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub commands: BTreeMap<String, usize>,
    /// How often a single other process may have got the resource before a client that waited for
    /// it, or before any client of a kind. Only acquires count that began when the waiting client
    /// was in the fair queue.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub overtaken: BTreeMap<String, Overtaken>,
    /// Violations that are known, of a lock that is under test as it is: they make no run fail. A
    /// new one does.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub known: Vec<Known>,
}

/// A violation that is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Known {
    /// The property that is violated.
    pub property: Property,
    /// The cause, as reports name it.
    pub because: Cause,
    /// Why the violation is accepted: a link to the issue, or words of the lock's documentation.
    pub reason: String,
    /// Whether it shows in some runs only. If not, a run without it is reported, so that the row is
    /// removed when the lock is mended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sometimes: bool,
}

impl Known {
    /// What makes no sense beside the result that the run must have, and the fix.
    pub fn problem(&self, expect: &Expect) -> Option<(String, &'static str)> {
        let Self { property, reason, .. } = self;
        if expect.of(*property) == Wanted::Violated {
            let message = format!("a violation of `{property}` is expected and known");
            return Some((message, "leave one of the two out"));
        }
        let unexplained = reason.trim().is_empty();
        unexplained.then(|| ("a known violation has no reason".into(), "say why it is accepted"))
    }
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

    /// The known violation with this property and cause.
    pub fn known(&self, property: Property, because: Cause) -> Option<&Known> {
        self.known.iter().find(|known| (known.property, known.because) == (property, because))
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
    /// `late-write`, `shared-write`, `bug` and `unknown` are not faults.
    pub enum Cause {
        ClockStep = "clock.step",
            "the clock of a master was set forward, so a key expired early";
        /// The drift allowance does not cover it.
        ClockRate = "clock.rate", "the clock of a master ran too fast, so a key expired early";
        ClockStrobe = "clock.strobe",
            "the clock of a master jumped to and fro, so a key expired early";
        NodeRestart = "node.restart", "a master restarted and forgot the keys that it had";
        NodeFlush = "node.flush", "FLUSHALL on a master removed the keys that it had";
        NodeEvict = "node.evict", "a master that ran out of memory evicted keys";
        NodePowerLoss = "node.power-loss",
            "a master lost its power, and the keys that were not on its disk";
        NodeFailover = "node.failover", "a replica without the newest keys replaced its master";
        /// An administrator set them there. The masters grant no more.
        NodeCounter = "node.counter", "the fencing counters of masters are at their end";
        ClientClock = "client.clock",
            "a lost fencing counter began anew from a client's wall clock that is behind";
        /// The drift allowance does not cover it.
        ClientRate = "client.rate", "the clock by which a client measures its leases ran too slow";
        ClientPause = "client.pause",
            "a client was paused between its last look at the deadline and its write";
        ResourceDelay = "resource.delay",
            "a write that a client sent in time arrived after the end of its lease";
        /// Or a client knows fewer masters than its quorum.
        NodeLists = "node-lists",
            "clients know different masters, and their quorums need not share one";
        /// So a client distrusts masters that others marked.
        MaxTtl = "max-ttl", "guards of clients have different longest TTLs";
        LateWrite = "late-write",
            "a client wrote after its lease had ended, without looking at the deadline";
        SharedWrite = "shared-write",
            "a client wrote under a shared lease, beside others that have one";
        Bug = "bug", "no fault explains it: a bug of the lock under test";
        Unknown = "unknown", "the record does not show it";
    }
}
