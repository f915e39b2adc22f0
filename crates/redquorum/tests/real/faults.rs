//! Masters that refuse, that want a password, that die and come back; keys that are no locks; and
//! every shape that a lock can have. Each has a clear outcome, and none leaks a key.
//!
//! Masters that answer garbage, half a reply or too much are no real ones: they are in the tests
//! of the hostile kind.

mod access;
mod deaf;
mod errors;
mod keys;
mod outages;
mod refusals;
mod shapes;

use redquorum_rig::trials::Case;

pub(crate) fn cases() -> Vec<Case> {
    [
        refusals::cases(),
        access::cases(),
        deaf::cases(),
        errors::cases(),
        keys::cases(),
        outages::cases(),
        shapes::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
