//! The messages that a network fault hits.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::{Clients, Nodes};
use crate::named::named;
use crate::scenario::is_default;

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

named! {
    /// The direction of a message.
    #[derive(Default)]
    pub enum Side {
        /// From clients to masters.
        Request = "request",
        /// From masters to clients.
        Reply = "reply",
        /// Either direction.
        #[default]
        Both = "both",
    }
}

named! {
    /// An end of a connection.
    pub enum End {
        /// The client's.
        Client = "client",
        /// The master's.
        Master = "master",
    }
}

named! {
    /// The purpose of a request, by its effect on a key.
    #[derive(Default)]
    pub enum Class {
        /// The request sets a key that must not exist.
        Acquire = "acquire",
        /// The request prolongs a key.
        Extend = "extend",
        /// The request deletes a key.
        Release = "release",
        /// The request enters the fair queue, or leaves it. It touches no key of a lock.
        Line = "line",
        /// No request: a master notifies a client that a resource became free.
        WakeUp = "wake-up",
        /// Any request.
        #[default]
        Any = "any",
    }
}
