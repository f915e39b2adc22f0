//! Faults as values: a harm, whom it hits, when it strikes and when it is cured.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::length::{Length, Shift};
use super::words::Moment;

/// Something that goes wrong.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "Text", into = "Text")]
#[schemars(with = "Text")]
pub struct Fault {
    /// When it strikes.
    pub when: When,
    /// How long until it is cured. Without it: until everything is healed at the end of the run.
    pub lasts: Option<Length>,
    /// What it does.
    pub harm: Harm,
}

/// When a fault strikes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum When {
    /// So long after the start of the run.
    At(Length),
    /// After this moment, the first time that it comes.
    After(Moment),
    /// Before this moment, the first time that it comes: what is about to happen is held back
    /// until the fault has struck.
    Before(Moment),
}

/// What a fault does: to a master, to its clock, to the network, to a client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Harm {
    /// To masters.
    Node(NodeHarm),
    /// To the wall clocks of masters.
    Clock(ClockHarm),
    /// To what passes between clients and masters.
    Net(NetHarm),
    /// To client processes.
    Client(ClientHarm),
}

/// How a fault is written.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "Fault")]
struct Text {
    /// It strikes so long after the start of the run. Exactly one of `at`, `after`, `before`.
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<Length>,
    /// It strikes after this moment.
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<Moment>,
    /// It strikes before this moment, which waits for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<Moment>,
    /// It is cured so long after it struck. Default: at the end of the run.
    #[serde(rename = "for", skip_serializing_if = "Option::is_none")]
    lasts: Option<Length>,
    /// Exactly one of `node`, `clock`, `net`, `client`.
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<NodeHarm>,
    #[serde(skip_serializing_if = "Option::is_none")]
    clock: Option<ClockHarm>,
    #[serde(skip_serializing_if = "Option::is_none")]
    net: Option<NetHarm>,
    #[serde(skip_serializing_if = "Option::is_none")]
    client: Option<ClientHarm>,
}

impl TryFrom<Text> for Fault {
    type Error = String;

    fn try_from(text: Text) -> Result<Self, String> {
        let when = match (text.at, text.after, text.before) {
            (Some(at), None, None) => When::At(at),
            (None, Some(after), None) => When::After(after),
            (None, None, Some(before)) => When::Before(before),
            (None, None, None) => {
                return Err("the fault never strikes: give it `at = \"1s\"`, `after = \"c1 \
                            granted L\"` or `before = \"c1 reply 3\"`"
                    .to_owned());
            }
            _ => {
                return Err("the fault has several times to strike: keep one of `at`, `after` \
                            and `before`"
                    .to_owned());
            }
        };
        let harm = match (text.node, text.clock, text.net, text.client) {
            (Some(harm), None, None, None) => Harm::Node(harm),
            (None, Some(harm), None, None) => Harm::Clock(harm),
            (None, None, Some(harm), None) => Harm::Net(harm),
            (None, None, None, Some(harm)) => Harm::Client(harm),
            (None, None, None, None) => {
                return Err("the fault does nothing: give it a harm such as `node.kill = { \
                            nodes = [1] }`, `clock.step`, `net.drop` or `client.pause`"
                    .to_owned());
            }
            _ => {
                return Err("the fault does several things: write a [[fault]] for each".to_owned());
            }
        };
        Ok(Self { when, lasts: text.lasts, harm })
    }
}

impl From<Fault> for Text {
    fn from(fault: Fault) -> Self {
        let mut text = Self { lasts: fault.lasts, ..Self::default() };
        match fault.when {
            When::At(at) => text.at = Some(at),
            When::After(moment) => text.after = Some(moment),
            When::Before(moment) => text.before = Some(moment),
        }
        match fault.harm {
            Harm::Node(harm) => text.node = Some(harm),
            Harm::Clock(harm) => text.clock = Some(harm),
            Harm::Net(harm) => text.net = Some(harm),
            Harm::Client(harm) => text.client = Some(harm),
        }
        text
    }
}

impl Harm {
    /// Its name, as in TOML: `clock.step`.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Node(NodeHarm::Kill { .. }) => "node.kill",
            Self::Node(NodeHarm::Stop { .. }) => "node.stop",
            Self::Node(NodeHarm::Restart { .. }) => "node.restart",
            Self::Node(NodeHarm::Pause { .. }) => "node.pause",
            Self::Node(NodeHarm::Slow { .. }) => "node.slow",
            Self::Clock(ClockHarm::Step { .. }) => "clock.step",
            Self::Clock(ClockHarm::Rate { .. }) => "clock.rate",
            Self::Clock(ClockHarm::Strobe { .. }) => "clock.strobe",
            Self::Net(NetHarm::Cut(_)) => "net.cut",
            Self::Net(NetHarm::Drop(_)) => "net.drop",
            Self::Net(NetHarm::Hold(_)) => "net.hold",
            Self::Net(NetHarm::Delay { .. }) => "net.delay",
            Self::Net(NetHarm::Duplicate(_)) => "net.duplicate",
            Self::Net(NetHarm::Trickle { .. }) => "net.trickle",
            Self::Net(NetHarm::HalfOpen { .. }) => "net.half-open",
            Self::Net(NetHarm::Reset(_)) => "net.reset",
            Self::Client(ClientHarm::Pause { .. }) => "client.pause",
            Self::Client(ClientHarm::Kill { .. }) => "client.kill",
            Self::Client(ClientHarm::Clock { .. }) => "client.clock",
        }
    }

    /// Whether it sets a wall clock.
    pub const fn sets_a_clock(&self) -> bool {
        matches!(self, Self::Clock(_) | Self::Client(ClientHarm::Clock { .. }))
    }

    /// The masters that it hits; of a fault of the network those whose links it hits.
    pub const fn nodes(&self) -> Option<&Nodes> {
        match self {
            Self::Node(harm) => Some(harm.nodes()),
            Self::Clock(harm) => Some(harm.nodes()),
            Self::Net(harm) => Some(harm.nodes()),
            Self::Client(_) => None,
        }
    }

    /// The clients that it hits.
    pub const fn clients(&self) -> Option<&Clients> {
        match self {
            Self::Net(harm) => Some(harm.clients()),
            Self::Client(harm) => Some(harm.clients()),
            Self::Node(_) | Self::Clock(_) => None,
        }
    }
}

/// What is done to a master.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum NodeHarm {
    /// It is killed. Cure: it is started again, with what it had on disk.
    Kill {
        /// Which.
        #[serde(alias = "node")]
        nodes: Nodes,
    },
    /// It is shut down in order, and may write its file. Cure: it is started again.
    Stop {
        /// Which.
        #[serde(alias = "node")]
        nodes: Nodes,
    },
    /// It is killed and started again at once. Nothing to cure.
    Restart {
        /// Which.
        #[serde(alias = "node")]
        nodes: Nodes,
    },
    /// It stops executing; the system accepts connections and data for it. Cure: it goes on, and
    /// executes what it got meanwhile.
    Pause {
        /// Which.
        #[serde(alias = "node")]
        nodes: Nodes,
    },
    /// All its replies come so much later, to everyone. Cure: no longer.
    Slow {
        /// Which.
        #[serde(alias = "node")]
        nodes: Nodes,
        /// How much later.
        by: Length,
    },
}

impl NodeHarm {
    const fn nodes(&self) -> &Nodes {
        match self {
            Self::Kill { nodes }
            | Self::Stop { nodes }
            | Self::Restart { nodes }
            | Self::Pause { nodes }
            | Self::Slow { nodes, .. } => nodes,
        }
    }
}

/// What is done to the wall clock of a master. The cure sets it right, which is a step, too: cure
/// no step while a lease that was granted meanwhile lives, unless that is the lesson.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum ClockHarm {
    /// It is set forward, or back.
    Step {
        /// Which.
        #[serde(alias = "node")]
        nodes: Nodes,
        /// How far.
        by: Shift,
    },
    /// It runs faster or slower.
    Rate {
        /// Which.
        #[serde(alias = "node")]
        nodes: Nodes,
        /// Its seconds per second: 2.0 runs twice as fast, 0.5 half as fast.
        factor: f64,
    },
    /// It jumps ahead and back again, over and over.
    Strobe {
        /// Which.
        #[serde(alias = "node")]
        nodes: Nodes,
        /// How far ahead.
        by: Length,
        /// How long it stays there, and then at its place.
        every: Length,
    },
}

impl ClockHarm {
    const fn nodes(&self) -> &Nodes {
        match self {
            Self::Step { nodes, .. } | Self::Rate { nodes, .. } | Self::Strobe { nodes, .. } => {
                nodes
            }
        }
    }
}

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
    const fn nodes(&self) -> &Nodes {
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
    const fn clients(&self) -> &Clients {
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
            "any" => Self::Any,
            _ => {
                return Err(format!(
                    "`{text}` is no class of requests: write acquire, extend, release or any"
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
            Self::Any => "any",
        })
    }
}

/// What is done to a client process, and so to all clients in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum ClientHarm {
    /// It stops, as in a long garbage collection. Cure: it goes on, and does not know.
    Pause {
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
}

impl ClientHarm {
    const fn clients(&self) -> &Clients {
        match self {
            Self::Pause { clients } | Self::Kill { clients } | Self::Clock { clients, .. } => {
                clients
            }
        }
    }
}

/// Clients, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Clients {
    /// All.
    #[default]
    All,
    /// These.
    Some(Vec<String>),
}

impl Clients {
    /// Whether it is all of them.
    pub const fn is_all(&self) -> bool {
        matches!(self, Self::All)
    }

    /// Whether a client is among them.
    pub fn has(&self, client: &str) -> bool {
        match self {
            Self::All => true,
            Self::Some(names) => names.iter().any(|name| name == client),
        }
    }
}

/// Masters: by number, or by the part that they play when the fault strikes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Nodes {
    /// All.
    #[default]
    All,
    /// These, counted from 1.
    Some(Vec<usize>),
    /// By their part.
    Role(Role),
}

/// The part of masters when a fault strikes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Role {
    /// Of which client.
    pub client: String,
    /// Those that granted its latest lease, or those that did not.
    pub granted: bool,
    /// The first so many of them; `None`: all.
    pub first: Option<usize>,
}

impl Nodes {
    /// Whether it is all of them.
    pub const fn is_all(&self) -> bool {
        matches!(self, Self::All)
    }
}

const ROLES: &str = "`all`, `holder(c1)` for one master that granted c1's latest lease, `holders(c1)` for all of them, `holders(c1, 2)` for two, `others(c1)` for those \
                     that did not";

impl FromStr for Nodes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` names no masters: write {ROLES}, or numbers from 1");
        if text == "all" {
            return Ok(Self::All);
        }
        let (part, rest) = text.split_once('(').ok_or_else(wrong)?;
        let inside = rest.strip_suffix(')').ok_or_else(wrong)?;
        let (client, first) = match inside.split_once(',') {
            Some((client, first)) => {
                let first: usize = first.trim().parse().map_err(|_| wrong())?;
                (client, Some(Some(first).filter(|first| *first > 0).ok_or_else(wrong)?))
            }
            None => (inside, None),
        };
        let client = client.trim().to_owned();
        let (granted, first) = match (part.trim(), first) {
            ("holder", None) => (true, Some(1)),
            ("holders", first) => (true, first),
            ("others", first) => (false, first),
            _ => return Err(wrong()),
        };
        if client.is_empty() {
            return Err(wrong());
        }
        Ok(Self::Role(Role { client, granted, first }))
    }
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

impl Serialize for Nodes {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::All => to.serialize_str("all"),
            Self::Some(numbers) => numbers.serialize(to),
            Self::Role(role) => to.collect_str(role),
        }
    }
}

impl<'de> Deserialize<'de> for Nodes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Visitor;

        fn number<E: de::Error>(number: i64) -> Result<usize, E> {
            usize::try_from(number)
                .ok()
                .filter(|number| *number > 0)
                .ok_or_else(|| E::custom(format!("there is no master {number}: count from 1")))
        }

        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Nodes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "masters: a number from 1, a list of numbers, or a role such as `holder(c1)`",
                )
            }

            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Nodes, E> {
                Ok(Nodes::Some(vec![number(value)?]))
            }

            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Nodes, E> {
                Ok(Nodes::Some(vec![number(i64::try_from(value).unwrap_or(i64::MAX))?]))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Nodes, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, mut list: A) -> Result<Nodes, A::Error> {
                let mut numbers = Vec::new();
                while let Some(value) = list.next_element::<i64>()? {
                    let value = number(value)?;
                    if numbers.contains(&value) {
                        return Err(de::Error::custom(format!("master {value} is there twice")));
                    }
                    numbers.push(value);
                }
                if numbers.is_empty() {
                    return Err(de::Error::custom("no master is named: leave `nodes` out for all"));
                }
                Ok(Nodes::Some(numbers))
            }
        }

        from.deserialize_any(Visitor)
    }
}

impl JsonSchema for Nodes {
    fn schema_name() -> Cow<'static, str> {
        "Nodes".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "masters: a number from 1, a list of numbers, or a role",
            "oneOf": [
                { "type": "integer", "minimum": 1 },
                { "type": "array", "items": { "type": "integer", "minimum": 1 }, "minItems": 1 },
                { "type": "string", "examples": ["all", "holder(c1)", "holders(c1, 2)", "others(c1)"] },
            ],
        })
    }
}

impl Serialize for Clients {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::All => to.serialize_str("all"),
            Self::Some(names) if names.len() == 1 => names[0].serialize(to),
            Self::Some(names) => names.serialize(to),
        }
    }
}

impl<'de> Deserialize<'de> for Clients {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Clients;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("clients: a name such as `c1`, a list of names, or `all`")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Clients, E> {
                Ok(if text == "all" { Clients::All } else { Clients::Some(vec![text.to_owned()]) })
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, mut list: A) -> Result<Clients, A::Error> {
                let mut names = Vec::new();
                while let Some(name) = list.next_element::<String>()? {
                    names.push(name);
                }
                if names.is_empty() {
                    return Err(de::Error::custom(
                        "no client is named: leave `clients` out for all",
                    ));
                }
                Ok(Clients::Some(names))
            }
        }

        from.deserialize_any(Visitor)
    }
}

impl JsonSchema for Clients {
    fn schema_name() -> Cow<'static, str> {
        "Clients".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "clients: a name, a list of names, or all",
            "oneOf": [
                { "type": "string", "examples": ["c1", "all"] },
                { "type": "array", "items": { "type": "string" }, "minItems": 1 },
            ],
        })
    }
}
