//! The masters and clients that a fault hits: masters by number or by role, clients by name. The
//! orchestrator resolves roles when the fault strikes.
//!
//! And the form of a fault in TOML and in the JSON Schema: `at`, `after` or `before`, `for`, and
//! one of `node`, `clock`, `net`, `client`, `resource`. In this form, the targets of a fault are
//! fields of its kind.

use std::fmt;
use std::str::FromStr;

use super::client_form::ClientFault;
use super::clock_form::ClockFault;
use super::node_form::NodeFault;
use super::{Fault, FaultKind, FaultTime, Messages, Touches};
use crate::length::Length;
use crate::name::Name;
use crate::words::{Class, Moment};
use crate::{End, Side, is_default};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// Masters: by number, or by their role when the fault strikes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "NodesForm", into = "NodesForm")]
#[schemars(with = "NodesForm")]
pub enum Nodes {
    /// All masters.
    #[default]
    All,
    /// These masters, counted from 1.
    Some(Vec<usize>),
    /// The masters with this role.
    Role(Role),
}

/// Masters: a number from 1, a list of numbers, or a role.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "masters: a number from 1, a list of numbers, or a role such as `holder(c1)`"
)]
#[schemars(rename = "Nodes")]
enum NodesForm {
    One(i64),
    List(Vec<i64>),
    /// `all`, `holder(c1)`, `holders(c1, 2)`, `others(c1)`.
    Role(String),
}

impl TryFrom<NodesForm> for Nodes {
    type Error = String;

    fn try_from(form: NodesForm) -> Result<Self, String> {
        let list = match form {
            NodesForm::Role(text) => return text.parse(),
            NodesForm::One(number) => vec![number],
            NodesForm::List(list) => list,
        };
        if list.is_empty() {
            return Err("no master is named: leave `nodes` out for all".to_owned());
        }
        let mut numbers = Vec::new();
        for number in list {
            match usize::try_from(number) {
                Ok(number) if numbers.contains(&number) => {
                    return Err(format!("master {number} is there twice"));
                }
                Ok(number) if number > 0 => numbers.push(number),
                _ => return Err(format!("there is no master {number}: count from 1")),
            }
        }
        Ok(Self::Some(numbers))
    }
}

impl From<Nodes> for NodesForm {
    fn from(nodes: Nodes) -> Self {
        match nodes {
            Nodes::All => Self::Role("all".to_owned()),
            Nodes::Some(numbers) => Self::List(
                numbers.into_iter().filter_map(|number| number.try_into().ok()).collect(),
            ),
            Nodes::Role(role) => Self::Role(role.to_string()),
        }
    }
}

impl Nodes {
    /// Whether all masters are selected.
    pub const fn is_all(&self) -> bool {
        matches!(self, Self::All)
    }
}

const ROLES: &str = "`all`, `holder(c1)` for one master that granted c1's latest lease, \
                     `holders(c1)` for all of them, `holders(c1, 2)` for two, `others(c1)` for \
                     those that did not";

impl FromStr for Nodes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let role = || {
            let (part, rest) = text.split_once('(')?;
            let inside = rest.strip_suffix(')')?;
            let (client, first) = match inside.split_once(',') {
                Some((client, first)) => (client, Some(first.trim().parse().ok()?)),
                None => (inside, None),
            };
            let (granted, first) = match (part.trim(), first) {
                ("holder", None) => (true, Some(1)),
                ("holders", first) => (true, first),
                ("others", first) => (false, first),
                _ => return None,
            };
            let client = Name::from(client.trim());
            (!client.is_empty() && first != Some(0)).then_some(Role { client, granted, first })
        };
        match text {
            "all" => Ok(Self::All),
            _ => role().map(Self::Role).ok_or_else(|| {
                format!("`{text}` names no masters: write {ROLES}, or numbers from 1")
            }),
        }
    }
}

/// The role of masters when a fault strikes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Role {
    /// The client that the role refers to.
    pub client: Name,
    /// `true`: the masters that granted the client's latest lease. `false`: the others.
    pub granted: bool,
    /// Only this many of them, the first ones. `None`: all.
    pub first: Option<usize>,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { client, granted, first } = self;
        match (granted, first) {
            (true, Some(1)) => write!(f, "holder({client})"),
            (true, Some(first)) => write!(f, "holders({client}, {first})"),
            (true, None) => write!(f, "holders({client})"),
            (false, Some(first)) => write!(f, "others({client}, {first})"),
            (false, None) => write!(f, "others({client})"),
        }
    }
}

/// Clients, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "ClientsForm", into = "ClientsForm")]
#[schemars(with = "ClientsForm")]
pub enum Clients {
    /// All clients.
    #[default]
    All,
    /// These clients.
    Some(Vec<Name>),
}

/// Clients: a name, a list of names, or `all`.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "clients: a name such as `c1`, a list of names, or `all`")]
#[schemars(rename = "Clients")]
enum ClientsForm {
    One(#[schemars(with = "String")] Name),
    List(#[schemars(with = "Vec<String>")] Vec<Name>),
}

impl TryFrom<ClientsForm> for Clients {
    type Error = &'static str;

    fn try_from(form: ClientsForm) -> Result<Self, Self::Error> {
        match form {
            ClientsForm::One(name) if name == "all" => Ok(Self::All),
            ClientsForm::One(name) => Ok(Self::Some(vec![name])),
            ClientsForm::List(list) if list.is_empty() => {
                Err("no client is named: leave `clients` out for all")
            }
            ClientsForm::List(list) => Ok(Self::Some(list)),
        }
    }
}

impl From<Clients> for ClientsForm {
    fn from(clients: Clients) -> Self {
        match clients {
            Clients::All => Self::One("all".into()),
            Clients::Some(names) if names.len() == 1 => Self::One(names[0].clone()),
            Clients::Some(names) => Self::List(names),
        }
    }
}

impl Clients {
    /// Whether all clients are selected.
    pub const fn is_all(&self) -> bool {
        matches!(self, Self::All)
    }

    /// Whether a client is selected.
    pub fn has(&self, client: &str) -> bool {
        match self {
            Self::All => true,
            Self::Some(names) => names.iter().any(|name| name == client),
        }
    }
}

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
