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
//! To try something by hand: `cargo run -p redquorum-rig --bin masters`.
//!
//! # What it promises
//!
//! - **Nothing is left behind**, neither a server nor a file, whatever ends the process that
//!   started them: a drop, a panic, `exit`, `abort`, Ctrl-C, `kill -9`. A drop returns when all is
//!   gone; after any other end it takes some milliseconds ([`Masters`] says how).
//! - **A port stays the same** over kill and restart, and a client that reconnects in a loop while
//!   its master is dead cannot take it.
//! - **A master that answers is ours**: start and restart compare the process id behind the port,
//!   so that two tests that reach for one port end up with two servers.
//!
//! # What it does not
//!
//! - It kills processes, it does not cut power: what a killed master had written is in the page
//!   cache, and is there again after its restart if it has [persistence](Builder::persistence).
//! - It does not outlive the murder of its keepers: a keeper is the small shell that watches one
//!   master, and `kill -9` of *it* leaves that master running.
//! - It knows no other system than Unix. Elsewhere it compiles, and [`Builder::start`] says so.
//!
//! # In containers
//!
//! With the feature `containers`, `Containers` starts the same masters from an image, and [`Cluster`]
//! is what both have in common. The two promises above that it cannot keep: a port changes at every
//! restart, and what is left after `kill -9` goes with the next start. Nothing of it is compiled
//! without the feature: the client of the engine is some 200 packages.
//!
//! # Reading order
//!
//! `masters.rs` has the verbs, `builder.rs` the options, `node.rs` one master, `keeper.rs` with
//! `keeper.sh` the clean-up, `server.rs` finds the program, `trials.rs` (feature `trials`) runs
//! tests that need it. `clock.rs` sets clocks, `cluster.rs` is the common trait, `containers/` the
//! masters in containers.

mod builder;
mod clock;
mod cluster;
#[cfg(feature = "containers")]
mod containers;
mod error;
mod keeper;
mod masters;
pub mod network;
mod node;
mod ports;
mod resp;
mod server;
#[cfg(feature = "trials")]
pub mod trials;

pub use builder::{Builder, Persistence};
pub use clock::{Clock, ClockChange, ClockSetting, clocks_supported};
pub use cluster::Cluster;
#[cfg(feature = "containers")]
pub use containers::{
    Containers, ContainersBuilder, EngineInfo, IMAGE_VARIABLE, REQUIRE_CONTAINERS_VARIABLE,
    containers_required, engine,
};
pub use error::RigError;
pub use masters::Masters;
pub use resp::Reply;
pub use server::{REQUIRE_VARIABLE, SERVER_VARIABLE, Server, find_server, required};
