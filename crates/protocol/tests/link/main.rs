//! One link, step by step: the order of commands, the ledger, replacement, and the effects of a
//! faulty master.

mod bench;
mod clock;
mod guard;
mod inbox;
mod ledger;
mod replacement;
mod trouble;
