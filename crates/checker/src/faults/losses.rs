//! The losses of masters: which faults cost keys, and which keys.

use super::Strike;
use redquorum_scenario::history::{Ns, Window};
use redquorum_scenario::{Cause, FaultKind, NodeFault};

/// A loss of the commands that a master executed after some instant.
#[derive(Clone, Copy)]
pub struct Loss {
    pub fault: usize,
    pub cause: Cause,
    pub at: Window,
    /// Commands that were executed before this are kept. Commands that were executed after it are
    /// lost.
    until: Window,
    /// Whether the process ended with the loss, and with it all connections.
    deadly: bool,
    /// Whether the loss certainly hit this master.
    sure: bool,
}

impl Loss {
    /// Whether the effect of a command that was executed within a window, before the loss, is
    /// certainly there after it.
    pub fn keeps(&self, done: Window) -> bool {
        done.to <= self.until.from
    }

    /// Whether the effect of a command that was executed within a window is certainly gone.
    pub fn takes(&self, done: Window) -> bool {
        if !self.sure || done.from <= self.until.to {
            return false;
        }
        // No connection outlives its master: a command that was sent before was executed before, if
        // at all. A command that was sent while the master went down and came up may be from before
        // or after.
        if self.deadly { self.at.from >= done.from } else { self.at.from >= done.to }
    }
}

/// The loss of everything that the master ever executed.
const ALL: Window = Window::at(Ns::MIN);

/// The loss that a fault caused; none: nothing was lost. A master `forgets` at a restart if it has
/// nothing on disk. The state that is `kept` over a loss of power, or by a replica, is on record.
pub(super) fn of(strike: &Strike<'_>, forgets: bool, kept: Option<Window>) -> Option<Loss> {
    let FaultKind::Node(fault_kind) = strike.fault_kind else { return None };
    // Without a record, the state that was kept is unknown.
    let some = kept.unwrap_or(Window::new(Ns::MIN, Ns::MAX));
    let (cause, until, deadly) = match fault_kind {
        NodeFault::Kill { .. } | NodeFault::Stop { .. } | NodeFault::Restart { .. } if forgets => {
            (Cause::NodeRestart, ALL, true)
        }
        NodeFault::Flush { .. } => (Cause::NodeFlush, ALL, false),
        NodeFault::Evict { .. } => (Cause::NodeEvict, ALL, false),
        NodeFault::PowerLoss { .. } => (Cause::NodePowerLoss, some, true),
        NodeFault::Failover { .. } => (Cause::NodeFailover, some, true),
        _ => return None,
    };
    // A fault that failed hit some masters and not others. If it ends processes, it hit the masters
    // with a record of the state that they kept. Any other fault may have hit every master that got
    // a command.
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
