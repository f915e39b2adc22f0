//! The table of faults: one row for each kind, with what it does to masters, to their data, to
//! links, to clients and to clocks, how it is healed, and of which violations it can be the cause.
//!
//! A [`Fault`] says when it strikes, how long it lasts, what it hits and its [`FaultKind`]. The
//! orchestrator decides when a fault strikes; the backend applies it. Code that only needs to know
//! what a kind does reads its [`FaultRow`]. Code that carries a fault out, checks it or draws it
//! matches every kind, so that the compiler finds the place that a new kind has forgotten.
//!
//! `targets.rs` has the masters and clients that a fault hits, and the form of a fault in TOML.
//! `read/check/faults.rs` checks whether a fault makes sense in its scenario.

use crate::named;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::expect::Cause;
use crate::length::{Ahead, Length, Shift};
use crate::name::Name;
use crate::words::{AccessKind, Class, Moment};
use crate::{End, MessageFault, Side};

mod targets;

pub use targets::{Clients, Nodes, Role};

/// A step of a move from one set of masters to another: see
/// [`Admitted`](redquorum_protocol::Admitted).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "u8", into = "u8")]
#[schemars(with = "u8")]
pub struct MoveStep(pub u8);

impl TryFrom<u8> for MoveStep {
    type Error = &'static str;

    fn try_from(step: u8) -> Result<Self, Self::Error> {
        if step <= 4 { Ok(Self(step)) } else { Err("a move has the steps 0 to 4") }
    }
}

impl From<MoveStep> for u8 {
    fn from(step: MoveStep) -> Self {
        step.0
    }
}

/// A fault of a scenario.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "targets::Form", into = "targets::Form")]
#[schemars(with = "targets::Form")]
pub struct Fault {
    /// When the fault strikes.
    pub when: FaultTime,
    /// How long until the fault is healed. Default: until the end of the run, when all faults are
    /// healed.
    pub lasts: Option<Length>,
    /// The masters that the fault hits, or whose links. `None`: its kind hits no masters.
    pub nodes: Option<Nodes>,
    /// The clients that the fault hits, or whose links. `None`: its kind hits no clients.
    pub clients: Option<Clients>,
    /// What the fault does.
    pub kind: FaultKind,
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

/// What a kind of faults does: its row in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultRow {
    /// The name in TOML: `clock.step`.
    pub name: &'static str,
    /// How the fault ends.
    pub heals: Heals,
    /// The effect on the process of a master.
    pub master: OnMaster,
    /// What the masters forget.
    pub loses: Loses,
    /// The effect on the messages between clients and masters, as a client sees it.
    pub links: OnLinks,
    /// The effect on the process of a client.
    pub client: OnClient,
    /// The clock that the fault sets.
    pub clock: SetsClock,
    /// Whether the lock must survive the fault without a guard.
    pub assumed: Assumed,
    /// The violations that the fault can cause.
    pub cause: Option<Cause>,
}

/// How a fault ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heals {
    /// It is over as soon as it has struck. The text says what to do about a `for`.
    AtOnce(&'static str),
    /// Its effect stays for ever. The text says what to do about a `for`.
    Never(&'static str),
    /// The processes of its masters are started again.
    StartsAgain,
    /// Its effect is undone.
    Undone,
}

/// The effect of a fault on the process of a master.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnMaster {
    /// It executes commands as before, or refuses them.
    Runs,
    /// It stands still.
    Paused,
    /// It ends. A new process starts on the same data, at once or when the fault is healed.
    Restarts,
    /// Its replica gets no more data.
    Lags,
    /// It ends for good, and its replica takes over.
    FailsOver,
}

/// What masters forget by a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loses {
    /// Nothing.
    Nothing,
    /// What is only in memory.
    Memory,
    /// The keys that have a TTL.
    Keys,
    /// All keys, the markers of guards too.
    All,
    /// The latest commands: those that are not in the copy from which the master goes on. The run
    /// records which these are.
    Latest,
}

/// The effect of a fault on the messages between clients and masters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnLinks {
    /// Clients notice nothing.
    Untouched,
    /// Masters reply with errors.
    Errors,
    /// Replies come late.
    SlowReplies,
    /// Messages come late.
    Late,
    /// Messages wait until the fault is healed.
    Held,
    /// Requests come twice.
    Copied,
    /// Messages are lost, or nearly, and with them their connections.
    Lost,
    /// Connections break.
    Broken,
}

/// The effect of a fault on the process of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnClient {
    /// It runs as before.
    Runs,
    /// It stands still until the fault is healed.
    Paused,
    /// It ends.
    Killed,
}

/// The clock that a fault sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetsClock {
    /// None.
    Nothing,
    /// The wall clock of a master.
    OfMaster,
    /// The wall clock of a client.
    OfClient,
    /// The clock by which a client measures its leases.
    OfLeases,
}

/// Whether the lock must survive a fault: the assumptions of `docs/safety.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assumed {
    /// It must, in every case.
    Always,
    /// It must if masters forget nothing, or come back after all their keys would have expired.
    IfLong,
    /// It must if the clock runs within the drift allowance.
    IfSlight,
    /// No lock can, or only one with a guard.
    Never,
}

/// Defines the faults of a group: the name of each in TOML, its fields, and its row.
///
/// A group that `hits` one sort of target also gets its form in TOML, where the target is a field
/// of the fault. `as "String"` is the type of a field in the JSON Schema. The other groups have
/// their forms in `targets.rs`.
macro_rules! faults {
    (
        $(#[$meta:meta])*
        pub enum $group:ident in $kind:literal
        hits $hits:ident or $one:literal: $target:ty, as $form:ident {
            $(
                $(#[$doc:meta])*
                $variant:ident = $name:literal
                $({ $($(#[$field_doc:meta])* $field:ident: $type:ty $(as $schema:literal)?,)* })?
                => $row:tt
            )+
        }
    ) => {
        faults! {
            $(#[$meta])*
            pub enum $group in $kind {
                $(
                    $(#[$doc])*
                    $variant = $name $({ $($(#[$field_doc])* $field: $type,)* })?
                    => $row
                )+
            }
        }

        mod $form {
            use super::*;

            $(#[$meta])*
            #[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
            #[serde(deny_unknown_fields)]
            pub(super) enum $group {
                $(
                    $(#[$doc])*
                    #[serde(rename = $name)]
                    $variant {
                        #[doc = concat!("The ", stringify!($hits), " that the fault hits.")]
                        #[serde(alias = $one)]
                        $hits: $target,
                        $($(
                            $(#[$field_doc])* $(#[schemars(with = $schema)])? $field: $type,
                        )*)?
                    },
                )+
            }

            impl $group {
                /// The target of a fault, and its kind.
                pub(super) fn split(self) -> ($target, super::$group) {
                    match self {
                        $(Self::$variant { $hits, $($($field,)*)? } => {
                            ($hits, super::$group::$variant $({ $($field,)* })?)
                        })+
                    }
                }

                pub(super) fn of($hits: $target, kind: super::$group) -> Self {
                    match kind {
                        $(super::$group::$variant $({ $($field,)* })? => {
                            Self::$variant { $hits, $($($field,)*)? }
                        })+
                    }
                }
            }
        }
    };
    (
        $(#[$meta:meta])*
        pub enum $group:ident in $kind:literal {
            $(
                $(#[$doc:meta])*
                $variant:ident = $name:literal
                $({ $($(#[$field_doc:meta])* $field:ident: $type:ty,)* })?
                $(($messages:ident: $messages_type:ty))?
                => {
                    heals: $heals:expr,
                    master: $master:ident, loses: $loses:ident, links: $links:ident,
                    client: $client:ident, clock: $clock:ident,
                    assumed: $assumed:ident, cause: $cause:expr,
                }
            )+
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq)]
        pub enum $group {
            $(
                $(#[$doc])*
                $variant $({ $($(#[$field_doc])* $field: $type,)* })? $(($messages_type))?,
            )+
        }

        impl $group {
            const NAMES: &[&str] = &[$(concat!($kind, ".", $name)),+];

            /// The row of the kind.
            pub const fn row(&self) -> FaultRow {
                match self {
                    $(Self::$variant { .. } => FaultRow {
                        name: concat!($kind, ".", $name),
                        heals: $heals,
                        master: OnMaster::$master,
                        loses: Loses::$loses,
                        links: OnLinks::$links,
                        client: OnClient::$client,
                        clock: SetsClock::$clock,
                        assumed: Assumed::$assumed,
                        cause: $cause,
                    },)+
                }
            }

            fn fields_mut(&mut self) -> Vec<FieldMut<'_>> {
                match self {
                    $(Self::$variant $({ $($field,)* })? $(($messages))? => {
                        vec![$($($field.field_mut(),)*)? $($messages.field_mut())?]
                    })+
                }
            }
        }
    };
}

use Heals::{AtOnce, Never, StartsAgain, Undone};

faults! {
    /// The effect on a master.
    pub enum NodeFault in "node" hits nodes or "node": Nodes, as node_form {
        /// The master is killed. Healing: it is started again, with the data that it had on disk.
        Kill = "kill" => {
            heals: StartsAgain,
            master: Restarts, loses: Memory, links: Broken,
            client: Runs, clock: Nothing,
            assumed: IfLong, cause: Some(Cause::NodeRestart),
        }
        /// The master is shut down in order, and may write its file. Healing: it is started again.
        Stop = "stop" => {
            heals: StartsAgain,
            master: Restarts, loses: Memory, links: Broken,
            client: Runs, clock: Nothing,
            assumed: IfLong, cause: Some(Cause::NodeRestart),
        }
        /// The master is killed and started again at once. Nothing to heal.
        Restart = "restart" => {
            heals: AtOnce("leave `for` out, or write `node.kill`, which stays down so long"),
            master: Restarts, loses: Memory, links: Broken,
            client: Runs, clock: Nothing,
            assumed: IfLong, cause: Some(Cause::NodeRestart),
        }
        /// The master stops executing; the operating system accepts connections and data for it.
        /// Healing: the master continues, and executes the commands that arrived meanwhile.
        Pause = "pause" => {
            heals: Undone,
            master: Paused, loses: Nothing, links: Held,
            client: Runs, clock: Nothing,
            assumed: Always, cause: None,
        }
        /// All replies of the master arrive later by this time, at every client. Healing: the delay
        /// ends.
        Slow = "slow" {
            /// The delay.
            by: Length,
        } => {
            heals: Undone,
            master: Runs, loses: Nothing, links: SlowReplies,
            client: Runs, clock: Nothing,
            assumed: Always, cause: None,
        }
        /// An administrator runs `FLUSHALL` on the master. Nothing to heal.
        Flush = "flush" => {
            heals: AtOnce("leave `for` out: nothing brings it back"),
            master: Runs, loses: All, links: Untouched,
            client: Runs, clock: Nothing,
            assumed: Never, cause: Some(Cause::NodeFlush),
        }
        /// The master runs short of memory under a policy that evicts keys with a TTL: it loses all
        /// of these keys. Nothing to heal.
        Evict = "evict" => {
            heals: AtOnce("leave `for` out, or write `node.full`, which lasts"),
            master: Runs, loses: Keys, links: Errors,
            client: Runs, clock: Nothing,
            assumed: Never, cause: Some(Cause::NodeEvict),
        }
        /// The machine of the master loses power. Healing: the master is started again, with the
        /// data that was synced to disk.
        PowerLoss = "power-loss" => {
            heals: StartsAgain,
            master: Restarts, loses: Latest, links: Broken,
            client: Runs, clock: Nothing,
            assumed: IfLong, cause: Some(Cause::NodePowerLoss),
        }
        /// The replica of the master receives no more data. Healing: the replica catches up.
        Lag = "lag" => {
            heals: Undone,
            master: Lags, loses: Nothing, links: Untouched,
            client: Runs, clock: Nothing,
            assumed: Always, cause: None,
        }
        /// The master dies for good, and its replica takes over its address. Nothing to heal.
        Failover = "failover" => {
            heals: AtOnce("leave `for` out: nothing brings it back"),
            master: FailsOver, loses: Latest, links: Broken,
            client: Runs, clock: Nothing,
            assumed: Never, cause: Some(Cause::NodeFailover),
        }
        /// The master is out of memory: it replies with an error to each command that would use
        /// more. Healing: it has memory again.
        Full = "full" => {
            heals: Undone,
            master: Runs, loses: Nothing, links: Errors,
            client: Runs, clock: Nothing,
            assumed: Always, cause: None,
        }
        /// The master is demoted, as by a failover manager: it follows a server that it cannot
        /// reach, keeps its keys, and answers every write with `READONLY`. Healing: it is promoted
        /// again.
        Demote = "demote" => {
            heals: Undone,
            master: Runs, loses: Nothing, links: Broken,
            client: Runs, clock: Nothing,
            assumed: Always, cause: None,
        }
        /// An administrator sets the fencing counter of a resource. Nothing to heal.
        Counter = "counter" {
            /// The resource of the counter.
            resource: Name as "String",
            /// How far the counter is ahead of the master's clock. A counter that is larger already
            /// stays.
            ahead: Ahead,
        } => {
            heals: AtOnce("leave `for` out: a counter never goes back"),
            master: Runs, loses: Nothing, links: Untouched,
            client: Runs, clock: Nothing,
            assumed: Never, cause: Some(Cause::NodeCounter),
        }
        /// An administrator takes the boot marker of the master to a step of the move that a client
        /// makes (`moving-to`), as `redquorum masters` does. Nothing to heal. A master without a
        /// marker stays without one.
        Admit = "admit" {
            /// The step, from 0 to 4.
            step: MoveStep,
        } => {
            heals: AtOnce("leave `for` out: another `node.admit` takes it to another step"),
            master: Runs, loses: Nothing, links: Untouched,
            client: Runs, clock: Nothing,
            assumed: Never, cause: None,
        }
    }
}

faults! {
    /// The effect on the wall clock of a master. Healing sets the clock right, which is a step,
    /// too. So do not heal a step while a lease that was granted meanwhile is alive, unless the
    /// scenario is about that.
    pub enum ClockFault in "clock" hits nodes or "node": Nodes, as clock_form {
        /// The clock is set forward, or back.
        Step = "step" {
            /// The size of the step.
            by: Shift,
        } => {
            heals: Undone,
            master: Runs, loses: Nothing, links: Untouched,
            client: Runs, clock: OfMaster,
            assumed: Never, cause: Some(Cause::ClockStep),
        }
        /// The clock runs faster or slower.
        Rate = "rate" {
            /// Seconds per second: at 2.0 the clock runs twice as fast, at 0.5 half as fast.
            factor: f64,
        } => {
            heals: Undone,
            master: Runs, loses: Nothing, links: Untouched,
            client: Runs, clock: OfMaster,
            assumed: IfSlight, cause: Some(Cause::ClockRate),
        }
        /// The clock jumps ahead and back again, repeatedly.
        Strobe = "strobe" {
            /// How far the clock jumps ahead.
            by: Length,
            /// How long the clock stays ahead, and how long it then shows its own time.
            every: Length,
        } => {
            heals: Undone,
            master: Runs, loses: Nothing, links: Untouched,
            client: Runs, clock: OfMaster,
            assumed: Never, cause: Some(Cause::ClockStrobe),
        }
    }
}

faults! {
    /// The effect on the messages between clients and masters. A fault does only what a network can
    /// do to TCP: within a connection, no message is lost if a later one arrives.
    pub enum NetworkFault in "net" {
        /// A partition: nothing passes in either direction, on old and new connections. It selects
        /// no messages; `read/check` says so.
        Cut = "cut" (messages: Messages) => {
            heals: Undone,
            master: Runs, loses: Nothing, links: Broken,
            client: Runs, clock: Nothing,
            assumed: Always, cause: None,
        }
        /// The message and all later ones, on that connection and in that direction, are lost.
        Drop = "drop" (messages: Messages) => {
            heals: Undone,
            master: Runs, loses: Nothing, links: Lost,
            client: Runs, clock: Nothing,
            assumed: Always, cause: None,
        }
        /// The message and all later ones are held back.
        Hold = "hold" (messages: Messages) => {
            heals: Undone,
            master: Runs, loses: Nothing, links: Held,
            client: Runs, clock: Nothing,
            assumed: Always, cause: None,
        }
        /// Each message arrives later. The order stays.
        Delay = "delay" {
            /// The direction of the messages.
            what: Side,
            /// The delay.
            by: Length,
        } => {
            heals: Undone,
            master: Runs, loses: Nothing, links: Late,
            client: Runs, clock: Nothing,
            assumed: Always, cause: None,
        }
        /// The request arrives a second time, on another connection.
        Duplicate = "duplicate" (messages: Messages) => {
            heals: Undone,
            master: Runs, loses: Nothing, links: Copied,
            client: Runs, clock: Nothing,
            assumed: Always, cause: None,
        }
        /// Only some bytes pass per second.
        Trickle = "trickle" {
            /// The direction of the messages.
            what: Side,
            /// Bytes per second.
            bytes: u32,
        } => {
            heals: Undone,
            master: Runs, loses: Nothing, links: Lost,
            client: Runs, clock: Nothing,
            assumed: Always, cause: None,
        }
        /// One end of each open connection is reset, and the other end is not notified.
        HalfOpen = "half-open" {
            /// The end that is notified.
            end: End,
        } => {
            heals: Undone,
            master: Runs, loses: Nothing, links: Broken,
            client: Runs, clock: Nothing,
            assumed: Always, cause: None,
        }
        /// Both ends of each open connection are reset: at once, or at the selected messages.
        Reset = "reset" (messages: Messages) => {
            heals: Undone,
            master: Runs, loses: Nothing, links: Broken,
            client: Runs, clock: Nothing,
            assumed: Always, cause: None,
        }
    }
}

faults! {
    /// The effect on a client process, and so on all clients in it.
    pub enum ClientFault in "client" hits clients or "client": Clients, as client_form {
        /// The process stops, as in a long garbage collection. Healing: it continues, and does not
        /// notice the pause.
        Pause = "pause" => {
            heals: Undone,
            master: Runs, loses: Nothing, links: Untouched,
            client: Paused, clock: Nothing,
            assumed: Always, cause: Some(Cause::ClientPause),
        }
        /// The machine of the process is suspended: the process stops, and so does every clock that
        /// does not count suspended time. Healing: it continues. Only in virtual time.
        Suspend = "suspend" => {
            heals: Undone,
            master: Runs, loses: Nothing, links: Untouched,
            client: Paused, clock: Nothing,
            assumed: Always, cause: Some(Cause::ClientPause),
        }
        /// The process dies. It cannot be healed.
        Kill = "kill" => {
            heals: Never("leave `for` out, or write `client.pause`, which ends"),
            master: Runs, loses: Nothing, links: Untouched,
            client: Killed, clock: Nothing,
            assumed: Always, cause: None,
        }
        /// The wall clock of the process is set forward, or back. Healing: the clock is right
        /// again.
        Clock = "clock" {
            /// The size of the step.
            by: Shift,
        } => {
            heals: Undone,
            master: Runs, loses: Nothing, links: Untouched,
            client: Runs, clock: OfClient,
            assumed: Always, cause: Some(Cause::ClientClock),
        }
        /// The clock that measures the process's leases runs faster or slower, like a clock that is
        /// slewed. Healing: the clock runs at its own rate again, and does not jump. Only in
        /// virtual time.
        Rate = "rate" {
            /// Seconds per second: at 2.0 the clock runs twice as fast, at 0.5 half as fast.
            factor: f64,
        } => {
            heals: Undone,
            master: Runs, loses: Nothing, links: Untouched,
            client: Runs, clock: OfLeases,
            assumed: IfSlight, cause: Some(Cause::ClientRate),
        }
    }
}

faults! {
    /// The effect on the messages between clients and registers. Masters and backends have no part
    /// in them: the orchestrator keeps the registers.
    pub enum ResourceFault in "resource" {
        /// The clients' requests arrive later by this time; the clients wait until then.
        Delay = "delay" {
            /// Reads, writes or both.
            what: Touches,
            /// The delay.
            by: Length,
        } => {
            heals: Undone,
            master: Runs, loses: Nothing, links: Untouched,
            client: Runs, clock: Nothing,
            assumed: Always, cause: Some(Cause::ResourceDelay),
        }
    }
}

/// The effect of a fault: on a master, on a clock, on the network, on a client, or on messages to a
/// register.
#[derive(Clone, Debug, PartialEq)]
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

    /// The row of the kind.
    pub const fn row(&self) -> FaultRow {
        match self {
            Self::Node(fault) => fault.row(),
            Self::Clock(fault) => fault.row(),
            Self::Net(fault) => fault.row(),
            Self::Client(fault) => fault.row(),
            Self::Resource(fault) => fault.row(),
        }
    }

    /// The fields of the fault, in their order.
    pub fn fields_mut(&mut self) -> Vec<FieldMut<'_>> {
        match self {
            Self::Node(fault) => fault.fields_mut(),
            Self::Clock(fault) => fault.fields_mut(),
            Self::Net(fault) => fault.fields_mut(),
            Self::Client(fault) => fault.fields_mut(),
            Self::Resource(fault) => fault.fields_mut(),
        }
    }

    /// The name of the fault in TOML: `clock.step`.
    pub const fn name(&self) -> &'static str {
        self.row().name
    }

    /// Whether the fault can be healed.
    pub const fn can_heal(&self) -> bool {
        matches!(self.row().heals, StartsAgain | Undone)
    }

    /// Whether the fault is over as soon as it has struck.
    pub fn is_at_once(&self) -> bool {
        match self {
            // Selected messages are reset for as long as the fault lasts.
            Self::Net(NetworkFault::Reset(messages)) => messages.are_all(),
            kind => matches!(kind.row().heals, AtOnce(_)),
        }
    }

    /// Whether the fault ends the client processes that it hits.
    pub const fn kills_clients(&self) -> bool {
        matches!(self.row().client, OnClient::Killed)
    }

    /// Whether the client processes that the fault hits stand still until it is healed.
    pub const fn pauses_clients(&self) -> bool {
        matches!(self.row().client, OnClient::Paused)
    }

    /// Whether the fault needs replicas.
    pub const fn needs_replicas(&self) -> bool {
        matches!(self.row().master, OnMaster::Lags | OnMaster::FailsOver)
    }

    /// Whether the masters that the fault hits are started again, at once or when it is healed.
    pub const fn starts_again(&self) -> bool {
        matches!(self.row().master, OnMaster::Restarts)
    }

    /// Whether masters lose their boot markers, or other processes take over from them: the faults
    /// that a guard detects. `durable` masters keep their markers over a restart.
    pub const fn removes_markers(&self, durable: bool) -> bool {
        match (self.row().loses, self.row().master) {
            (Loses::All, _) | (_, OnMaster::FailsOver) => true,
            (_, OnMaster::Restarts) => !durable,
            (_, OnMaster::Runs | OnMaster::Paused | OnMaster::Lags) => false,
        }
    }

    /// Whether the fault sets a wall clock.
    pub const fn sets_a_wall_clock(&self) -> bool {
        matches!(self.row().clock, SetsClock::OfMaster | SetsClock::OfClient)
    }

    /// The times that say how the fault works.
    pub fn lengths_mut(&mut self) -> Vec<&mut Length> {
        let times = self.fields_mut().into_iter().filter_map(|field| match field {
            FieldMut::Length(length) => Some(length),
            _ => None,
        });
        times.collect()
    }

    /// The messages that the fault strikes on the links that it hits, and what happens to them.
    pub fn strikes_messages(&self) -> Option<(Messages, MessageFault)> {
        let all = |what: Side| Messages { what, ..Messages::default() };
        let net = match self {
            Self::Net(net) => net,
            Self::Node(NodeFault::Slow { by }) => {
                return Some((all(Side::Reply), MessageFault::Delay(by.0)));
            }
            Self::Node(_) | Self::Clock(_) | Self::Client(_) | Self::Resource(_) => return None,
        };
        Some(match net {
            NetworkFault::Cut(_) => (all(Side::Both), MessageFault::Drop),
            NetworkFault::Drop(messages) => (messages.clone(), MessageFault::Drop),
            NetworkFault::Hold(messages) => (messages.clone(), MessageFault::Hold),
            NetworkFault::Duplicate(messages) => {
                let messages = Messages { what: Side::Request, ..messages.clone() };
                (messages, MessageFault::Duplicate)
            }
            NetworkFault::Reset(messages) => (messages.clone(), MessageFault::Reset),
            NetworkFault::Delay { what, by } => (all(*what), MessageFault::Delay(by.0)),
            NetworkFault::Trickle { what, bytes } => (all(*what), MessageFault::Trickle(*bytes)),
            NetworkFault::HalfOpen { end } => (all(Side::Both), MessageFault::HalfOpen(*end)),
        })
    }
}

impl ClockFault {
    /// How far the fault sets the clock ahead, at most.
    pub const fn sets_ahead(&self) -> Duration {
        match self {
            Self::Step { by } if !by.back => by.by.0,
            Self::Strobe { by, .. } => by.0,
            Self::Step { .. } | Self::Rate { .. } => Duration::ZERO,
        }
    }

    /// How far the clock gets ahead in each second.
    pub const fn gains(&self) -> f64 {
        match self {
            Self::Rate { factor } => (*factor - 1.0).max(0.0),
            Self::Step { .. } | Self::Strobe { .. } => 0.0,
        }
    }
}

/// A field of a fault, for code that changes faults of all kinds.
#[derive(Debug)]
pub enum FieldMut<'a> {
    /// A time.
    Length(&'a mut Length),
    /// A rate: seconds per second.
    Rate(&'a mut f64),
    /// Bytes per second.
    Bytes(&'a mut u32),
    /// A direction.
    Side(&'a mut Side),
    /// Kinds of access to a register.
    Touches(&'a mut Touches),
    /// Messages.
    Messages(&'a mut Messages),
    /// A choice that cannot be simpler.
    Fixed,
}

/// The types of the fields of faults.
trait Field {
    fn field_mut(&mut self) -> FieldMut<'_>;
}

/// Says which sort of field each type is.
macro_rules! fields {
    ($($type:ty: $field:pat => $sort:expr,)+) => {
        $(impl Field for $type {
            fn field_mut(&mut self) -> FieldMut<'_> {
                let $field = self;
                $sort
            }
        })+
    };
}

fields! {
    Length: length => FieldMut::Length(length),
    Shift: shift => FieldMut::Length(&mut shift.by),
    f64: rate => FieldMut::Rate(rate),
    u32: bytes => FieldMut::Bytes(bytes),
    Side: side => FieldMut::Side(side),
    Touches: touches => FieldMut::Touches(touches),
    Messages: messages => FieldMut::Messages(messages),
    End: _ => FieldMut::Fixed,
    Name: _ => FieldMut::Fixed,
    MoveStep: _ => FieldMut::Fixed,
    Ahead: ahead => match ahead {
        Ahead::By(length) => FieldMut::Length(length),
        Ahead::Last | Ahead::End => FieldMut::Fixed,
    },
}

/// The messages that a network fault strikes on the links that it hits. Default: all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Messages {
    /// The direction.
    pub what: Side,
    /// Only requests of this class and their replies.
    pub command: Class,
    /// Only from this message on, counted from 1 over all links.
    pub index: Option<u64>,
    /// Only this many messages.
    pub count: Option<u64>,
}

impl Messages {
    /// Whether these are all messages.
    pub fn are_all(&self) -> bool {
        *self == Self::default()
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

impl Fault {
    /// A fault that hits these masters.
    pub const fn of_nodes(
        when: FaultTime,
        lasts: Option<Length>,
        nodes: Nodes,
        kind: FaultKind,
    ) -> Self {
        Self { when, lasts, nodes: Some(nodes), clients: None, kind }
    }

    /// A fault that hits these clients.
    pub const fn of_clients(
        when: FaultTime,
        lasts: Option<Length>,
        clients: Clients,
        kind: FaultKind,
    ) -> Self {
        Self { when, lasts, nodes: None, clients: Some(clients), kind }
    }

    /// A fault of the messages between these clients and these masters.
    pub fn of_links(
        when: FaultTime,
        lasts: Option<Length>,
        (clients, nodes): (Clients, Nodes),
        fault: NetworkFault,
    ) -> Self {
        let kind = FaultKind::Net(fault);
        Self { when, lasts, nodes: Some(nodes), clients: Some(clients), kind }
    }

    /// The delay of a client's access of this kind to a register.
    pub fn delays_access(&self, client: &str, way: AccessKind) -> Option<Length> {
        match &self.kind {
            FaultKind::Resource(ResourceFault::Delay { what, by }) => {
                let hits = self.clients.as_ref().is_some_and(|clients| clients.has(client));
                (hits && what.has(way)).then_some(*by)
            }
            FaultKind::Node(_) | FaultKind::Clock(_) | FaultKind::Net(_) | FaultKind::Client(_) => {
                None
            }
        }
    }
}
