//! Defines a defended lock for all searches: a lock with every defence switched on. Add a new
//! defence here, and both searches use it.

use std::time::Duration;

use crate::scenario::{Length, Lock};

/// Switches every defence on, for leases of up to this TTL, on masters that already have a marker.
pub(super) fn defend(lock: &mut Lock, longest: Duration) {
    lock.guard = Some(Length(longest));
    lock.initialized = true;
}

/// Whether locks with these options detect masters that forgot.
pub(super) const fn sees_amnesia(lock: &Lock) -> bool {
    lock.guard.is_some()
}
