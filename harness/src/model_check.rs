//! Model checking: explores every state that a model can reach within stated bounds.
//!
//! The simulation samples long runs; this takes short ones and leaves none out. `explore.rs` knows
//! nothing of locks: it walks through the states of a [`Model`], breadth first, and returns the
//! shortest way to the first state that breaks a rule. `state_set.rs` stores visited states as
//! 128-bit hashes, which `wide.rs` computes. There are two models: [`machines`], the shipped claims
//! and links between clients and masters that are cut off, sleep, stall and err; and [`fencing`], a
//! protocol on paper.
//!
//! The code is pure: no clock, no randomness, no Tokio, no Redis. The command line measures time
//! and memory.

mod explore;
pub mod fencing;
pub mod machines;
mod state_set;
mod wide;

pub use explore::{Broken, Counterexample, Explored, Fairness, Model, explore};

/// A bound in words: a number and a noun, or none for zero.
fn counted(number: u8, what: &str) -> Option<String> {
    match number {
        0 => None,
        1 => Some(format!("1 {what}")),
        _ => Some(format!("{number} {what}s")),
    }
}
