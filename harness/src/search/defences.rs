//! What a defended lock is, for all searches: every defence that the lock has, switched on. A new one is
//! added here, and both searches have it.

use std::time::Duration;

use crate::scenario::{Length, Lock};

/// Switches every defence on, for leases of up to this TTL, of masters that are old acquaintances.
pub(super) fn defend(lock: &mut Lock, longest: Duration) {
    lock.guard = Some(Length(longest));
    lock.blessed = true;
}

/// Whether masters that forgot are noticed by locks with these options.
pub(super) const fn sees_amnesia(lock: &Lock) -> bool {
    lock.guard.is_some()
}
