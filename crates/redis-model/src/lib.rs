//! A model of a Redis server, as far as a lock of `redquorum` uses it.
//!
//! The model is pure: it reads no clock, waits for nothing and draws no random numbers. Every call
//! that needs a time gets what the server's wall clock shows. The caller decides when bytes arrive,
//! when the event loop serves a connection, and when the server looks for expired keys. The model
//! decides the results. The harness's `tests/differential` runs the model and a real `redis-server`
//! through random sequences and compares every reply.
//!
//! - `keys` has the keys with their expiry, and Redis's commands on them.
//! - `scripts` has the lock's commands and scripts, each as its Lua text says.
//! - `connections` has the sockets' buffers, client ids and subscriptions.
//! - `request` and `value` have the messages on the wire, with their bytes.
//! - [`Server`] has the process: its life, its persistence, its replica.
//! - [`network`] has what a network can do to messages, and rules that choose them: for the drivers
//!   of the model.
//! - [`ScriptMutant`] has scripts that leave something out, to test that their checks are needed.

#![forbid(unsafe_code)]

mod connections;
mod keys;
pub mod network;
mod request;
mod script_mutant;
mod scripts;
mod server;
#[cfg(test)]
mod tests;
mod value;

pub use connections::{Close, Connection};
pub use request::Request;
pub use script_mutant::ScriptMutant;
pub use server::{Persistence, Replica, Server, greet};
pub use value::{Event, ServerReply, Value};

/// Tests the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// What a server's own wall clock shows: nanoseconds since the Unix epoch.
pub type Wall = u64;
