//! The known faults of popular lock libraries, one test for each. They run on real masters, where
//! most of the faults were found.
//!
//! Not here, because this library has no such feature: a fencing counter on one master, a majority
//! instead of the quorum of a semaphore, and two keys of one lock concatenated into one. A wall
//! clock for elapsed time is not here either, because no test can step the clock of its machine;
//! `clippy.toml` bans it from the library.
//!
//! Elsewhere: dropped acquires in `drops.rs`, late `SET`s on another connection than their clean-up
//! in `zombies.rs`, and missed wake-ups and leaked subscriptions in `waking.rs`.

mod answers;
mod cleanup;
mod deadline;
mod extend;
mod verdict;
mod waiting;
mod watchdog;

use redquorum_rig::trials::Case;

pub(crate) fn cases() -> Vec<Case> {
    [
        verdict::cases(),
        deadline::cases(),
        cleanup::cases(),
        extend::cases(),
        watchdog::cases(),
        answers::cases(),
        waiting::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
