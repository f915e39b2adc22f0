//! The masters and clients that a fault hits: masters by number or by role, clients by name. The
//! orchestrator resolves roles when the fault strikes.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::name::Name;

/// Masters: by number, or by their role when the fault strikes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Nodes {
    /// All masters.
    #[default]
    All,
    /// These masters, counted from 1.
    Some(Vec<usize>),
    /// The masters with this role.
    Role(Role),
}

impl Nodes {
    /// Whether all masters are selected.
    pub const fn is_all(&self) -> bool {
        matches!(self, Self::All)
    }
}

const ROLES: &str = "`all`, `holder(c1)` for one master that granted c1's latest lease, \
                     `holders(c1)` for all of them, `holders(c1, 2)` for two, `others(c1)` for those \
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
        let client: Name = client.trim().into();
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Clients {
    /// All clients.
    #[default]
    All,
    /// These clients.
    Some(Vec<Name>),
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
                Ok(if text == "all" { Clients::All } else { Clients::Some(vec![text.into()]) })
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, mut list: A) -> Result<Clients, A::Error> {
                let mut names = Vec::new();
                while let Some(name) = list.next_element::<Name>()? {
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
