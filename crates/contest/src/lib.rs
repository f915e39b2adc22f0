//! Compares ways to keep many users from signing up for the last places of an event at once.
//!
//! [`results`] is what a contest measured: the content of `contest.json`. [`recommend`] derives
//! from its figures which strategy fits which situation. [`page`] renders both as one HTML file.
//! With the feature `databases`, `main` is the program that measures it.
//!
//! # Reading order
//!
//! `options.rs` has the options, `contest.rs` the order of the runs. `run.rs` makes one run of a
//! strategy (`strategy.rs`) under a workload and a fault (`fault.rs`), on a database
//! (`database.rs`) and masters (`masters.rs`), with the rig's network in between (`network.rs`).
//! `tally.rs` collects what applicants saw, `table.rs` prints the figures.

#![forbid(unsafe_code)]

mod names;
pub mod page;
pub mod recommend;
pub mod results;

#[cfg(feature = "databases")]
mod contest;
#[cfg(feature = "databases")]
mod database;
#[cfg(feature = "databases")]
mod fault;
#[cfg(feature = "databases")]
mod masters;
#[cfg(feature = "databases")]
mod network;
#[cfg(feature = "databases")]
mod options;
#[cfg(feature = "databases")]
mod run;
#[cfg(feature = "databases")]
mod strategy;
#[cfg(feature = "databases")]
mod table;
#[cfg(feature = "databases")]
mod tally;

#[cfg(feature = "databases")]
pub use contest::main;
