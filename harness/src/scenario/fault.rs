//! Faults as values: what a fault does, the masters and clients that it hits, when it strikes, and
//! when it is healed.
//!
//! - `node.rs`, `clock.rs`, `net.rs`, `client.rs` and `resource.rs`: the kinds of faults, each with
//!   its healing
//! - `whom.rs`: the masters and clients that a fault hits
//! - `text.rs`: the form of a fault in TOML and in histories
//!
//! The director decides when a fault strikes; the backend applies it. `read/check/faults.rs` checks
//! whether a fault makes sense in its scenario.

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
pub use client::ClientHarm;
pub use clock::ClockHarm;
pub use net::{Class, End, NetHarm, Side, Which};
pub use node::NodeHarm;
pub use resource::{ResourceHarm, Touches};
pub use whom::{Clients, Nodes, Role};

/// A fault of a scenario.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "Text", into = "Text")]
#[schemars(with = "Text")]
pub struct Fault {
    /// When the fault strikes.
    pub when: When,
    /// How long until the fault is healed. Default: until the end of the run, when all faults are
    /// healed.
    pub lasts: Option<Length>,
    /// What the fault does.
    pub harm: Harm,
}

/// When a fault strikes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum When {
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
pub enum Harm {
    /// On masters.
    Node(NodeHarm),
    /// On the wall clocks of masters.
    Clock(ClockHarm),
    /// On the messages between clients and masters.
    Net(NetHarm),
    /// On client processes.
    Client(ClientHarm),
    /// On the messages between clients and registers.
    Resource(ResourceHarm),
}

impl Harm {
    /// The name of the fault in TOML: `clock.step`.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Node(NodeHarm::Kill { .. }) => "node.kill",
            Self::Node(NodeHarm::Stop { .. }) => "node.stop",
            Self::Node(NodeHarm::Restart { .. }) => "node.restart",
            Self::Node(NodeHarm::Pause { .. }) => "node.pause",
            Self::Node(NodeHarm::Slow { .. }) => "node.slow",
            Self::Node(NodeHarm::Full { .. }) => "node.full",
            Self::Node(NodeHarm::Counter { .. }) => "node.counter",
            Self::Node(NodeHarm::Flush { .. }) => "node.flush",
            Self::Node(NodeHarm::Evict { .. }) => "node.evict",
            Self::Node(NodeHarm::PowerLoss { .. }) => "node.power-loss",
            Self::Node(NodeHarm::Lag { .. }) => "node.lag",
            Self::Node(NodeHarm::Failover { .. }) => "node.failover",
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
            Self::Client(ClientHarm::Suspend { .. }) => "client.suspend",
            Self::Client(ClientHarm::Kill { .. }) => "client.kill",
            Self::Client(ClientHarm::Clock { .. }) => "client.clock",
            Self::Client(ClientHarm::Rate { .. }) => "client.rate",
            Self::Resource(ResourceHarm::Delay { .. }) => "resource.delay",
        }
    }

    /// Whether the fault can be healed.
    pub const fn has_cure(&self) -> bool {
        match self {
            Self::Node(
                NodeHarm::Restart { .. }
                | NodeHarm::Flush { .. }
                | NodeHarm::Evict { .. }
                | NodeHarm::Counter { .. }
                | NodeHarm::Failover { .. },
            )
            | Self::Client(ClientHarm::Kill { .. }) => false,
            Self::Node(_) | Self::Clock(_) | Self::Net(_) | Self::Client(_) | Self::Resource(_) => {
                true
            }
        }
    }

    /// Whether the fault ends the client processes that it hits.
    pub const fn kills_clients(&self) -> bool {
        matches!(self, Self::Client(ClientHarm::Kill { .. }))
    }

    /// Whether the client processes that the fault hits stand still until it is healed.
    pub const fn pauses_clients(&self) -> bool {
        matches!(self, Self::Client(ClientHarm::Pause { .. } | ClientHarm::Suspend { .. }))
    }

    /// Whether the fault needs replicas.
    pub const fn needs_replicas(&self) -> bool {
        matches!(self, Self::Node(NodeHarm::Lag { .. } | NodeHarm::Failover { .. }))
    }

    /// Whether the masters that the fault hits are started again, at once or when it is healed.
    pub const fn starts_again(&self) -> bool {
        matches!(
            self,
            Self::Node(
                NodeHarm::Kill { .. }
                    | NodeHarm::Stop { .. }
                    | NodeHarm::Restart { .. }
                    | NodeHarm::PowerLoss { .. }
            )
        )
    }

    /// Whether the fault sets a wall clock.
    pub const fn sets_a_clock(&self) -> bool {
        matches!(self, Self::Clock(_) | Self::Client(ClientHarm::Clock { .. }))
    }

    /// The masters that the fault hits. A network fault hits the links of these masters.
    pub const fn nodes(&self) -> Option<&Nodes> {
        match self {
            Self::Node(harm) => Some(harm.nodes()),
            Self::Clock(harm) => Some(harm.nodes()),
            Self::Net(harm) => Some(harm.nodes()),
            Self::Client(_) | Self::Resource(_) => None,
        }
    }

    /// The clients that the fault hits.
    pub const fn clients(&self) -> Option<&Clients> {
        match self {
            Self::Net(harm) => Some(harm.clients()),
            Self::Client(harm) => Some(harm.clients()),
            Self::Resource(harm) => Some(harm.clients()),
            Self::Node(_) | Self::Clock(_) => None,
        }
    }

    /// The masters that the fault hits, for modification.
    pub const fn nodes_mut(&mut self) -> Option<&mut Nodes> {
        match self {
            Self::Node(harm) => Some(harm.nodes_mut()),
            Self::Clock(harm) => Some(harm.nodes_mut()),
            Self::Net(harm) => Some(harm.nodes_mut()),
            Self::Client(_) | Self::Resource(_) => None,
        }
    }

    /// The clients that the fault hits, for modification.
    pub const fn clients_mut(&mut self) -> Option<&mut Clients> {
        match self {
            Self::Net(harm) => Some(harm.clients_mut()),
            Self::Client(harm) => Some(harm.clients_mut()),
            Self::Resource(harm) => Some(harm.clients_mut()),
            Self::Node(_) | Self::Clock(_) => None,
        }
    }
}
