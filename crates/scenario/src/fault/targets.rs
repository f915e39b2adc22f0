//! The masters and clients that a fault hits: masters by number or by role, clients by name. The
//! orchestrator resolves roles when the fault strikes.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::name::Name;

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
