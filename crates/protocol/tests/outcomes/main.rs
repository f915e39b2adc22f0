//! Every outcome of every master: {granted, refused, error, never, late} over N masters, in
//! every order of arrival, for acquire, extend and release, with a drop at every step.
//!
//! The oracle is written from the rules' words and not from the code: a verdict stands once
//! every way in which the silent masters could still answer gives the same one (R3).

mod acquire;
mod clocks;
mod extend;
mod fencing;
mod grace;
mod line;
mod play;
mod reentry;
mod release;
mod waiting;
mod watchdog;
