//! Faults of the network between clients and masters, and the messages that they hit.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Clients, Nodes};
use crate::scenario::length::Length;

/// The effect on the messages between clients and masters. A fault does only what a network can do
/// to TCP: within a connection, no message is lost if a later one arrives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum NetworkFault {
    /// A partition: nothing passes in either direction, on old and new connections. Healing: the
    /// connections that suffered are reset.
    Cut(LinkSelector),
    /// The message and all later ones, on that connection and in that direction, are lost. Healing:
    /// those connections are reset.
    Drop(LinkSelector),
    /// The message and all later ones are held back. Healing: they pass.
    Hold(LinkSelector),
    /// Each message arrives later by this time. The order stays.
    Delay {
        /// The clients whose messages are delayed.
        #[serde(alias = "client", default)]
        clients: Clients,
        /// The masters to and from which messages are delayed.
        #[serde(alias = "node", default)]
        nodes: Nodes,
        /// The direction of the messages.
        #[serde(default)]
        what: Side,
        /// The delay.
        by: Length,
    },
    /// The request arrives a second time, on another connection.
    Duplicate(LinkSelector),
    /// Only this many bytes pass per second.
    Trickle {
        /// The clients whose messages are slowed down.
        #[serde(alias = "client", default)]
        clients: Clients,
        /// The masters to and from which messages are slowed down.
        #[serde(alias = "node", default)]
        nodes: Nodes,
        /// The direction of the messages.
        #[serde(default)]
        what: Side,
        /// Bytes per second.
        bytes: u32,
    },
    /// One end of each open connection is reset, and the other end is not notified. Healing: the
    /// other end is reset, too.
    HalfOpen {
        /// The clients whose connections are reset.
        #[serde(alias = "client", default)]
        clients: Clients,
        /// The masters of these connections.
        #[serde(alias = "node", default)]
        nodes: Nodes,
        /// The end that is notified.
        end: End,
    },
    /// Both ends of each open connection are reset. With a `command` or an `index`, the reset comes
    /// at that message, which is lost.
    Reset(LinkSelector),
}

impl NetworkFault {
    /// The masters to and from which messages are hit.
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

    /// The clients whose messages are hit.
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

    /// The selected messages, if the fault strikes single ones.
    pub const fn which(&self) -> Option<&LinkSelector> {
        match self {
            Self::Cut(which)
            | Self::Drop(which)
            | Self::Hold(which)
            | Self::Duplicate(which)
            | Self::Reset(which) => Some(which),
            Self::Delay { .. } | Self::Trickle { .. } | Self::HalfOpen { .. } => None,
        }
    }

    /// The selected messages, for modification.
    pub const fn which_mut(&mut self) -> Option<&mut LinkSelector> {
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

/// The messages that a network fault strikes. Default: all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct LinkSelector {
    /// The clients. The fault hits the whole process of each.
    #[serde(alias = "client", skip_serializing_if = "Clients::is_all")]
    pub clients: Clients,
    /// The masters to and from which messages pass.
    #[serde(alias = "node", skip_serializing_if = "Nodes::is_all")]
    pub nodes: Nodes,
    /// The direction.
    #[serde(skip_serializing_if = "Side::is_both")]
    pub what: Side,
    /// Only requests of this class and their replies.
    #[serde(skip_serializing_if = "Class::is_any")]
    pub command: Class,
    /// Only from this message on, counted from 1 over all links.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<u64>,
    /// Only this many messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
}

/// The direction of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Side {
    /// From clients to masters.
    Request,
    /// From masters to clients.
    Reply,
    /// Either direction.
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

/// The purpose of a request, by its effect on a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// The request sets a key that must not exist.
    Acquire,
    /// The request prolongs a key.
    Extend,
    /// The request deletes a key.
    Release,
    /// The request enters the fair queue, or leaves it. It touches no key of a lock.
    Line,
    /// No request: a master notifies a client that a resource became free.
    WakeUp,
    /// Any request.
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
