//! Masters that answer wrongly, late, too much or not at all: a minority of them is not noticed,
//! a majority is a clear error in time, and none makes the lock spin, hang, panic or swell.
//!
//! All in virtual time, over pipes in memory, but for `tcp.rs`.

mod guard;
mod kinds;
#[cfg(feature = "tracing")]
mod logs;
mod order;
mod panics;
mod pushes;
mod scripted;
mod secrets;
mod swell;
mod tcp;
mod votes;
