//! The classes of failures that a search can find, and the test whether a find belongs to one.

use std::collections::BTreeSet;
use std::fmt;

use crate::checker::{Observed, Verdict};
use crate::history::{Event, History};
use crate::scenario::{Cause, FaultKind, NodeFault, Property};
use crate::search::Kind;

/// A class of failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// A master's clock steps forward.
    ClockStep,
    /// A master's clock runs faster than the drift allowance.
    ClockRate,
    /// A master's clock jumps back and forth.
    ClockStrobe,
    /// A master loses its data in a crash, and returns at once.
    Restart,
    /// A master loses its data in a crash, and returns before its keys have expired.
    EarlyReturn,
    /// A command `FLUSHALL` clears a master.
    Flush,
    /// A master evicts keys that have a TTL.
    Evict,
    /// A master loses power before it has synced, and returns before its keys have expired.
    PowerLoss,
    /// A master fails over to a replica that lags.
    Failover,
    /// Clients know different masters, and nothing fails.
    NodeLists,
    /// A client is paused between its last check of the lease and its write.
    Pause,
    /// A client's machine is suspended between its last check of the lease and its write.
    Suspend,
    /// A client that cannot extend, and does not check its lease, writes late.
    CutOff,
    /// A write that was sent in time arrives late.
    WriteDelayed,
}

impl Class {
    /// All of them.
    pub const ALL: [Self; 14] = [
        Self::ClockStep,
        Self::ClockRate,
        Self::ClockStrobe,
        Self::Restart,
        Self::EarlyReturn,
        Self::Flush,
        Self::Evict,
        Self::PowerLoss,
        Self::Failover,
        Self::NodeLists,
        Self::Pause,
        Self::Suspend,
        Self::CutOff,
        Self::WriteDelayed,
    ];

    /// The violated property, its cause, and the faults that bring it about: one of these faults
    /// must have struck, if the list is not empty.
    const fn signs(self) -> (Property, Cause, &'static [&'static str]) {
        let (exclusion, resource) = (Property::MutualExclusion, Property::UnfencedResource);
        match self {
            Self::ClockStep => (exclusion, Cause::ClockStep, &["clock.step"]),
            Self::ClockRate => (exclusion, Cause::ClockRate, &["clock.rate"]),
            Self::ClockStrobe => (exclusion, Cause::ClockStrobe, &["clock.strobe"]),
            Self::Restart => (exclusion, Cause::NodeRestart, &["node.restart"]),
            Self::EarlyReturn => (exclusion, Cause::NodeRestart, &["node.kill", "node.stop"]),
            Self::Flush => (exclusion, Cause::NodeFlush, &["node.flush"]),
            Self::Evict => (exclusion, Cause::NodeEvict, &["node.evict"]),
            Self::PowerLoss => (exclusion, Cause::NodePowerLoss, &["node.power-loss"]),
            Self::Failover => (exclusion, Cause::NodeFailover, &["node.failover"]),
            Self::NodeLists => (exclusion, Cause::NodeLists, &[]),
            Self::Pause => (resource, Cause::ClientPause, &["client.pause"]),
            Self::Suspend => (resource, Cause::ClientPause, &["client.suspend"]),
            Self::CutOff => {
                (resource, Cause::LateWrite, &["net.cut", "net.drop", "net.hold", "node.pause"])
            }
            Self::WriteDelayed => (resource, Cause::ResourceDelay, &["resource.delay"]),
        }
    }

    /// Its name, as a file name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ClockStep => "clock-step",
            Self::ClockRate => "clock-rate",
            Self::ClockStrobe => "clock-strobe",
            Self::Restart => "restart",
            Self::EarlyReturn => "early-return",
            Self::Flush => "flush",
            Self::Evict => "evict",
            Self::PowerLoss => "power-loss",
            Self::Failover => "failover",
            Self::NodeLists => "node-lists",
            Self::Pause => "pause",
            Self::Suspend => "suspend",
            Self::CutOff => "cut-off",
            Self::WriteDelayed => "write-delayed",
        }
    }

    /// Whether a kind of find belongs to this class.
    pub fn is_kind(self, kind: &Kind) -> bool {
        let (layer, cause, _) = self.signs();
        kind.layer == Some(layer) && kind.causes == [cause]
    }

    /// Whether the class needs masters that forget, so that the margin says how many.
    pub const fn forgets(self) -> bool {
        !matches!(
            self,
            Self::NodeLists | Self::Pause | Self::Suspend | Self::CutOff | Self::WriteDelayed
        )
    }

    /// If a run shows this class: the number of masters that were hit by faults that can make a
    /// master forget.
    pub fn shown(self, history: &History, verdict: &Verdict) -> Option<usize> {
        let (layer, cause, names) = self.signs();
        let is = |finding: &&crate::checker::Violation| {
            finding.layer == layer
                && finding.seen == Observed::Violated
                && finding.causes.contains(&cause)
        };
        verdict.findings.iter().find(is)?;
        let mut masters: BTreeSet<usize> = BTreeSet::new();
        let mut struck = names.is_empty();
        for record in &history.records {
            if let Event::Struck { fault_kind, nodes, failed: None, .. } = &record.event {
                struck |= names.contains(&fault_kind.name());
                if makes_forget(fault_kind) {
                    masters.extend(nodes);
                }
            }
        }
        struck.then_some(masters.len())
    }
}

const fn makes_forget(fault_kind: &FaultKind) -> bool {
    matches!(
        fault_kind,
        FaultKind::Clock(_)
            | FaultKind::Node(
                NodeFault::Kill { .. }
                    | NodeFault::Stop { .. }
                    | NodeFault::Restart { .. }
                    | NodeFault::Flush { .. }
                    | NodeFault::Evict { .. }
                    | NodeFault::PowerLoss { .. }
                    | NodeFault::Failover { .. }
            )
    )
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::ClockStep => "clock set forward",
            Self::ClockRate => "clock too fast",
            Self::ClockStrobe => "clock strobes",
            Self::Restart => "restart that forgets",
            Self::EarlyReturn => "back before the TTL is over",
            Self::Flush => "`FLUSHALL`",
            Self::Evict => "eviction",
            Self::PowerLoss => "power lost before a sync",
            Self::Failover => "failover to a replica that lags",
            Self::NodeLists => "clients with different masters",
            Self::Pause => "client paused after its look",
            Self::Suspend => "machine suspended",
            Self::CutOff => "cannot extend, does not look",
            Self::WriteDelayed => "write late on its way",
        })
    }
}
