//! Searches for schedules of faults that break the lock, in virtual time.

pub mod exhaustive;
