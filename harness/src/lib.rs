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
//! # The modules, in reading order
//!
//! | module | what it is |
//! |---|---|
//! | [`scenario`] | a scenario file, and the errors in it |
//! | `orchestrator` | conducts a run: gets events, returns orders |
//! | [`history`] | the record of a run |
//! | [`checker`] | checks a history, property by property, and returns a verdict |
//! | [`sim`] | a run in virtual time, from a seed: a second opinion, and the default without Redis |
//! | [`model_check`] | a model check: every state of the shipped machines within bounds |
//! | [`search`] | looks for runs in which the lock breaks its promise, and makes a scenario of each |
//! | [`client_protocol`] | the client protocol between the harness and a client process |
//! | `real` | a run on real parts: masters, proxies, faults |
//! | `process` | a client process: started, read, paused, killed, never left behind |
//! | `client` | the built-in client; the example for a driver of another lock |
//! | `client_check` | shows the author of a driver its errors |
//! | `doctor` | looks at your masters, and reports what would hurt a lock on them |
//! | `client_machine` | a client process in virtual time: the shipped client and the client protocol |
//! | [`mutants`] | mutants: clients with a deliberate bug, which scenarios must catch |
//! | `cli`, `report` | the command line, and its output |
//!
//! The modules without a link, except `orchestrator` and `client_machine`, need the feature `real`
//! (on by default) and a Unix. The others build without Tokio and Redis.
//!
//! # What is deliberately absent
//!
//! - **The checker reads nothing but the history**: no clock, no master, no memory of the run.
//!   You can check a recorded run again, elsewhere.
//! - **The orchestrator opens no socket, starts no process and reads no clock.** Its caller passes
//!   the time.
//! - **No wall clock decides anything** in a run. Stamps are of `CLOCK_MONOTONIC`. The wall clocks
//!   of masters are what a scenario breaks. `doctor` compares the wall clock with the masters'.
//! - **The harness reads no lock key during a run**: a read lets a master notice that a key has
//!   expired. The harness computes the keys of masters from the commands that passed.
//! - **No lock runs in the harness's own process.** Clients are processes, which the harness can
//!   stop as a garbage collector does. They implement a protocol that suits any lock. The exception
//!   is the backend `library`, in virtual time.
//! - **A seed does not make a run on real masters repeat itself**; it makes the simulation do so.

#![forbid(unsafe_code)]

pub mod cli;
pub mod client;
pub mod client_check;
mod doctor;
pub mod library;
pub mod mutants;
mod mutex;
pub mod process;
pub mod real;
pub mod report;
pub mod stamp;

/// Compiles the snippets of the document.
#[cfg(doctest)]
#[doc = include_str!("../../docs/from-redisson.md")]
struct FromRedisson;
