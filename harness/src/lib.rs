//! Fault injection for multi-master Redis locks: break five masters as a scenario says, and check
//! what the lock did.
//!
//! ```text
//!                orders ─▶ real: masters, clients, network, clocks; or sim: all in virtual time
//! scenario ─▶ orchestrator                  │
//!    ▲         ▲        ◀──── events ───────┘
//!    │         └─▶ history ─▶ checker ─▶ verdict ─▶ reports, exit code
//!    └─────────────────────────── expectation ─┘
//! ```
//!
//! The pure parts are crates: [`redquorum_scenario`] (scenario files, the client protocol, the
//! history), [`redquorum_checker`], [`redquorum_simulator`] (the orchestrator, and runs in virtual
//! time), [`redquorum_search`] and [`redquorum_model_check`]. This crate is the program around
//! them.
//!
//! # The modules, in reading order
//!
//! | module | what it is |
//! |---|---|
//! | [`real`] | a run on real parts: masters, proxies, faults |
//! | [`process`] | a client process: started, read, paused, killed, never left behind |
//! | [`client`] | the built-in client, which is the agent of the command `redquorum`; the example for a driver of another lock |
//! | [`library`] | the library itself as a client of the simulator |
//! | [`client_check`] | shows the author of a driver its errors |
//! | [`mutants`] | clients with a deliberate bug, on real masters |
//! | [`cli`], [`report`] | the command line, and its output |
//!
//! # What is deliberately absent
//!
//! - **The checker reads nothing but the history**: no clock, no master, no memory of the run. You
//!   can check a recorded run again, elsewhere.
//! - **The orchestrator opens no socket, starts no process and reads no clock.** Its caller passes
//!   the time.
//! - **No wall clock decides anything** in a run. Stamps are of `CLOCK_MONOTONIC`. The wall clocks
//!   of masters are what a scenario breaks.
//! - **The harness reads no lock key during a run**: a read lets a master notice that a key has
//!   expired. The harness computes the keys of masters from the commands that passed.
//! - **No lock runs in the harness's own process.** Clients are processes, which the harness can
//!   stop as a garbage collector does. They implement a protocol that suits any lock. The exception
//!   is the backend `library`, in virtual time.
//! - **A seed does not make a run on real masters repeat itself**; it makes the simulation do so.

#![forbid(unsafe_code)]

use std::sync::{Mutex, MutexGuard, PoisonError};

pub mod cli;
pub mod client_check;
pub mod library;
pub mod mutants;
pub mod process;
pub mod real;
pub mod report;

/// Compiles the snippets of the document.
#[cfg(doctest)]
#[doc = include_str!("../../docs/coming-from.md")]
struct ComingFrom;

pub use redquorum_cli::agent::{self as client, stamp};

/// Locks a mutex, also after a panic in another thread. Nothing in this crate panics halfway
/// through a change, and a run must come to its end after any failure.
pub(crate) fn unpoisoned<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
