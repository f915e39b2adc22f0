//! The command line: runs on a stage that plays what it is told, reports of every kind, and the
//! program itself where nothing need be run.

#![cfg(unix)]

mod page;
mod program;
mod reports;
mod runs;
mod search;
mod support;
