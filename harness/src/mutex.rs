//! Mutexes that are taken also after a panic elsewhere: nothing in this crate panics halfway through
//! a change, and a run must come to its end, whoever has failed.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks it, poisoned or not.
pub(crate) fn unpoisoned<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
