//! The simulation from outside: every scenario in virtual time, the same again from the same seed;
//! clients that lie are caught; and what lies within the lock's assumptions never breaks it.

mod determinism;
mod mutants;
mod support;
