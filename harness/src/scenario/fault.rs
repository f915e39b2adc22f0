//! Faults as values: what a fault does, the masters and clients that it hits, when it strikes, and
//! when it is healed.
//!
//! - `node.rs`, `clock.rs`, `net.rs`, `client.rs` and `resource.rs`: the kinds of faults, each with
//!   its healing
//! - `whom.rs`: the masters and clients that a fault hits
//! - `text.rs`: the form of a fault in TOML and in histories
//!
//! The orchestrator decides when a fault strikes; the backend applies it. `read/check/faults.rs`
//! checks whether a fault makes sense in its scenario.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::text::Text;
use super::length::Length;
use super::words::Moment;

mod ahead;
mod client;
mod clock;
mod net;
mod node;
mod resource;
mod text;
mod whom;

pub use ahead::Ahead;
pub use client::ClientFault;
pub use clock::ClockFault;
pub use net::{Class, End, LinkSelector, NetworkFault, Side};
pub use node::NodeFault;
pub use resource::{ResourceFault, Touches};
pub use whom::{Clients, Nodes, Role};

/// A fault of a scenario.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "Text", into = "Text")]
#[schemars(with = "Text")]
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

/// The effect of a fault: on a master, on a clock, on the network, on a client, or on messages to a
/// register.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    /// On masters.
    Node(NodeFault),
    /// On the wall clocks of masters.
    Clock(ClockFault),
    /// On the messages between clients and masters.
    Net(NetworkFault),
    /// On client processes.
    Client(ClientFault),
    /// On the messages between clients and registers.
    Resource(ResourceFault),
}

impl FaultKind {
    /// The name of the fault in TOML: `clock.step`.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Node(NodeFault::Kill { .. }) => "node.kill",
            Self::Node(NodeFault::Stop { .. }) => "node.stop",
            Self::Node(NodeFault::Restart { .. }) => "node.restart",
            Self::Node(NodeFault::Pause { .. }) => "node.pause",
            Self::Node(NodeFault::Slow { .. }) => "node.slow",
            Self::Node(NodeFault::Full { .. }) => "node.full",
            Self::Node(NodeFault::Counter { .. }) => "node.counter",
            Self::Node(NodeFault::Flush { .. }) => "node.flush",
            Self::Node(NodeFault::Evict { .. }) => "node.evict",
            Self::Node(NodeFault::PowerLoss { .. }) => "node.power-loss",
            Self::Node(NodeFault::Lag { .. }) => "node.lag",
            Self::Node(NodeFault::Failover { .. }) => "node.failover",
            Self::Clock(ClockFault::Step { .. }) => "clock.step",
            Self::Clock(ClockFault::Rate { .. }) => "clock.rate",
            Self::Clock(ClockFault::Strobe { .. }) => "clock.strobe",
            Self::Net(NetworkFault::Cut(_)) => "net.cut",
            Self::Net(NetworkFault::Drop(_)) => "net.drop",
            Self::Net(NetworkFault::Hold(_)) => "net.hold",
            Self::Net(NetworkFault::Delay { .. }) => "net.delay",
            Self::Net(NetworkFault::Duplicate(_)) => "net.duplicate",
            Self::Net(NetworkFault::Trickle { .. }) => "net.trickle",
            Self::Net(NetworkFault::HalfOpen { .. }) => "net.half-open",
            Self::Net(NetworkFault::Reset(_)) => "net.reset",
            Self::Client(ClientFault::Pause { .. }) => "client.pause",
            Self::Client(ClientFault::Suspend { .. }) => "client.suspend",
            Self::Client(ClientFault::Kill { .. }) => "client.kill",
            Self::Client(ClientFault::Clock { .. }) => "client.clock",
            Self::Client(ClientFault::Rate { .. }) => "client.rate",
            Self::Resource(ResourceFault::Delay { .. }) => "resource.delay",
        }
    }

    /// Whether the fault can be healed.
    pub const fn has_cure(&self) -> bool {
        match self {
            Self::Node(
                NodeFault::Restart { .. }
                | NodeFault::Flush { .. }
                | NodeFault::Evict { .. }
                | NodeFault::Counter { .. }
                | NodeFault::Failover { .. },
            )
            | Self::Client(ClientFault::Kill { .. }) => false,
            Self::Node(_) | Self::Clock(_) | Self::Net(_) | Self::Client(_) | Self::Resource(_) => {
                true
            }
        }
    }

    /// Whether the fault ends the client processes that it hits.
    pub const fn kills_clients(&self) -> bool {
        matches!(self, Self::Client(ClientFault::Kill { .. }))
    }

    /// Whether the client processes that the fault hits stand still until it is healed.
    pub const fn pauses_clients(&self) -> bool {
        matches!(self, Self::Client(ClientFault::Pause { .. } | ClientFault::Suspend { .. }))
    }

    /// Whether the fault needs replicas.
    pub const fn needs_replicas(&self) -> bool {
        matches!(self, Self::Node(NodeFault::Lag { .. } | NodeFault::Failover { .. }))
    }

    /// Whether the masters that the fault hits are started again, at once or when it is healed.
    pub const fn starts_again(&self) -> bool {
        matches!(
            self,
            Self::Node(
                NodeFault::Kill { .. }
                    | NodeFault::Stop { .. }
                    | NodeFault::Restart { .. }
                    | NodeFault::PowerLoss { .. }
            )
        )
    }

    /// Whether the fault sets a wall clock.
    pub const fn sets_a_clock(&self) -> bool {
        matches!(self, Self::Clock(_) | Self::Client(ClientFault::Clock { .. }))
    }

    /// The masters that the fault hits. A network fault hits the links of these masters.
    pub const fn nodes(&self) -> Option<&Nodes> {
        match self {
            Self::Node(fault_kind) => Some(fault_kind.nodes()),
            Self::Clock(fault_kind) => Some(fault_kind.nodes()),
            Self::Net(fault_kind) => Some(fault_kind.nodes()),
            Self::Client(_) | Self::Resource(_) => None,
        }
    }

    /// The clients that the fault hits.
    pub const fn clients(&self) -> Option<&Clients> {
        match self {
            Self::Net(fault_kind) => Some(fault_kind.clients()),
            Self::Client(fault_kind) => Some(fault_kind.clients()),
            Self::Resource(fault_kind) => Some(fault_kind.clients()),
            Self::Node(_) | Self::Clock(_) => None,
        }
    }

    /// The masters that the fault hits, for modification.
    pub const fn nodes_mut(&mut self) -> Option<&mut Nodes> {
        match self {
            Self::Node(fault_kind) => Some(fault_kind.nodes_mut()),
            Self::Clock(fault_kind) => Some(fault_kind.nodes_mut()),
            Self::Net(fault_kind) => Some(fault_kind.nodes_mut()),
            Self::Client(_) | Self::Resource(_) => None,
        }
    }

    /// The clients that the fault hits, for modification.
    pub const fn clients_mut(&mut self) -> Option<&mut Clients> {
        match self {
            Self::Net(fault_kind) => Some(fault_kind.clients_mut()),
            Self::Client(fault_kind) => Some(fault_kind.clients_mut()),
            Self::Resource(fault_kind) => Some(fault_kind.clients_mut()),
            Self::Node(_) | Self::Clock(_) => None,
        }
    }
}
