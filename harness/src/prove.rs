//! Proofs by exhaustion: every state that a model can reach within stated bounds, looked at.
//!
//! Where the simulation samples long runs, this takes short ones and leaves none out. `explore.rs`
//! knows nothing of locks: it walks through the states of a [`Model`], breadth first, and says how
//! it comes to the first that breaks a rule, by the shortest way. `seen.rs` remembers states by
//! 128 bits, `wide.rs` makes these. The models are users of it: [`machines`], the shipped claims and
//! links between clients and masters that are cut off, sleep, stall and err; and [`fencing`], a protocol
//! on paper.
//!
//! Pure: no clock, no chance, no Tokio, no Redis. What is measured (time, memory) is measured by
//! the command line.

mod explore;
pub mod fencing;
pub mod machines;
mod seen;
mod wide;

pub use explore::{Broken, Counterexample, Explored, Fate, Model, explore};

/// So many of something, if any: a bound in words.
fn counted(number: u8, what: &str) -> Option<String> {
    match number {
        0 => None,
        1 => Some(format!("1 {what}")),
        _ => Some(format!("{number} {what}s")),
    }
}
