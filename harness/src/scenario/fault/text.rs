//! The form of a fault in TOML, and so in the JSON Schema: `at`, `after` or `before`, `for`, and
//! one of `node`, `clock`, `net`, `client`, `resource`. Only Serde calls this module.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ClientHarm, ClockHarm, Fault, Harm, NetHarm, NodeHarm, ResourceHarm, When};
use crate::scenario::length::Length;
use crate::scenario::words::Moment;

/// The form of a fault in TOML.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "Fault")]
pub(super) struct Text {
    /// The fault strikes this long after the start of the run. Exactly one of `at`, `after`,
    /// `before`.
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<Length>,
    /// The fault strikes after this moment.
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<Moment>,
    /// The fault strikes before this moment, which waits for the fault.
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<Moment>,
    /// The fault is healed this long after it struck. Default: at the end of the run.
    #[serde(rename = "for", skip_serializing_if = "Option::is_none")]
    lasts: Option<Length>,
    /// Exactly one of `node`, `clock`, `net`, `client`, `resource`.
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<NodeHarm>,
    #[serde(skip_serializing_if = "Option::is_none")]
    clock: Option<ClockHarm>,
    #[serde(skip_serializing_if = "Option::is_none")]
    net: Option<NetHarm>,
    #[serde(skip_serializing_if = "Option::is_none")]
    client: Option<ClientHarm>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource: Option<ResourceHarm>,
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
        let Text { node, clock, net, client, resource, .. } = text;
        let mut harms = [
            node.map(Harm::Node),
            clock.map(Harm::Clock),
            net.map(Harm::Net),
            client.map(Harm::Client),
            resource.map(Harm::Resource),
        ]
        .into_iter()
        .flatten();
        let harm = match (harms.next(), harms.next()) {
            (Some(harm), None) => harm,
            (None, _) => {
                return Err("the fault does nothing: give it a harm such as `node.kill = { \
                            nodes = [1] }`, `clock.step`, `net.drop` or `client.pause`"
                    .to_owned());
            }
            (Some(_), Some(_)) => {
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
            Harm::Resource(harm) => text.resource = Some(harm),
        }
        text
    }
}
