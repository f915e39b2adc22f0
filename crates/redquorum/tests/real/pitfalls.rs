//! What goes wrong in the lock libraries that people use, a test for each line of that list. Each
//! is on real masters, where most of it was seen.
//!
//! Not here, because there is no such thing in this library yet: a fencing counter on one master;
//! a majority taken for the quorum of a semaphore; two keys of one lock run together into one;
//! missed wake-ups and leaks of subscriptions. Not here, because no test can step the clock of the
//! machine that it runs on: a wall clock used for elapsed time; `clippy.toml` bans it from the
//! library. Elsewhere: acquires that are dropped, in `drops.rs`; a late `SET` that comes over
//! another connection than its clean-up, in `zombies.rs`.

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
