//! Fault injection for multi-master Redis locks: break five masters as a scenario says, and judge
//! what the lock did.
//!
//! ```text
//!              orders ─▶ real: masters, clients, network, clocks; or sim: all that in virtual time
//! scenario ─▶ director                    │
//!    ▲         ▲      ◀─ what happens ────┘
//!    │         └─▶ history ─▶ judge ─▶ verdict ─▶ reports, exit code
//!    └───────────────────────── expectation ─┘
//! ```
//!
//! # The map, in reading order
//!
//! | module | what it is |
//! |---|---|
//! | [`scenario`] | what a file says, and what is wrong with it |
//! | [`director`] | follows it: told what happens, says what to do |
//! | [`history`] | the record of a run |
//! | [`judge`] | from a history to a verdict, a layer at a time |
//! | [`sim`] | a run in virtual time, from a seed: a second opinion, and the default where no Redis is |
//! | [`prove`] | every state of the shipped machines within bounds: a model check |
//! | [`search`] | looks for runs in which the lock breaks its promise, and makes a scenario of each |
//! | [`talk`] | the client protocol: what the harness and a client process say to each other |
//! | `real` | where it happens: masters, proxies, faults |
//! | `process` | a client process: started, heard, paused, killed, never left behind |
//! | `client` | the built-in client; the example for a driver of another lock |
//! | `client_check` | tells the author of a driver what is wrong with it |
//! | `doctor` | looks at masters of yours, and says what would hurt a lock on them |
//! | `client_machine` | a client process in virtual time: the shipped client and the client protocol |
//! | [`sabotage`] | clients that lie, which scenarios must catch |
//! | `cli`, `report` | the command line, and what comes out of it |
//!
//! Those without a link need the feature `real` (on by default) and a Unix. The others build without
//! Tokio and Redis.
//!
//! # What is deliberately absent
//!
//! - **The judge reads nothing but the history**: no clock, no master, no memory of the run. A
//!   recorded run can be judged again, elsewhere.
//! - **The director opens no socket, starts no process and reads no clock.** It is told the time.
//! - **No wall clock decides anything** in a run; `doctor` compares it with the masters'. Stamps are of `CLOCK_MONOTONIC`; the wall clocks of masters
//!   are what a scenario breaks.
//! - **No lock key is read during a run**: a read lets a master notice that a key has expired. What
//!   masters hold is computed from the commands that passed.
//! - **No lock runs in the harness's own process.** Clients are processes that can be stopped as a
//!   garbage collector stops them, and speak a protocol that any lock can be taught.
//! - **A seed does not make a run on real masters repeat itself**; it makes the simulation do so.

#[cfg(all(unix, feature = "real"))]
pub mod cli;
#[cfg(all(unix, feature = "real"))]
pub mod client;
#[cfg(all(unix, feature = "real"))]
pub mod client_check;
mod client_machine;
pub mod director;
#[cfg(all(unix, feature = "real"))]
mod doctor;
pub mod history;
pub mod judge;
#[cfg(all(unix, feature = "real"))]
mod mutex;
pub mod name;
#[cfg(all(unix, feature = "real"))]
pub mod process;
pub mod prove;
#[cfg(all(unix, feature = "real"))]
pub mod real;
#[cfg(all(unix, feature = "real"))]
pub mod report;
pub mod sabotage;
pub mod scenario;
pub mod search;
pub mod sim;
#[cfg(all(unix, feature = "real"))]
pub mod stamp;
pub mod talk;
mod units;
mod wall;
