//! Processes that stand in line, with the shipped machine, in worlds of any timing: the order that
//! `acquire/line.rs` promises.

#[path = "../support/chance.rs"]
mod chance;
mod order;
mod world;
