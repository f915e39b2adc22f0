//! The orchestrator's actions. A backend carries them out, and returns their results as
//! [`Input`](super::Input).

use crate::client_protocol::Request;
use crate::name::Name;
use crate::scenario::{Class, Side};

/// An action for the backend.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Order {
    /// Send a request to a client process.
    Ask {
        /// The process.
        process: Name,
        /// The request.
        request: Request,
    },
    /// Hold back these messages of a process, from the `number`-th on, and send
    /// [`Input::Gated`](super::Input::Gated) as soon as one waits. Given before the run.
    Gate {
        /// The fault that the gate belongs to, counted from 0.
        fault: usize,
        /// The process whose messages are held back.
        process: Name,
        /// Requests or replies.
        side: Side,
        /// The class of the messages.
        class: Class,
        /// The first message that is held back.
        number: u64,
    },
    /// Pass on the messages that wait at the gate of this fault.
    Open(usize),
    /// Apply this fault.
    Strike {
        /// The fault, counted from 0.
        fault: usize,
        /// The masters that it hits.
        nodes: Vec<usize>,
        /// The client processes that it hits.
        processes: Vec<Name>,
    },
    /// Heal this fault.
    Heal(usize),
    /// Kill a client process that violates the client protocol.
    Kill {
        /// The process.
        process: Name,
    },
    /// Report the keys of each master.
    Look,
}
