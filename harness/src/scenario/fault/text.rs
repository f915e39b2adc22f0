//! The form of a fault in TOML, and so in the JSON Schema: `at`, `after` or `before`, `for`, and
//! one of `node`, `clock`, `net`, `client`, `resource`. Only Serde calls this module.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    ClientFault, ClockFault, Fault, FaultKind, FaultTime, NetworkFault, NodeFault, ResourceFault,
};
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
    node: Option<NodeFault>,
    #[serde(skip_serializing_if = "Option::is_none")]
    clock: Option<ClockFault>,
    #[serde(skip_serializing_if = "Option::is_none")]
    net: Option<NetworkFault>,
    #[serde(skip_serializing_if = "Option::is_none")]
    client: Option<ClientFault>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource: Option<ResourceFault>,
}

impl TryFrom<Text> for Fault {
    type Error = String;

    fn try_from(text: Text) -> Result<Self, String> {
        let when = match (text.at, text.after, text.before) {
            (Some(at), None, None) => FaultTime::At(at),
            (None, Some(after), None) => FaultTime::After(after),
            (None, None, Some(before)) => FaultTime::Before(before),
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
        let mut fault_kinds = [
            node.map(FaultKind::Node),
            clock.map(FaultKind::Clock),
            net.map(FaultKind::Net),
            client.map(FaultKind::Client),
            resource.map(FaultKind::Resource),
        ]
        .into_iter()
        .flatten();
        let fault_kind = match (fault_kinds.next(), fault_kinds.next()) {
            (Some(fault_kind), None) => fault_kind,
            (None, _) => {
                return Err("the fault does nothing: give it a harm such as `node.kill = { \
                            nodes = [1] }`, `clock.step`, `net.drop` or `client.pause`"
                    .to_owned());
            }
            (Some(_), Some(_)) => {
                return Err("the fault does several things: write a [[fault]] for each".to_owned());
            }
        };
        Ok(Self { when, lasts: text.lasts, fault_kind })
    }
}

impl From<Fault> for Text {
    fn from(fault: Fault) -> Self {
        let mut text = Self { lasts: fault.lasts, ..Self::default() };
        match fault.when {
            FaultTime::At(at) => text.at = Some(at),
            FaultTime::After(moment) => text.after = Some(moment),
            FaultTime::Before(moment) => text.before = Some(moment),
        }
        match fault.fault_kind {
            FaultKind::Node(fault_kind) => text.node = Some(fault_kind),
            FaultKind::Clock(fault_kind) => text.clock = Some(fault_kind),
            FaultKind::Net(fault_kind) => text.net = Some(fault_kind),
            FaultKind::Client(fault_kind) => text.client = Some(fault_kind),
            FaultKind::Resource(fault_kind) => text.resource = Some(fault_kind),
        }
        text
    }
}
