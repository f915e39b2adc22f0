//! The classes of failures that a search can find, and the test whether a find belongs to one.

use std::collections::BTreeSet;

use crate::Kind;
use redquorum_checker::{Observed, Verdict};
use redquorum_scenario::history::{Event, History};
use redquorum_scenario::named;
use redquorum_scenario::{Cause, Fault, FaultKind, Loses, Property, SetsClock};

named! {
    /// A class of failures.
    pub enum Class {
        ClockStep = "clock-step", "clock set forward";
        ClockRate = "clock-rate", "clock too fast";
        ClockStrobe = "clock-strobe", "clock strobes";
        Restart = "restart", "restart that forgets";
        /// A master loses its data in a crash, and returns before its keys have expired.
        EarlyReturn = "early-return", "back before the TTL is over";
        Flush = "flush", "`FLUSHALL`";
        Evict = "evict", "eviction";
        /// A master loses power before it has synced, and returns before its keys have expired.
        PowerLoss = "power-loss", "power lost before a sync";
        Failover = "failover", "failover to a replica that lags";
        /// Clients know different masters, and nothing fails.
        NodeLists = "node-lists", "clients with different masters";
        /// A client is paused between its last check of the lease and its write.
        Pause = "pause", "client paused after its look";
        /// A client's machine is suspended between its last check of the lease and its write.
        Suspend = "suspend", "machine suspended";
        /// A client that cannot extend, and does not check its lease, writes late.
        CutOff = "cut-off", "cannot extend, does not look";
        /// A write that was sent in time arrives late.
        WriteDelayed = "write-delayed", "write late on its way";
    }
}

impl Class {
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

    /// Whether a kind of violation belongs to this class.
    pub fn is_kind(self, kind: &Kind) -> bool {
        let (property, cause, _) = self.signs();
        kind.property == Some(property) && kind.causes == [cause]
    }

    /// The names of the faults that bring it about.
    pub(super) const fn faults(self) -> &'static [&'static str] {
        self.signs().2
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
        let (property, cause, names) = self.signs();
        let is = |finding: &&redquorum_checker::Violation| {
            finding.property == property
                && finding.seen == Observed::Violated
                && finding.causes.contains(&cause)
        };
        verdict.findings.iter().find(is)?;
        let mut masters: BTreeSet<usize> = BTreeSet::new();
        let mut struck = names.is_empty();
        for record in &history.records {
            if let Event::Struck { fault, nodes, failed: None, .. } = &record.event
                && let Some(Fault { kind, .. }) = history.header.scenario.fault(*fault)
            {
                struck |= names.contains(&kind.name());
                if makes_forget(kind) {
                    masters.extend(nodes);
                }
            }
        }
        struck.then_some(masters.len())
    }
}

fn makes_forget(kind: &FaultKind) -> bool {
    let row = kind.row();
    row.clock == SetsClock::OfMaster || row.loses == Loses::Keys || kind.removes_markers(false)
}
