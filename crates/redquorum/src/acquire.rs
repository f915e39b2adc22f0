//! The requests for a lease, and the future that waits for one.

use std::future::{Future, IntoFuture};
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use redquorum_protocol::{AcquireRequest, BadOption, Failure, Key, Time};
use tokio::time::Sleep;

use crate::claim::{ClaimCell, Found};
use crate::clock::{Clock, NAP};
use crate::error::{AcquireError, RunError};
use crate::fence::FencedLease;
use crate::fleet::Fleet;
use crate::lease::Lease;
use crate::owner::Owner;
use crate::reentry;
use crate::report::Report;
use crate::stats::count;
use crate::trace;

/// The longest sleep of a task that waits for another task of its process: there may be thousands.
const QUEUED_NAP: Duration = Duration::from_secs(5);

/// What an acquire can return: a [`Lease`], or a [`FencedLease`].
pub trait Granted: sealed::Granted {}

impl Granted for Lease {}
impl Granted for FencedLease {}

pub(crate) mod sealed {
    use std::time::Duration;

    use redquorum_protocol::{BadOption, LockConfig};

    use crate::lease::Lease;

    pub trait Granted: Sized + Send + Sync + 'static {
        /// The options of a request, with those that this kind of lease needs.
        fn terms(terms: LockConfig, fencing_memory: Duration) -> Result<LockConfig, BadOption>;
        /// The lease as this kind, if it is of this kind.
        fn of(lease: Lease) -> Option<Self>;
        /// The lease itself.
        fn lease_mut(&mut self) -> &mut Lease;
        /// A shared reference to the lease.
        fn lease(&self) -> &Lease;
        /// Converts into the plain lease.
        fn into_lease(self) -> Lease;
    }
}

/// A request for a lease that waits while the resource is taken.
///
/// Made by [`Redlock::acquire`](crate::Redlock::acquire). `.await` sends it; `.into_future()` makes
/// it a future for `spawn`, `join!` and the like.
#[must_use = "nothing is sent before the request is awaited"]
pub struct Acquire<L = Lease> {
    request: Request,
    kind: PhantomData<fn() -> L>,
}

/// A request for a lease that makes one attempt.
///
/// Made by [`Redlock::try_acquire`](crate::Redlock::try_acquire). `.await` sends it;
/// `.into_future()` makes it a future for `spawn`, `join!` and the like.
#[must_use = "nothing is sent before the request is awaited"]
pub struct TryAcquire<L = Lease> {
    request: Request,
    kind: PhantomData<fn() -> L>,
}

// Not derived: that would require `L: Clone`.
impl<L> Clone for Acquire<L> {
    fn clone(&self) -> Self {
        Self { request: self.request.clone(), kind: PhantomData }
    }
}

impl<L> Clone for TryAcquire<L> {
    fn clone(&self) -> Self {
        Self { request: self.request.clone(), kind: PhantomData }
    }
}

#[derive(Clone)]
pub(crate) struct Request {
    pub(crate) fleet: Arc<Fleet>,
    key: Result<Key, BadOption>,
    pub(crate) ttl: Option<Duration>,
    wait: Option<Duration>,
    explain: bool,
    owner: Option<Owner>,
}

impl Acquire {
    pub(crate) fn new(fleet: &Arc<Fleet>, resource: &[u8]) -> Self {
        let (fleet, key) = (fleet.clone(), fleet.key(resource));
        let request = Request { fleet, key, ttl: None, wait: None, explain: true, owner: None };
        Self { request, kind: PhantomData }
    }

    /// Asks for a lease with a [fencing token](FencedLease): a number that grows with every grant,
    /// by which the resource itself can refuse a client that comes too late.
    ///
    /// It costs no extra round trip while the counters of the masters agree. They do as long as the
    /// wall clocks of clients and masters agree to within a second. Otherwise the request waits for
    /// all masters, up to the node timeout, and makes one more round trip.
    pub fn fenced(self) -> Acquire<FencedLease> {
        Acquire { request: self.request, kind: PhantomData }
    }
}

impl<L> Acquire<L> {
    /// How long the masters keep the key, instead of the lock's own [TTL](crate::Builder::ttl). The
    /// same bounds apply.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.request.ttl = Some(ttl);
        self
    }

    /// The owner of this request. An [`Owner`] that already holds the resource gets another handle
    /// of the same lease, without a round trip. The lease is given back with the last handle.
    /// Without an owner, every request excludes every other, also in the same task.
    ///
    /// Without a [`ttl`](Acquire::ttl) the deadline stays where it is. A TTL that ends later
    /// extends the lease, in one round trip; one that ends earlier changes nothing.
    ///
    /// If another request of the same owner is in progress, this request waits for it, for at least
    /// one node timeout. An acquire may return later by that much.
    ///
    /// # Errors
    /// Besides the errors of [`Redlock::acquire`](crate::Redlock::acquire):
    /// * [`NotExtended`](AcquireError::NotExtended): the owner holds the resource, but not for the
    ///   requested TTL. Its lease is unchanged.
    /// * [`Options`](AcquireError::Options) with [`HeldUnfenced`](BadOption::HeldUnfenced): the
    ///   owner holds the resource without the requested fencing token.
    ///
    /// # Cancel safety
    /// Dropping the future gives back the handle that it may have got. It does not take back an
    /// extension that it asked for.
    pub fn owner(mut self, owner: &Owner) -> Self {
        self.request.owner = Some(owner.clone());
        self
    }

    /// How long to wait while the resource is taken or no quorum answers, instead of the lock's own
    /// [wait](crate::Builder::wait). Zero makes one attempt.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.request.wait = Some(wait);
        self
    }
}

impl<L: Granted> Acquire<L> {
    /// Acquires the resource, runs `work` while the lease lasts, and gives the resource back on
    /// every exit path. It [keeps the lease alive](crate::Lease::keep_alive) for at most
    /// `max_hold`, counted from the grant. A `max_hold` shorter than the TTL changes nothing.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # async fn charge_once() -> Result<u64, std::io::Error> { Ok(1) }
    /// # async fn f(lock: redquorum::Redlock) -> Result<(), Box<dyn std::error::Error>> {
    /// let at_most = Duration::from_secs(60);
    /// let charge = async |_lease: &redquorum::Lease| charge_once().await;
    /// let receipt = lock.acquire("invoice:42").run(at_most, charge).await??;
    /// # Ok(()) }
    /// ```
    ///
    /// `work` gets the lease, for its [fencing token](crate::FencedLease::fencing_token) or a
    /// [signal](crate::Lease::loss_signal). The result of `work` is passed through, whatever it is.
    /// When `work` is done, the future [releases](crate::Lease::release) the lease and waits for
    /// that: one round trip, at most one node timeout. Tasks that `work` has started elsewhere are
    /// not stopped: see [`Lease::run`](crate::Lease::run).
    ///
    /// # Errors
    /// * [`RunError::NotAcquired`]: an error of [`Redlock::acquire`](crate::Redlock::acquire).
    ///   `work` was not called.
    /// * [`RunError::Lost`]: the lease was lost first, perhaps because `max_hold` was over. `work`
    ///   was dropped.
    ///
    /// # Cancel safety
    /// Dropping the future gives the attempt up, or drops `work` and then the lease. A panic of
    /// `work` does the same. The resource is given back in the background; with a
    /// [grace period](crate::Builder::grace), when that is over.
    pub async fn run<T>(
        self,
        max_hold: Duration,
        work: impl AsyncFnOnce(&L) -> T,
    ) -> Result<T, RunError> {
        let lease = self.into_future().await.map_err(RunError::NotAcquired)?;
        lease.lease().keep_alive(max_hold);
        let result = lease.lease().run(work(&lease)).await;
        match result {
            Ok(done) => {
                lease.into_lease().release().await;
                Ok(done)
            }
            // Dropped, not released: there is no reply to wait for, and the grace period applies.
            Err(lost) => Err(RunError::Lost(lost)),
        }
    }
}

impl TryAcquire {
    pub(crate) fn new(fleet: &Arc<Fleet>, resource: &[u8]) -> Self {
        let (fleet, key) = (fleet.clone(), fleet.key(resource));
        let wait = Some(Duration::ZERO);
        let request = Request { fleet, key, ttl: None, wait, explain: false, owner: None };
        Self { request, kind: PhantomData }
    }

    /// Asks for a lease with a fencing token: see [`Acquire::fenced`].
    pub fn fenced(self) -> TryAcquire<FencedLease> {
        TryAcquire { request: self.request, kind: PhantomData }
    }
}

impl<L> TryAcquire<L> {
    /// The owner of this request: see [`Acquire::owner`]. If another request of the same owner is
    /// in progress, this one waits for it for at most one node timeout. It returns `None` if that
    /// is too short.
    pub fn owner(mut self, owner: &Owner) -> Self {
        self.request.owner = Some(owner.clone());
        self
    }

    /// How long the masters keep the key, instead of the lock's own [TTL](crate::Builder::ttl). The
    /// same bounds apply.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.request.ttl = Some(ttl);
        self
    }
}

impl Request {
    pub(crate) fn check<L: Granted>(&self) -> Result<(Key, AcquireRequest), AcquireError> {
        if self.fleet.is_shut_down() {
            return Err(AcquireError::ShutDown);
        }
        let key = self.key.clone().map_err(AcquireError::Options)?;
        let terms = self.ttl.map_or(Ok(self.fleet.terms), |ttl| self.fleet.terms.with_ttl(ttl));
        let terms = terms.and_then(|terms| L::terms(terms, self.fleet.fencing_memory));
        let terms = terms.map_err(AcquireError::Options)?;
        let wait = self.wait.unwrap_or(self.fleet.wait);
        Ok((key, AcquireRequest { terms, wait, explain: self.explain, fair: true, seed: () }))
    }
}

impl Request {
    /// The request without its owner, and with another wait.
    pub(crate) fn without_owner(self, wait: Duration) -> Self {
        Self { owner: None, wait: Some(wait), ..self }
    }

    pub(crate) fn into_future<L: Granted>(self) -> Acquiring<L> {
        let stage = match self.owner.clone() {
            Some(owner) => Stage::Owned(Box::pin(reentry::acquire(self, owner))),
            None => Stage::Ready(self),
        };
        Acquiring { stage, timer: None, armed: Time::NEVER, asked: Time::NEVER, kind: PhantomData }
    }
}

impl<L: Granted> IntoFuture for Acquire<L> {
    type Output = Result<L, AcquireError>;
    type IntoFuture = Acquiring<L>;

    fn into_future(self) -> Acquiring<L> {
        self.request.into_future()
    }
}

impl<L: Granted> IntoFuture for TryAcquire<L> {
    type Output = Result<Option<L>, AcquireError>;
    type IntoFuture = TryAcquiring<L>;

    fn into_future(self) -> TryAcquiring<L> {
        TryAcquiring(Acquire { request: self.request, kind: PhantomData }.into_future())
    }
}

/// The future of an [`Acquire`].
///
/// # Cancel safety
/// Dropping it gives the attempt up. The keys that it may have set are deleted in the background.
#[must_use = "futures do nothing unless polled"]
pub struct Acquiring<L = Lease> {
    stage: Stage<L>,
    timer: Option<Pin<Box<Sleep>>>,
    armed: Time,
    /// The time of the first poll.
    asked: Time,
    kind: PhantomData<fn() -> L>,
}

enum Stage<L> {
    /// A request of an owner, which may hold the resource already.
    Owned(Pin<Box<dyn Future<Output = Result<L, AcquireError>> + Send>>),
    /// Nothing was sent yet.
    Ready(Request),
    /// The request waits for its turn, or asks the masters.
    Claiming(Arc<ClaimCell>),
    /// The result was handed out.
    Done,
}

/// The future of a [`TryAcquire`].
///
/// # Cancel safety
/// Dropping it gives the attempt up. The keys that it may have set are deleted in the background.
#[must_use = "futures do nothing unless polled"]
pub struct TryAcquiring<L = Lease>(Acquiring<L>);

impl<L: Granted> Future for Acquiring<L> {
    type Output = Result<L, AcquireError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if let Stage::Owned(future) = &mut this.stage {
            let result = future.as_mut().poll(cx);
            if result.is_ready() {
                this.stage = Stage::Done;
            }
            return result;
        }
        let mut first = None;
        if let Stage::Ready(request) = &this.stage {
            this.asked = request.fleet.clock.now();
            match request.check::<L>() {
                Ok((key, asked)) => {
                    let (claim, found) = ClaimCell::start(&request.fleet, key, asked, cx.waker());
                    this.stage = Stage::Claiming(claim);
                    first = Some(found);
                }
                Err(error) => {
                    this.stage = Stage::Done;
                    return Poll::Ready(Err(error));
                }
            }
        }
        loop {
            let Stage::Claiming(claim) = &this.stage else { panic!("polled after it was ready") };
            let (claim, shut_down) = (claim.clone(), claim.is_shut_down());
            let found = first.take().unwrap_or_else(|| claim.poll(cx.waker(), !shut_down));
            let result = match found {
                // From here on the lease ends the claim.
                Found::Granted => {
                    let waited = claim.fleet.clock.now().since(this.asked);
                    Ok(reentry::of_kind(Lease::new(claim, waited)))
                }
                Found::Won(_) | Found::Pending { .. } if shut_down => Err(AcquireError::ShutDown),
                Found::Failed(why, report, attempts) => Err(failed(&claim, why, report, attempts)),
                Found::Won(_) => continue,
                Found::Pending { until, queued } => {
                    // Another request of this process asks the masters meanwhile.
                    let nap = if queued { QUEUED_NAP } else { NAP };
                    if this.sleep(claim.fleet.clock, until, nap, cx).is_pending() {
                        return Poll::Pending;
                    }
                    continue;
                }
            };
            // Dropping the claim undoes the rest of an attempt.
            this.stage = Stage::Done;
            return Poll::Ready(result);
        }
    }
}

impl<L> Acquiring<L> {
    /// Sleeps until this time, but at most for a nap. So a long wait ends when the lock is shut
    /// down, and when the machine resumes from a suspend. Waking too early is harmless.
    fn sleep(
        &mut self,
        clock: Clock,
        until: Time,
        nap: Duration,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        let timer = self
            .timer
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(clock.timer(until))));
        if self.armed > until || self.armed == Time::NEVER {
            self.armed = until.min(clock.now().plus(nap));
            timer.as_mut().reset(clock.timer(self.armed));
        }
        if timer.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        // The timer has fired by Tokio's clock; the caller compares with the lock's clock.
        self.armed = Time::NEVER;
        Poll::Ready(())
    }
}

fn failed(claim: &ClaimCell, why: Failure, report: Report, attempts: u32) -> AcquireError {
    if claim.is_shut_down() {
        return AcquireError::ShutDown;
    }
    tell_failed(&claim.fleet, &claim.key, attempts, why, &report);
    match why {
        Failure::NoQuorum => AcquireError::NoQuorum { report, attempts },
        Failure::TooLate => AcquireError::TooLate { report, attempts },
        _ => AcquireError::Taken { report, attempts },
    }
}

/// Counts and logs why a resource was not acquired.
pub(crate) fn tell_failed(fleet: &Fleet, key: &Key, attempts: u32, why: Failure, report: &Report) {
    let (counter, name) = match why {
        Failure::NoQuorum => (&fleet.shared.counters.no_quorum, "no quorum"),
        Failure::TooLate => (&fleet.shared.counters.too_late, "too late"),
        _ => (&fleet.shared.counters.taken, "taken"),
    };
    count(counter);
    trace::not_acquired(key, attempts, name, report);
}

impl<L: Granted> Future for TryAcquiring<L> {
    type Output = Result<Option<L>, AcquireError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx).map(|result| match result {
            Ok(lease) => Ok(Some(lease)),
            Err(AcquireError::Taken { .. }) => Ok(None),
            Err(error) => Err(error),
        })
    }
}
