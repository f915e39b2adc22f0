//! Masters that reply wrongly, late, too much or not at all. A minority of them has no effect. A
//! majority is a clear error in time. None makes the lock spin, hang, panic or swell.
//!
//! All tests run in virtual time over pipes in memory.

mod connections;
mod guard;
mod kinds;
#[cfg(feature = "tracing")]
mod logs;
mod pushes;
mod scripted;
mod secrets;
mod steps;
mod useless;
mod votes;
