//! A Redlock quorum lock over independent Redis masters, with exactly stated guarantees.
//!
//! ```no_run
//! # async fn f() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//!
//! use redquorum::{Lease, Redlock};
//!
//! # async fn charge_once() -> Result<u64, std::io::Error> { Ok(1) }
//! let lock = Redlock::builder()
//!     .masters(["redis://db1", "redis://db2", "redis://db3", "redis://db4", "redis://db5"])
//!     .build()
//!     .await?;
//! // Acquires, keeps the lease alive for at most a minute while the work runs, and gives it back.
//! let at_most = Duration::from_secs(60);
//! let charge = async |_lease: &Lease| charge_once().await;
//! let receipt = lock.acquire("invoice:42").run(at_most, charge).await??;
//! # Ok(()) }
//! ```
//!
//! # What it promises
//!
//! Of all clients that follow the protocol, at most one holds a resource at a time, from the return
//! of `acquire` to its deadline. **This holds provided that**:
//!
//! * the masters are independent;
//! * no master forgets a key before its TTL is over: no restart without persistence, no failover to
//!   a replica, no `FLUSHALL`, no eviction;
//! * the clocks of the masters do not step;
//! * all clocks run at the same rate, to within the drift allowance.
//!
//! A minority of masters may be down, hung or unreachable. Connections may break at any point, and
//! clients may stop for any time.
//!
//! # What it does not promise
//!
//! * That a holder acts only while it holds. A process can pause between its last look at the
//!   deadline and its write; it then writes without a lock. Where that matters, the resource itself
//!   must refuse the write: see [`Lease::fencing_token`] and [`resource`].
//! * Safety when masters forget, or when their clocks step. If all five masters granted a lease,
//!   three of them must forget before a second client can acquire it. If only a quorum granted it,
//!   one is enough. [`Builder::restart_guard`] detects most ways of forgetting,
//!   [`Builder::clock_guard`] most clock steps. The lock does not count such masters until that is
//!   safe again.
//! * Order among waiters of different processes: [`Builder::fair`] makes them take turns. Tasks
//!   that share a lock are served in the order of their requests.
//!
//! [`docs/safety.md`](https://github.com/redquorum/redquorum/blob/main/docs/safety.md) has the
//! whole list.
//! [`docs/operations.md`](https://github.com/redquorum/redquorum/blob/main/docs/operations.md) has
//! the reason for each default.
//!
//! # Glossary
//!
//! * *Resource*: what is locked. *Master*: one independent Redis server. *Quorum*: more than half
//!   of the masters.
//! * *Lease*: what a successful acquire returns. It is over at its *deadline*.
//! * *TTL*: how long a master keeps the key.
//! * *Validity*: the time that is left until the deadline.
//! * *Drift*: the allowance for clocks that run at different rates.
//! * *Clean-up*: the compare-and-delete after every attempt that did not end in a lease.
//! * *Repair*: gives a key back to a master that had lost it.
//! * R1 to R10: the rules of `docs/safety.md`.
//!
//! # Reading order
//!
//! Start with [`Redlock`], [`Acquire::run`], [`Lease`] and [`AcquireError`]. Then read [`Builder`]
//! for the options, and [`Redlock::shutdown`] before you put the lock into a service. To test your
//! own code, use `memory` (feature `memory`).
//!
//! # Features
//!
//! `tls` for `rediss://`, `redis-client` for masters given as `redis::Client`s, `blocking` for
//! threads without a runtime, `serde` for options from files and the environment, `memory`, and
//! `metrics` and `tracing` (target `redquorum`), which
//! [`docs/observability.md`](https://github.com/redquorum/redquorum/blob/main/docs/observability.md)
//! lists. None is on by default.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod acquire;
#[cfg(feature = "blocking")]
pub mod blocking;
mod builder;
mod claim;
mod clock;
#[cfg(feature = "serde")]
mod config;
mod driver;
mod endpoint;
mod error;
mod health;
mod io;
mod lease;
mod lock_state;
mod master;
#[cfg(feature = "memory")]
pub mod memory;
mod metrics;
mod node;
mod owner;
mod redlock;
pub mod report;
pub mod resource;
mod rng;
mod sentinel;
mod several;
mod shared;
mod signal;
pub mod stats;
mod tcp;
#[cfg(feature = "tls")]
mod tls;
mod trace;

pub use acquire::{Acquire, TryAcquire};
pub use builder::Builder;
pub use clock::Deadline;
#[cfg(feature = "serde")]
pub use config::{Config, ConfigError};
pub use error::{AcquireError, BuildError, ExtendError, Lost, RunError};
pub use health::Health;
pub use lease::{Lease, Released};
pub use owner::Owner;
pub use redlock::Redlock;
/// The largest fencing token: 2⁵³ − 2.
pub use redquorum_protocol::MAX_NUMBER as MAX_FENCING_TOKEN;
pub use redquorum_protocol::{Backoff, BadOption, Outcome, Token};
pub use rng::RetryPolicy;
pub use several::{AcquireAll, Leases, ReleasedAll};
pub use signal::LossSignal;

/// Masters beyond plain URLs: credentials that change, Sentinels, connectors of your own.
pub mod connect {
    pub use crate::endpoint::{BadUrl, Credentials};
    pub use crate::master::IntoMaster;
    pub use crate::node::{Connecting, Connection, Hello, Node};
    pub use crate::sentinel::Sentinel;
}

/// The futures of requests, for signatures that name them.
pub mod future {
    pub use crate::acquire::{Acquiring, TryAcquiring};
    pub use crate::several::AcquiringAll;
}
