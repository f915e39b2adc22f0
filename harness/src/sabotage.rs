//! Saboteurs: clients that lie, to show that scenarios catch broken locks.
//!
//! A saboteur drives the very machines that are shipped, and nothing in them knows of it: between a
//! machine and the world stands an adapter that falsifies the time it is told, the votes, the
//! randomness, what it wants done, or the bytes on the wire. Each lie is a mistake that some lock
//! library has made.
//!
//! `lie.rs` names the lies, and has those that need no memory; `claim.rs` is the adapter around a
//! claim, `votes.rs` its ballot stuffing, `numbers.rs` what it makes of
//! fencing numbers; `lax.rs` has scripts with a line left out; `conduct.rs` makes a client process
//! (`client_machine`) drive the adapter in place of the shipped claim. They are
//! pure, as what they wrap, so that the simulation can drive them. The rest is a shell of its own that drives them on real masters
//! and speaks the client protocol: `wires.rs` moves bytes, `shell.rs` is its loop, `talk.rs` has its
//! words. It is small rather than fast: one thread that decides, and one per connection that reads.

mod claim;
mod conduct;
mod lax;
mod lie;
mod numbers;
#[cfg(all(unix, feature = "real"))]
mod shell;
#[cfg(test)]
mod tests;
mod votes;
#[cfg(all(unix, feature = "real"))]
mod wires;

pub use crate::client_machine::Clocks;
pub use claim::LyingClaim;
pub use conduct::Seed;
pub use lax::Laxity;
pub use lie::Lie;
#[cfg(all(unix, feature = "real"))]
pub use shell::run;
