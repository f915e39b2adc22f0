//! Faults of the messages between clients and registers, and their healing. Masters and backends
//! have no part in them: the orchestrator keeps the registers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Clients;
use crate::scenario::AccessKind;
use crate::scenario::length::Length;

/// The effect on the messages between clients and registers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum ResourceFault {
    /// The clients' requests arrive later by this time; the clients wait until then. Healing: later
    /// requests have no delay, but requests in flight stay late.
    Delay {
        /// The clients whose requests are delayed.
        #[serde(alias = "client", default, skip_serializing_if = "Clients::is_all")]
        clients: Clients,
        /// Reads, writes or both. Default both.
        #[serde(default, skip_serializing_if = "Touches::is_both")]
        what: Touches,
        /// The delay.
        by: Length,
    },
}

/// The kinds of access to a register.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Touches {
    /// Only reads.
    Read,
    /// Only writes.
    Write,
    /// Reads and writes.
    #[default]
    Both,
}

impl Touches {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants a reference")]
    const fn is_both(&self) -> bool {
        matches!(self, Self::Both)
    }

    /// Whether this kind of access is one of them.
    pub const fn has(self, way: AccessKind) -> bool {
        matches!(
            (self, way),
            (Self::Both, _) | (Self::Read, AccessKind::Read) | (Self::Write, AccessKind::Write)
        )
    }
}

impl ResourceFault {
    /// The delay of a client's request.
    pub fn delay(&self, client: &str, way: AccessKind) -> Option<Length> {
        let Self::Delay { clients, what, by } = self;
        (clients.has(client) && what.has(way)).then_some(*by)
    }

    pub(super) const fn clients(&self) -> &Clients {
        let Self::Delay { clients, .. } = self;
        clients
    }

    pub(super) const fn clients_mut(&mut self) -> &mut Clients {
        let Self::Delay { clients, .. } = self;
        clients
    }
}
