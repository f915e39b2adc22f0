//! The simulation from outside: a seed says everything, and what lies within the lock's assumptions
//! never breaks it. That lies are caught is in `tests/lies.rs`.

mod determinism;
mod pace;
mod support;
