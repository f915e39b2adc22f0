//! The orchestrator's actions. A backend carries them out, and returns their results as
//! [`Input`](super::Input).

use redquorum_scenario::Messages;
use redquorum_scenario::client_protocol::Request;
use redquorum_scenario::name::Name;

/// An action for the backend.
#[derive(Clone, Debug, PartialEq)]
pub enum Order {
    /// Send a request to a client process.
    Request { process: Name, request: Request },
    /// Hold back these messages of a process, from the first one on, and send
    /// [`Input::Gated`](super::Input::Gated) as soon as one waits. Given before the run.
    Gate {
        /// The fault that the gate belongs to, counted from 0.
        fault: usize,
        process: Name,
        which: Messages,
    },
    /// Pass on the messages that wait at the gate of this fault.
    Open(usize),
    /// Apply this fault.
    Strike { fault: usize, nodes: Vec<usize>, processes: Vec<Name> },
    /// Heal this fault.
    Heal(usize),
    /// Kill a client process that violates the client protocol.
    Kill { process: Name },
    /// Report the keys of each master.
    Look,
}
