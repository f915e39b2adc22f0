//! The lock for threads that are not part of an async runtime.
//!
//! Everything has the name and the promise that it has without `blocking`. Where the async lock
//! waits in a future, this one blocks the thread.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//!
//! use redquorum::Redlock;
//!
//! let masters = ["redis://db1", "redis://db2", "redis://db3"];
//! let lock = Redlock::builder().masters(masters).build_blocking()?;
//! let pages = lock.acquire("invoice:42").run(Duration::from_secs(60), |lease| {
//!     // Nothing can stop a thread from outside: it looks before each step.
//!     (1..=10).take_while(|_| !lease.is_lost()).count()
//! })?;
//! # Ok(()) }
//! ```
//!
//! Connections, timers and the watchdog run in a thread of their own, `redquorum`, one for each
//! lock that was built. The thread ends when the last clone and the last lease are gone, and every
//! key to delete is deleted or has expired. If the process ends first, the keys expire by
//! themselves: call [`Redlock::shutdown`] before.
//!
//! A server that forks its workers builds a lock in each of them: the parent's lock, and its
//! thread, do not work in a child. There no method blocks, and requests return
//! [`Forked`](crate::AcquireError::Forked).
//!
//! # Panics
//! A method that blocks panics if it is called in a task of an async runtime, where it would stop
//! the other tasks of that thread. Use the async [`Redlock`](crate::Redlock) there, or call it in
//! `spawn_blocking`.

#![expect(clippy::disallowed_methods, reason = "each call first checks that the thread may block")]

use std::future::{Future, IntoFuture};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::runtime::{Builder as RuntimeBuilder, Handle};
use tokio::sync::oneshot;

use crate::builder::Builder;
use crate::clock::Deadline;
use crate::error::{AcquireError, BuildError, ExtendError, Lost, RunError};
use crate::health::Health;
use crate::holder::HeldBy;
use crate::lease::Released;
use crate::owner::Owner;
use crate::report::{Report, Unfinished};
use crate::several::ReleasedAll;
use crate::signal::LossSignal;
use crate::stats::Stats;
use crate::together::all;

/// A lock, and the thread that drives it. The thread outlives this value until no clean-up is
/// pending.
struct Driver {
    /// One, or those of all shards.
    locks: Vec<crate::Redlock>,
    handle: Handle,
    /// Ends the thread, which first shuts the locks down.
    end: Option<oneshot::Sender<Vec<crate::Redlock>>>,
}

impl Driver {
    /// Starts the thread, and builds there.
    fn start<T>(
        build: impl Future<Output = Result<T, BuildError>>,
        locks: impl FnOnce(&T) -> Vec<crate::Redlock>,
    ) -> Result<(T, Arc<Self>), BuildError> {
        let failed = |error: std::io::Error| BuildError::Runtime(error.to_string());
        let runtime = RuntimeBuilder::new_current_thread().enable_all().build().map_err(failed)?;
        let handle = runtime.handle().clone();
        let (end, ended) = oneshot::channel::<Vec<crate::Redlock>>();
        let drive = move || {
            runtime.block_on(async {
                // Without locks, their build has failed.
                let locks = ended.await.unwrap_or_default();
                // It ends by itself: after one TTL all keys have expired.
                all(locks.iter().map(|lock| lock.shutdown(Duration::MAX))).await;
            });
        };
        std::thread::Builder::new().name("redquorum".into()).spawn(drive).map_err(failed)?;
        let built = wait(&handle, build)?;
        let locks = locks(&built);
        Ok((built, Arc::new(Self { locks, handle, end: Some(end) })))
    }

    fn is_forked(&self) -> bool {
        self.locks.iter().any(|lock| lock.lock_state.shared.is_forked())
    }

    fn wait<F: Future>(&self, future: F) -> F::Output {
        if self.is_forked() {
            // The thread that would drive it is not in this process, and nothing there waits.
            let mut context = Context::from_waker(Waker::noop());
            return match pin!(future).poll(&mut context) {
                Poll::Ready(result) => result,
                Poll::Pending => unreachable!("a forked process waits for its parent's lock"),
            };
        }
        wait(&self.handle, future)
    }
}

fn wait<F: Future>(handle: &Handle, future: F) -> F::Output {
    // Tokio has no question for "may this thread block?", only a panic.
    if Handle::try_current().is_ok()
        && catch_unwind(AssertUnwindSafe(|| handle.block_on(async {}))).is_err()
    {
        panic!(
            "redquorum::blocking was called in a task of an async runtime: use the async \
             redquorum::Redlock there, or call it in spawn_blocking"
        );
    }
    handle.block_on(future)
}

impl Drop for Driver {
    fn drop(&mut self) {
        if let Some(end) = self.end.take() {
            if self.is_forked() {
                // To drop it would wake a thread that is not in this process.
                return std::mem::forget(end);
            }
            // The thread may have ended by a panic.
            let _ = end.send(std::mem::take(&mut self.locks));
        }
    }
}

impl Builder {
    /// Like [`build`](Builder::build), for threads outside of an async runtime: blocks until each
    /// master was tried once. See [`blocking`](crate::blocking).
    ///
    /// # Errors
    /// Those of [`build`](Builder::build), and [`BuildError::Runtime`].
    ///
    /// # Panics
    /// In a task of an async runtime.
    pub fn build_blocking(self) -> Result<Redlock, BuildError> {
        let (lock, driver) = Driver::start(self.build(), |lock| vec![lock.clone()])?;
        Ok(Redlock { lock, driver })
    }

    /// Like [`build_shards`](Builder::build_shards), for threads outside of an async runtime. One
    /// thread drives all shards.
    ///
    /// # Errors
    /// Those of [`build_shards`](Builder::build_shards), and [`BuildError::Runtime`].
    ///
    /// # Panics
    /// In a task of an async runtime.
    pub fn build_shards_blocking(self) -> Result<Shards, BuildError> {
        let locks = |shards: &crate::Shards| shards.iter().map(|(_, lock)| lock.clone()).collect();
        let (shards, driver) = Driver::start(self.build_shards(), locks)?;
        Ok(Shards { shards, driver })
    }
}

/// A lock whose methods block: see [`redquorum::Redlock`](crate::Redlock). A cheap handle: clone it
/// into every thread.
#[derive(Clone)]
pub struct Redlock {
    lock: crate::Redlock,
    driver: Arc<Driver>,
}

impl Redlock {
    /// Asks for a resource, and waits while it is taken or no quorum answers:
    /// [`send`](Acquire::send) sends the request. See [`acquire`](crate::Redlock::acquire).
    pub fn acquire(&self, resource: impl AsRef<[u8]>) -> Acquire {
        Acquire { request: self.lock.acquire(resource), driver: self.driver.clone() }
    }

    /// Asks for a resource once: [`send`](TryAcquire::send) sends the request. See
    /// [`try_acquire`](crate::Redlock::try_acquire).
    pub fn try_acquire(&self, resource: impl AsRef<[u8]>) -> TryAcquire {
        TryAcquire { request: self.lock.try_acquire(resource), driver: self.driver.clone() }
    }

    /// Asks for several resources, all or none: [`send`](AcquireAll::send) sends the request. See
    /// [`acquire_all`](crate::Redlock::acquire_all).
    pub fn acquire_all<I>(&self, resources: I) -> AcquireAll
    where
        I: IntoIterator,
        I::Item: AsRef<[u8]>,
    {
        AcquireAll { request: self.lock.acquire_all(resources), driver: self.driver.clone() }
    }

    /// Asks for any one of several resources: [`send`](AcquireAny::send) sends the request. See
    /// [`acquire_any`](crate::Redlock::acquire_any).
    pub fn acquire_any<I>(&self, resources: I) -> AcquireAny
    where
        I: IntoIterator,
        I::Item: AsRef<[u8]>,
    {
        AcquireAny { request: self.lock.acquire_any(resources), driver: self.driver.clone() }
    }

    /// A semaphore: see [`semaphore`](crate::Redlock::semaphore).
    pub fn semaphore(&self, resource: impl AsRef<[u8]>, permits: usize) -> Semaphore {
        let semaphore = self.lock.semaphore(resource, permits);
        Semaphore { semaphore, driver: self.driver.clone() }
    }

    /// Asks every master whether it would grant a lease: see [`health`](crate::Redlock::health).
    pub fn health(&self) -> Health {
        self.driver.wait(self.lock.health())
    }

    /// Asks every master who holds a resource, and changes nothing: see
    /// [`holder`](crate::Redlock::holder).
    ///
    /// # Errors
    /// Those of [`holder`](crate::Redlock::holder).
    pub fn holder(&self, resource: impl AsRef<[u8]>) -> Result<HeldBy, AcquireError> {
        self.driver.wait(self.lock.holder(resource))
    }

    /// Writes a boot marker on every master that has none. **Read first** what you assert by that:
    /// [`initialize_masters`](crate::Redlock::initialize_masters).
    pub fn initialize_masters(&self) -> Report {
        self.driver.wait(self.lock.initialize_masters())
    }

    /// A snapshot of the counters since the lock was built.
    pub fn stats(&self) -> Stats {
        self.lock.stats()
    }

    /// Ends the lock, for all clones, and waits for the pending clean-ups: see
    /// [`shutdown`](crate::Redlock::shutdown).
    ///
    /// # Errors
    /// [`Unfinished`] if `timeout` passes first.
    pub fn shutdown(&self, timeout: Duration) -> Result<(), Unfinished> {
        self.driver.wait(self.lock.shutdown(timeout))
    }
}

/// Several locks whose methods block: see [`redquorum::Shards`](crate::Shards). A cheap handle:
/// clone it into every thread.
#[derive(Clone)]
pub struct Shards {
    shards: crate::Shards,
    driver: Arc<Driver>,
}

impl Shards {
    fn lock(&self, lock: &crate::Redlock) -> Redlock {
        Redlock { lock: lock.clone(), driver: self.driver.clone() }
    }

    /// The lock that a resource belongs to: see [`home`](crate::Shards::home).
    pub fn home(&self, resource: impl AsRef<[u8]>) -> Redlock {
        self.lock(self.shards.home(resource))
    }

    /// Asks for a resource, and waits while it is taken or no quorum of its home answers:
    /// [`send`](Acquire::send) sends the request. See [`acquire`](crate::Shards::acquire).
    pub fn acquire(&self, resource: impl AsRef<[u8]>) -> Acquire {
        self.home(&resource).acquire(resource)
    }

    /// Asks for a resource once: [`send`](TryAcquire::send) sends the request. See
    /// [`try_acquire`](crate::Shards::try_acquire).
    pub fn try_acquire(&self, resource: impl AsRef<[u8]>) -> TryAcquire {
        self.home(&resource).try_acquire(resource)
    }

    /// Asks for several resources, all or none: [`send`](AcquireAll::send) sends the request. See
    /// [`acquire_all`](crate::Shards::acquire_all).
    pub fn acquire_all<I>(&self, resources: I) -> AcquireAll
    where
        I: IntoIterator,
        I::Item: AsRef<[u8]>,
    {
        AcquireAll { request: self.shards.acquire_all(resources), driver: self.driver.clone() }
    }

    /// Asks for any one of several resources: [`send`](AcquireAny::send) sends the request. See
    /// [`acquire_any`](crate::Shards::acquire_any).
    pub fn acquire_any<I>(&self, resources: I) -> AcquireAny
    where
        I: IntoIterator,
        I::Item: AsRef<[u8]>,
    {
        AcquireAny { request: self.shards.acquire_any(resources), driver: self.driver.clone() }
    }

    /// A semaphore: see [`semaphore`](crate::Shards::semaphore).
    pub fn semaphore(&self, resource: impl AsRef<[u8]>, permits: usize) -> Semaphore {
        let semaphore = self.shards.semaphore(resource, permits);
        Semaphore { semaphore, driver: self.driver.clone() }
    }

    /// Each lock, with the name of its shard: see [`iter`](crate::Shards::iter).
    pub fn iter(&self) -> impl Iterator<Item = (&str, Redlock)> {
        self.shards.iter().map(|(name, lock)| (name, self.lock(lock)))
    }

    /// Ends all locks, and waits for the pending clean-ups: see
    /// [`shutdown`](crate::Shards::shutdown).
    ///
    /// # Errors
    /// [`Unfinished`] if `timeout` passes first.
    pub fn shutdown(&self, timeout: Duration) -> Result<(), Unfinished> {
        self.driver.wait(self.shards.shutdown(timeout))
    }
}

/// Declares a request, and the methods that set its options, as the async request has them.
macro_rules! request {
    ($(#[$docs:meta])* $of:ident: $($method:ident($($name:ident: $type:ty)?))*) => {
        $(#[$docs])*
        #[derive(Clone)]
        #[must_use = "nothing is sent before `send`"]
        pub struct $of {
            request: crate::$of,
            driver: Arc<Driver>,
        }

        impl $of {
            $(
                #[doc = concat!("See [`", stringify!($of), "::", stringify!($method), "`](crate::", stringify!($of), "::", stringify!($method), ").")]
                pub fn $method(mut self $(, $name: $type)?) -> Self {
                    self.request = self.request.$method($($name)?);
                    self
                }
            )*
        }
    };
}

request! {
    /// A request for a lease that waits while the resource is taken: see
    /// [`redquorum::Acquire`](crate::Acquire).
    Acquire: ttl(ttl: Duration) wait(wait: Duration) at_least(at_least: Duration)
        owner(owner: &Owner) fenced() shared()
}

request! {
    /// A request for a lease that makes one attempt: see
    /// [`redquorum::TryAcquire`](crate::TryAcquire).
    TryAcquire: ttl(ttl: Duration) at_least(at_least: Duration) owner(owner: &Owner) fenced()
        shared()
}

request! {
    /// A request for a lease on one of several resources: see
    /// [`redquorum::AcquireAny`](crate::AcquireAny).
    AcquireAny: ttl(ttl: Duration) wait(wait: Duration) at_least(at_least: Duration) fenced()
        shared()
}

request! {
    /// A request for several resources: see [`redquorum::AcquireAll`](crate::AcquireAll).
    AcquireAll: ttl(ttl: Duration) wait(wait: Duration) fenced() shared()
}

impl Acquire {
    /// Sends the request, and blocks until there is a lease or an error.
    ///
    /// # Errors
    /// Those of [`acquire`](crate::Redlock::acquire).
    pub fn send(self) -> Result<Lease, AcquireError> {
        let Self { request, driver } = self;
        let lease = driver.wait(request.into_future())?;
        Ok(Lease { lease, driver })
    }

    /// Acquires the resource, calls `work` with the lease, and gives the resource back on every
    /// exit path. It [keeps the lease alive](Lease::keep_alive) for at most `max_hold`, counted
    /// from the grant. The lease ends after `max_hold` or the TTL, whichever is longer.
    ///
    /// **Nothing stops `work` when the lease is lost**: let it check [`Lease::is_lost`] before each
    /// step, and keep steps short.
    ///
    /// # Errors
    /// * [`RunError::NotAcquired`]: an error of [`acquire`](crate::Redlock::acquire). `work` was
    ///   not called.
    /// * [`RunError::Lost`]: `work` returned after the lease was lost. Its result is dropped.
    pub fn run<T>(self, max_hold: Duration, work: impl FnOnce(&Lease) -> T) -> Result<T, RunError> {
        let lease = self.send().map_err(RunError::NotAcquired)?;
        lease.keep_alive(max_hold);
        let done = work(&lease);
        if let Some(lost) = lease.loss() {
            return Err(RunError::Lost(lost));
        }
        // The work was done before the deadline, whatever the masters reply.
        let _ = lease.release();
        Ok(done)
    }
}

impl TryAcquire {
    /// Sends the request, and blocks until it has a result: at most one node timeout, or
    /// [longer](crate::Redlock::try_acquire) with `fair`, a fencing token or an owner. `None` if
    /// the resource is taken.
    ///
    /// # Errors
    /// Those of [`try_acquire`](crate::Redlock::try_acquire).
    pub fn send(self) -> Result<Option<Lease>, AcquireError> {
        let Self { request, driver } = self;
        let lease = driver.wait(request.into_future())?;
        Ok(lease.map(|lease| Lease { lease, driver }))
    }
}

impl AcquireAny {
    /// Sends the request, and blocks until there is a lease or an error.
    ///
    /// # Errors
    /// Those of [`acquire_any`](crate::Redlock::acquire_any).
    pub fn send(self) -> Result<Lease, AcquireError> {
        let Self { request, driver } = self;
        let lease = driver.wait(request.into_future())?;
        Ok(Lease { lease, driver })
    }
}

/// A semaphore over independent masters: see [`redquorum::Semaphore`](crate::Semaphore).
#[derive(Clone)]
pub struct Semaphore {
    semaphore: crate::Semaphore,
    driver: Arc<Driver>,
}

impl Semaphore {
    /// Asks for a permit: [`send`](AcquireAny::send) sends the request. See
    /// [`redquorum::Semaphore::acquire`](crate::Semaphore::acquire).
    pub fn acquire(&self) -> AcquireAny {
        AcquireAny { request: self.semaphore.acquire(), driver: self.driver.clone() }
    }

    /// The number of the slot that a permit is for: see
    /// [`redquorum::Semaphore::slot`](crate::Semaphore::slot).
    pub fn slot(&self, permit: &Lease) -> Option<usize> {
        self.semaphore.slot(&permit.lease)
    }

    /// The number of permits.
    pub const fn permits(&self) -> usize {
        self.semaphore.permits()
    }
}

impl AcquireAll {
    /// Sends the request, and blocks until all are granted or there is an error.
    ///
    /// # Errors
    /// Those of [`acquire_all`](crate::Redlock::acquire_all).
    pub fn send(self) -> Result<Leases, AcquireError> {
        let Self { request, driver } = self;
        let leases = driver.wait(request.into_future())?;
        Ok(Leases { leases, driver })
    }
}

/// Methods that read a lease, or several, and do not block.
macro_rules! readers {
    ($field:ident of $of:literal: $($method:ident -> $type:ty)*) => {
        $(
            #[doc = concat!("See [`", $of, "::", stringify!($method), "`](crate::", $of, "::", stringify!($method), ").")]
            pub fn $method(&self) -> $type {
                self.$field.$method()
            }
        )*

        #[doc = concat!("Starts the watchdog, which extends in the background until `max_hold` from now: see [`", $of, "::keep_alive`](crate::", $of, "::keep_alive).")]
        pub fn keep_alive(&self, max_hold: Duration) {
            self.$field.keep_alive(max_hold);
        }

        /// Extends by the TTL from now, in one round trip.
        ///
        /// # Errors
        /// Those of [`extend`](crate::Lease::extend).
        pub fn extend(&self) -> Result<Deadline, ExtendError> {
            self.driver.wait(self.$field.extend())
        }

        /// Extends by another TTL from now, which further extensions use too.
        ///
        /// # Errors
        /// Those of [`extend_to`](crate::Lease::extend_to).
        pub fn extend_to(&self, ttl: Duration) -> Result<Deadline, ExtendError> {
            self.driver.wait(self.$field.extend_to(ttl))
        }

        /// Blocks until an extension fails while there is time left, and returns the deadline.
        /// `None` if the lease, or one of several, is lost first. See
        /// [`endangered`](crate::Lease::endangered).
        pub fn endangered(&self) -> Option<Deadline> {
            self.driver.wait(self.$field.endangered())
        }

        /// Blocks until the lease is lost, or one of several, and returns why.
        pub fn lost(&self) -> Lost {
            self.driver.wait(self.$field.lost())
        }
    };
}

/// A resource that is held until the deadline or until it is given back: see
/// [`redquorum::Lease`](crate::Lease). Dropping it gives the resource back in the background.
#[must_use = "the resource is given back as soon as the lease is dropped"]
#[derive(Debug)]
pub struct Lease {
    // Dropped before the driver, which may end then.
    lease: crate::Lease,
    driver: Arc<Driver>,
}

impl Lease {
    readers! {
        lease of "Lease":
        resource -> &[u8]
        deadline -> Deadline
        validity -> Duration
        is_lost -> bool
        is_endangered -> bool
        margin -> usize
        loss -> Option<Lost>
        fencing_token -> Option<u64>
        token_id -> String
        is_shared -> bool
        handles -> u32
        report -> &Report
        latest_report -> Report
        loss_signal -> LossSignal
    }

    /// Keeps others out for at least this long from now, and blocks if that takes an extension.
    ///
    /// # Errors
    /// Those of [`at_least`](crate::Lease::at_least).
    pub fn at_least(&self, at_least: Duration) -> Result<Deadline, ExtendError> {
        self.driver.wait(self.lease.at_least(at_least))
    }

    /// Gives the resource back, and blocks for at most one node timeout: see
    /// [`release`](crate::Lease::release).
    pub fn release(self) -> Released {
        let Self { lease, driver } = self;
        driver.wait(lease.release())
    }
}

/// Several resources, held together: see [`redquorum::Leases`](crate::Leases). Dropping it gives
/// all of them back in the background.
#[must_use = "the resources are given back as soon as the leases are dropped"]
#[derive(Debug)]
pub struct Leases {
    // Dropped before the driver, which may end then.
    leases: crate::Leases,
    driver: Arc<Driver>,
}

impl Leases {
    readers! {
        leases of "Leases":
        deadline -> Deadline
        validity -> Duration
        is_lost -> bool
        is_endangered -> bool
        loss -> Option<Lost>
    }

    /// The fencing token of one resource: see [`Lease::fencing_token`].
    pub fn fencing_token(&self, resource: impl AsRef<[u8]>) -> Option<u64> {
        self.leases.get(resource)?.fencing_token()
    }

    /// Gives all resources back: see [`release`](crate::Leases::release).
    pub fn release(self) -> ReleasedAll {
        let Self { leases, driver } = self;
        driver.wait(leases.release())
    }
}

impl std::fmt::Debug for Redlock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.lock.fmt(f)
    }
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Driver")
    }
}
