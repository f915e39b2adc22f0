//! The requests for a lease, and the future that waits for one.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use redquorum_protocol::{AcquireRequest, Failure, Key, Reentry, Time};

use crate::clock::{NAP, Naps};
use crate::error::{AcquireError, RunError};
use crate::lease::Lease;
use crate::owner::Owner;
use crate::report::Report;
use crate::shared::{ClaimCell, Found, Kind, LockState};
use crate::trace::{self, Span};

/// The longest sleep of a task that waits for another task of its process: there may be thousands.
const QUEUED_NAP: Duration = Duration::from_secs(5);

/// A request for a lease that waits while the resource is taken, made by
/// [`Redlock::acquire`](crate::Redlock::acquire). `.await` sends it; `.into_future()` makes it a
/// future for `spawn`, `join!` and the like.
#[derive(Clone)]
#[must_use = "nothing is sent before the request is awaited"]
pub struct Acquire(Request);

/// A request for a lease that makes one attempt, made by
/// [`Redlock::try_acquire`](crate::Redlock::try_acquire). `.await` sends it.
#[derive(Clone)]
#[must_use = "nothing is sent before the request is awaited"]
pub struct TryAcquire(Request);

#[derive(Clone)]
struct Request {
    lock_state: Arc<LockState>,
    key: Result<Key, AcquireError>,
    ttl: Option<Duration>,
    wait: Option<Duration>,
    at_least: Duration,
    kind: Kind,
    explain: bool,
    seen_taken: bool,
    owner: Option<Owner>,
}

impl Acquire {
    pub(crate) fn new(lock_state: &Arc<LockState>, resource: &[u8]) -> Self {
        Self(Request::new(lock_state, resource))
    }

    /// How long it waits.
    pub(crate) fn longest_wait(&self) -> Duration {
        self.0.longest_wait()
    }

    /// The same request for another resource.
    pub(crate) fn of(&self, lock_state: &Arc<LockState>, key: &Key) -> Self {
        let (lock_state, key) = (lock_state.clone(), Ok(key.clone()));
        Self(Request { lock_state, key, ..self.0.clone() })
    }

    /// Another request follows if this one is refused, so it does not wait to learn by whom.
    pub(crate) fn unexplained(mut self) -> Self {
        self.0.explain = false;
        self
    }

    /// The resource was just seen to be taken: a request that waits begins with its positions in
    /// the masters' queues.
    pub(crate) fn seen_taken(mut self) -> Self {
        self.0.seen_taken = true;
        self
    }

    /// Asks for a lease with a [fencing token](Lease::fencing_token): a number that grows with
    /// every grant, by which the resource itself can refuse a client that comes too late.
    ///
    /// It costs no extra round trip while the counters of the masters agree. They do as long as the
    /// wall clocks of clients and masters agree to within a second. Otherwise the request waits for
    /// all masters, up to the node timeout, and makes a further round, the
    /// [certification](https://github.com/redquorum/redquorum/blob/main/docs/fencing.md#certification).
    /// More rounds follow only if a master does not reply to it, or has lost the key.
    pub fn fenced(mut self) -> Self {
        self.0.kind.fenced = true;
        self
    }

    /// Asks for a lease that others may share: any number of shared leases of a resource live at
    /// the same time, and none beside an exclusive one, of this version or of any other. Use it to
    /// read what others write under an exclusive lease.
    ///
    /// Everything else is as for an exclusive lease: the deadline, the loss, the watchdog, waiting.
    /// An acquire costs one round trip, by a script on each master, as a
    /// [fenced](Acquire::fenced) one does. Where readers mostly do not meet, a plain exclusive
    /// lease is faster.
    ///
    /// A request for an exclusive lease that waits keeps later requests for a shared one out, also
    /// without [`Builder::fair`](crate::Builder::fair): it gets its turn however many readers come
    /// ([bounds](https://github.com/redquorum/redquorum/blob/main/docs/waiting.md#shared-leases)).
    ///
    /// # Errors
    /// Besides the errors of [`Redlock::acquire`](crate::Redlock::acquire):
    /// * [`Options`](AcquireError::Options) with [`SharedFenced`](crate::BadOption::SharedFenced):
    ///   a shared lease has no fencing token. Its holders do not exclude each other, and readers
    ///   [compare the version](https://github.com/redquorum/redquorum/blob/main/docs/fencing.md#readers)
    ///   of what they read.
    ///
    /// ```no_run
    /// # async fn f(lock: redquorum::Redlock) -> Result<(), Box<dyn std::error::Error>> {
    /// let one = lock.acquire("catalogue").shared().await?;
    /// let another = lock.try_acquire("catalogue").shared().await?;
    /// assert!(one.is_shared() && another.is_some());
    /// assert!(lock.try_acquire("catalogue").await?.is_none(), "a writer waits for both");
    /// # Ok(()) }
    /// ```
    pub fn shared(mut self) -> Self {
        self.0.kind.shared = true;
        self
    }

    /// The TTL of the lease, instead of the lock's own [TTL](crate::Builder::ttl). The same bounds
    /// apply.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.0.ttl = Some(ttl);
        self
    }

    /// Keeps others out for at least this long, counted from the grant: also if the lease is
    /// released or dropped sooner, or this process ends. The TTL is raised to what that takes.
    ///
    /// Use it for a job that one of many hosts runs at each tick: the hosts do not tick at the same
    /// instant, and a short job would be over before the last of them asks. Nothing has to sleep
    /// while it holds the lease. The release then returns at once, with
    /// [`Outcome::Left`](crate::Outcome::Left), and the keys are deleted, or expire, when the time
    /// is over.
    ///
    /// ```no_run
    /// # async fn f(lock: redquorum::Redlock) -> Result<(), redquorum::RunError> {
    /// # use std::time::Duration;
    /// # async fn report() {}
    /// let minute = Duration::from_secs(60);
    /// lock.acquire("cron:report").at_least(minute).run(5 * minute, async |_| report().await).await
    /// # }
    /// ```
    ///
    /// # Errors
    /// Besides the errors of [`Redlock::acquire`](crate::Redlock::acquire):
    /// * [`Options`](AcquireError::Options): such a TTL is out of its
    ///   [bounds](crate::Builder::ttl).
    pub fn at_least(mut self, at_least: Duration) -> Self {
        self.0.at_least = at_least;
        self
    }

    /// The owner of this request. An [`Owner`] that already holds the resource gets another handle
    /// of the same lease, without a round trip. The lease is given back with the last handle.
    /// Without an owner, every request excludes every other, also in the same task.
    ///
    /// Without a [`ttl`](Acquire::ttl) the deadline stays where it is. A TTL that ends later
    /// extends the lease, in one round trip; one that ends earlier changes nothing.
    ///
    /// If another request of this owner is in progress, this request waits for its result: for its
    /// own wait, or for one node timeout if the wait is shorter. So it may return up to one node
    /// timeout later, and later by the round that extends the lease.
    ///
    /// # Errors
    /// Besides the errors of [`Redlock::acquire`](crate::Redlock::acquire):
    /// * [`NotExtended`](AcquireError::NotExtended): the owner holds the resource, but not for the
    ///   requested TTL. Its lease is unchanged.
    /// * [`Options`](AcquireError::Options) with [`HeldUnfenced`](crate::BadOption::HeldUnfenced):
    ///   the owner holds the resource without the requested fencing token.
    /// * [`Options`](AcquireError::Options) with [`HeldShared`](crate::BadOption::HeldShared): the
    ///   owner holds a shared lease, and asks for an exclusive one. It would wait for itself.
    ///
    /// # Cancel safety
    /// Dropping the future gives back the handle that it may have got. It does not take back an
    /// extension that it asked for.
    pub fn owner(mut self, owner: &Owner) -> Self {
        self.0.owner = Some(owner.clone());
        self
    }

    /// How long to wait while the resource is taken or no quorum answers, instead of the lock's own
    /// [wait](crate::Builder::wait). Zero makes one attempt.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.0.wait = Some(wait);
        self
    }

    /// Acquires the resource, runs `work` while the lease lasts, and gives the resource back on
    /// every exit path. It [keeps the lease alive](crate::Lease::keep_alive) for at most
    /// `max_hold`, counted from the grant, and then drops `work`, even if the TTL is longer. The
    /// [crate](crate) documentation has an example.
    ///
    /// `work` gets the lease, for its [fencing token](crate::Lease::fencing_token) or a
    /// [signal](crate::Lease::loss_signal). The result of `work` is passed through, whatever it is.
    /// When `work` is done, the future [releases](crate::Lease::release) the lease and waits for
    /// that: one round trip, at most one node timeout. Tasks that `work` has started elsewhere are
    /// not stopped: see [`Lease::run`](crate::Lease::run).
    ///
    /// # Errors
    /// * [`RunError::NotAcquired`]: an error of [`Redlock::acquire`](crate::Redlock::acquire).
    ///   `work` was not called.
    /// * [`RunError::Lost`]: the lease was lost first, or `max_hold` was over
    ///   ([`Loss::MaxHold`](crate::report::Loss::MaxHold)). `work` was dropped, or its result, if
    ///   it blocked its thread past that.
    ///
    /// # Cancel safety
    /// Dropping the future gives the attempt up, or drops `work` and then the lease. A panic of
    /// `work` does the same. The resource is given back in the background; with a [lock
    /// delay](crate::Builder::lock_delay), when that is over.
    ///
    /// Web frameworks drop a handler whose client disconnects. A call that `work` has sent by then
    /// may still take effect, while the next holder makes its own. To prevent this, run the whole
    /// request in a task of its own, or set a lock delay that is longer than such a call.
    pub async fn run<T>(
        self,
        max_hold: Duration,
        work: impl AsyncFnOnce(&Lease) -> T,
    ) -> Result<T, RunError> {
        let lease = self.into_future().await.map_err(RunError::NotAcquired)?;
        lease.run_and_release(max_hold, work).await
    }
}

impl TryAcquire {
    pub(crate) fn new(lock_state: &Arc<LockState>, resource: &[u8]) -> Self {
        let wait = Some(Duration::ZERO);
        Self(Request { wait, explain: false, ..Request::new(lock_state, resource) })
    }

    /// Asks for a lease with a fencing token: see [`Acquire::fenced`].
    pub fn fenced(mut self) -> Self {
        self.0.kind.fenced = true;
        self
    }

    /// Asks for a lease that others may share: see [`Acquire::shared`]. While a request for an
    /// exclusive lease waits, it returns `None`.
    pub fn shared(mut self) -> Self {
        self.0.kind.shared = true;
        self
    }

    /// Keeps others out for at least this long, counted from the grant: see [`Acquire::at_least`].
    pub fn at_least(mut self, at_least: Duration) -> Self {
        self.0.at_least = at_least;
        self
    }

    /// The owner of this request: see [`Acquire::owner`]. If another request of this owner is in
    /// progress, this request waits for its result for at most one node timeout, and then returns
    /// `None`.
    pub fn owner(mut self, owner: &Owner) -> Self {
        self.0.owner = Some(owner.clone());
        self
    }

    /// The TTL of the lease, instead of the lock's own [TTL](crate::Builder::ttl). The same bounds
    /// apply.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.0.ttl = Some(ttl);
        self
    }
}

impl Request {
    fn longest_wait(&self) -> Duration {
        self.wait.unwrap_or(self.lock_state.wait)
    }

    fn new(lock_state: &Arc<LockState>, resource: &[u8]) -> Self {
        let (lock_state, key) = (lock_state.clone(), lock_state.key(resource));
        Self {
            lock_state,
            key,
            ttl: None,
            wait: None,
            at_least: Duration::ZERO,
            kind: Kind::default(),
            explain: true,
            seen_taken: false,
            owner: None,
        }
    }

    fn check(&self) -> Result<(Key, AcquireRequest), AcquireError> {
        if self.lock_state.is_shut_down() {
            return Err(AcquireError::ShutDown);
        }
        let key = self.key.clone()?;
        let config = self.lock_state.config(&key, self.ttl, self.kind)?;
        let config = config.lasting(self.at_least).map_err(|error| {
            let resource = self.lock_state.resource(&key).to_vec();
            AcquireError::Options { resource, error }
        })?;
        let wait = self.longest_wait();
        let extend = self.ttl.is_some() || !self.at_least.is_zero();
        let reentry = self.owner.as_ref().map(|it| Reentry { owner: it.id(), extend });
        let request = AcquireRequest {
            config,
            wait,
            explain: self.explain,
            fair: true,
            seen_taken: self.seen_taken,
            reentry,
            seed: (),
        };
        Ok((key, request))
    }

    fn into_future(self) -> Acquiring {
        Acquiring {
            at_least: self.at_least,
            stage: Stage::Ready(self),
            extends: None,
            naps: Naps::default(),
            asked: Time::NEVER,
            span: Span::NONE,
            queued: false,
        }
    }
}

impl IntoFuture for Acquire {
    type Output = Result<Lease, AcquireError>;
    type IntoFuture = Acquiring;

    fn into_future(self) -> Acquiring {
        self.0.into_future()
    }
}

impl IntoFuture for TryAcquire {
    type Output = Result<Option<Lease>, AcquireError>;
    type IntoFuture = TryAcquiring;

    fn into_future(self) -> TryAcquiring {
        TryAcquiring(self.0.into_future())
    }
}

/// The future of an [`Acquire`].
///
/// # Cancel safety
/// Dropping it gives the attempt up. The keys that it may have set are deleted in the background.
/// If it is polled once and then not again, its keys are deleted all the same,
/// [soon](https://github.com/redquorum/redquorum/blob/main/docs/waiting.md#one-waiter) after the
/// end of its round, and it goes on when it is polled again.
#[must_use = "futures do nothing unless polled"]
pub struct Acquiring {
    stage: Stage,
    at_least: Duration,
    /// The claim of the lease that is extended before its owner gets another handle.
    extends: Option<Arc<ClaimCell>>,
    naps: Naps,
    asked: Time,
    span: Span,
    /// It waited for its turn in this process at the last look.
    queued: bool,
}

enum Stage {
    Ready(Request),
    /// The request waits for its turn, or asks the masters.
    Claiming(Arc<ClaimCell>),
    Done,
}

/// The future of a [`TryAcquire`].
///
/// # Cancel safety
/// Dropping it gives the attempt up. The keys that it may have set are deleted in the background.
/// If it is polled once and then not again, its keys are deleted all the same,
/// [soon](https://github.com/redquorum/redquorum/blob/main/docs/waiting.md#one-waiter) after the
/// end of its round, and it goes on when it is polled again.
#[must_use = "futures do nothing unless polled"]
pub struct TryAcquiring(Acquiring);

impl Future for Acquiring {
    type Output = Result<Lease, AcquireError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if let Stage::Ready(Request { key: Ok(key), lock_state, .. }) = &this.stage {
            this.span = Span::acquire(lock_state.shown(key));
        }
        let span = this.span.clone();
        let result = span.within(|| this.advance(cx));
        if let Poll::Ready(result) = &result {
            span.acquired(result);
            this.span = Span::NONE;
            if let Ok(lease) = result {
                lease.open_span();
            }
        }
        result
    }
}

impl Acquiring {
    fn advance(&mut self, cx: &mut Context<'_>) -> Poll<Result<Lease, AcquireError>> {
        let mut first = None;
        let is_forked = match &self.stage {
            Stage::Ready(request) => request.lock_state.shared.is_forked(),
            Stage::Claiming(claim) => claim.is_forked(),
            Stage::Done => false,
        };
        if is_forked {
            self.stage = Stage::Done;
            return Poll::Ready(Err(AcquireError::Forked));
        }
        if let Stage::Ready(request) = &self.stage {
            match request.check() {
                Ok((key, asked)) => {
                    let (lock_state, owner) = (&request.lock_state, request.owner.clone());
                    let (claim, found, now) =
                        ClaimCell::start(lock_state, key, asked, owner, cx.waker());
                    self.stage = Stage::Claiming(claim);
                    (first, self.asked) = (Some(found), now);
                }
                Err(error) => {
                    self.stage = Stage::Done;
                    return Poll::Ready(Err(error));
                }
            }
        }
        loop {
            let Stage::Claiming(claim) = &self.stage else { panic!("polled after it was ready") };
            let (claim, shut_down) = (claim.clone(), claim.is_shut_down());
            let found = first.take().unwrap_or_else(|| claim.poll(cx.waker(), !shut_down));
            let queued = matches!(found, Found::Pending { queued: true, .. });
            if self.queued && !queued {
                let time = claim.lock_state.clock.now().since(self.asked);
                self.span.record("queued", format_args!("{time:?}"));
            }
            self.queued = queued;
            let result = match found {
                // From here on the lease ends the claim.
                Found::Granted(now) => Ok(Lease::new(claim, now, self.asked)),
                Found::Reentered(of) => Ok(Lease::again(of)),
                Found::Refused(error) => Err(error),
                Found::Won(_) | Found::Pending { .. } | Found::Extending(..) if shut_down => {
                    Err(AcquireError::ShutDown)
                }
                Found::Extending(of, until) => {
                    // A handle of the request keeps the lease alive.
                    self.extends = Some(of);
                    ready!(self.naps.sleep(claim.lock_state.clock, until, NAP, cx));
                    continue;
                }
                Found::Failed(..) if claim.is_shut_down() => Err(AcquireError::ShutDown),
                Found::Failed(why, report, attempts) => {
                    let waited = claim.lock_state.clock.now().since(self.asked);
                    self.span.record("attempts", attempts);
                    Err(not_acquired(&claim.lock_state, &claim.key, why, report, attempts, waited))
                }
                Found::Won(_) => continue,
                Found::Pending { until, queued } => {
                    // Another request of this process asks the masters meanwhile.
                    let nap = if queued { QUEUED_NAP } else { NAP };
                    ready!(self.naps.sleep(claim.lock_state.clock, until, nap, cx));
                    continue;
                }
            };
            if let Ok(lease) = &result {
                lease.keep_others_out(self.at_least);
            }
            // Dropping the claim undoes the rest of an attempt.
            self.stage = Stage::Done;
            return Poll::Ready(result);
        }
    }
}

/// Counts and logs why a resource was not acquired, and makes the error.
pub(crate) fn not_acquired(
    lock_state: &LockState,
    key: &Key,
    why: Failure,
    report: Report,
    attempts: u32,
    waited: Duration,
) -> AcquireError {
    let counters = &lock_state.shared.counters;
    counters.waits[1].record(waited);
    let (counter, name) = match why {
        Failure::NoQuorum => (&counters.no_quorum, "no quorum"),
        Failure::TooLate => (&counters.too_late, "too late"),
        _ => (&counters.taken, "taken"),
    };
    counter.add();
    trace::not_acquired(lock_state.shown(key), attempts, name, &report);
    let resource = lock_state.resource(key).to_vec();
    match why {
        Failure::NoQuorum => AcquireError::NoQuorum { resource, report, attempts },
        Failure::TooLate => AcquireError::TooLate { resource, report, attempts },
        _ => AcquireError::Taken { resource, report, attempts },
    }
}

impl Future for TryAcquiring {
    type Output = Result<Option<Lease>, AcquireError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx).map(|result| match result {
            Ok(lease) => Ok(Some(lease)),
            Err(AcquireError::Taken { .. }) => Ok(None),
            Err(error) => Err(error),
        })
    }
}
