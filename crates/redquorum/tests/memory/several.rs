//! Several resources at once: all or nothing, in one round trip, and each as if it were alone.

mod asking;
mod holding;
mod others;
