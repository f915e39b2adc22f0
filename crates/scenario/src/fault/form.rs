//! A fault with its time, and its form in TOML and in the JSON Schema: `at`, `after` or `before`,
//! `for`, and one of `node`, `clock`, `net`, `client`, `resource`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::{ClientFault, ClockFault, FaultKind, NetworkFault, NodeFault, ResourceFault};
use crate::length::Length;
use crate::words::Moment;

/// A fault of a scenario.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "Form", into = "Form")]
#[schemars(with = "Form")]
pub struct Fault {
    /// When the fault strikes.
    pub when: FaultTime,
    /// How long until the fault is healed. Default: until the end of the run, when all faults are
    /// healed.
    pub lasts: Option<Length>,
    /// What the fault does.
    pub fault_kind: FaultKind,
}

/// When a fault strikes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaultTime {
    /// This long after the start of the run.
    At(Length),
    /// After this moment, the first time that it comes.
    After(Moment),
    /// Before this moment, the first time that it comes. The event of this moment is held back
    /// until the fault has struck.
    Before(Moment),
}

/// The form of a fault in TOML.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "Fault")]
struct Form {
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
        let mut kinds = (node.map(FaultKind::Node).into_iter())
            .chain(clock.map(FaultKind::Clock))
            .chain(net.map(FaultKind::Net))
            .chain(client.map(FaultKind::Client))
            .chain(resource.map(FaultKind::Resource));
        match (kinds.next(), kinds.next()) {
            (Some(fault_kind), None) => Ok(Self { when, lasts, fault_kind }),
            (None, _) => Err("the fault does nothing: give it an effect such as `node.kill = { \
                              nodes = [1] }`, `clock.step`, `net.drop` or `client.pause`"),
            _ => Err("the fault does several things: write a [[fault]] for each"),
        }
    }
}

impl From<Fault> for Form {
    fn from(Fault { when, lasts, fault_kind }: Fault) -> Self {
        let mut form = Self { lasts, ..Self::default() };
        match when {
            FaultTime::At(at) => form.at = Some(at),
            FaultTime::After(moment) => form.after = Some(moment),
            FaultTime::Before(moment) => form.before = Some(moment),
        }
        match fault_kind {
            FaultKind::Node(fault) => form.node = Some(fault),
            FaultKind::Clock(fault) => form.clock = Some(fault),
            FaultKind::Net(fault) => form.net = Some(fault),
            FaultKind::Client(fault) => form.client = Some(fault),
            FaultKind::Resource(fault) => form.resource = Some(fault),
        }
        form
    }
}
