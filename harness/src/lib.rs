//! Fault injection for multi-master Redis locks: break five masters as a scenario says, and judge
//! what the lock did.
//!
//! ```text
//! scenario ─▶ director ─▶ real masters, clients, faults ─▶ history ─▶ judge ─▶ verdict, reports
//! ```
//!
//! Reading order: [`scenario`] is what a file says; [`director`] follows it, told what happens and
//! saying what to do; [`real`] is where it happens; [`history`] is the record; [`judge`] reads
//! nothing but that. [`talk`] is what the harness and a client process say to each other,
//! [`client`] the built-in one, `process` how one is started and never left behind. [`cli`] is the
//! command line, [`report`] what comes out of it.

#[cfg(unix)]
pub mod cli;
#[cfg(unix)]
pub mod client;
#[cfg(unix)]
pub mod client_check;
pub mod director;
pub mod history;
pub mod judge;
#[cfg(unix)]
pub mod process;
#[cfg(unix)]
pub mod real;
#[cfg(unix)]
pub mod report;
pub mod sabotage;
pub mod scenario;
pub mod sim;
#[cfg(unix)]
pub mod stamp;
pub mod talk;
