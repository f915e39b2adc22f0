//! Real Redis masters on loopback, for tests and for trying redquorum out.
//!
//! ```no_run
//! let masters = redquorum_rig::Masters::start(5)?; // five processes on free ports, all answering
//! masters.kill(2)?; // SIGKILL; masters are counted from 1
//! masters.restart(2)?; // same port, same directory
//! masters.pause(3)?; // SIGSTOP: it accepts connections and says nothing
//! println!("{}", masters.urls().join(","));
//! assert!(masters.ask(1, "SET key value PX 1000")?.text().is_some());
//! # Ok::<(), redquorum_rig::RigError>(())
//! ```
//!
//! A master can have a wall clock of its own, and so can any other process ([`Clock`]):
//!
//! ```no_run
//! use std::time::Duration;
//! use redquorum_rig::{ClockChange, Masters};
//!
//! let masters = Masters::builder().clocks().start()?;
//! masters.set_clock(3, ClockChange::forward(Duration::from_secs(3)))?; // its keys age at once
//! masters.set_clock(4, ClockChange::Rate(1.1))?; // its TTLs are 10 % short
//! masters.set_clock(3, ClockChange::Heal)?; // a step back
//! # Ok::<(), redquorum_rig::RigError>(())
//! ```
//!
//! To try something by hand: `cargo run -p redquorum-rig --bin masters`. To put a network of faults
//! between masters and their clients: [`network`].
//!
//! # Guarantees
//!
//! - **Nothing is left behind**, neither a server nor a file, in whatever way the process that
//!   started the masters ends: a drop, a panic, `exit`, `abort`, Ctrl-C, `kill -9`. A drop returns
//!   when everything is gone; after any other end it takes some milliseconds ([`Masters`] explains
//!   how).
//! - **A port stays the same** over kill and restart. A client that reconnects in a loop while its
//!   master is dead cannot take it.
//! - **A master that answers is ours**: start and restart compare the process id behind the port,
//!   so that two tests that try the same port end up with two servers.
//! - **A clock shows its setting**: each change is compared with the reply to `TIME`, and no
//!   process ever sees a partial change.
//!
//! # Limits
//!
//! - A kill does not cut power: the data that a killed master had written is in the page cache, and
//!   is there again after its restart if it has [persistence](Builder::persistence). A [power
//!   loss](Masters::power_loss) removes the data that was not synced, from its append-only file and
//!   from nothing else. The rig knows the synced part on Linux only.
//! - A keeper is the small shell that watches one master. `kill -9` of the keeper leaves that
//!   master running.
//! - The rig sets wall clocks on Linux only, on x86-64 and aarch64, see [`clocks_supported`].
//!   Monotonic clocks, timers and sleeps stay unchanged everywhere.
//! - The rig works on Unix only. Elsewhere it compiles, and [`Builder::start`] returns an error.
//!
//! # Reading order
//!
//! `masters.rs` has the methods of masters, `builder.rs` the options and the start, `node.rs` one
//! master. `host.rs` is what a master runs in: a process (`process.rs` with `keeper.sh`), or a
//! container (`containers.rs`). `network.rs` is independent of the others; it and `node.rs` read
//! RESP with `resp.rs`.

#![forbid(unsafe_code)]

use std::sync::{Mutex, MutexGuard, PoisonError};

mod builder;
mod clock;
pub mod containers;
mod disk;
mod error;
mod host;
mod masters;
pub mod network;
mod node;
mod ports;
mod process;
mod replica;
mod resp;
mod server;
#[cfg(feature = "trials")]
pub mod trials;

pub use builder::Builder;
pub use clock::{Clock, ClockChange, ClockSetting, clocks_supported};
pub use disk::Persisted;
pub use error::RigError;
pub use masters::Masters;
pub use process::Process;
pub use redquorum_redis_model::Persistence;
pub use resp::RespValue;
pub use server::{REQUIRE_VARIABLE, SERVER_VARIABLE, Server, find_server, required};

/// Tests the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// Locks a value that is whole at all times, also after a panic of another thread.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
