//! Several resources at once: all or none, in one round trip, each as safe as a single one.

mod asking;
mod holding;
mod others;
