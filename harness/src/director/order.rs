//! What the director says to do. A backend carries it out, and tells what came of it as
//! [`Input`](super::Input).

use crate::name::Name;
use crate::scenario::{Class, Side};
use crate::talk::Request;

/// What to do.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Order {
    /// Tell a client process.
    Ask {
        /// Which.
        process: Name,
        /// What.
        request: Request,
    },
    /// Hold back these messages of a process, from the `number`-th on, and say
    /// [`Input::Gated`](super::Input::Gated) as soon as one waits. Given before the run.
    Gate {
        /// For which fault, counted from 0.
        fault: usize,
        /// Whose messages.
        process: Name,
        /// Requests or replies.
        side: Side,
        /// Of which class.
        class: Class,
        /// From which on.
        number: u64,
    },
    /// Let go what waits at the gate of this fault.
    Open(usize),
    /// Let this fault strike.
    Strike {
        /// Which, counted from 0.
        fault: usize,
        /// The masters that it hits.
        nodes: Vec<usize>,
        /// The client processes that it hits.
        processes: Vec<Name>,
    },
    /// Cure it.
    Cure(usize),
    /// Kill a client process that does not keep to the protocol.
    Kill {
        /// Which.
        process: Name,
    },
    /// Say which keys each master has.
    Look,
}
