//! Lease: what a successful acquire returns.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use redquorum_protocol::{
    Claim, Client, Extension, Hold, Input, LockConfig, Loss, Outcome, Time, Votes,
};

use crate::clock::Deadline;
use crate::error::{About, ExtendError, Lost, RunError};
use crate::report::Report;
use crate::shared::{ClaimCell, EndedRound, Granted, LockState};
use crate::signal::LossSignal;
use crate::trace::Span;

/// A resource that is held until the [deadline](Lease::deadline) or until it is given back.
///
/// **It is a lease, not a guard.** While it lasts, no other client that follows the protocol holds
/// the resource, given the [assumptions](crate#what-it-promises). It ends at its deadline whatever
/// its holder is doing then: extend it, [keep it alive](Lease::keep_alive), or stop.
/// [`run`](Lease::run) stops for you.
///
/// Dropping it gives the resource back in the background and never blocks. The client deletes the
/// key on each master as soon as that master replies; if none of this succeeds, the key expires.
/// With a [lock delay](crate::Builder::lock_delay), only [`release`](Lease::release) frees the
/// resource at once: the keys of a dropped lease stay until the lock delay is over.
///
/// Several tasks share a lease in an `Arc`. Whichever of them is the last gives it back:
///
/// ```no_run
/// # use std::sync::Arc;
/// # async fn f(lock: redquorum::Redlock) -> Result<(), Box<dyn std::error::Error>> {
/// let lease = Arc::new(lock.acquire("invoice:42").await?);
/// let part = async |lease: Arc<redquorum::Lease>| {
///     println!("{:?} left", lease.validity());
///     if let Some(last) = Arc::into_inner(lease) {
///         let _ = last.release().await;
///     }
/// };
/// tokio::join!(part(lease.clone()), part(lease));
/// # Ok(()) }
/// ```
#[must_use = "the resource is given back as soon as the lease is dropped"]
pub struct Lease {
    claim: Arc<ClaimCell>,
    /// This handle was counted down already, while other handles are out.
    given_back: bool,
}

/// The result of a released lease.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "it says whether the lease was lost before; `let _ =` if that does not matter"]
#[non_exhaustive]
pub struct Released {
    /// The resource, without the lock's prefix.
    pub resource: Vec<u8>,
    /// Whether the lease was ours to the end.
    pub outcome: Outcome,
    /// The reply of each master. It has no replies if no master was asked.
    pub report: Report,
}

impl Released {
    /// Whether the lease had ended before: [`Outcome::AlreadyGone`]. What its holder did last, it
    /// may have done without a lock.
    pub fn was_lost(&self) -> bool {
        self.outcome == Outcome::AlreadyGone
    }
}

impl fmt::Display for Released {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{} ({})", About(&self.resource), self.outcome, self.report)
    }
}

impl Lease {
    pub(crate) fn new(claim: Arc<ClaimCell>, now: Time, asked: Time) -> Self {
        let waited = now.since(asked);
        let counters = &claim.lock_state.shared.counters;
        counters.waits[0].record(waited);
        counters.acquired.add();
        let (certifications, token, fencing_token, report) = claim.hold(|hold| {
            let report = claim.report(hold.votes());
            (hold.certifications(), hold.token(), hold.fencing_token(), report)
        });
        if certifications > 0 {
            counters.certified.add();
        }
        claim.granted.get_or_init(|| Granted { at: now, token, fencing_token });
        crate::trace::acquired(claim.shown(), waited, claim.grant.get_or_init(|| report));
        Self { claim, given_back: false }
    }

    /// Opens the span of the lease, in the span of its holder.
    pub(crate) fn open_span(&self) {
        let open = || Span::hold(self.claim.shown(), || self.fencing_token());
        self.claim.span.get_or_init(open);
    }

    /// Another handle of the lease of a claim, for its owner.
    pub(crate) fn again(claim: Arc<ClaimCell>) -> Self {
        claim.lock_state.shared.counters.reentered.add();
        Self { claim, given_back: false }
    }

    /// The number of handles of this lease, this one included. It is more than one only if its
    /// [`Owner`](crate::Owner) has acquired the resource again. In a forked process it is 0.
    pub fn handles(&self) -> u32 {
        if self.claim.is_forked() { 0 } else { self.claim.hold(Hold::handles) }
    }

    /// The instant after which this lease must be taken for lost: the start of the attempt that
    /// won, plus TTL, minus drift, minus the bound of a [clock guard](crate::Builder::clock_guard)
    /// (R1). Extending the lease moves it.
    pub fn deadline(&self) -> Deadline {
        // In a forked process it has passed.
        let deadline =
            if self.claim.is_forked() { Time::ZERO } else { self.claim.hold(Hold::deadline) };
        Deadline::new(self.claim.lock_state.clock, deadline)
    }

    /// The time that is left until the deadline; zero once the lease is lost. The value is out of
    /// date as soon as you have it: to stop in time, use [`run`](Lease::run) or
    /// [`lost`](Lease::lost).
    pub fn validity(&self) -> Duration {
        if self.is_lost() { Duration::ZERO } else { self.deadline().remaining() }
    }

    /// The fencing token, if the request asked for one by [`fenced`](crate::Acquire::fenced): at
    /// least 1, at most 2⁵³ − 2, so that every language and database can store it exactly. It is
    /// the same through all extensions, and for all handles of its [owner](crate::Owner).
    ///
    /// A lease alone cannot stop a client that was paused past its deadline from writing. The
    /// resource can, if it remembers the largest token that it was shown and refuses smaller ones:
    /// [`resource`](crate::resource) says how.
    ///
    /// Tokens of one resource are unique and grow with each grant, **whatever the clocks do**, as
    /// long as no master loses its counter: by a restart without persistence, a `FLUSHALL`, an
    /// eviction, a failover to a replica, or when the [counter
    /// expires](crate::Builder::fencing_counter_ttl).
    /// Then the wall clocks of the clients replace it. Tokens still grow unless these clocks differ
    /// by more than the time between the grants.
    pub fn fencing_token(&self) -> Option<u64> {
        if self.claim.is_forked() {
            return self.claim.granted.get()?.fencing_token;
        }
        self.claim.hold(Hold::fencing_token)
    }

    /// Whether others may share the resource with this lease, as asked for by
    /// [`shared`](crate::Acquire::shared). A handle of an [owner](crate::Owner) that holds the
    /// resource alone is a handle of that lease, and not shared.
    pub fn is_shared(&self) -> bool {
        if self.claim.is_forked() {
            return self.claim.granted.get().is_some_and(|granted| granted.token.is_shared());
        }
        self.claim.hold(Hold::is_shared)
    }

    /// Whether the lease is lost. A loss is final.
    pub fn is_lost(&self) -> bool {
        self.cause_of_loss().is_some()
    }

    /// Why the lease is lost, if it is.
    pub fn loss(&self) -> Option<Lost> {
        self.cause_of_loss().map(|cause| self.lost_by(cause))
    }

    fn cause_of_loss(&self) -> Option<Loss> {
        if self.claim.is_forked() {
            return Some(Loss::Forked);
        }
        self.claim.notice_deadline();
        self.claim.hold(Hold::lost)
    }

    fn lost_by(&self, cause: Loss) -> Lost {
        Lost { resource: self.claim.resource(), cause }
    }

    /// The replies of the masters when the lease was granted: at least those of a quorum. A slower
    /// master has no reply here: see [`latest_report`](Lease::latest_report).
    pub fn report(&self) -> &Report {
        static NONE: Report = Report::EMPTY;
        if self.claim.is_forked() {
            return self.claim.grant.get().unwrap_or(&NONE);
        }
        // Filled by the first handle, before any extension.
        self.claim.grant.get_or_init(|| self.latest_report())
    }

    /// The replies so far in the latest round, the grant or an extension, finished or not. It also
    /// has replies that came after the result. So, a node timeout after the grant,
    /// [`in_favour`](Report::in_favour) shows whether it was a full grant or a bare quorum.
    pub fn latest_report(&self) -> Report {
        if self.claim.is_forked() {
            return self.report().clone();
        }
        self.claim.hold(|hold| self.claim.report(hold.votes()))
    }

    /// The start of the lease's token, as the reports of other clients show it: `1a2b3c4d…`. So
    /// logs of a client that was refused lead to the log of the holder.
    pub fn token_id(&self) -> String {
        let granted = self.claim.granted.get();
        granted.map(|granted| format!("{:?}", granted.token)).unwrap_or_default()
    }

    /// The resource, without the lock's prefix.
    pub fn resource(&self) -> &[u8] {
        self.claim.lock_state.resource(&self.claim.key)
    }

    /// Waits until the lease is lost, and returns why. A local timer ends the wait at the deadline,
    /// whether or not any master can be reached, and within 250 ms if the machine was suspended.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn lost(&self) -> Lost {
        if self.claim.is_forked() {
            return self.lost_by(Loss::Forked);
        }
        let lost = self.claim.until(|claim| claim.hold()?.lost()).await;
        self.lost_by(lost.unwrap_or(Loss::Forked))
    }

    /// A signal that notifies tasks and threads when the lease is over. It borrows nothing, so that
    /// the lease can be released while the signal is in use.
    pub fn loss_signal(&self) -> LossSignal {
        LossSignal::new(&self.claim, self.resource())
    }

    /// The margin of this lease: how many masters must forget its key, or end it too early, before
    /// a second client can win. Of five masters it is 3 while all have the key, and 1 on a bare
    /// quorum. It counts the masters whose replies have come, so it grows when slow ones reply, and
    /// when an extension gives the key to masters that missed the grant. A master that forgot the
    /// key counts until an extension shows that. 0 for a lease that is lost.
    pub fn margin(&self) -> usize {
        if self.is_lost() { 0 } else { self.claim.hold(Hold::margin) }
    }

    /// Whether the latest extension has failed, the watchdog's or another one, while there is time
    /// left: see [`LossSignal::is_endangered`].
    pub fn is_endangered(&self) -> bool {
        !self.is_lost() && self.claim.is_endangered()
    }

    /// Waits until an extension fails while there is time left, and returns the deadline. `None` if
    /// the lease is lost first. See [`LossSignal::endangered`].
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn endangered(&self) -> Option<Deadline> {
        if self.claim.is_forked() {
            return None;
        }
        let deadline = self.claim.endangered().await?;
        Some(Deadline::new(self.claim.lock_state.clock, deadline))
    }

    /// Extends the lease by its TTL from now, in one round trip.
    ///
    /// Only masters that have held the key without a gap count. A master that had lost the key, or
    /// had not granted it, gets the key if it is free there (a repair), and counts from the next
    /// extension on. A failed extension does not shorten the lease (R6).
    ///
    /// # Errors
    /// * [`ExtendError::NoQuorum`]: the old deadline stands; try again.
    /// * [`ExtendError::QuorumGone`]: a quorum of masters lacked the key at one time; stop.
    /// * [`ExtendError::Lost`]: the lease was lost, before or meanwhile.
    /// * [`ExtendError::ShutDown`]: the lock was shut down.
    ///
    /// # Cancel safety
    /// Dropping the future does not take the extension back: the masters may have been asked, and
    /// the deadline may still move. A future that is polled once and not again keeps no other
    /// extension of the lease waiting for longer than one node timeout.
    pub async fn extend(&self) -> Result<Deadline, ExtendError> {
        self.extend_on(None).await
    }

    /// Extends the lease by another TTL from now, which further extensions use too: see
    /// [`extend`](Lease::extend). If the new deadline would be earlier than the old one, the
    /// deadline moves nearer at once: before anything is sent, and even if the extension fails. The
    /// TTL of the key on a master never gets shorter.
    ///
    /// # Errors
    /// The errors of [`extend`](Lease::extend), and [`ExtendError::Options`]: the TTL is out of its
    /// [bounds](crate::Builder::ttl), and nothing was sent.
    ///
    /// # Cancel safety
    /// See [`extend`](Lease::extend).
    pub async fn extend_to(&self, ttl: Duration) -> Result<Deadline, ExtendError> {
        self.refuse_forked()?;
        let config = self
            .claim
            .lock_state
            .config
            .with_ttl(ttl)
            .map_err(|error| ExtendError::Options { resource: self.claim.resource(), error })?;
        self.extend_on(Some(config)).await
    }

    /// Keeps others out for at least this long from now: also if the lease is released or dropped
    /// sooner, or this process ends. It extends the lease if that is over sooner, by a TTL that
    /// further extensions use too. [`release`](Lease::release) then returns at once, with
    /// [`Outcome::Left`]. [`Acquire::at_least`](crate::Acquire::at_least) asks for it with the
    /// lease, without another round trip.
    ///
    /// # Errors
    /// The errors of [`extend_to`](Lease::extend_to). Nothing has changed then.
    ///
    /// # Cancel safety
    /// See [`extend`](Lease::extend). Others are not kept out by a future that was dropped.
    pub async fn at_least(&self, at_least: Duration) -> Result<Deadline, ExtendError> {
        self.refuse_forked()?;
        let LockState { clock, config, .. } = *self.claim.lock_state;
        let until = clock.now().plus(at_least);
        let mut deadline = self.deadline();
        if self.is_lost() || self.claim.hold(Hold::deadline) < until {
            let config = config
                .lasting(at_least)
                .map_err(|error| ExtendError::Options { resource: self.claim.resource(), error })?;
            deadline = self.extend_on(Some(config)).await?;
        }
        self.claim.apply(Input::KeepUntil(until), |_| ());
        Ok(deadline)
    }

    /// Others are kept out for this long, whatever becomes of the lease. It lives that long.
    pub(crate) fn keep_others_out(&self, at_least: Duration) {
        if !at_least.is_zero() && !self.claim.is_forked() {
            let until = self.claim.lock_state.clock.now().plus(at_least);
            self.claim.apply(Input::KeepUntil(until), |_| ());
        }
    }

    fn refuse_forked(&self) -> Result<(), ExtendError> {
        let forked = || ExtendError::Lost(self.lost_by(Loss::Forked));
        if self.claim.is_forked() { Err(forked()) } else { Ok(()) }
    }

    /// Extends by `config`, or as the latest extension did. One caller extends at a time.
    async fn extend_on(&self, config: Option<LockConfig>) -> Result<Deadline, ExtendError> {
        loop {
            self.refuse_forked()?;
            if self.claim.is_shut_down() {
                return Err(ExtendError::ShutDown);
            }
            if let Some((round, kept)) = self.claim.start_extending(config) {
                return self.extended_by(round, &kept).await;
            }
            let is_free = |claim: &Claim| !claim.hold().is_some_and(Hold::is_extended_by_a_caller);
            self.claim.until(|claim| is_free(claim).then_some(())).await;
        }
    }

    async fn extended_by(&self, round: u32, kept: &EndedRound) -> Result<Deadline, ExtendError> {
        let ended = self.claim.until(|claim| {
            let hold = claim.hold()?;
            let lost = hold.lost().map(|loss| (Extension::Lost(loss), hold.votes()));
            let kept = kept.get().map(|(result, votes)| (*result, votes));
            let (result, votes) = kept.or_else(|| hold.ended(round)).or(lost)?;
            Some((result, votes.clone()))
        });
        let Some((result, votes)) = ended.await else {
            return Err(ExtendError::Lost(self.lost_by(Loss::Forked)));
        };
        match (result, self.loss()) {
            // The lease may have been lost since the last vote: then the extension is no success.
            (_, Some(lost)) => Err(ExtendError::Lost(lost)),
            (Extension::Extended, None) => Ok(self.deadline()),
            (result, None) => Err(self.claim.not_extended(result, &votes)),
        }
    }

    /// Starts the watchdog, which extends the lease in the background until `max_hold` from now. It
    /// extends again TTL/6 to TTL/3 after each success, and sooner after a failure or where a
    /// [clock guard](crate::Builder::clock_guard) leaves little of the TTL. If a master has not
    /// granted the lease, the first renewal comes two node timeouts after the grant, so that this
    /// master gets the key while the work runs.
    ///
    /// The watchdog never moves the deadline beyond that bound, so a holder that hangs does not
    /// keep others out for ever. It does not bring the deadline nearer either. Your own extensions
    /// are not bounded. If it finds that the key is gone from a quorum of masters, the lease is
    /// lost at once. Called again, `keep_alive` sets a new bound; on a lost lease it does nothing.
    ///
    /// The watchdog extends the leases of one lock together, so that thousands of them cost few
    /// writes. It reports each loss at the deadline of its own lease.
    ///
    /// The watchdog runs on the runtime in which the lock was built. A runtime that stands still
    /// renews nothing, for instance a current-thread runtime between two `block_on` calls.
    pub fn keep_alive(&self, max_hold: Duration) {
        if !self.claim.is_forked() {
            self.claim.apply(Input::KeepAlive(max_hold), |_| ());
        }
    }

    /// Runs `work` while the lease lasts. Each poll first reads the clock: at the deadline, or at
    /// an earlier loss, `work` is not polled again and is dropped. One poll can run past the
    /// deadline, so code between two awaits can run after the deadline. If `work` finishes in such
    /// a poll, its result is dropped, too: what it did last, it may have done without a lock.
    ///
    /// **Work that was started elsewhere goes on**: tasks that `work` spawned, closures of
    /// `spawn_blocking`, threads, and requests that it sent. Give them a
    /// [`loss_signal`](Lease::loss_signal) to check.
    ///
    /// Extend the lease meanwhile by [`keep_alive`](Lease::keep_alive), and
    /// [release](Lease::release) it when `work` is done. [`Acquire::run`](crate::Acquire::run) does
    /// all of it in one call.
    ///
    /// # Errors
    /// [`Lost`] if the lease ended before `work` was done.
    ///
    /// # Cancel safety
    /// Dropping the future drops `work` and leaves the lease as it is.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, Lost> {
        run_while(work, self.lost(), || self.loss()).await
    }

    /// Runs `work` while the lease lasts, at most for `max_hold`, and gives it back.
    pub(crate) async fn run_and_release<T>(
        self,
        max_hold: Duration,
        work: impl AsyncFnOnce(&Self) -> T,
    ) -> Result<T, RunError> {
        self.keep_alive(max_hold);
        match self.run_at_most(max_hold, work(&self)).await {
            Ok(done) => {
                // The work was done before the deadline, whatever the masters reply.
                let _ = self.release().await;
                Ok(done)
            }
            // Dropped, not released: there is no reply to wait for, and the lock delay applies.
            Err(lost) => Err(RunError::Lost(lost)),
        }
    }

    /// Like [`run`](Self::run), but `work` is dropped after `most` in any case.
    pub(crate) async fn run_at_most<F: Future>(
        &self,
        most: Duration,
        work: F,
    ) -> Result<F::Output, Lost> {
        let clock = self.claim.lock_state.clock;
        let end = Deadline::new(clock, clock.now().plus(most));
        let over = || self.lost_by(Loss::MaxHold);
        let (mut lost, mut passed) = (pin!(self.lost()), pin!(end.passed()));
        let lost = poll_fn(|cx| match lost.as_mut().poll(cx) {
            Poll::Pending => passed.as_mut().poll(cx).map(|()| over()),
            lost => lost,
        });
        run_while(work, lost, || self.loss().or_else(|| end.has_passed().then(over))).await
    }

    /// Gives the resource back: compare-and-delete on all masters that can be reached. It returns
    /// as soon as the outcome is clear, after at most one node timeout. Clean-ups that are still
    /// pending then complete in the background.
    ///
    /// Releasing an expired lease is an outcome, not an error:
    /// [`AlreadyGone`](Outcome::AlreadyGone), whichever masters reply. With a [lock
    /// delay](crate::Builder::lock_delay), no master is asked in that case. While other handles of
    /// its [owner](crate::Owner) are out, no master is asked either: the outcome is
    /// [`StillHeld`](Outcome::StillHeld), and the last handle gives the resource back.
    ///
    /// # Cancel safety
    /// Dropping the future, polled or not, gives the resource back all the same; only the outcome
    /// is lost.
    pub async fn release(self) -> Released {
        let span = Span::release(self.claim.shown());
        let released = span.around(self.give_back()).await;
        span.record("outcome", released.outcome);
        released
    }

    async fn give_back(mut self) -> Released {
        let resource = self.claim.resource();
        let of_another_process = |resource| {
            let report = Report::default();
            Released { resource, outcome: Outcome::AlreadyGone, report }
        };
        if self.claim.is_forked() {
            return of_another_process(resource);
        }
        let is_lost = |hold: &Hold| hold.lost().is_some() || hold.had_gap();
        // While other handles are out, the claim still holds.
        let others = self.claim.give_back(Input::Release, |claim| claim.hold().map(is_lost));
        self.given_back = others.is_some();
        if let Some(is_lost) = others {
            let outcome = if is_lost { Outcome::AlreadyGone } else { Outcome::StillHeld };
            let none = Votes::open(
                self.claim.lock_state.config.nodes(),
                self.claim.lock_state.clock.now(),
            );
            return Released { resource, outcome, report: self.claim.report(&none) };
        }
        self.claim.lock_state.shared.counters.released.add();
        let released = self.claim.until(|claim| match claim {
            Claim::Releasing(release) => {
                Some((release.outcome()?, self.claim.report(release.votes())))
            }
            _ => None,
        });
        let Some((outcome, report)) = released.await else { return of_another_process(resource) };
        self.given_back = true;
        self.claim.end(Client::cancel);
        Released { resource, outcome, report }
    }
}

/// Polls `work` until `lost` is ready or `loss` returns one. Checks both before each poll, and the
/// latter once more when `work` is done.
pub(crate) async fn run_while<F: Future>(
    work: F,
    lost: impl Future<Output = Lost>,
    loss: impl Fn() -> Option<Lost>,
) -> Result<F::Output, Lost> {
    let (mut work, mut lost) = (pin!(work), pin!(lost));
    poll_fn(|cx| {
        if let Poll::Ready(lost) = lost.as_mut().poll(cx) {
            return Poll::Ready(Err(lost));
        }
        if let Some(lost) = loss() {
            return Poll::Ready(Err(lost));
        }
        // The poll may have blocked its thread past the deadline.
        work.as_mut().poll(cx).map(|done| loss().map_or(Ok(done), Err))
    })
    .await
}

impl ClaimCell {
    /// Reads the hold of a claim that has a lease.
    pub(crate) fn hold<R>(&self, look: impl FnOnce(&Hold) -> R) -> R {
        self.view(|claim| look(claim.hold().expect("a lease holds until it is released")))
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if !self.given_back && !self.claim.is_forked() {
            self.claim.give_back(Input::Abandon, |_| ());
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("resource", &format_args!("{}", self.claim.key.escape_ascii()))
            .field("validity", &self.validity())
            .finish_non_exhaustive()
    }
}
