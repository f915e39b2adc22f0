//! Faults of the wall clocks of masters, and their healing. `client.rs` has those of clients'
//! clocks.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Nodes;
use crate::scenario::length::{Length, Shift};

/// The effect on the wall clock of a master. Healing sets the clock right, which is a step, too. So
/// do not heal a step while a lease that was granted meanwhile is alive, unless the scenario is
/// about that.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum ClockFault {
    /// The clock is set forward, or back.
    Step {
        /// The masters whose clock is set.
        #[serde(alias = "node")]
        nodes: Nodes,
        /// The size of the step.
        by: Shift,
    },
    /// The clock runs faster or slower.
    Rate {
        /// The masters whose clock runs at this rate.
        #[serde(alias = "node")]
        nodes: Nodes,
        /// Seconds per second: at 2.0 the clock runs twice as fast, at 0.5 half as fast.
        factor: f64,
    },
    /// The clock jumps ahead and back again, repeatedly.
    Strobe {
        /// The masters whose clock jumps.
        #[serde(alias = "node")]
        nodes: Nodes,
        /// How far the clock jumps ahead.
        by: Length,
        /// How long the clock stays ahead, and how long it then shows its own time.
        every: Length,
    },
}

impl ClockFault {
    pub(super) const fn nodes(&self) -> &Nodes {
        match self {
            Self::Step { nodes, .. } | Self::Rate { nodes, .. } | Self::Strobe { nodes, .. } => {
                nodes
            }
        }
    }

    pub(super) const fn nodes_mut(&mut self) -> &mut Nodes {
        match self {
            Self::Step { nodes, .. } | Self::Rate { nodes, .. } | Self::Strobe { nodes, .. } => {
                nodes
            }
        }
    }
}
