//! Redlock: the lock itself, a cheap handle that everybody shares.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redquorum_protocol::{Client, Link};

use crate::acquire::{Acquire, TryAcquire};
use crate::builder::Builder;
use crate::clock::NAP;
use crate::error::Unfinished;
use crate::fleet::Fleet;
use crate::health::{self, Health};
use crate::report::Report;
use crate::stats::Stats;

/// A lock over N independent Redis masters. See the [crate](crate) for what it promises.
///
/// It is a cheap handle: clone it into every task. Whatever waits (`acquire`, `release`, `lost`, …)
/// must be polled inside a Tokio runtime with timers, not necessarily the same one. The connections live in background tasks of
/// the runtime in which it was built, and end when the last clone and the last lease are gone
/// and all that is owed is paid or has expired.
#[derive(Clone)]
pub struct Redlock {
    pub(crate) fleet: Arc<Fleet>,
}

impl Redlock {
    /// Starts to describe a lock.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Asks for a resource, and waits while it is taken or no quorum answers. It returns at the
    /// latest two node timeouts after the wait is over.
    ///
    /// The resource is any bytes, at least one and with the prefix at most 1 MiB. Set the TTL
    /// and the wait of this request on what is returned; `.await` sends it. (Where a future is
    /// wanted, as in `spawn`, `join!` or `block_on`, call `.into_future()` on it.)
    ///
    /// ```no_run
    /// # async fn f(lock: redquorum::Redlock) -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::time::Duration;
    /// let lease = lock.acquire("invoice:42").ttl(Duration::from_secs(30)).await?;
    /// # lease.release().await; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// * [`Taken`](crate::AcquireError::Taken): somebody else held it for as long as was waited.
    /// * [`NoQuorum`](crate::AcquireError::NoQuorum): too few masters answered, or they refuse
    ///   writes.
    /// * [`TooLate`](crate::AcquireError::TooLate): nothing was left of the TTL.
    /// * [`Options`](crate::AcquireError::Options): the resource or the TTL is out of bounds.
    /// * [`ShutDown`](crate::AcquireError::ShutDown): after [`shutdown`](Redlock::shutdown).
    ///
    /// With an [`owner`](Acquire::owner) also [`NotExtended`](crate::AcquireError::NotExtended).
    ///
    /// # Cancel safety
    /// Dropping the future gives the attempt up: what it may have set is deleted in the
    /// background.
    pub fn acquire(&self, resource: impl AsRef<[u8]>) -> Acquire {
        Acquire::new(&self.fleet, resource.as_ref())
    }

    /// Asks for a resource once: `None` means that somebody else has it, that a key without TTL or
    /// of another type is in the way, or that several asked at the same moment and none got a
    /// quorum.
    ///
    /// It does not wait to learn who holds it: `acquire(…).wait(Duration::ZERO)` also makes one
    /// attempt, and its error tells.
    ///
    /// # Errors
    /// As [`acquire`](Redlock::acquire), but without `Taken`, and within one node timeout.
    ///
    /// # Cancel safety
    /// As [`acquire`](Redlock::acquire).
    pub fn try_acquire(&self, resource: impl AsRef<[u8]>) -> TryAcquire {
        TryAcquire::new(&self.fleet, resource.as_ref())
    }

    /// Asks every master whether it would grant a lease, in one round trip; ends after one node
    /// timeout at the latest. For readiness probes: see [`Health::has_quorum`].
    ///
    /// A master is usable if it takes writes (it is no replica, no node of a cluster, not out of
    /// memory) and, with a [guard](crate::Builder::guard), is trusted. Nothing is written: masters
    /// are asked to overwrite a key that does not exist. A user that may not touch that key,
    /// `redquorum:probe`, is told only whether masters answer.
    ///
    /// # Cancel safety
    /// Nothing is lost by dropping the future.
    pub async fn health(&self) -> Health {
        health::probe(&self.fleet).await
    }

    /// Marks every master that has no marker, so that it is trusted at once: for a
    /// [guarded](crate::Builder::guard) lock on masters that were just set up. The report tells which
    /// were [`marked`](crate::Answer::Blessed), which had a marker already, and which did not answer
    /// within the node timeout.
    ///
    /// **Calling it asserts** that no lease is alive that any of these masters has granted and does not
    /// remember. That is true of masters on which no lock ever was. It is not true of masters that
    /// were flushed, or lost their data, less than the longest TTL ago: to bless those is to let two
    /// holders in. So call it by hand or from what sets masters up, never whenever a service starts.
    /// Without it, new masters are trusted by themselves after one quarantine.
    ///
    /// A master whose marker is of an earlier process keeps it, and its quarantine.
    ///
    /// # Cancel safety
    /// Dropping the future does not take back what was sent.
    pub async fn bless_new_masters(&self) -> Report {
        self.fleet.report(&health::ask(&self.fleet, Client::initialize).await)
    }

    /// What was seen so far.
    pub fn stats(&self) -> Stats {
        self.fleet.shared.stats()
    }

    /// How many masters it has.
    pub fn masters(&self) -> usize {
        self.fleet.terms.nodes()
    }

    /// How many of them must agree.
    pub fn quorum(&self) -> usize {
        self.fleet.terms.quorum()
    }

    /// Ends the lock, for all clones: from now on nothing is acquired or extended, and what is
    /// owed to the masters is paid. Returns once that is done and all leases are given back;
    /// leases that are not live on to their deadlines. Call it before the runtime ends: a task
    /// that is gone pays nothing, and its keys stay for up to one TTL.
    ///
    /// It waits for a master that is down only until the keys there have expired, one TTL at most.
    /// (A master that is stopped, not dead, may execute what is in its sockets when it goes on:
    /// such a key lives for up to one TTL more.) Nor does it wait for the [grace](Builder::grace) of leases that
    /// were lost or dropped: those keys expire by themselves.
    ///
    /// # Errors
    /// [`Unfinished`] if `timeout` passes first. What is left expires within one TTL.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the lock shut down, and what is owed is paid all the same.
    pub async fn shutdown(&self, timeout: Duration) -> Result<(), Unfinished> {
        self.fleet.shared.shut_down();
        let paid = async {
            loop {
                let mut changed = std::pin::pin!(self.fleet.shared.changed.notified());
                changed.as_mut().enable();
                if self.fleet.shared.ledger() == (0, 0) {
                    return;
                }
                // Keys that expire on a master that is down tell nobody.
                let _ = tokio::time::timeout(NAP, changed).await;
            }
        };
        if tokio::time::timeout(timeout, paid).await.is_ok() {
            return Ok(());
        }
        match self.fleet.shared.ledger() {
            (0, 0) => Ok(()),
            (owed, held) => Err(Unfinished { owed, held, waited: timeout }),
        }
    }

    /// Waits until every master was tried once.
    pub(crate) async fn tried(&self) {
        loop {
            let mut changed = std::pin::pin!(self.fleet.shared.changed.notified());
            changed.as_mut().enable();
            if !self.fleet.shared.view(|client| client.links().iter().any(Link::is_first_dial)) {
                return;
            }
            changed.await;
        }
    }
}

impl fmt::Debug for Redlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redlock").field("masters", &self.fleet.shared.names).finish_non_exhaustive()
    }
}
