//! Masters that refuse, that need a password, that die and come back; keys that are no locks; and
//! every shape of a lock. Each case has a clear outcome, and none leaks a key.
//!
//! Masters that reply garbage, half a reply or too much are not real ones: the `hostile` tests have
//! them.

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
