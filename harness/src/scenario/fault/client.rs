//! Faults of client processes, and their healing.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Clients;
use crate::scenario::length::Shift;

/// The effect on a client process, and so on all clients in it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum ClientFault {
    /// The process stops, as in a long garbage collection. Healing: it continues, and does not
    /// notice the pause.
    Pause {
        /// The clients that are paused.
        #[serde(alias = "client")]
        clients: Clients,
    },
    /// The machine of the process is suspended: the process stops, and so does every clock that
    /// does not count suspended time. Healing: it continues. Only in virtual time.
    Suspend {
        /// The clients that are suspended.
        #[serde(alias = "client")]
        clients: Clients,
    },
    /// The process dies. It cannot be healed.
    Kill {
        /// The clients that die.
        #[serde(alias = "client")]
        clients: Clients,
    },
    /// The wall clock of the process is set forward, or back. Healing: the clock is right again.
    Clock {
        /// The clients whose clock is set.
        #[serde(alias = "client")]
        clients: Clients,
        /// The size of the step.
        by: Shift,
    },
    /// The clock that measures the process's leases runs faster or slower, like a clock that is
    /// slewed. Healing: the clock runs at its own rate again, and does not jump. Only in virtual
    /// time.
    Rate {
        /// The clients whose clock is slewed.
        #[serde(alias = "client")]
        clients: Clients,
        /// Seconds per second: at 2.0 the clock runs twice as fast, at 0.5 half as fast.
        factor: f64,
    },
}

impl ClientFault {
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
