//! Redlock: the lock itself, a cheap handle that all tasks share.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redquorum_protocol::{Client, Link};

use crate::acquire::{Acquire, TryAcquire};
use crate::builder::Builder;
use crate::clock::NAP;
use crate::error::Unfinished;
use crate::health::{self, Health};
use crate::lock_state::LockState;
use crate::report::Report;
use crate::stats::Stats;

/// A lock over N independent Redis masters. The [crate](crate) documentation lists its guarantees.
///
/// It is a cheap handle: clone it into every task. Poll every future that waits inside a Tokio
/// runtime with timers, not necessarily that in which the lock was built. The connections live in
/// background tasks of that runtime. They end when the last clone and the last lease are gone, and
/// every key to delete is deleted or has expired.
#[derive(Clone)]
pub struct Redlock {
    pub(crate) lock_state: Arc<LockState>,
}

impl Redlock {
    /// Starts the description of a lock.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Asks for a resource, and waits while it is taken or no quorum answers. It returns at most
    /// two node timeouts after the wait is over, three with [`fair`](crate::Builder::fair). A
    /// fenced request may take some more rounds.
    ///
    /// The resource is any byte string of at least one byte. With the prefix it has at most 1 MiB,
    /// and does not start with `redquorum:`, which is reserved. Set the TTL and the wait of this
    /// request on the returned value; `.await` sends it. Where an API expects a future, as `spawn`,
    /// `join!` or `block_on` do, call `.into_future()` on it.
    ///
    /// ```no_run
    /// # async fn f(lock: redquorum::Redlock) -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::time::Duration;
    /// let lease = lock.acquire("invoice:42").ttl(Duration::from_secs(30)).await?;
    /// # lease.release().await; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Taken`](crate::AcquireError::Taken), [`NoQuorum`](crate::AcquireError::NoQuorum),
    /// [`TooLate`](crate::AcquireError::TooLate), [`Options`](crate::AcquireError::Options) or
    /// [`ShutDown`](crate::AcquireError::ShutDown). With an [`owner`](Acquire::owner) also
    /// [`NotExtended`](crate::AcquireError::NotExtended).
    ///
    /// # Cancel safety
    /// Dropping the future gives the attempt up. The keys that it may have set are deleted in the
    /// background.
    pub fn acquire(&self, resource: impl AsRef<[u8]>) -> Acquire {
        Acquire::new(&self.lock_state, resource.as_ref())
    }

    /// Asks for a resource once. `None` means one of three things: another client has it, a key
    /// without TTL or of another type is in the way, or several clients asked at the same moment
    /// and none got a quorum.
    ///
    /// It does not wait to find out which client holds the resource. For that, use
    /// `acquire(…).wait(Duration::ZERO)`: it also makes one attempt, and its error names the
    /// holder. Of clients that ask at the same moment, a short wait such as 300 ms serves one;
    /// without a wait all may be refused.
    ///
    /// # Errors
    /// The errors of [`acquire`](Redlock::acquire), but not `Taken`. It returns within one node
    /// timeout.
    ///
    /// # Cancel safety
    /// See [`acquire`](Redlock::acquire).
    pub fn try_acquire(&self, resource: impl AsRef<[u8]>) -> TryAcquire {
        TryAcquire::new(&self.lock_state, resource.as_ref())
    }

    /// Asks every master whether it would grant a lease, in one round trip. It returns after at
    /// most one node timeout. Use it for readiness probes: see [`Health::has_quorum`].
    ///
    /// A master is usable if it takes writes (it is no replica, no node of a cluster, and not out
    /// of memory) and, with a [restart guard](crate::Builder::restart_guard), is trusted. The probe
    /// writes nothing: it asks masters to overwrite a key that does not exist, `redquorum:probe`.
    /// If the Redis user may not touch that key, the probe shows only whether masters answer.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn health(&self) -> Health {
        health::probe(&self.lock_state).await
    }

    /// Writes a boot marker on every master that has none, so that the lock trusts it at once. Use
    /// it for a [guarded](crate::Builder::restart_guard) lock on masters that were just set up. The
    /// report shows for each master whether it was
    /// [`Initialized`](crate::report::MasterOutcome::Initialized), had a marker before
    /// ([`AlreadyInitialized`](crate::report::MasterOutcome::AlreadyInitialized)), or did not
    /// answer within the node timeout. A master with the marker of an earlier process keeps that
    /// marker, and its quarantine.
    ///
    /// **By calling it you assert** that these masters have forgotten no lease that is still alive.
    /// That is true of masters on which no lock ever was. It is not true of masters that were
    /// flushed, or lost their data, less than the longest TTL ago: to mark those can let in a
    /// second holder. So call it by hand or from the tool that sets masters up, never at every
    /// start of a service. Without this call, a new master becomes trusted after one quarantine.
    ///
    /// # Cancel safety
    /// Dropping the future does not take back the commands that were sent.
    pub async fn initialize_masters(&self) -> Report {
        self.lock_state.report(&health::ask(&self.lock_state, Client::initialize).await)
    }

    /// A snapshot of the counters since the lock was built.
    pub fn stats(&self) -> Stats {
        self.lock_state.shared.stats()
    }

    /// The number of masters.
    pub fn masters(&self) -> usize {
        self.lock_state.config.nodes()
    }

    /// How many masters must agree.
    pub fn quorum(&self) -> usize {
        self.lock_state.config.quorum()
    }

    /// Ends the lock, for all clones. From now on it acquires and extends nothing, and it completes
    /// the pending clean-ups. It returns when they are complete and all leases are given back; a
    /// lease that is not given back lives on to its deadline. Call it before the runtime ends:
    /// after that no task deletes the keys, and they stay for up to one TTL.
    ///
    /// It waits for a master that is down only until the keys there have expired, one TTL at most.
    /// (A master that is stopped may execute the commands in its sockets when it resumes: such a
    /// key lives for up to one TTL more.) It does not wait for the [lock
    /// delay](Builder::lock_delay) of leases that were lost or dropped.
    ///
    /// # Errors
    /// [`Unfinished`] if `timeout` passes first. The remaining keys expire within one TTL.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the lock shut down, and the clean-ups go on.
    pub async fn shutdown(&self, timeout: Duration) -> Result<(), Unfinished> {
        self.lock_state.shared.shut_down();
        let paid = async {
            loop {
                let mut changed = std::pin::pin!(self.lock_state.shared.changed.notified());
                changed.as_mut().enable();
                if self.lock_state.shared.ledger() == (0, 0) {
                    return;
                }
                // Nothing notifies when a key expires on a master that is down.
                let _ = tokio::time::timeout(NAP, changed).await;
            }
        };
        if tokio::time::timeout(timeout, paid).await.is_ok() {
            return Ok(());
        }
        match self.lock_state.shared.ledger() {
            (0, 0) => Ok(()),
            (pending_cleanups, held) => Err(Unfinished { pending_cleanups, held, waited: timeout }),
        }
    }

    pub(crate) async fn tried(&self) {
        loop {
            let mut changed = std::pin::pin!(self.lock_state.shared.changed.notified());
            changed.as_mut().enable();
            if !self.lock_state.shared.view(|client| client.links().iter().any(Link::is_first_dial))
            {
                return;
            }
            changed.await;
        }
    }
}

impl fmt::Debug for Redlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redlock")
            .field("masters", &self.lock_state.shared.names)
            .finish_non_exhaustive()
    }
}
