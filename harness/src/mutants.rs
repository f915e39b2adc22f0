//! Mutants: clients with a deliberate bug. They show that scenarios catch broken locks.
//!
//! A mutant drives the shipped state machines, and nothing in them knows of it. An adapter between
//! a machine and its environment falsifies the time, the votes, the random numbers, the effects, or
//! the bytes on the wire. Each mutation is a mistake that some lock library has made.
//!
//! These files are pure, like the code that they wrap, so that the simulation can drive them:
//!
//! - `mutant.rs` lists all mutants, and implements the mutations that need no memory. Those that no
//!   client process has are in the drivers of the [model check](crate::model_check).
//! - `claim.rs` is the adapter around a claim.
//! - `votes.rs` makes up votes, and `numbers.rs` falsifies fencing numbers.
//! - `conduct.rs` makes a client process (`client_machine`) drive the adapter instead of the claim.
//!
//! The other files drive mutants on real masters and implement the client protocol:
//!
//! - `wires.rs` moves bytes.
//! - `shell.rs` is the loop. Its messages come from `client/output.rs`.
//!
//! That part is simple rather than fast: one thread decides, and one thread per connection reads.

mod claim;
mod conduct;
mod mutant;
mod numbers;
#[cfg(all(unix, feature = "real"))]
mod shell;
mod votes;
#[cfg(all(unix, feature = "real"))]
mod wires;

pub use mutant::Mutant;
pub use redquorum_redis_model::ScriptMutant;
#[cfg(all(unix, feature = "real"))]
pub use shell::run;
