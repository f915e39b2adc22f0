//! Faults as values: a harm, whom it hits, when it strikes and when it is cured.
//!
//! `node.rs`, `clock.rs`, `net.rs` and `client.rs` have the harms, each with its cure; `whom.rs` has
//! the masters and clients that they hit; `text.rs` is how a fault stands in TOML and in histories.
//! When one strikes is for the director, what is done then for the backend. Whether one makes sense
//! in its scenario is checked in `read/check/faults.rs`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::text::Text;
use super::length::Length;
use super::words::Moment;

mod client;
mod clock;
mod net;
mod node;
mod text;
mod whom;

pub use client::ClientHarm;
pub use clock::ClockHarm;
pub use net::{Class, End, NetHarm, Side, Which};
pub use node::NodeHarm;
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
        }
    }

    /// Whether there is something to undo.
    pub const fn has_cure(&self) -> bool {
        match self {
            Self::Node(NodeHarm::Restart { .. }) | Self::Client(ClientHarm::Kill { .. }) => false,
            Self::Node(_) | Self::Clock(_) | Self::Net(_) | Self::Client(_) => true,
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
