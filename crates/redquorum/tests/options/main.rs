//! Options at and beyond their bounds: what is refused says which option it was and what would
//! be right, what is taken works, and nothing overflows.

mod bounds;
mod masters;
mod messages;
mod promises;
mod resources;
mod runtimes;
