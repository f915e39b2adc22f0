//! Inputs of the orchestrator. The backend that carries out the orders sends them.

use std::collections::BTreeMap;

use redquorum_scenario::client_protocol::{Capability, ClientLine, ClientReply, Notice};
use redquorum_scenario::history::{Act, Event, LeftKey, Ns, Outcome, Window};
use redquorum_scenario::name::Name;
use redquorum_scenario::{Class, Side};

/// An event of the run.
#[derive(Clone, Debug)]
pub enum Input {
    /// All clients are ready. The map has the features of each process.
    Begin(BTreeMap<Name, Vec<Capability>>),
    /// A client replied to a request. Its stamps are nanoseconds of the run.
    Replied(ClientReply),
    /// A message passed: a request on its way to a master, or a reply that reached its client.
    Passed { process: Name, side: Side, class: Class },
    /// A master replied to a command. The reply may be in flight for a long time.
    MasterReplied { process: Name, node: usize, act: Act, result: Outcome },
    /// An event for the history. Faults may strike after [`Event::Lost`].
    Recorded(Event),
    /// A message waits at the gate of this fault.
    Gated(usize),
    /// A fault struck, or failed to.
    Struck {
        /// The fault, counted from 0.
        fault: usize,
        at: Window,
        failed: Option<String>,
    },
    /// A fault was healed, or could not be.
    Healed {
        /// The fault, counted from 0.
        fault: usize,
        at: Window,
        failed: Option<String>,
    },
    /// A client process has ended, or the orchestrator must ignore it from now on.
    Broken { process: Name, why: String },
    /// The keys of a master.
    Keys {
        node: usize,
        /// The keys. `None`: the master does not reply.
        keys: Option<Vec<LeftKey>>,
    },
    /// The time of [`Orchestrator::next_wake`](super::Orchestrator::next_wake) has come.
    Wake,
}

impl Input {
    /// A message of a client, with its stamps as times of the run. `None`: the client is ready.
    pub fn of_client(message: ClientLine, time: impl Fn(i64) -> Ns) -> Option<Self> {
        Some(match message {
            ClientLine::Reply(mut reply) => {
                reply.stamps().flatten().for_each(|stamp| *stamp = time(*stamp));
                Self::Replied(reply)
            }
            ClientLine::Notice(Notice::Lost { client, resource, at_ns }) => {
                Self::Recorded(Event::Lost { client, resource, at: time(at_ns) })
            }
            ClientLine::Notice(Notice::Extended { client, resource, deadline_ns, .. }) => {
                Self::Recorded(Event::Extended { client, resource, deadline: time(deadline_ns) })
            }
            ClientLine::Notice(Notice::Unpolled { client, request, from_ns, to_ns }) => {
                let (from, to) = (time(from_ns), time(to_ns));
                Self::Recorded(Event::Unpolled { client, id: request, from, to })
            }
            ClientLine::Notice(Notice::Ready { .. }) => return None,
        })
    }
}
