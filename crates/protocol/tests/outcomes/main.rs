//! Every outcome of every master: {granted, refused, error, never, late} over N masters, in every
//! order of arrival, for acquire, extend and release, with a drop at every step.
//!
//! The oracle follows the text of the rules, not the code: a verdict is final once every possible
//! reply of the silent masters gives the same one (R3).

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
