//! Tests of the protocol, from small to large.

/// One claim: every outcome of every master (granted, refused, error, never, late) over N masters,
/// in every order of arrival, for acquire, extend and release, with a drop at every step. The
/// oracle follows the text of the rules, not the code: a verdict is final once every possible reply
/// of the silent masters gives the same one (R3).
mod claim {
    mod acquire;
    mod clocks;
    mod extend;
    mod fair;
    mod fencing;
    pub(crate) mod play;
    mod release;
    mod waiting;
    mod watchdog;
}

/// One link, step by step: the order of commands, the ledger, replacement, and the effects of a
/// faulty master.
mod link {
    mod bench;
    mod clock;
    mod failures;
    mod guard;
    mod idle;
    mod inbox;
    mod ledger;
    mod queue_ledger;
    mod replacement;
    mod useless;
}

/// Properties for every input: time arithmetic, claims under any inputs, one link with a master
/// that behaves arbitrarily until it is healed, and clients whose callers stop looking at their
/// requests.
mod properties {
    mod claim;
    mod gap;
    mod link;
    mod time;
    mod unpolled;
    mod wire;
}

/// The client of a process: turns of its requests, timers of its leases, and its servers.
mod client;

/// Many clients and masters.
mod fair;

mod master;
mod multi_lock;
mod support;
mod texts;
mod world;
