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
//!
//! ```
//! use redquorum_redis_model::{Event, Persistence, Request, Server, ServerReply, Value};
//!
//! let mut server = Server::new(1, Persistence::None);
//! let connection = server.connect().expect("it runs");
//! server.deliver(connection, Request::words(&[b"DBSIZE"]));
//! let mut events = Vec::new();
//! server.serve(1_700_000_000_000_000_000, connection, &mut events);
//! let reply = ServerReply::Value(Value::Integer(0));
//! assert_eq!(events, [Event::Message(connection, reply)]);
//! ```

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

/// What a server's own wall clock shows: nanoseconds since the Unix epoch.
pub type Wall = u64;
