//! Inputs of the orchestrator. The backend that carries out the orders sends them.

use std::collections::BTreeMap;

use crate::client_protocol::{Capability, ClientReply};
use crate::history::{Act, Event, LeftKey, Ns, Outcome, Window};
use crate::name::Name;
use crate::scenario::{Class, Side};

/// An event of the run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Input {
    /// All clients are ready. The map has the features of each process.
    Begin(BTreeMap<Name, Vec<Capability>>),
    /// A client replied to a request. Its stamps are nanoseconds of the run.
    Replied(ClientReply),
    /// A client reported the loss of its lease.
    Lost {
        /// The client.
        client: Name,
        /// The resource.
        resource: Name,
        /// The time of the loss, by the client's own stamp.
        at: Ns,
    },
    /// A client's watchdog extended its lease.
    Extended {
        /// The client.
        client: Name,
        /// The resource.
        resource: Name,
        /// The new deadline.
        deadline: Ns,
    },
    /// A message passed: a request on its way to a master, or a reply that reached its client.
    Passed {
        /// The process of the client.
        process: Name,
        /// Whether it is a request or a reply.
        side: Side,
        /// The purpose of the request.
        class: Class,
    },
    /// A master replied to a command. The reply may be in flight for a long time.
    MasterReplied {
        /// The process that sent the command.
        process: Name,
        /// The number of the master.
        node: usize,
        /// The command.
        act: Act,
        /// The master's reply.
        result: Outcome,
    },
    /// An event that only the history needs.
    Recorded(Event),
    /// A message waits at the gate of this fault.
    Gated(usize),
    /// A fault struck, or failed to.
    Struck {
        /// The fault, counted from 0.
        fault: usize,
        /// The time.
        at: Window,
        /// The reason for a failure.
        failed: Option<String>,
    },
    /// A fault was healed, or could not be.
    Healed {
        /// The fault, counted from 0.
        fault: usize,
        /// The time.
        at: Window,
        /// The reason for a failure.
        failed: Option<String>,
    },
    /// A client process has ended, or the orchestrator must ignore it from now on.
    Broken {
        /// The process.
        process: Name,
        /// The reason.
        why: String,
    },
    /// The keys of a master.
    Keys {
        /// The number of the master.
        node: usize,
        /// The keys. `None`: the master does not reply.
        keys: Option<Vec<LeftKey>>,
    },
    /// The time of [`Orchestrator::next_wake`](super::Orchestrator::next_wake) has come.
    Wake,
}
