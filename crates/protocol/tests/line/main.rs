//! Processes in a fair queue, with the shipped machine and random timings: the order that
//! `acquire/line.rs` promises.

#[path = "../support/chance.rs"]
mod chance;
mod order;
mod world;
