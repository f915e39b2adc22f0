//! The command line: runs on a fake backend, reports of every kind, and the program itself where it
//! runs no scenario.

#![cfg(unix)]

mod page;
mod program;
mod reports;
mod runs;
mod search;
mod support;
mod watch;
