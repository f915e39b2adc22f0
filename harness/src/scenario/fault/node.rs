//! What is done to masters, and what undoes it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Ahead, Nodes};
use crate::name::Name;
use crate::scenario::length::Length;

/// What is done to a master.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum NodeHarm {
    /// It is killed. Cure: it is started again, with what it had on disk.
    Kill {
        /// Which.
        #[serde(alias = "node")]
        nodes: Nodes,
    },
    /// It is shut down in order, and may write its file. Cure: it is started again.
    Stop {
        /// Which.
        #[serde(alias = "node")]
        nodes: Nodes,
    },
    /// It is killed and started again at once. Nothing to cure.
    Restart {
        /// Which.
        #[serde(alias = "node")]
        nodes: Nodes,
    },
    /// It stops executing; the system accepts connections and data for it. Cure: it goes on, and
    /// executes what it got meanwhile.
    Pause {
        /// Which.
        #[serde(alias = "node")]
        nodes: Nodes,
    },
    /// All its replies come so much later, to everyone. Cure: no longer.
    Slow {
        /// Which.
        #[serde(alias = "node")]
        nodes: Nodes,
        /// How much later.
        by: Length,
    },
    /// Somebody runs `FLUSHALL` on it. Nothing to cure.
    Flush {
        /// Which.
        #[serde(alias = "node")]
        nodes: Nodes,
    },
    /// It runs short of memory under a policy that evicts keys with a TTL: all of them are gone.
    /// Nothing to cure.
    Evict {
        /// Which.
        #[serde(alias = "node")]
        nodes: Nodes,
    },
    /// Its machine loses power. Cure: it is started again, with what was synced to its disk.
    PowerLoss {
        /// Which.
        #[serde(alias = "node")]
        nodes: Nodes,
    },
    /// Its replica gets nothing more. Cure: it catches up.
    Lag {
        /// Which.
        #[serde(alias = "node")]
        nodes: Nodes,
    },
    /// It dies for good, and its replica takes over its address. Nothing to cure.
    Failover {
        /// Which.
        #[serde(alias = "node")]
        nodes: Nodes,
    },
    /// It is out of memory: it answers with an error whatever would take more. Cure: no longer.
    Full {
        /// Which.
        #[serde(alias = "node")]
        nodes: Nodes,
    },
    /// Somebody sets the fencing counter of a resource. Nothing to cure.
    Counter {
        /// Which.
        #[serde(alias = "node")]
        nodes: Nodes,
        /// Whose counter.
        resource: Name,
        /// How far ahead of the master's clock; a counter that is there already stays.
        ahead: Ahead,
    },
}

impl NodeHarm {
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
