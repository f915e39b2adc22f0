//! What is done to what passes between clients and registers, and what undoes it. Masters have no part
//! in it, and no backend either: the director keeps the registers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Clients;
use crate::scenario::Way;
use crate::scenario::length::Length;

/// What is done to what passes between clients and registers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum ResourceHarm {
    /// What they send comes so much later; they wait until it is there. Cure: no longer; what is under
    /// way stays late.
    Delay {
        /// Whose.
        #[serde(alias = "client", default, skip_serializing_if = "Clients::is_all")]
        clients: Clients,
        /// Reads, writes or both. Default both.
        #[serde(default, skip_serializing_if = "Touches::is_both")]
        what: Touches,
        /// How much later.
        by: Length,
    },
}

/// Ways in which registers are touched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Touches {
    /// Reads alone.
    Read,
    /// Writes alone.
    Write,
    /// Either.
    #[default]
    Both,
}

impl Touches {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants a reference")]
    const fn is_both(&self) -> bool {
        matches!(self, Self::Both)
    }

    /// Whether this way is among them.
    pub const fn has(self, way: Way) -> bool {
        matches!((self, way), (Self::Both, _) | (Self::Read, Way::Read) | (Self::Write, Way::Write))
    }
}

impl ResourceHarm {
    /// By how much it delays what a client sends.
    pub fn delay(&self, client: &str, way: Way) -> Option<Length> {
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
