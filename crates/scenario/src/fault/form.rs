//! The form of a fault in TOML and in the JSON Schema: `at`, `after` or `before`, `for`, and one of
//! `node`, `clock`, `net`, `client`, `resource`. In this form, the targets of a fault are fields of
//! its kind.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::client_form::ClientFault;
use super::clock_form::ClockFault;
use super::node_form::NodeFault;
use super::{Clients, Fault, FaultKind, FaultTime, Messages, Nodes, Touches};
use crate::length::Length;
use crate::words::{Class, Moment};
use crate::{End, Side, is_default};

/// The form of a fault in TOML.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "Fault")]
pub(super) struct Form {
    /// The fault strikes this long after the start of the run. Exactly one of `at`, `after`,
    /// `before`.
    at: Option<Length>,
    /// The fault strikes after this moment.
    after: Option<Moment>,
    /// The fault strikes before this moment, which waits for the fault.
    before: Option<Moment>,
    /// The fault is healed this long after it struck. Default: at the end of the run.
    #[serde(rename = "for")]
    lasts: Option<Length>,
    /// Exactly one of `node`, `clock`, `net`, `client`, `resource`.
    node: Option<NodeFault>,
    clock: Option<ClockFault>,
    net: Option<NetworkFault>,
    client: Option<ClientFault>,
    resource: Option<ResourceFault>,
}

/// The effect on the messages between clients and masters. A fault does only what a network can
/// do to TCP: within a connection, no message is lost if a later one arrives.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
enum NetworkFault {
    /// A partition: nothing passes in either direction, on old and new connections. Healing:
    /// the connections that suffered are reset.
    Cut(LinkSelector),
    /// The message and all later ones, on that connection and in that direction, are lost.
    /// Healing: those connections are reset.
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
    /// One end of each open connection is reset, and the other end is not notified. Healing:
    /// the other end is reset, too.
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
    /// Both ends of each open connection are reset. With any other key than `clients` and
    /// `nodes`, the reset comes at that message, which is lost.
    Reset(LinkSelector),
}

/// The messages that a network fault strikes. Default: all.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct LinkSelector {
    /// The clients. The fault hits the whole process of each.
    #[serde(alias = "client", skip_serializing_if = "Clients::is_all")]
    clients: Clients,
    /// The masters to and from which messages pass.
    #[serde(alias = "node", skip_serializing_if = "Nodes::is_all")]
    nodes: Nodes,
    /// The direction.
    #[serde(skip_serializing_if = "is_default")]
    what: Side,
    /// Only requests of this class and their replies.
    #[serde(skip_serializing_if = "is_default")]
    command: Class,
    /// Only from this message on, counted from 1 over all links.
    index: Option<u64>,
    /// Only this many messages.
    count: Option<u64>,
}

/// The effect on the messages between clients and registers. Masters and backends have no part
/// in them: the orchestrator keeps the registers.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
enum ResourceFault {
    /// The clients' requests arrive later by this time; the clients wait until then. Healing:
    /// later requests have no delay, but requests in flight stay late.
    Delay {
        /// The clients whose requests are delayed.
        #[serde(alias = "client", default, skip_serializing_if = "Clients::is_all")]
        clients: Clients,
        /// Reads, writes or both. Default both.
        #[serde(default, skip_serializing_if = "is_default")]
        what: Touches,
        /// The delay.
        by: Length,
    },
}

/// What a fault hits, and what it does.
type Effect = (Option<Nodes>, Option<Clients>, FaultKind);

impl NetworkFault {
    fn split(self) -> Effect {
        use super::NetworkFault as Kind;
        let picked = |which: LinkSelector, kind: fn(Messages) -> Kind| {
            let LinkSelector { clients, nodes, what, command, index, count } = which;
            (clients, nodes, kind(Messages { what, command, index, count }))
        };
        let (clients, nodes, kind) = match self {
            Self::Cut(which) => picked(which, Kind::Cut),
            Self::Drop(which) => picked(which, Kind::Drop),
            Self::Hold(which) => picked(which, Kind::Hold),
            Self::Duplicate(which) => picked(which, Kind::Duplicate),
            Self::Reset(which) => picked(which, Kind::Reset),
            Self::Delay { clients, nodes, what, by } => (clients, nodes, Kind::Delay { what, by }),
            Self::Trickle { clients, nodes, what, bytes } => {
                (clients, nodes, Kind::Trickle { what, bytes })
            }
            Self::HalfOpen { clients, nodes, end } => (clients, nodes, Kind::HalfOpen { end }),
        };
        (Some(nodes), Some(clients), FaultKind::Net(kind))
    }

    fn of(clients: Clients, nodes: Nodes, kind: super::NetworkFault) -> Self {
        use super::NetworkFault as Kind;
        let which = |messages: Messages| {
            let Messages { what, command, index, count } = messages;
            let (clients, nodes) = (clients.clone(), nodes.clone());
            LinkSelector { clients, nodes, what, command, index, count }
        };
        match kind {
            Kind::Cut(messages) => Self::Cut(which(messages)),
            Kind::Drop(messages) => Self::Drop(which(messages)),
            Kind::Hold(messages) => Self::Hold(which(messages)),
            Kind::Duplicate(messages) => Self::Duplicate(which(messages)),
            Kind::Reset(messages) => Self::Reset(which(messages)),
            Kind::Delay { what, by } => Self::Delay { clients, nodes, what, by },
            Kind::Trickle { what, bytes } => Self::Trickle { clients, nodes, what, bytes },
            Kind::HalfOpen { end } => Self::HalfOpen { clients, nodes, end },
        }
    }
}

impl ResourceFault {
    fn split(self) -> Effect {
        let Self::Delay { clients, what, by } = self;
        (None, Some(clients), FaultKind::Resource(super::ResourceFault::Delay { what, by }))
    }

    fn of(clients: Clients, kind: super::ResourceFault) -> Self {
        let super::ResourceFault::Delay { what, by } = kind;
        Self::Delay { clients, what, by }
    }
}

impl TryFrom<Form> for Fault {
    type Error = &'static str;

    fn try_from(form: Form) -> Result<Self, Self::Error> {
        let Form { at, after, before, lasts, node, clock, net, client, resource } = form;
        let when = match (at, after, before) {
            (Some(at), None, None) => FaultTime::At(at),
            (None, Some(after), None) => FaultTime::After(after),
            (None, None, Some(before)) => FaultTime::Before(before),
            (None, None, None) => {
                return Err("the fault never strikes: give it `at = \"1s\"`, `after = \"c1 \
                            granted L\"` or `before = \"c1 reply 3\"`");
            }
            _ => {
                return Err("the fault has several times to strike: keep one of `at`, `after` \
                            and `before`");
            }
        };
        let node = node.map(|fault| {
            let (nodes, kind) = fault.split();
            (Some(nodes), None, FaultKind::Node(kind))
        });
        let clock = clock.map(|fault| {
            let (nodes, kind) = fault.split();
            (Some(nodes), None, FaultKind::Clock(kind))
        });
        let client = client.map(|fault| {
            let (clients, kind) = fault.split();
            (None, Some(clients), FaultKind::Client(kind))
        });
        let net = net.map(NetworkFault::split);
        let resource = resource.map(ResourceFault::split);
        let effects: [Option<Effect>; 5] = [node, clock, net, client, resource];
        let mut effects = effects.into_iter().flatten();
        match (effects.next(), effects.next()) {
            (Some((nodes, clients, kind)), None) => Ok(Self { when, lasts, nodes, clients, kind }),
            (None, _) => Err("the fault does nothing: give it an effect such as `node.kill = { \
                              nodes = [1] }`, `clock.step`, `net.drop` or `client.pause`"),
            _ => Err("the fault does several things: write a [[fault]] for each"),
        }
    }
}

impl From<Fault> for Form {
    fn from(fault: Fault) -> Self {
        let (when, lasts) = (fault.when.clone(), fault.lasts);
        let mut form = Self { lasts, ..Self::effect(fault) };
        match when {
            FaultTime::At(at) => form.at = Some(at),
            FaultTime::After(moment) => form.after = Some(moment),
            FaultTime::Before(moment) => form.before = Some(moment),
        }
        form
    }
}

impl Form {
    /// The form without the times.
    fn effect(Fault { nodes, clients, kind, .. }: Fault) -> Self {
        let (nodes, clients) = (nodes.unwrap_or_default(), clients.unwrap_or_default());
        let mut form = Self::default();
        match kind {
            FaultKind::Node(kind) => form.node = Some(NodeFault::of(nodes, kind)),
            FaultKind::Clock(kind) => form.clock = Some(ClockFault::of(nodes, kind)),
            FaultKind::Net(kind) => form.net = Some(NetworkFault::of(clients, nodes, kind)),
            FaultKind::Client(kind) => form.client = Some(ClientFault::of(clients, kind)),
            FaultKind::Resource(kind) => form.resource = Some(ResourceFault::of(clients, kind)),
        }
        form
    }
}

impl Fault {
    /// What the fault hits and does, as in TOML, without its times.
    pub fn effect(&self) -> impl Serialize + use<> {
        Form::effect(self.clone())
    }
}
