//! What is done to the messages between clients and masters, and which messages it is done to.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Clients, Nodes};
use crate::scenario::length::Length;

/// What is done to the messages between clients and masters, as a network can do it to TCP:
/// within a connection nothing is lost that something behind it survives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum NetHarm {
    /// Nothing passes, either way, on old and new connections: a partition. Cure: the connections
    /// that suffered are reset.
    Cut(Which),
    /// The message and all behind it, on that connection and in that direction, are lost. Cure:
    /// those connections are reset.
    Drop(Which),
    /// The message and all behind it wait. Cure: they pass.
    Hold(Which),
    /// Each message comes so much later; the order stays.
    Delay {
        /// Whose messages.
        #[serde(alias = "client", default)]
        clients: Clients,
        /// To and from which masters.
        #[serde(alias = "node", default)]
        nodes: Nodes,
        /// In which direction.
        #[serde(default)]
        what: Side,
        /// How much later.
        by: Length,
    },
    /// The request arrives a second time, on another connection.
    Duplicate(Which),
    /// So few bytes a second pass.
    Trickle {
        /// Whose messages.
        #[serde(alias = "client", default)]
        clients: Clients,
        /// To and from which masters.
        #[serde(alias = "node", default)]
        nodes: Nodes,
        /// In which direction.
        #[serde(default)]
        what: Side,
        /// Bytes per second.
        bytes: u32,
    },
    /// One end of the open connections is reset, and the other is told nothing. Cure: the other
    /// is reset, too.
    HalfOpen {
        /// Whose connections.
        #[serde(alias = "client", default)]
        clients: Clients,
        /// To which masters.
        #[serde(alias = "node", default)]
        nodes: Nodes,
        /// Which end learns of it.
        end: End,
    },
    /// The open connections are reset, both ends; with a `command` or an `index`, at that message,
    /// which is lost.
    Reset(Which),
}

impl NetHarm {
    /// To and from which masters.
    pub(super) const fn nodes(&self) -> &Nodes {
        match self {
            Self::Cut(which)
            | Self::Drop(which)
            | Self::Hold(which)
            | Self::Duplicate(which)
            | Self::Reset(which) => &which.nodes,
            Self::Delay { nodes, .. }
            | Self::Trickle { nodes, .. }
            | Self::HalfOpen { nodes, .. } => nodes,
        }
    }

    /// Whose messages.
    pub(super) const fn clients(&self) -> &Clients {
        match self {
            Self::Cut(which)
            | Self::Drop(which)
            | Self::Hold(which)
            | Self::Duplicate(which)
            | Self::Reset(which) => &which.clients,
            Self::Delay { clients, .. }
            | Self::Trickle { clients, .. }
            | Self::HalfOpen { clients, .. } => clients,
        }
    }

    /// Which messages, where it strikes single ones.
    pub const fn which(&self) -> Option<&Which> {
        match self {
            Self::Cut(which)
            | Self::Drop(which)
            | Self::Hold(which)
            | Self::Duplicate(which)
            | Self::Reset(which) => Some(which),
            Self::Delay { .. } | Self::Trickle { .. } | Self::HalfOpen { .. } => None,
        }
    }

    /// The same, to change it.
    pub const fn which_mut(&mut self) -> Option<&mut Which> {
        match self {
            Self::Cut(which)
            | Self::Drop(which)
            | Self::Hold(which)
            | Self::Duplicate(which)
            | Self::Reset(which) => Some(which),
            Self::Delay { .. } | Self::Trickle { .. } | Self::HalfOpen { .. } => None,
        }
    }

    pub(super) const fn nodes_mut(&mut self) -> &mut Nodes {
        match self {
            Self::Cut(which)
            | Self::Drop(which)
            | Self::Hold(which)
            | Self::Duplicate(which)
            | Self::Reset(which) => &mut which.nodes,
            Self::Delay { nodes, .. }
            | Self::Trickle { nodes, .. }
            | Self::HalfOpen { nodes, .. } => nodes,
        }
    }

    pub(super) const fn clients_mut(&mut self) -> &mut Clients {
        match self {
            Self::Cut(which)
            | Self::Drop(which)
            | Self::Hold(which)
            | Self::Duplicate(which)
            | Self::Reset(which) => &mut which.clients,
            Self::Delay { clients, .. }
            | Self::Trickle { clients, .. }
            | Self::HalfOpen { clients, .. } => clients,
        }
    }
}

/// Which messages a fault of the network strikes. By default all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Which {
    /// Of whom; a fault hits the process in which the client lives.
    #[serde(alias = "client", skip_serializing_if = "Clients::is_all")]
    pub clients: Clients,
    /// To and from which masters.
    #[serde(alias = "node", skip_serializing_if = "Nodes::is_all")]
    pub nodes: Nodes,
    /// In which direction.
    #[serde(skip_serializing_if = "Side::is_both")]
    pub what: Side,
    /// Only requests of this class and their replies.
    #[serde(skip_serializing_if = "Class::is_any")]
    pub command: Class,
    /// Only from this message on, counted from 1 over all the links.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<u64>,
    /// Only so many messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
}

/// A direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Side {
    /// From clients to masters.
    Request,
    /// From masters to clients.
    Reply,
    /// Either.
    #[default]
    Both,
}

impl Side {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants a reference")]
    const fn is_both(&self) -> bool {
        matches!(self, Self::Both)
    }
}

/// An end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// The client's.
    Client,
    /// The master's.
    Master,
}

/// What a request is for, by what it does to a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// It sets a key that must not exist.
    Acquire,
    /// It prolongs a key.
    Extend,
    /// It deletes a key.
    Release,
    /// It asks for a place among those who wait, or gives it up: no lock's key is touched.
    Line,
    /// None: a master says by itself that a resource became free.
    WakeUp,
    /// Anything at all.
    #[default]
    Any,
}

impl Class {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants a reference")]
    const fn is_any(&self) -> bool {
        matches!(self, Self::Any)
    }
}

impl FromStr for Class {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "acquire" => Self::Acquire,
            "extend" => Self::Extend,
            "release" => Self::Release,
            "line" => Self::Line,
            "wake-up" => Self::WakeUp,
            "any" => Self::Any,
            _ => {
                return Err(format!(
                    "`{text}` is no class of messages: write acquire, extend, release, line, wake-up or any"
                ));
            }
        })
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Acquire => "acquire",
            Self::Extend => "extend",
            Self::Release => "release",
            Self::Line => "line",
            Self::WakeUp => "wake-up",
            Self::Any => "any",
        })
    }
}
