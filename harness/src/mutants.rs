//! Mutants on real masters: a client process with a deliberate bug, which implements the client
//! protocol. [`redquorum_simulator::mutants`] has the bugs.
//!
//! - `wires.rs` moves bytes.
//! - `shell.rs` is the loop. Its messages come from `client/output.rs`.
//!
//! It is simple rather than fast: one thread decides, and one thread per connection reads.

mod shell;
mod wires;

pub use shell::run;
