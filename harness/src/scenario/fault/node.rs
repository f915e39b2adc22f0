//! What is done to masters, and what undoes it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Nodes;
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
    /// It is out of memory: it answers with an error whatever would take more. Cure: no longer.
    Full {
        /// Which.
        #[serde(alias = "node")]
        nodes: Nodes,
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
            | Self::Slow { nodes, .. } => nodes,
        }
    }
}
