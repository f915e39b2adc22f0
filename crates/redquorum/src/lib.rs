//! A Redlock quorum lock over independent Redis masters, with exactly stated guarantees.
//!
//! ```no_run
//! # async fn f() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//!
//! use redquorum::{Lease, Redlock};
//!
//! # async fn add_to_balance(_token: Option<u64>) -> Result<u64, std::io::Error> { Ok(1) }
//! let lock = Redlock::builder()
//!     .masters(["redis://db1", "redis://db2", "redis://db3", "redis://db4", "redis://db5"])
//!     .build()
//!     .await?;
//! // Acquires, keeps the lease alive for at most a minute while the work runs, and gives it back.
//! // The database checks the token, so it refuses this write if a later holder was there first.
//! let at_most = Duration::from_secs(60);
//! let add = async |lease: &Lease| add_to_balance(lease.fencing_token()).await;
//! // The first `?`: the lease was not acquired, or was lost. The second: the work itself failed.
//! let balance = lock.acquire("account:42").fenced().run(at_most, add).await??;
//! # Ok(()) }
//! ```
//!
//! [`resource`] shows how a database checks tokens.
//!
//! # What it promises
//!
//! Of all clients that follow the protocol, at most one believes at a time that it holds a
//! resource: from the return of `acquire` to its release, drop, deadline or reported loss. The
//! network may do anything, clients may stop or die at any point, and any number of masters may be
//! down. **This holds provided that**:
//!
//! * all clients have the same list of masters, and these are independent servers (A1);
//! * no master forgets a key before its TTL is over, or all clients have a [restart
//!   guard](Builder::restart_guard) that detects the loss (A2). Masters forget by a restart without
//!   persistence, a failover to a replica, `FLUSHALL`, or eviction, which the guard mostly misses;
//! * no master's clock steps, or all clients have a [clock guard](Builder::clock_guard) that
//!   detects the step (A3);
//! * all clocks run at the same rate, to within the [drift](Builder::drift) allowance (A4). A
//!   client may be paused for any time that its clock counts. A pause that a hypervisor, or a
//!   restore of a checkpointed process, hides from that clock breaks the promise;
//! * masters reply truthfully (A5);
//! * tokens are unique: the random source of the operating system works (A6).
//!
//! A client gets a lease only while a majority of masters replies within the [node
//! timeout](Builder::node_timeout).
//!
//! # What it does not promise
//!
//! * That a holder acts only while it holds. A process can pause between its last look at the
//!   deadline and its write; it then writes without a lock. Where that matters, the resource itself
//!   must refuse the write: see [`Lease::fencing_token`] and [`resource`].
//! * Safety when masters forget, or when their clocks step. A lease that all five masters granted
//!   survives two such masters, a lease that only three granted survives none. Each guard leaves a
//!   master that it distrusts out of the count until that is safe again.
//! * A lock in a forked process: there the parent's lock does nothing and its leases count as lost
//!   ([`AcquireError::Forked`]). Build a lock in the child.
//! * Order among waiters of different processes: [`Builder::fair`] makes them take turns. Tasks
//!   that share a lock are served in the order of their requests.
//!
//! [`docs/safety.md`](https://github.com/redquorum/redquorum/blob/main/docs/safety.md) has the
//! whole list.
//! [`docs/reference.md`](https://github.com/redquorum/redquorum/blob/main/docs/reference.md) has
//! the reason for each default.
//!
//! # Glossary
//!
//! * *Resource*: what is locked. *Master*: one independent Redis server. *Quorum*: more than half
//!   of the masters.
//! * *Lease*: what a successful acquire returns. It is over at its *deadline*: TTL − drift after
//!   the start of the attempt that won it.
//! * *Exclusive lease*: no other lease of the resource is there beside it. *Shared lease*: others
//!   may be, and no exclusive one ([`Acquire::shared`]).
//! * *TTL*: the time from which the deadline is calculated. A master keeps the key for the TTL and
//!   the [lock delay](Builder::lock_delay), which is zero by default.
//! * *Validity*: the time that is left until the deadline.
//! * *Drift*: the allowance for clocks that run at different rates.
//! * *Token*: the value of the key, 20 random bytes, new for each attempt. A *fencing token* is
//!   another thing: a number that grows with each grant, for the resource to check.
//! * *Round*: a request to all masters, and their replies. It ends when the result is clear, or
//!   after the node timeout.
//! * *Vote*: the result at one master in a round: granted, refused, or unknown. A timeout, an error
//!   and a broken connection are unknown.
//! * *Full grant*: all masters granted the lease. *Bare quorum*: only as many as a quorum needs.
//! * *Margin*: how many masters must forget the key before a second client can win: the masters
//!   that hold it + quorum − all masters. With five masters, 3 after a full grant and 1 after a
//!   bare quorum.
//! * *Clean-up*: the compare-and-delete of a key that no lease needs: after a failed attempt, a
//!   release, a loss or a repair.
//! * *Repair*: an extension gives a key back to a master that had lost it.
//! * R1 to R10: the rules of
//!   [`docs/safety.md`](https://github.com/redquorum/redquorum/blob/main/docs/safety.md#the-rules).
//!   A1 to A6: its assumptions.
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

#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod acquire;
mod any;
#[cfg(feature = "blocking")]
pub mod blocking;
mod builder;
mod clock;
#[cfg(feature = "serde")]
mod config;
mod driver;
mod endpoint;
mod error;
mod health;
mod holder;
mod io;
mod leader;
mod lease;
mod lookup;
mod master;
#[cfg(feature = "memory")]
pub mod memory;
mod metrics;
mod node;
mod owner;
mod redlock;
#[cfg(feature = "memory")]
mod repeatable;
pub mod report;
pub mod resource;
mod rng;
mod sentinel;
mod several;
mod shards;
mod shared;
mod shield;
mod signal;
pub mod stats;
mod tcp;
#[cfg(feature = "tls")]
mod tls;
mod together;
mod trace;

pub use acquire::{Acquire, TryAcquire};
pub use any::{AcquireAny, Semaphore};
pub use builder::Builder;
#[doc(hidden)]
pub use builder::Plan;
pub use clock::Deadline;
#[cfg(feature = "serde")]
pub use config::{Config, ConfigError, ConfigKey};
pub use error::{AcquireError, BuildError, ExtendError, Lost, RunError};
pub use health::Health;
pub use holder::HeldBy;
pub use leader::Leadership;
pub use lease::{Lease, Released};
pub use owner::Owner;
pub use redlock::Redlock;
/// The largest fencing token: 2⁵³ − 2.
pub use redquorum_protocol::MAX_NUMBER as MAX_FENCING_TOKEN;
pub use redquorum_protocol::{Backoff, BadOption, Outcome, Token};
pub use rng::RetryPolicy;
pub use several::{AcquireAll, Leases, ReleasedAll};
pub use shards::Shards;
pub use signal::LossSignal;

/// Tests the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// Masters beyond plain URLs: credentials that change, Sentinels, connectors of your own.
pub mod connect {
    pub use crate::endpoint::{BadUrl, Credentials};
    pub use crate::master::IntoMaster;
    pub use crate::node::{Connecting, Connection, Hello, Node};
    pub use crate::sentinel::Sentinel;
    #[cfg(feature = "tls")]
    pub use crate::tls::Certificates;
    /// The crate of [`Builder::tls_config`](crate::Builder::tls_config)'s type.
    #[cfg(feature = "tls")]
    #[doc(no_inline)]
    pub use tokio_rustls::rustls;
}

/// The futures of requests, for signatures that name them.
pub mod future {
    pub use crate::acquire::{Acquiring, TryAcquiring};
    pub use crate::several::AcquiringAll;
}
