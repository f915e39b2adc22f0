//! The kinds of faults: what each does, how it is healed, and what it hits.
//!
//! - `form.rs`: a fault with its time, and its form in TOML and in histories
//! - `messages.rs`: the messages that a network fault hits
//! - `targets.rs`: the masters and clients that a fault hits
//!
//! The orchestrator decides when a fault strikes; the backend applies it. `read/check/faults.rs`
//! checks whether a fault makes sense in its scenario.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::length::{Ahead, Length, Shift};
use super::{AccessKind, is_default};
use crate::name::Name;
use crate::named;
use crate::{End, Side};

mod form;
mod messages;
mod targets;

pub use form::{Fault, FaultTime};
pub use messages::LinkSelector;
pub use targets::{Clients, Nodes, Role};

/// Defines a group of faults, each with its name in TOML and its fields. All faults of a group that
/// `hits` something have that field, too.
macro_rules! faults {
    (
        $(#[$meta:meta])*
        pub enum $group:ident in $kind:literal {
            $($(#[$doc:meta])* $variant:ident = $name:literal $fields:tt)+
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub enum $group { $($(#[$doc])* #[serde(rename = $name)] $variant $fields,)+ }

        impl $group {
            const NAMES: &[&str] = &[$(concat!($kind, ".", $name)),+];

            const fn name(&self) -> &'static str {
                match self { $(Self::$variant { .. } => concat!($kind, ".", $name),)+ }
            }
        }
    };
    (
        $(#[$meta:meta])*
        pub enum $group:ident in $kind:literal
        hits $hits:ident or $one:literal: $target:ty, $get_mut:ident {
            $($(#[$doc:meta])* $variant:ident = $name:literal { $($fields:tt)* })+
        }
    ) => {
        faults! {
            $(#[$meta])*
            pub enum $group in $kind {
                $($(#[$doc])* $variant = $name {
                    #[doc = concat!("The ", stringify!($hits), " that the fault hits.")]
                    #[serde(alias = $one)]
                    $hits: $target,
                    $($fields)*
                })+
            }
        }

        impl $group {
            const fn $hits(&self) -> &$target {
                match self { $(Self::$variant { $hits, .. } => $hits,)+ }
            }

            const fn $get_mut(&mut self) -> &mut $target {
                match self { $(Self::$variant { $hits, .. } => $hits,)+ }
            }
        }
    };
}

faults! {
    /// The effect on a master.
    pub enum NodeFault in "node" hits nodes or "node": Nodes, nodes_mut {
        /// The master is killed. Healing: it is started again, with the data that it had on disk.
        Kill = "kill" {}
        /// The master is shut down in order, and may write its file. Healing: it is started again.
        Stop = "stop" {}
        /// The master is killed and started again at once. Nothing to heal.
        Restart = "restart" {}
        /// The master stops executing; the operating system accepts connections and data for it.
        /// Healing: the master continues, and executes the commands that arrived meanwhile.
        Pause = "pause" {}
        /// All replies of the master arrive later by this time, at every client. Healing: the delay
        /// ends.
        Slow = "slow" {
            /// The delay.
            by: Length,
        }
        /// An administrator runs `FLUSHALL` on the master. Nothing to heal.
        Flush = "flush" {}
        /// The master runs short of memory under a policy that evicts keys with a TTL: it loses all
        /// of these keys. Nothing to heal.
        Evict = "evict" {}
        /// The machine of the master loses power. Healing: the master is started again, with the
        /// data that was synced to disk.
        PowerLoss = "power-loss" {}
        /// The replica of the master receives no more data. Healing: the replica catches up.
        Lag = "lag" {}
        /// The master dies for good, and its replica takes over its address. Nothing to heal.
        Failover = "failover" {}
        /// The master is out of memory: it replies with an error to each command that would use
        /// more. Healing: it has memory again.
        Full = "full" {}
        /// The master is demoted, as by a failover manager: it follows a server that it cannot
        /// reach, keeps its keys, and answers every write with `READONLY`. Healing: it is promoted
        /// again.
        Demote = "demote" {}
        /// An administrator sets the fencing counter of a resource. Nothing to heal.
        Counter = "counter" {
            /// The resource of the counter.
            #[schemars(with = "String")]
            resource: Name,
            /// How far the counter is ahead of the master's clock. A counter that is larger already
            /// stays.
            ahead: Ahead,
        }
    }
}

faults! {
    /// The effect on the wall clock of a master. Healing sets the clock right, which is a step,
    /// too. So do not heal a step while a lease that was granted meanwhile is alive, unless the
    /// scenario is about that.
    pub enum ClockFault in "clock" hits nodes or "node": Nodes, nodes_mut {
        /// The clock is set forward, or back.
        Step = "step" {
            /// The size of the step.
            by: Shift,
        }
        /// The clock runs faster or slower.
        Rate = "rate" {
            /// Seconds per second: at 2.0 the clock runs twice as fast, at 0.5 half as fast.
            factor: f64,
        }
        /// The clock jumps ahead and back again, repeatedly.
        Strobe = "strobe" {
            /// How far the clock jumps ahead.
            by: Length,
            /// How long the clock stays ahead, and how long it then shows its own time.
            every: Length,
        }
    }
}

faults! {
    /// The effect on a client process, and so on all clients in it.
    pub enum ClientFault in "client" hits clients or "client": Clients, clients_mut {
        /// The process stops, as in a long garbage collection. Healing: it continues, and does not
        /// notice the pause.
        Pause = "pause" {}
        /// The machine of the process is suspended: the process stops, and so does every clock that
        /// does not count suspended time. Healing: it continues. Only in virtual time.
        Suspend = "suspend" {}
        /// The process dies. It cannot be healed.
        Kill = "kill" {}
        /// The wall clock of the process is set forward, or back. Healing: the clock is right
        /// again.
        Clock = "clock" {
            /// The size of the step.
            by: Shift,
        }
        /// The clock that measures the process's leases runs faster or slower, like a clock that is
        /// slewed. Healing: the clock runs at its own rate again, and does not jump. Only in
        /// virtual time.
        Rate = "rate" {
            /// Seconds per second: at 2.0 the clock runs twice as fast, at 0.5 half as fast.
            factor: f64,
        }
    }
}

faults! {
    /// The effect on the messages between clients and masters. A fault does only what a network can
    /// do to TCP: within a connection, no message is lost if a later one arrives.
    pub enum NetworkFault in "net" {
        /// A partition: nothing passes in either direction, on old and new connections. Healing:
        /// the connections that suffered are reset.
        Cut = "cut" (LinkSelector)
        /// The message and all later ones, on that connection and in that direction, are lost.
        /// Healing: those connections are reset.
        Drop = "drop" (LinkSelector)
        /// The message and all later ones are held back. Healing: they pass.
        Hold = "hold" (LinkSelector)
        /// Each message arrives later by this time. The order stays.
        Delay = "delay" {
            /// The clients whose messages are delayed.
            #[serde(alias = "client", default)]
            clients: Clients,
            /// The masters to and from which messages are delayed.
            #[serde(alias = "node", default)]
            nodes: Nodes,
            /// The direction of the messages.
            #[serde(default)]
            what: Side,
            /// The delay.
            by: Length,
        }
        /// The request arrives a second time, on another connection.
        Duplicate = "duplicate" (LinkSelector)
        /// Only this many bytes pass per second.
        Trickle = "trickle" {
            /// The clients whose messages are slowed down.
            #[serde(alias = "client", default)]
            clients: Clients,
            /// The masters to and from which messages are slowed down.
            #[serde(alias = "node", default)]
            nodes: Nodes,
            /// The direction of the messages.
            #[serde(default)]
            what: Side,
            /// Bytes per second.
            bytes: u32,
        }
        /// One end of each open connection is reset, and the other end is not notified. Healing:
        /// the other end is reset, too.
        HalfOpen = "half-open" {
            /// The clients whose connections are reset.
            #[serde(alias = "client", default)]
            clients: Clients,
            /// The masters of these connections.
            #[serde(alias = "node", default)]
            nodes: Nodes,
            /// The end that is notified.
            end: End,
        }
        /// Both ends of each open connection are reset. With any other key than `clients` and
        /// `nodes`, the reset comes at that message, which is lost.
        Reset = "reset" (LinkSelector)
    }
}

faults! {
    /// The effect on the messages between clients and registers. Masters and backends have no part
    /// in them: the orchestrator keeps the registers.
    pub enum ResourceFault in "resource" {
        /// The clients' requests arrive later by this time; the clients wait until then. Healing:
        /// later requests have no delay, but requests in flight stay late.
        Delay = "delay" {
            /// The clients whose requests are delayed.
            #[serde(alias = "client", default, skip_serializing_if = "Clients::is_all")]
            clients: Clients,
            /// Reads, writes or both. Default both.
            #[serde(default, skip_serializing_if = "is_default")]
            what: Touches,
            /// The delay.
            by: Length,
        }
    }
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

impl NodeFault {
    /// Whether the fault is one of the master's replica.
    pub const fn needs_replicas(&self) -> bool {
        matches!(self, Self::Lag { .. } | Self::Failover { .. })
    }
}

impl FaultKind {
    /// The names of all faults in TOML.
    pub fn names() -> Vec<&'static str> {
        let groups = [
            NodeFault::NAMES,
            ClockFault::NAMES,
            NetworkFault::NAMES,
            ClientFault::NAMES,
            ResourceFault::NAMES,
        ];
        groups.concat()
    }

    /// The name of the fault in TOML: `clock.step`.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Node(fault) => fault.name(),
            Self::Clock(fault) => fault.name(),
            Self::Net(fault) => fault.name(),
            Self::Client(fault) => fault.name(),
            Self::Resource(fault) => fault.name(),
        }
    }

    /// Whether the fault can be healed.
    pub const fn can_heal(&self) -> bool {
        !self.kills_clients()
            && !matches!(
                self,
                Self::Node(
                    NodeFault::Restart { .. }
                        | NodeFault::Flush { .. }
                        | NodeFault::Evict { .. }
                        | NodeFault::Counter { .. }
                        | NodeFault::Failover { .. },
                )
            )
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
        matches!(self, Self::Node(fault) if fault.needs_replicas())
    }

    /// Whether the masters that the fault hits are started again, at once or when it is healed.
    pub const fn starts_again(&self) -> bool {
        use NodeFault::{Kill, PowerLoss, Restart, Stop};
        matches!(self, Self::Node(Kill { .. } | Stop { .. } | Restart { .. } | PowerLoss { .. }))
    }

    /// Whether masters lose their boot markers, or other processes take over from them: the faults
    /// that a guard detects. `durable` masters keep their markers over a restart.
    pub const fn removes_markers(&self, durable: bool) -> bool {
        matches!(self, Self::Node(NodeFault::Flush { .. } | NodeFault::Failover { .. }))
            || self.starts_again() && !durable
    }

    /// Whether the fault sets a wall clock.
    pub const fn sets_a_clock(&self) -> bool {
        matches!(self, Self::Clock(_) | Self::Client(ClientFault::Clock { .. }))
    }

    /// The times that say how the fault works.
    pub fn lengths_mut(&mut self) -> Vec<&mut Length> {
        match self {
            Self::Node(
                NodeFault::Slow { by, .. } | NodeFault::Counter { ahead: Ahead::By(by), .. },
            )
            | Self::Net(NetworkFault::Delay { by, .. })
            | Self::Resource(ResourceFault::Delay { by, .. }) => vec![by],
            Self::Clock(ClockFault::Step { by, .. })
            | Self::Client(ClientFault::Clock { by, .. }) => vec![&mut by.by],
            Self::Clock(ClockFault::Strobe { by, every, .. }) => vec![by, every],
            _ => Vec::new(),
        }
    }

    /// The masters that the fault hits. A network fault hits the links of these masters.
    pub const fn nodes(&self) -> Option<&Nodes> {
        match self {
            Self::Node(fault) => Some(fault.nodes()),
            Self::Clock(fault) => Some(fault.nodes()),
            Self::Net(fault) => Some(fault.nodes()),
            Self::Client(_) | Self::Resource(_) => None,
        }
    }

    /// The masters that the fault hits, for modification.
    pub const fn nodes_mut(&mut self) -> Option<&mut Nodes> {
        match self {
            Self::Node(fault) => Some(fault.nodes_mut()),
            Self::Clock(fault) => Some(fault.nodes_mut()),
            Self::Net(fault) => Some(fault.nodes_mut()),
            Self::Client(_) | Self::Resource(_) => None,
        }
    }

    /// The clients that the fault hits.
    pub const fn clients(&self) -> Option<&Clients> {
        match self {
            Self::Net(fault) => Some(fault.clients()),
            Self::Client(fault) => Some(fault.clients()),
            Self::Resource(ResourceFault::Delay { clients, .. }) => Some(clients),
            Self::Node(_) | Self::Clock(_) => None,
        }
    }

    /// The clients that the fault hits, for modification.
    pub const fn clients_mut(&mut self) -> Option<&mut Clients> {
        match self {
            Self::Net(fault) => Some(fault.clients_mut()),
            Self::Client(fault) => Some(fault.clients_mut()),
            Self::Resource(ResourceFault::Delay { clients, .. }) => Some(clients),
            Self::Node(_) | Self::Clock(_) => None,
        }
    }
}

/// A field that every network fault has, some of them in their selector.
macro_rules! of_network_fault {
    ($fault:expr, $field:ident, $($borrow:tt)+) => {
        match $fault {
            NetworkFault::Cut(which)
            | NetworkFault::Drop(which)
            | NetworkFault::Hold(which)
            | NetworkFault::Duplicate(which)
            | NetworkFault::Reset(which) => $($borrow)+ which.$field,
            NetworkFault::Delay { $field, .. }
            | NetworkFault::Trickle { $field, .. }
            | NetworkFault::HalfOpen { $field, .. } => $field,
        }
    };
}

impl NetworkFault {
    const fn nodes(&self) -> &Nodes {
        of_network_fault!(self, nodes, &)
    }

    const fn nodes_mut(&mut self) -> &mut Nodes {
        of_network_fault!(self, nodes, &mut)
    }

    const fn clients(&self) -> &Clients {
        of_network_fault!(self, clients, &)
    }

    const fn clients_mut(&mut self) -> &mut Clients {
        of_network_fault!(self, clients, &mut)
    }

    /// The selected messages, if the fault strikes single ones.
    pub const fn which(&self) -> Option<&LinkSelector> {
        match self {
            Self::Cut(which)
            | Self::Drop(which)
            | Self::Hold(which)
            | Self::Duplicate(which)
            | Self::Reset(which) => Some(which),
            Self::Delay { .. } | Self::Trickle { .. } | Self::HalfOpen { .. } => None,
        }
    }

    /// The selected messages, for modification.
    pub const fn which_mut(&mut self) -> Option<&mut LinkSelector> {
        match self {
            Self::Cut(which)
            | Self::Drop(which)
            | Self::Hold(which)
            | Self::Duplicate(which)
            | Self::Reset(which) => Some(which),
            Self::Delay { .. } | Self::Trickle { .. } | Self::HalfOpen { .. } => None,
        }
    }
}

named! {
    /// The kinds of access to a register.
    #[derive(Default)]
    pub enum Touches {
        /// Only reads.
        Read = "read",
        /// Only writes.
        Write = "write",
        /// Reads and writes.
        #[default]
        Both = "both",
    }
}

impl Touches {
    /// Whether this kind of access is one of them.
    pub const fn has(self, way: AccessKind) -> bool {
        matches!(
            (self, way),
            (Self::Both, _) | (Self::Read, AccessKind::Read) | (Self::Write, AccessKind::Write)
        )
    }
}

impl ResourceFault {
    /// The delay of a client's request.
    pub fn delay(&self, client: &str, way: AccessKind) -> Option<Length> {
        let Self::Delay { clients, what, by } = self;
        (clients.has(client) && what.has(way)).then_some(*by)
    }
}
