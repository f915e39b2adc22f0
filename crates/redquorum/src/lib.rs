//! A Redlock quorum lock over independent Redis masters, that says exactly what it promises.
//!
//! ```no_run
//! # async fn f() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//!
//! use redquorum::{Lease, Redlock};
//!
//! # async fn charge_once() -> Result<u64, std::io::Error> { Ok(1) }
//! let lock = Redlock::builder()
//!     .urls(["redis://db1", "redis://db2", "redis://db3", "redis://db4", "redis://db5"])
//!     .build()
//!     .await?;
//! // Acquires, extends for a minute at most while the work goes on, and releases on every way out.
//! let at_most = Duration::from_secs(60);
//! let charge = async |_lease: &Lease| charge_once().await;
//! let receipt = lock.acquire("invoice:42").run(at_most, charge).await??;
//! # Ok(()) }
//! ```
//!
//! # What it promises
//!
//! Of all clients that follow the protocol, at most one holds a resource at a time, from the
//! return of `acquire` to its deadline, **provided that** the masters are independent and do
//! not forget a key before its TTL is over (no restart without persistence, no failover to a
//! replica, no `FLUSHALL`, no eviction), that their clocks do not step, and that all clocks run
//! at the same rate to within the drift allowance. A minority of masters may be down, hung or
//! unreachable, connections may break at any point, and clients may stop for any time.
//!
//! # What it does not promise
//!
//! * That a holder acts only while it holds: a process that is paused between its last look at
//!   the deadline and its write writes without a lock. Where that matters, the resource itself
//!   must refuse: see [`FencedLease`] and [`resource`].
//! * Anything when masters forget, or when their clocks step: of five that all granted it takes
//!   three to let another in, but of a bare quorum one is enough. [`Builder::guard`] sees most ways
//!   of forgetting, [`Builder::clock_guard`] most clocks that step, and such masters are not counted
//!   until it does no harm.
//! * Order among waiters of different processes: [`Builder::fair`] lets them take turns. Tasks that share a lock are
//!   served in the order in which they came.
//!
//! [`docs/safety.md`](https://github.com/redquorum/redquorum/blob/main/docs/safety.md) has the whole
//! list, with the reason for each default.
//!
//! # Words
//!
//! A *resource* is what is locked; a *master* is one independent Redis server; a *quorum* is
//! more than half of them; a *lease* is what a successful acquire returns, over at its
//! *deadline*; the *TTL* is how long a master keeps the key; the *validity* is what is left
//! until the deadline; *drift* is the allowance for clocks that run at different rates. A
//! *clean-up* is the compare-and-delete that every attempt owes which did not end in a lease; a
//! *repair* gives a key back to a master that had lost it. R1 to R10 are the rules of
//! `docs/safety.md`.
//!
//! # Reading order
//!
//! [`Redlock`], [`Acquire::run`], [`Lease`], [`AcquireError`]; for several resources at once
//! [`Redlock::acquire_all`]; then [`Builder`] for the options, and [`Redlock::shutdown`] before you
//! put it into a service. For tests of your own code there is `memory` (feature `memory`): masters
//! that live in the process and work under paused time.
//!
//! # Features
//!
//! `tls` for `rediss://`, `redis-client` for masters given as `redis::Client`s, `memory`, `tracing`
//! (target `redquorum`: a warning where a master goes down or a lease is endangered or lost, debug
//! for each grant and release). None is on by default.

mod acquire;
mod builder;
mod claim;
mod clock;

mod dice;
mod driver;
mod endpoint;
mod error;
mod fence;
mod fleet;
mod health;
mod io;
mod lease;
#[cfg(feature = "memory")]
pub mod memory;
mod node;
mod owner;
mod redlock;
mod reentry;
mod report;
pub mod resource;
mod several;
mod shared;
mod signal;
mod stats;
#[cfg(feature = "tls")]
mod tls;
mod trace;

pub use acquire::{Acquire, Acquiring, Granted, TryAcquire, TryAcquiring};
pub use builder::Builder;
pub use clock::Deadline;
pub use endpoint::BadUrl;
pub use error::{AcquireError, BuildError, ExtendError, Lost, RunError, Unfinished};
pub use fence::FencedLease;
pub use health::Health;
pub use lease::{Lease, Released};
pub use node::{Connecting, Connection, Hello, Node};
pub use owner::Owner;
pub use redlock::Redlock;
/// The largest fencing token: 2⁵³ − 2.
pub use redquorum_protocol::MAX_NUMBER as MAX_FENCING_TOKEN;
pub use redquorum_protocol::{
    Answer, Backoff, BadOption, Cause, Distrust, Fingerprint, Holder, LinkState, Loss, Outcome,
    Token,
};
pub use report::{MasterReport, Report};
pub use several::{
    AcquireAll, AcquireAllError, AcquiringAll, Leases, LostOne, NotExtended, ReleasedAll,
};
pub use signal::LossSignal;
pub use stats::{Latency, MasterStats, Stats};

/// The snippets of a document compile.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/from-redisson.md")]
struct FromRedisson;
