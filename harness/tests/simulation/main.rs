//! The simulation from outside: a seed determines a run, and no run inside the lock's assumptions
//! breaks the lock. `tests/mutants.rs` checks that mutants are caught.

mod blindness;
mod determinism;
mod pace;
mod support;
