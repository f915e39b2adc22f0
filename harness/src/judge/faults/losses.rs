//! What masters lost by faults: which faults cost keys, and which keys.

use super::Strike;
use crate::history::{Ns, Window};
use crate::scenario::{Cause, Harm, NodeHarm};

/// A master lost what it was told after some time.
#[derive(Clone, Copy)]
pub(in crate::judge) struct Loss {
    /// The fault's number in the scenario.
    pub(in crate::judge) fault: usize,
    pub(in crate::judge) cause: Cause,
    pub(in crate::judge) at: Window,
    /// What was executed before this is not lost, what was executed after it is.
    until: Window,
    /// Whether the process ended with it, and all connections.
    deadly: bool,
    /// Whether it is certain that it happened to this master.
    sure: bool,
}

impl Loss {
    /// Whether what was executed within a window, before the loss, is there after it for certain.
    pub(in crate::judge) fn keeps(&self, done: Window) -> bool {
        done.to <= self.until.from
    }

    /// Whether what was executed within a window is gone for certain.
    pub(in crate::judge) fn takes(&self, done: Window) -> bool {
        if !self.sure || done.from <= self.until.to {
            return false;
        }
        // No connection outlives its master: what was sent before was executed before, if at all.
        // What was sent while it went down and came up may be from before or after.
        if self.deadly { self.at.from >= done.from } else { self.at.from >= done.to }
    }
}

/// Everything that it ever executed.
const ALL: Window = Window { from: Ns::MIN, to: Ns::MIN };

/// What a fault cost; none: nothing. A master `forgets` at a restart if it has nothing on disk; what is
/// `kept` over a loss of power, or by a replica, is on record.
pub(super) fn of(strike: &Strike<'_>, forgets: bool, kept: Option<Window>) -> Option<Loss> {
    let Harm::Node(harm) = strike.harm else { return None };
    // Where nobody says what was kept it is not known.
    let some = kept.unwrap_or(Window { from: Ns::MIN, to: Ns::MAX });
    let (cause, until, deadly) = match harm {
        NodeHarm::Kill { .. } | NodeHarm::Stop { .. } | NodeHarm::Restart { .. } if forgets => {
            (Cause::NodeRestart, ALL, true)
        }
        NodeHarm::Flush { .. } => (Cause::NodeFlush, ALL, false),
        NodeHarm::Evict { .. } => (Cause::NodeEvict, ALL, false),
        NodeHarm::PowerLoss { .. } => (Cause::NodePowerLoss, some, true),
        NodeHarm::Failover { .. } => (Cause::NodeFailover, some, true),
        _ => return None,
    };
    // One that failed was done to some masters and not to others: to those of which it is told what
    // they kept, and perhaps to any that got a command.
    let perhaps = if deadly { kept.is_some() } else { true };
    (!strike.failed || perhaps).then_some(Loss {
        fault: strike.fault,
        cause,
        at: strike.at,
        until,
        deadly,
        sure: !strike.failed,
    })
}
