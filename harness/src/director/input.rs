//! What the director is told, by whoever carries out its orders.

use std::collections::BTreeMap;

use crate::history::{Act, Event, Left, Ns, Outcome, Window};
use crate::name::Name;
use crate::scenario::{Class, Side};
use crate::talk::{Answer, Can};

/// What happened.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Input {
    /// All clients are ready, and can do this, by process.
    Begin(BTreeMap<Name, Vec<Can>>),
    /// A client answered; its stamps are nanoseconds of the run.
    Answered(Answer),
    /// A client was told that its lease is lost.
    Lost {
        /// Who.
        client: Name,
        /// What.
        resource: Name,
        /// When, by its own stamp.
        at: Ns,
    },
    /// A client's watchdog extended its lease.
    Extended {
        /// Who.
        client: Name,
        /// What.
        resource: Name,
        /// The new deadline.
        deadline: Ns,
    },
    /// A message passed: a request on its way to a master, or a reply that reached its client.
    Passed {
        /// Whose.
        process: Name,
        /// Request or reply.
        side: Side,
        /// What the request is for.
        class: Class,
    },
    /// A master replied to a command; the reply may be on its way for long.
    Replied {
        /// Whose command it was.
        process: Name,
        /// Which master.
        node: usize,
        /// The command.
        act: Act,
        /// What the master said.
        result: Outcome,
    },
    /// For the history alone.
    Recorded(Event),
    /// A message waits at the gate of this fault.
    Gated(usize),
    /// A fault struck, or failed to.
    Struck {
        /// Which, counted from 0.
        fault: usize,
        /// When.
        at: Window,
        /// Why not.
        failed: Option<String>,
    },
    /// A fault was cured, or could not be.
    Cured {
        /// Which, counted from 0.
        fault: usize,
        /// When.
        at: Window,
        /// Why not.
        failed: Option<String>,
    },
    /// A client process is gone, or is to be ignored from now on.
    Broken {
        /// Which.
        process: Name,
        /// What it did.
        why: String,
    },
    /// The keys of a master.
    Keys {
        /// Which.
        node: usize,
        /// None: it does not answer.
        keys: Option<Vec<Left>>,
    },
    /// The time that was asked for has come.
    Wake,
}
