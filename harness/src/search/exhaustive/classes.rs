//! The classes of failures that a search can find, and how a find is told to be of one.

use std::collections::BTreeSet;
use std::fmt;

use crate::history::{Event, History};
use crate::judge::{Seen, Verdict};
use crate::scenario::{Cause, Harm, Layer, NodeHarm};
use crate::search::Kind;

/// A class of failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// A master's clock is set forward.
    ClockStep,
    /// A master's clock runs faster than the drift allowance.
    ClockRate,
    /// A master's clock jumps to and fro.
    ClockStrobe,
    /// A master forgets as it crashes, and is back at once.
    Restart,
    /// A master forgets as it crashes, and is back before its keys have expired.
    EarlyReturn,
    /// A client is paused between its last look and its write.
    Pause,
    /// The same with its machine suspended.
    Suspend,
    /// A client that cannot extend, and does not look, writes late.
    CutOff,
}

impl Class {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::ClockStep,
        Self::ClockRate,
        Self::ClockStrobe,
        Self::Restart,
        Self::EarlyReturn,
        Self::Pause,
        Self::Suspend,
        Self::CutOff,
    ];

    /// What is violated, why, and by which faults: one of these must have struck.
    const fn signs(self) -> (Layer, Cause, &'static [&'static str]) {
        let (exclusion, resource) = (Layer::MutualExclusion, Layer::UnfencedResource);
        match self {
            Self::ClockStep => (exclusion, Cause::ClockStep, &["clock.step"]),
            Self::ClockRate => (exclusion, Cause::ClockRate, &["clock.rate"]),
            Self::ClockStrobe => (exclusion, Cause::ClockStrobe, &["clock.strobe"]),
            Self::Restart => (exclusion, Cause::NodeRestart, &["node.restart"]),
            Self::EarlyReturn => (exclusion, Cause::NodeRestart, &["node.kill", "node.stop"]),
            Self::Pause => (resource, Cause::ClientPause, &["client.pause"]),
            Self::Suspend => (resource, Cause::ClientPause, &["client.suspend"]),
            Self::CutOff => {
                (resource, Cause::LateWrite, &["net.cut", "net.drop", "net.hold", "node.pause"])
            }
        }
    }

    /// Its name as a file's.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ClockStep => "clock-step",
            Self::ClockRate => "clock-rate",
            Self::ClockStrobe => "clock-strobe",
            Self::Restart => "restart",
            Self::EarlyReturn => "early-return",
            Self::Pause => "pause",
            Self::Suspend => "suspend",
            Self::CutOff => "cut-off",
        }
    }

    /// Whether a kind of finding is its.
    pub fn is_kind(self, kind: &Kind) -> bool {
        let (layer, cause, _) = self.signs();
        kind.layer == Some(layer) && kind.causes == [cause]
    }

    /// Whether masters must forget for it, so that the margin says how many.
    pub const fn forgets(self) -> bool {
        !matches!(self, Self::Pause | Self::Suspend | Self::CutOff)
    }

    /// If a run shows it: how many masters were touched by faults that can make a master forget.
    pub fn shown(self, history: &History, verdict: &Verdict) -> Option<usize> {
        let (layer, cause, names) = self.signs();
        let is = |finding: &&crate::judge::Finding| {
            finding.layer == layer
                && finding.seen == Seen::Violated
                && finding.causes.contains(&cause)
        };
        verdict.findings.iter().find(is)?;
        let mut masters: BTreeSet<usize> = BTreeSet::new();
        let mut struck = false;
        for record in &history.records {
            if let Event::Struck { harm, nodes, failed: None, .. } = &record.event {
                struck |= names.contains(&harm.name());
                if makes_forget(harm) {
                    masters.extend(nodes);
                }
            }
        }
        struck.then_some(masters.len())
    }
}

const fn makes_forget(harm: &Harm) -> bool {
    matches!(
        harm,
        Harm::Clock(_)
            | Harm::Node(NodeHarm::Kill { .. } | NodeHarm::Stop { .. } | NodeHarm::Restart { .. })
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
            Self::Pause => "client paused after its look",
            Self::Suspend => "machine suspended",
            Self::CutOff => "cannot extend, does not look",
        })
    }
}
