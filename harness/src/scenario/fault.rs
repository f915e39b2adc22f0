//! Faults as values: a harm, whom it hits, when it strikes and when it is cured.
//!
//! `node.rs`, `clock.rs`, `net.rs`, `client.rs` and `resource.rs` have the harms, each with its cure;
//! `whom.rs` has the masters and clients that they hit; `text.rs` is how a fault stands in TOML and in histories.
//! When one strikes is for the director, what is done then for the backend. Whether one makes sense
//! in its scenario is checked in `read/check/faults.rs`.

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

/// What a fault does: to a master, to its clock, to the network, to a client, on the way to a register.
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
    /// To what passes between clients and registers.
    Resource(ResourceHarm),
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

    /// Whether there is something to undo.
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

    /// Whether the client processes that it hits are gone.
    pub const fn kills_clients(&self) -> bool {
        matches!(self, Self::Client(ClientHarm::Kill { .. }))
    }

    /// Whether the client processes that it hits stand still until it is cured.
    pub const fn pauses_clients(&self) -> bool {
        matches!(self, Self::Client(ClientHarm::Pause { .. } | ClientHarm::Suspend { .. }))
    }

    /// Whether a replica is needed for it.
    pub const fn needs_replicas(&self) -> bool {
        matches!(self, Self::Node(NodeHarm::Lag { .. } | NodeHarm::Failover { .. }))
    }

    /// Whether masters that it hits are started again: at once or when it is cured.
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
            Self::Client(_) | Self::Resource(_) => None,
        }
    }

    /// The clients that it hits.
    pub const fn clients(&self) -> Option<&Clients> {
        match self {
            Self::Net(harm) => Some(harm.clients()),
            Self::Client(harm) => Some(harm.clients()),
            Self::Resource(harm) => Some(harm.clients()),
            Self::Node(_) | Self::Clock(_) => None,
        }
    }

    /// The masters that it hits, to change them.
    pub const fn nodes_mut(&mut self) -> Option<&mut Nodes> {
        match self {
            Self::Node(harm) => Some(harm.nodes_mut()),
            Self::Clock(harm) => Some(harm.nodes_mut()),
            Self::Net(harm) => Some(harm.nodes_mut()),
            Self::Client(_) | Self::Resource(_) => None,
        }
    }

    /// The clients that it hits, to change them.
    pub const fn clients_mut(&mut self) -> Option<&mut Clients> {
        match self {
            Self::Net(harm) => Some(harm.clients_mut()),
            Self::Client(harm) => Some(harm.clients_mut()),
            Self::Resource(harm) => Some(harm.clients_mut()),
            Self::Node(_) | Self::Clock(_) => None,
        }
    }
}
