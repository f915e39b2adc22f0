//! Handles: an owner that acquires what it holds gets another handle of the same lease. The last
//! handle gives the lease back.

use alloc::vec::Vec;

use super::{Asker, Hold, Loss};
use crate::effect::Effect;
use crate::lock_config::LockConfig;
use crate::time::Time;

impl Hold {
    /// The owner acquires what it holds, and gets another handle unless the lease is over. No
    /// master is asked: only the clock, and what is known already, can refuse it.
    pub(crate) fn reenter(&mut self, now: Time, out: &mut Vec<Effect>) {
        self.wake_deadline(now, out);
        // The new handle has seen no extension fail, and nothing else would report the gap to it.
        if self.gone && self.lost.is_none() {
            self.lose(now, Loss::QuorumGone, out);
        }
        if self.lost.is_none() {
            // At its maximum, the count stays: the caller sees by it that it has no new handle.
            self.handles = self.handles.saturating_add(1);
        }
    }

    /// Starts a round of extending for the holder, if that moves the deadline to a later time. It
    /// never moves the deadline to an earlier time, because other handles rely on it.
    pub(crate) fn prolong(&mut self, now: Time, config: LockConfig, out: &mut Vec<Effect>) {
        if now.plus(config.validity()) > self.deadline {
            self.start_round(now, config, Asker::Reentry, out);
        }
    }

    /// Whether the lease outlives the return of one handle.
    pub(crate) const fn has_others(&self) -> bool {
        self.handles > 1
    }

    /// One of several handles is given back: its holder is done.
    pub(crate) fn return_handle(&mut self, now: Time, out: &mut Vec<Effect>) {
        // The holder can then learn whether the lease was ours until now.
        self.wake_deadline(now, out);
        debug_assert!(self.handles > 1, "R8: the last handle ends the lease");
        self.handles -= 1;
    }

    /// One of several handles is dropped, and its work may still be under way.
    pub(crate) fn drop_handle(&mut self, now: Time, out: &mut Vec<Effect>) {
        self.return_handle(now, out);
        // A lost lease has left its keys already.
        if self.lost.is_none() {
            self.left = self.config.left_until(now).max(self.left);
        }
    }

    /// The keys stay until then, also if the lease is given back before.
    pub(crate) fn keep_until(&mut self, until: Time) {
        self.left = self.left.max(Some(until));
    }

    /// Until when the keys must stay although the last handle is given back, if they must.
    pub(crate) fn left_until(&self, now: Time) -> Option<Time> {
        self.left.filter(|until| *until > now)
    }

    /// How many handles are out: 1, and one more for each time that the owner acquired the lease
    /// again and has not given that handle back.
    pub const fn handles(&self) -> u32 {
        self.handles
    }
}
