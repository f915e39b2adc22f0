//! One link, step by step: the order of commands, the ledger, replacement, and what a master
//! can do to it.

mod bench;
mod clock;
mod guard;
mod inbox;
mod ledger;
mod replacement;
mod trouble;
