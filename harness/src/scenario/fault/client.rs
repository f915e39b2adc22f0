//! What is done to client processes, and what undoes it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Clients;
use crate::scenario::length::Shift;

/// What is done to a client process, and so to all clients in it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum ClientHarm {
    /// It stops, as in a long garbage collection. Cure: it goes on, and does not know.
    Pause {
        /// Which.
        #[serde(alias = "client")]
        clients: Clients,
    },
    /// The machine that it is on is suspended: it stops, and so does every clock that does not count
    /// suspended time. Cure: it goes on. Only in virtual time.
    Suspend {
        /// Which.
        #[serde(alias = "client")]
        clients: Clients,
    },
    /// It dies. There is no cure.
    Kill {
        /// Which.
        #[serde(alias = "client")]
        clients: Clients,
    },
    /// Its wall clock is set forward, or back. Cure: it is right again.
    Clock {
        /// Which.
        #[serde(alias = "client")]
        clients: Clients,
        /// How far.
        by: Shift,
    },
    /// The clock by which it measures leases runs faster or slower, as one that is slewed. Cure: it
    /// runs at its rate again, and does not jump. Only in virtual time.
    Rate {
        /// Which.
        #[serde(alias = "client")]
        clients: Clients,
        /// Its seconds per second: 2.0 runs twice as fast, 0.5 half as fast.
        factor: f64,
    },
}

impl ClientHarm {
    pub(super) const fn clients(&self) -> &Clients {
        match self {
            Self::Pause { clients }
            | Self::Suspend { clients }
            | Self::Kill { clients }
            | Self::Clock { clients, .. }
            | Self::Rate { clients, .. } => clients,
        }
    }

    pub(super) const fn clients_mut(&mut self) -> &mut Clients {
        match self {
            Self::Pause { clients }
            | Self::Suspend { clients }
            | Self::Kill { clients }
            | Self::Clock { clients, .. }
            | Self::Rate { clients, .. } => clients,
        }
    }
}
