//! Faults of masters, and their healing.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Ahead, Nodes};
use crate::name::Name;
use crate::scenario::length::Length;

/// The effect on a master.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum NodeFault {
    /// The master is killed. Healing: it is started again, with the data that it had on disk.
    Kill {
        /// The masters that are killed.
        #[serde(alias = "node")]
        nodes: Nodes,
    },
    /// The master is shut down in order, and may write its file. Healing: it is started again.
    Stop {
        /// The masters that are shut down.
        #[serde(alias = "node")]
        nodes: Nodes,
    },
    /// The master is killed and started again at once. Nothing to heal.
    Restart {
        /// The masters that restart.
        #[serde(alias = "node")]
        nodes: Nodes,
    },
    /// The master stops executing; the operating system accepts connections and data for it.
    /// Healing: the master continues, and executes the commands that arrived meanwhile.
    Pause {
        /// The masters that are paused.
        #[serde(alias = "node")]
        nodes: Nodes,
    },
    /// All replies of the master arrive later by this time, at every client. Healing: the delay
    /// ends.
    Slow {
        /// The masters that are slow.
        #[serde(alias = "node")]
        nodes: Nodes,
        /// The delay.
        by: Length,
    },
    /// An administrator runs `FLUSHALL` on the master. Nothing to heal.
    Flush {
        /// The masters that are flushed.
        #[serde(alias = "node")]
        nodes: Nodes,
    },
    /// The master runs short of memory under a policy that evicts keys with a TTL: it loses all of
    /// these keys. Nothing to heal.
    Evict {
        /// The masters that evict keys.
        #[serde(alias = "node")]
        nodes: Nodes,
    },
    /// The machine of the master loses power. Healing: the master is started again, with the data
    /// that was synced to disk.
    PowerLoss {
        /// The masters that lose power.
        #[serde(alias = "node")]
        nodes: Nodes,
    },
    /// The replica of the master receives no more data. Healing: the replica catches up.
    Lag {
        /// The masters whose replica lags.
        #[serde(alias = "node")]
        nodes: Nodes,
    },
    /// The master dies for good, and its replica takes over its address. Nothing to heal.
    Failover {
        /// The masters that fail over.
        #[serde(alias = "node")]
        nodes: Nodes,
    },
    /// The master is out of memory: it replies with an error to each command that would use more.
    /// Healing: it has memory again.
    Full {
        /// The masters that are full.
        #[serde(alias = "node")]
        nodes: Nodes,
    },
    /// An administrator sets the fencing counter of a resource. Nothing to heal.
    Counter {
        /// The masters whose counter is set.
        #[serde(alias = "node")]
        nodes: Nodes,
        /// The resource of the counter.
        resource: Name,
        /// How far the counter is ahead of the master's clock. A counter that exists already stays.
        ahead: Ahead,
    },
}

impl NodeFault {
    pub(super) const fn nodes(&self) -> &Nodes {
        match self {
            Self::Kill { nodes }
            | Self::Stop { nodes }
            | Self::Restart { nodes }
            | Self::Pause { nodes }
            | Self::Full { nodes }
            | Self::Flush { nodes }
            | Self::Evict { nodes }
            | Self::PowerLoss { nodes }
            | Self::Lag { nodes }
            | Self::Failover { nodes }
            | Self::Counter { nodes, .. }
            | Self::Slow { nodes, .. } => nodes,
        }
    }

    pub(super) const fn nodes_mut(&mut self) -> &mut Nodes {
        match self {
            Self::Kill { nodes }
            | Self::Stop { nodes }
            | Self::Restart { nodes }
            | Self::Pause { nodes }
            | Self::Full { nodes }
            | Self::Flush { nodes }
            | Self::Evict { nodes }
            | Self::PowerLoss { nodes }
            | Self::Lag { nodes }
            | Self::Failover { nodes }
            | Self::Counter { nodes, .. }
            | Self::Slow { nodes, .. } => nodes,
        }
    }
}
