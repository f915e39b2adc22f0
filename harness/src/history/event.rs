//! The events of a history.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::{Act, Left, Ns, Outcome, Window};
use crate::name::Name;
use crate::scenario::{Harm, Way};
use crate::talk::{Can, Why};

/// What happened. The list is closed: a reader need know no others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// The run goes through `run`, `heal`, `witness`, `settle`, `end`.
    Phase {
        /// Which begins.
        phase: Phase,
    },
    /// A client process is ready.
    Ready {
        /// Which.
        process: Name,
        /// What it can do.
        can: Vec<Can>,
    },
    /// A client is told to do something.
    Asked {
        /// Who.
        client: Name,
        /// The request's number, unique in a run.
        id: u64,
        /// `acquire`, `extend`, `keep_alive`, `release`, `cancel`, `step`.
        op: Cow<'static, str>,
        /// The resource of the lease; of a step the one that is checked.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        resource: Option<Name>,
        /// The others that are asked for, or given back, in the same request. Each is recorded as a request
        /// of its own.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        with: Vec<Name>,
        /// Whether it is asked for as the owner of the lease that the client has.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        again: bool,
        /// The TTL.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ttl_ms: Option<u64>,
        /// How long it may wait.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        wait_ms: Option<u64>,
    },
    /// A client answered.
    Answered {
        /// Who.
        client: Name,
        /// To which request.
        id: u64,
        /// Whether it was done.
        ok: bool,
        /// The lock's value, as in [`Event::Command`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        token: Option<Name>,
        /// When it called its library, if it says so.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<Ns>,
        /// When its library returned, if it says so.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at: Option<Ns>,
        /// The deadline of the lease, if it says so.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deadline: Option<Ns>,
        /// What is left of the lease, if it says that instead.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        valid_ms: Option<u64>,
        /// The fencing token.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fence: Option<u64>,
        /// How many handles of the lease are out then, if it says so.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        handles: Option<u64>,
        /// Why not.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<Why>,
        /// The same for people.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        text: Option<String>,
    },
    /// A client was told that its lease is lost.
    Lost {
        /// Who.
        client: Name,
        /// Which resource.
        resource: Name,
        /// When, by its own stamp.
        at: Ns,
    },
    /// A client's watchdog extended its lease, or a request did that was cancelled.
    Extended {
        /// Who.
        client: Name,
        /// Which resource.
        resource: Name,
        /// The new deadline.
        deadline: Ns,
    },
    /// A register was touched, at this very time.
    Touched {
        /// By whom.
        client: Name,
        /// Which.
        register: Name,
        /// Which way.
        way: Way,
        /// Write: the version that it was based on. Else the version that was found.
        seen: u64,
        /// The version that is there now.
        version: u64,
        /// When its client sent it, if it was delayed on the way.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sent: Option<Ns>,
        /// The fencing token that was shown with it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fence: Option<u64>,
        /// The register refused: a larger token was presented, or this one never was.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        refused: bool,
    },
    /// A command that touches a key, at a master: it took effect, if at all, within the window.
    /// Recorded when its fate is known.
    Command {
        /// Whose.
        process: Name,
        /// Which master.
        node: usize,
        /// The connection, unique in a run.
        connection: u64,
        /// Its place on the connection, from 1.
        number: u64,
        /// What it does.
        #[serde(flatten)]
        act: Act,
        /// When it was passed on to the master.
        sent: Ns,
        /// When the master's reply came; none: it never did, and the command may have been
        /// executed or may be yet.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        replied: Option<Ns>,
        /// When the reply was passed on to the client; none: it was lost.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        delivered: Option<Ns>,
        /// What the master said.
        result: Outcome,
    },
    /// A fault struck, or failed to.
    Struck {
        /// Its number in the scenario, from 1.
        fault: usize,
        /// What it does.
        harm: Box<Harm>,
        /// The masters that it hit.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        nodes: Vec<usize>,
        /// The processes that it hit.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        processes: Vec<Name>,
        /// When.
        at: Window,
        /// Why it failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failed: Option<String>,
    },
    /// A fault was cured: what [`Event::Struck`] of the same number did is undone.
    Cured {
        /// Its number.
        fault: usize,
        /// When.
        at: Window,
        /// Why that failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failed: Option<String>,
    },
    /// What a master has after a fault by which it may have forgotten: all that it had executed before
    /// this, and nothing that it executed after. Recorded before [`Event::Struck`].
    Kept {
        /// The fault's number.
        fault: usize,
        /// Which master.
        node: usize,
        /// Until when.
        until: Window,
    },
    /// From now on, the wall clock of a master shows `real + ahead + (now - since) * (rate - 1)`,
    /// and in every odd stretch of `strobe_every` since then `strobe_by` more. Real time passes as
    /// the run's does.
    Clock {
        /// Which master.
        node: usize,
        /// Since when.
        since: Window,
        /// How far it is ahead.
        ahead: Ns,
        /// Its seconds per second.
        rate: f64,
        /// How far it jumps.
        #[serde(default, skip_serializing_if = "is_zero")]
        strobe_by: Ns,
        /// How long it stays there.
        #[serde(default, skip_serializing_if = "is_zero")]
        strobe_every: Ns,
    },
    /// A client process came to an end that nobody asked for, or does not keep to the protocol.
    Broken {
        /// Which.
        process: Name,
        /// What it did.
        why: String,
    },
    /// The keys of a master at the end of the run; none: it could not be asked.
    Keys {
        /// Which master.
        node: usize,
        /// What is there.
        keys: Option<Vec<Left>>,
    },
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants a reference")]
const fn is_zero(value: &Ns) -> bool {
    *value == 0
}

/// A part of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// The scripts and the faults.
    Run,
    /// Everything is cured.
    Heal,
    /// Each client process that lives acquires each resource once more.
    Witness,
    /// What is owed is paid, what is left expires.
    Settle,
    /// Nothing more.
    End,
}
