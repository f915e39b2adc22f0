//! Model checking: explores every state that a model can reach within stated bounds.
//!
//! The simulation samples long runs; this takes short ones and leaves none out. `explore.rs` knows
//! nothing of locks: it walks through the states of a [`Model`], breadth first, and returns the
//! shortest way to the first state that breaks a rule. `state_set.rs` stores visited states as
//! 128-bit hashes, which `wide.rs` computes. There are two models: [`machines`], the shipped claims
//! and links between clients and masters that are cut off, sleep, stall and err; and [`fencing`],
//! the protocol of fencing tokens in any order of events.
//!
//! The code is pure: no clock, no randomness, no Tokio, no Redis. The command line measures time
//! and memory.

#![forbid(unsafe_code)]

use redquorum_scenario::Mutant;
use redquorum_scenario::units::plural;

mod explore;
pub mod fencing;
pub mod machines;
mod state_set;
#[cfg(test)]
mod tests;
mod wide;

pub use explore::{Broken, Counterexample, Explored, Fairness, Model, explore};

/// More states than any run needs that shows an error of a mutant.
const MOST: usize = 4_000_000;

/// The rule that a mutant breaks first, in the models that have it.
pub fn broken_by(mutant: Mutant) -> Option<&'static str> {
    let explored = match machines::Scope::against(mutant) {
        Some(scope) => machines::model_check(scope, mutant, MOST).explored,
        None => fencing::model_check(fencing::Scope::against(mutant)?, mutant, MOST),
    };
    explored.broken.map(|counterexample| counterexample.broken.rule)
}

/// A bound in words: a number and a noun, or none for zero.
fn counted(number: u8, what: &str) -> Option<String> {
    (number > 0).then(|| plural(number, what))
}
