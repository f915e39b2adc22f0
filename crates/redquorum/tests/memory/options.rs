//! Options at and beyond their bounds. An error names the option and a right value, an accepted
//! value works, and nothing overflows.

mod bounds;
mod masters;
mod messages;
mod promises;
mod runtimes;
