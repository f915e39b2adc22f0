//! Redlock: the lock itself, a cheap handle that all tasks share.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redquorum_protocol::{Client, Link};

use crate::acquire::{Acquire, TryAcquire};
use crate::clock::NAP;
use crate::health::{self, Health};
use crate::report::{Report, Unfinished};
use crate::shared::LockState;
use crate::stats::Stats;

/// A lock over N independent Redis masters. The [crate](crate) documentation lists its guarantees.
///
/// It is a cheap handle: clone it into every task. Await its futures in any Tokio runtime with
/// timers. The connections are background tasks of the runtime in which the lock was **built**:
/// keep that one alive. They end when the last clone and the last lease are gone, and every key to
/// delete is deleted or has expired.
///
/// In a process that was **forked** afterwards, this value does nothing: requests return
/// [`Forked`](crate::AcquireError::Forked), leases are lost, drops delete nothing
/// ([details](https://github.com/redquorum/redquorum/blob/main/docs/reference.md#forked-processes)).
/// Build a lock in the child.
#[derive(Clone)]
pub struct Redlock {
    pub(crate) lock_state: Arc<LockState>,
}

impl Redlock {
    /// Asks for a resource, and waits while it is taken or no quorum answers.
    ///
    /// It returns at most two node timeouts after the wait is over. With
    /// [`fair`](crate::Builder::fair), a fencing token or an owner it may take
    /// [longer](https://github.com/redquorum/redquorum/blob/main/docs/waiting.md#how-long-to-wait).
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
    /// [`TooLate`](crate::AcquireError::TooLate), [`Options`](crate::AcquireError::Options),
    /// [`ShutDown`](crate::AcquireError::ShutDown) or [`Forked`](crate::AcquireError::Forked). With
    /// an [`owner`](Acquire::owner) also [`NotExtended`](crate::AcquireError::NotExtended).
    ///
    /// # Cancel safety
    /// Dropping the future gives the attempt up. The keys that it may have set are deleted in the
    /// background.
    pub fn acquire(&self, resource: impl AsRef<[u8]>) -> Acquire {
        Acquire::new(&self.lock_state, resource.as_ref())
    }

    /// Asks for a resource once. `None` means that it is taken, where `acquire` returns
    /// [`Taken`](crate::AcquireError::Taken):
    ///
    /// * another client has a key on too many masters: it holds the resource, it was late or died
    ///   and its key has not expired, or it asked at the same moment;
    /// * another program's key is in the way, without TTL or of another type;
    /// * with [`fair`](crate::Builder::fair), other waiters come first;
    /// * with an [`owner`](TryAcquire::owner), another request of the owner is open.
    ///
    /// It returns after at most one node timeout, or three with `fair`. With a fencing token or an
    /// owner it may take
    /// [longer](https://github.com/redquorum/redquorum/blob/main/docs/waiting.md#how-long-to-wait).
    ///
    /// A job that runs by the clock had better [wait for a
    /// second](https://github.com/redquorum/redquorum/blob/main/docs/set-up.md#jobs-that-run-by-the-clock):
    /// something on the way may have dropped its idle connections.
    ///
    /// It does not wait to find out which client holds the resource. For that, use
    /// `acquire(…).wait(Duration::ZERO)`: it also makes one attempt, and its error names the
    /// holder. If several clients ask at the same moment, all of them may be refused. With a short
    /// wait, such as 300 ms, one of them wins.
    ///
    /// # Errors
    /// The errors of [`acquire`](Redlock::acquire), but not `Taken`.
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
    /// marker, and its quarantine. If a connected master has the marker of locks with another list
    /// of masters or another guard, none is marked.
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

    /// The number of masters. Of a lock that [moves](crate::Builder::moving_to), of both sets
    /// together.
    pub fn masters(&self) -> usize {
        self.lock_state.config.nodes()
    }

    /// How many masters must agree. Of a lock that [moves](crate::Builder::moving_to), the least
    /// number that has a majority of each set.
    pub fn quorum(&self) -> usize {
        self.lock_state.config.quorum().size()
    }

    /// Ends the lock, for all clones. From now on it acquires and extends nothing. It completes the
    /// pending clean-ups, and returns when no clean-up is pending and no lease is alive.
    ///
    /// In a service: take no more requests, let running work end, then call `shutdown`, and end the
    /// runtime after it
    /// ([details](https://github.com/redquorum/redquorum/blob/main/docs/reference.md#shutdown)). A
    /// runtime that ends first deletes no keys: they expire after TTL and [lock
    /// delay](crate::Builder::lock_delay).
    ///
    /// * A request that waits or starts returns [`ShutDown`](crate::AcquireError::ShutDown). Its
    ///   keys are deleted, and it leaves the masters' queues.
    /// * A live lease ends by its release, its drop or its deadline: `shutdown` waits for that.
    ///   Work in [`Acquire::run`] or [`Lease::run`](crate::Lease::run) goes on until then, and the
    ///   watchdog extends the lease no more.
    /// * A master that is down or hangs cannot delete keys: `shutdown` waits until they have
    ///   expired. It does not wait for keys that a lock delay keeps. The longest TTL, lock delay
    ///   and node timeout together are long enough for `timeout`.
    /// * Exception: a stopped master may execute an old `SET` in its sockets when it resumes. The
    ///   key that this creates lives for up to its TTL.
    ///
    /// # Errors
    /// [`Unfinished`] if `timeout` passes first. The remaining keys expire within the TTL and the
    /// lock delay.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the lock shut down, and the clean-ups go on.
    pub async fn shutdown(&self, timeout: Duration) -> Result<(), Unfinished> {
        let shared = &self.lock_state.shared;
        if shared.is_forked() {
            // This process holds nothing, and deletes nothing of the other one.
            return Ok(());
        }
        shared.shut_down();
        let cleaned_up = async {
            loop {
                let mut changed = std::pin::pin!(shared.changed.notified());
                changed.as_mut().enable();
                if shared.ledger() == (0, 0) {
                    return;
                }
                // Nothing notifies when a key expires on a master that does not answer.
                let _ = tokio::time::timeout(NAP, changed).await;
            }
        };
        let ended = shared.unless_forked(tokio::time::timeout(timeout, cleaned_up)).await;
        if ended.is_none_or(|ended| ended.is_ok()) {
            return Ok(());
        }
        match shared.ledger() {
            (0, 0) => Ok(()),
            (pending_cleanups, held) => Err(Unfinished { pending_cleanups, held, waited: timeout }),
        }
    }

    pub(crate) async fn tried(&self) {
        let shared = &self.lock_state.shared;
        let dials = |client: &Client| client.links().iter().any(Link::is_first_dial);
        // A fork gets the lock as it is: its requests are refused.
        let _ = shared.unless_forked(shared.until(|| !shared.view(dials))).await;
    }
}

impl fmt::Debug for Redlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redlock")
            .field("masters", &self.lock_state.shared.names)
            .finish_non_exhaustive()
    }
}
