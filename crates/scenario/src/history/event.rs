//! The events of a history.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::{Act, LeftKey, Ns, Outcome, Window};
use crate::client_protocol::{Capability, ClientReply, Request};
use crate::name::Name;
use crate::{AccessKind, is_default};

/// An event of a run. The list is closed: a reader needs to handle no others.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// A phase begins: `run`, `heal`, `final-acquire`, `drain`, `end`, in this order.
    Phase {
        /// The phase that begins.
        phase: Phase,
    },
    /// A client process is ready.
    Ready {
        /// The process.
        process: Name,
        /// The features that it supports.
        can: Vec<Capability>,
    },
    /// The harness sends a request to a client. Its number is unique in a run.
    Requested(Request),
    /// A client answers a request.
    Replied {
        /// The client.
        client: Name,
        /// The reply. Its stamps are times of the run.
        #[serde(flatten)]
        reply: ClientReply,
    },
    /// A client was notified that its lease is lost.
    Lost {
        /// The client.
        client: Name,
        /// The resource.
        resource: Name,
        /// When, by the client's own stamp.
        at: Ns,
    },
    /// A client's watchdog extended its lease, or a cancelled request did.
    Extended {
        /// The client.
        client: Name,
        /// The resource.
        resource: Name,
        /// The new deadline.
        deadline: Ns,
    },
    /// The caller of a request did not poll the future of its library for a while: as in a
    /// `select!` that runs another branch. A request for several resources has the number of the
    /// first.
    Unpolled {
        /// The client.
        client: Name,
        /// The number of the request.
        id: u64,
        /// When the caller stopped.
        from: Ns,
        /// When the caller polled the future again, or dropped it.
        to: Ns,
    },
    /// A client accessed a register, exactly at the time of this record.
    Touched {
        /// The client.
        client: Name,
        /// The register.
        register: Name,
        /// The kind of access.
        way: AccessKind,
        /// For a write, the version that it was based on. For other accesses, the version that was
        /// found.
        seen: u64,
        /// The version of the register after the access.
        version: u64,
        /// When the client sent the access, if it was delayed on the way.
        sent: Option<Ns>,
        /// The fencing token that came with the access.
        fence: Option<u64>,
        /// Whether the register refused: it had seen a larger token, or this token was never
        /// presented to it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        refused: bool,
    },
    /// A master received a command that touches a key. If the command took effect at all, it did so
    /// between `sent` and `replied`. Recorded when its result is known.
    Command {
        /// The client process that sent it.
        process: Name,
        /// The master.
        node: usize,
        /// The connection, unique in a run.
        connection: u64,
        /// The position of the command on the connection, from 1.
        number: u64,
        /// The effect of the command on a key.
        #[serde(flatten)]
        act: Act,
        /// When the command was passed on to the master.
        sent: Ns,
        /// When the master's reply arrived. None: no reply arrived; the master may have executed
        /// the command, or may still do so.
        replied: Option<Ns>,
        /// When the reply was passed on to the client; none: the reply was lost.
        delivered: Option<Ns>,
        /// The master's reply.
        result: Outcome,
    },
    /// A fault struck, or failed to strike.
    Struck {
        /// The number of the fault in the scenario, from 1.
        fault: usize,
        /// The masters that the fault hit.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        nodes: Vec<usize>,
        /// The processes that the fault hit.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        processes: Vec<Name>,
        /// When the fault struck.
        at: Window,
        /// Why the fault failed to strike.
        failed: Option<String>,
    },
    /// A fault is healed: the effect of the [`Event::Struck`] with the same number is undone.
    Healed {
        /// The number of the fault.
        fault: usize,
        /// When the fault was healed.
        at: Window,
        /// Why the healing failed.
        failed: Option<String>,
    },
    /// The state that a master kept over a fault that may have made it forget. It has everything
    /// that it executed before `until`, and nothing that it executed after. Recorded before
    /// [`Event::Struck`].
    Kept {
        /// The number of the fault.
        fault: usize,
        /// The master.
        node: usize,
        /// The instant up to which the master's state was kept.
        until: Window,
    },
    /// A setting of a master's wall clock. From `since` on, the clock shows
    /// `real + ahead + (now - since) * (rate - 1)`. In every odd interval of `strobe_every` since
    /// then, it shows `strobe_by` more. Real time passes at the rate of the run's clock.
    Clock {
        /// The master.
        node: usize,
        /// When the setting began.
        since: Window,
        /// How far the clock is ahead.
        ahead: Ns,
        /// The rate of the clock, in seconds per second.
        rate: f64,
        /// How far the clock jumps.
        #[serde(default, skip_serializing_if = "is_default")]
        strobe_by: Ns,
        /// How long the clock stays there.
        #[serde(default, skip_serializing_if = "is_default")]
        strobe_every: Ns,
    },
    /// A client process ended without a request to do so, or violated the protocol.
    Broken {
        /// The process.
        process: Name,
        /// How the process failed.
        why: String,
    },
    /// The keys of a master at the end of the run; none: the master could not be asked.
    Keys {
        /// The master.
        node: usize,
        /// The keys.
        #[serialize_always]
        keys: Option<Vec<LeftKey>>,
    },
}

impl Event {
    /// Whether the run is over.
    pub const fn is_end(&self) -> bool {
        matches!(self, Self::Phase { phase: Phase::End })
    }
}

/// A phase of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// The scripts and the faults run.
    Run,
    /// All faults are healed.
    Heal,
    /// Final acquires: each client process that lives acquires each resource once more.
    FinalAcquire,
    /// Drain: pending clean-ups complete, and keys that are left expire.
    Drain,
    /// The run is over.
    End,
}
