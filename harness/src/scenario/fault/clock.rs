//! What is done to the wall clocks of masters, and what undoes it. Those of clients: `client.rs`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Nodes;
use crate::scenario::length::{Length, Shift};

/// What is done to the wall clock of a master. The cure sets it right, which is a step, too: cure
/// no step while a lease that was granted meanwhile lives, unless that is the lesson.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum ClockHarm {
    /// It is set forward, or back.
    Step {
        /// Which.
        #[serde(alias = "node")]
        nodes: Nodes,
        /// How far.
        by: Shift,
    },
    /// It runs faster or slower.
    Rate {
        /// Which.
        #[serde(alias = "node")]
        nodes: Nodes,
        /// Its seconds per second: 2.0 runs twice as fast, 0.5 half as fast.
        factor: f64,
    },
    /// It jumps ahead and back again, over and over.
    Strobe {
        /// Which.
        #[serde(alias = "node")]
        nodes: Nodes,
        /// How far ahead.
        by: Length,
        /// How long it stays there, and then at its place.
        every: Length,
    },
}

impl ClockHarm {
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
