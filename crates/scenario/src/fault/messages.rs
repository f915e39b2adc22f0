//! The messages that a fault hits, and what happens to them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::{Clients, FaultKind, NetworkFault, NodeFault, Nodes};
use crate::words::Class;
use crate::{MessageFault, Side, is_default};

/// The messages that a network fault strikes. Default: all.
#[skip_serializing_none]
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
    #[serde(skip_serializing_if = "is_default")]
    pub what: Side,
    /// Only requests of this class and their replies.
    #[serde(skip_serializing_if = "is_default")]
    pub command: Class,
    /// Only from this message on, counted from 1 over all links.
    pub index: Option<u64>,
    /// Only this many messages.
    pub count: Option<u64>,
}

impl FaultKind {
    /// The messages that the fault strikes on the links that it hits, and what happens to them.
    pub fn strikes_messages(&self) -> Option<(LinkSelector, MessageFault)> {
        let all = |what: Side| LinkSelector { what, ..LinkSelector::default() };
        let net = match self {
            Self::Net(net) => net,
            Self::Node(NodeFault::Slow { by, .. }) => {
                return Some((all(Side::Reply), MessageFault::Delay(by.0)));
            }
            _ => return None,
        };
        Some(match net {
            NetworkFault::Cut(_) => (all(Side::Both), MessageFault::Drop),
            NetworkFault::Drop(which) => (which.clone(), MessageFault::Drop),
            NetworkFault::Hold(which) => (which.clone(), MessageFault::Hold),
            NetworkFault::Duplicate(which) => {
                let which = LinkSelector { what: Side::Request, ..which.clone() };
                (which, MessageFault::Duplicate)
            }
            NetworkFault::Reset(which) => (which.clone(), MessageFault::Reset),
            NetworkFault::Delay { what, by, .. } => (all(*what), MessageFault::Delay(by.0)),
            NetworkFault::Trickle { what, bytes, .. } => {
                (all(*what), MessageFault::Trickle(*bytes))
            }
            NetworkFault::HalfOpen { end, .. } => (all(Side::Both), MessageFault::HalfOpen(*end)),
        })
    }
}
