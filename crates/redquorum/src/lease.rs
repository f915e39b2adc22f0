//! Lease: what a successful acquire returns.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use redquorum_protocol::{Ballot, Claim, Extension, Hold, Input, Outcome, Terms};
use tokio::sync::MutexGuard;

use crate::claim::ClaimCell;
use crate::clock::Deadline;
use crate::error::{ExtendError, Lost};
use crate::owner::Place;
use crate::report::Report;
use crate::signal::LossSignal;
use crate::stats::count;

/// A resource, held until the [deadline](Lease::deadline) or until it is given back.
///
/// **It is a lease, not a guard.** While it lasts, no other client that follows the protocol
/// holds the resource, given the [assumptions](crate#what-it-promises). It ends at its deadline
/// whatever its holder is doing then: extend it, [keep it alive](Lease::keep_alive), or stop.
/// [`run`](Lease::run) stops for you.
///
/// Dropping it gives the resource back in the background and never blocks. It is deleted on the
/// masters that can be reached, and expires on the others within one TTL. With a
/// [grace](crate::Builder::grace) a dropped lease is freed when that is over: call
/// [`release`](Lease::release), which frees it at once.
#[must_use = "the resource is given back as soon as the lease is dropped"]
pub struct Lease {
    claim: Arc<ClaimCell>,
    /// Where its owner finds it again, if it has one.
    pub(crate) place: Option<Arc<Place>>,
    /// Counted down already, while other handles are out.
    given_back: bool,
}

/// What became of a released lease.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Released {
    /// Whether the lease was ours to the end.
    pub outcome: Outcome,
    /// What each master said; without answers where none was asked.
    pub report: Report,
}

impl fmt::Display for Released {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.outcome, self.report)
    }
}

impl Lease {
    /// The lease of a claim that was asked for so long ago.
    pub(crate) fn new(claim: Arc<ClaimCell>, waited: Duration) -> Self {
        let counters = &claim.fleet.shared.counters;
        count(&counters.acquired);
        if claim.hold(Hold::certifications) > 0 {
            count(&counters.certified);
        }
        let lease = Self { claim, place: None, given_back: false };
        lease.claim.granted.get_or_init(|| lease.claim.fleet.clock.now());
        crate::trace::acquired(&lease.claim.key, waited, lease.report());
        lease
    }

    /// Another handle of a lease, for its owner; `None` if it is over.
    pub(crate) fn again(claim: Arc<ClaimCell>, place: Arc<Place>) -> Option<Self> {
        let handles = |claim: &Claim| holding(claim).map(Hold::handles);
        let (before, after) = claim.apply_and_compare(Input::Reenter, handles);
        (before < after).then(|| {
            count(&claim.fleet.shared.counters.reentered);
            Self { claim, place: Some(place), given_back: false }
        })
    }

    pub(crate) fn look<R>(&self, look: impl FnOnce(&Hold) -> R) -> R {
        self.claim.hold(look)
    }

    /// Whom its owner asks for another handle.
    pub(crate) fn claim(&self) -> std::sync::Weak<ClaimCell> {
        Arc::downgrade(&self.claim)
    }

    /// How many handles of this lease are out, this one included: more than one only where its
    /// [`Owner`](crate::Owner) has acquired it again.
    pub fn handles(&self) -> u32 {
        self.claim.hold(Hold::handles)
    }

    /// The instant after which this lease must be taken for lost: the start of the attempt
    /// that won, plus TTL, minus drift (R1). Extending moves it.
    pub fn deadline(&self) -> Deadline {
        Deadline::new(self.claim.fleet.clock, self.claim.hold(Hold::deadline))
    }

    /// What is left until the deadline; zero once the lease is lost. The value rots as soon as
    /// it is read: to stop in time use [`run`](Lease::run) or [`lost`](Lease::lost).
    pub fn validity(&self) -> Duration {
        if self.is_lost().is_some() { Duration::ZERO } else { self.deadline().remaining() }
    }

    /// Why the lease is lost, if it is. Lost is final.
    pub fn is_lost(&self) -> Option<Lost> {
        self.claim.notice_deadline();
        self.claim.hold(Hold::lost).map(Lost)
    }

    /// What each master had said when the lease was granted. A quorum had; the slower ones are
    /// without an answer here.
    pub fn report(&self) -> &Report {
        // Made with the first handle, before any extension.
        self.claim.grant.get_or_init(|| self.latest_report())
    }

    /// What each master has said by now in the latest round, the grant or an extension, finished
    /// or not.
    pub fn latest_report(&self) -> Report {
        self.claim.report(&self.claim.hold(|hold| hold.ballot().clone()))
    }

    /// The resource, without the lock's prefix.
    pub fn resource(&self) -> &[u8] {
        &self.claim.key[self.claim.fleet.prefix.len()..]
    }

    /// Waits until the lease is lost, and says why. It is told by a local timer at the deadline,
    /// whether or not any master can be reached; after a suspend of the machine within 250 ms.
    ///
    /// # Cancel safety
    /// Nothing is lost by dropping the future.
    pub async fn lost(&self) -> Lost {
        Lost(self.claim.until(|claim| holding(claim)?.lost()).await)
    }

    /// A signal for tasks and threads that the lease is over. It borrows nothing, so that the lease
    /// can be released while it is in use.
    pub fn loss_signal(&self) -> LossSignal {
        LossSignal::new(Arc::downgrade(&self.claim))
    }

    /// Extends the lease by its TTL from now, in one round trip.
    ///
    /// Counted are only masters that have held the key without a gap. Masters that had lost it
    /// get it back if it is free, and count from the next extension on. A failed extension
    /// takes nothing away (R6).
    ///
    /// # Errors
    /// * [`ExtendError::NoQuorum`]: the old deadline stands; try again.
    /// * [`ExtendError::QuorumGone`]: a quorum of masters lacked the key at one time; stop.
    /// * [`ExtendError::Lost`]: the lease was lost, before or meanwhile.
    /// * [`ExtendError::ShutDown`]: the lock was shut down.
    ///
    /// # Cancel safety
    /// Dropping the future does not take the extension back: the masters may have been asked,
    /// and the deadline may move on.
    pub async fn extend(&self) -> Result<Deadline, ExtendError> {
        let one_at_a_time = self.claim.extending.lock().await;
        // Not before: the one ahead may change it.
        let terms = self.claim.hold(Hold::terms);
        self.extend_on(terms, one_at_a_time).await
    }

    /// As [`extend`](Lease::extend), by another TTL, which further extensions then use too.
    ///
    /// A shorter one brings the deadline nearer at once, before anything is sent and whatever
    /// comes of it. It never shortens the key on a master.
    ///
    /// # Errors
    /// As [`extend`](Lease::extend), and [`ExtendError::Options`]: the TTL is out of its
    /// [bounds](crate::Builder::ttl); nothing was sent.
    ///
    /// # Cancel safety
    /// As [`extend`](Lease::extend).
    pub async fn extend_to(&self, ttl: Duration) -> Result<Deadline, ExtendError> {
        let terms = self.claim.fleet.terms.with_ttl(ttl).map_err(ExtendError::Options)?;
        self.extend_on(terms, self.claim.extending.lock().await).await
    }

    async fn extend_on(
        &self,
        terms: Terms,
        _one_at_a_time: MutexGuard<'_, ()>,
    ) -> Result<Deadline, ExtendError> {
        if self.claim.is_shut_down() {
            return Err(ExtendError::ShutDown);
        }
        let rounds = |claim: &Claim| holding(claim).map_or(0, |hold| hold.extension().0);
        let (_, round) = self.claim.apply_and_compare(Input::Extend(terms), rounds);
        self.extended_by(round).await
    }

    /// Extends the lease to what these terms give from now, unless it lives longer anyway.
    pub(crate) async fn prolong(&self, terms: Terms) -> Result<Deadline, ExtendError> {
        let _one_at_a_time = self.claim.extending.lock().await;
        if self.claim.is_shut_down() {
            return Err(ExtendError::ShutDown);
        }
        let rounds = |claim: &Claim| holding(claim).map_or(0, |hold| hold.extension().0);
        match self.claim.apply_and_compare(Input::Prolong(terms), rounds) {
            (before, after) if before == after => match self.is_lost() {
                Some(lost) => Err(ExtendError::Lost(lost)),
                None => Ok(self.deadline()),
            },
            (_, round) => self.extended_by(round).await,
        }
    }

    /// What came of a round.
    async fn extended_by(&self, round: u32) -> Result<Deadline, ExtendError> {
        let ended = self.claim.until(|claim| {
            let hold = holding(claim)?;
            let lost = hold.lost().map(|loss| (Extension::Lost(loss), hold.ballot()));
            let (result, ballot) = hold.ended(round).or(lost)?;
            Some((result, ballot.clone()))
        });
        let (result, ballot) = ended.await;
        match (result, self.is_lost()) {
            // Whoever was stopped since the last vote is not told that all is well.
            (_, Some(lost)) => Err(ExtendError::Lost(lost)),
            (Extension::Extended, None) => Ok(self.deadline()),
            (Extension::QuorumGone, None) => {
                Err(ExtendError::QuorumGone(self.claim.report(&ballot)))
            }
            _ => Err(ExtendError::NoQuorum(self.claim.report(&ballot))),
        }
    }

    /// Starts the watchdog: it extends the lease in the background, a third of the TTL after
    /// each success and sooner after a failure, until `max_hold` from now.
    ///
    /// Leases of one lock are extended together, up to a sixth of the TTL earlier, so that thousands of
    /// them cost few writes: 10 000 at a TTL of 30 s take about a fiftieth of a core. Deadlines are not moved by
    /// that, and no loss is told later.
    ///
    /// It never moves the deadline beyond that bound, so a holder that hangs does not keep others
    /// out for ever; nor does it bring the deadline nearer. What you extend yourself is not
    /// bounded. The watchdog ends with the lease; called again, it starts anew with the new bound;
    /// on a lost lease it does nothing. If it learns that the key is gone from a quorum of masters,
    /// the lease is lost at once.
    ///
    /// It runs on the runtime in which the lock was built: one that stands still, as a
    /// current-thread runtime does between two `block_on`s, renews nothing.
    pub fn keep_alive(&self, max_hold: Duration) {
        self.claim.apply(Input::KeepAlive(max_hold));
    }

    /// Runs `work` while the lease lasts. At the deadline, or at an earlier loss, it is not
    /// polled again and is dropped.
    ///
    /// The clock is read before each poll. So of `work` itself only what it does between two awaits
    /// can happen after the deadline, and of a `work` that is done by then the result is returned.
    ///
    /// **What `work` has started elsewhere goes on**: tasks that it spawned, closures of
    /// `spawn_blocking`, threads, and requests that were sent. Dropping their handles does not stop
    /// them: give them a [`loss_signal`](Lease::loss_signal) to look at.
    ///
    /// Extend the lease meanwhile by [`keep_alive`](Lease::keep_alive).
    /// [`Acquire::run`](crate::Acquire::run) does all of it in one call.
    ///
    /// # Errors
    /// [`Lost`] if the lease ended first.
    ///
    /// When `work` is done, [release](Lease::release) the lease: with a [grace](crate::Builder::grace) a mere drop
    /// keeps others out until that is over.
    ///
    /// # Cancel safety
    /// Dropping the future drops `work` and leaves the lease as it is.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, Lost> {
        run_while(work, self.lost(), || self.is_lost()).await
    }

    /// Gives the handle back without waiting for anything, as one that has nothing under way.
    pub(crate) fn give_back(mut self) {
        self.count_down();
    }

    /// Gives this handle back; says why the lease is lost if others are out.
    fn count_down(&mut self) -> Option<Option<Lost>> {
        let others = self
            .claim
            .give_back(Input::Release, |claim| holding(claim).map(|hold| hold.lost().map(Lost)));
        self.given_back = others.is_some();
        others
    }

    /// Gives the resource back: compare-and-delete on all masters, as far as they can be
    /// reached. Returns as soon as the outcome is clear, after one node timeout at the latest;
    /// what is still owed then is paid in the background.
    ///
    /// Releasing a lease that has expired is an answer, not an error. With a [grace](crate::Builder::grace) no
    /// master is asked then, and others are kept out until the grace is over.
    ///
    /// While other handles of its [owner](crate::Owner) are out, no master is asked: the outcome is
    /// [`StillHeld`](Outcome::StillHeld), and the last handle gives the resource back.
    ///
    /// # Cancel safety
    /// Dropping the future, polled or not, gives the resource back all the same; only the
    /// answer is lost.
    pub async fn release(mut self) -> Released {
        if let Some(lost) = self.count_down() {
            let outcome = lost.map_or(Outcome::StillHeld, |_| Outcome::AlreadyGone);
            let nobody = Ballot::open(self.claim.fleet.terms.nodes(), self.claim.fleet.clock.now());
            return Released { outcome, report: self.claim.report(&nobody) };
        }
        count(&self.claim.fleet.shared.counters.released);
        let released = self.claim.until(|claim| match claim {
            Claim::Releasing(release) => Some((release.outcome()?, release.ballot().clone())),
            _ => None,
        });
        let (outcome, ballot) = released.await;
        self.given_back = true;
        self.claim.end();
        Released { outcome, report: self.claim.report(&ballot) }
    }
}

/// Polls `work` until something is lost, and looks for that before each poll.
pub(crate) async fn run_while<F: Future, L>(
    work: F,
    lost: impl Future<Output = L>,
    is_lost: impl Fn() -> Option<L>,
) -> Result<F::Output, L> {
    let (mut work, mut lost) = (pin!(work), pin!(lost));
    poll_fn(|cx| {
        if let Poll::Ready(lost) = lost.as_mut().poll(cx) {
            return Poll::Ready(Err(lost));
        }
        if let Some(lost) = is_lost() {
            return Poll::Ready(Err(lost));
        }
        work.as_mut().poll(cx).map(Ok)
    })
    .await
}

fn holding(claim: &Claim) -> Option<&Hold> {
    if let Claim::Holding(hold) = claim { Some(hold) } else { None }
}

impl ClaimCell {
    /// Looks at the hold of a claim that has a lease.
    pub(crate) fn hold<R>(&self, look: impl FnOnce(&Hold) -> R) -> R {
        self.view(|claim| look(holding(claim).expect("a lease holds until it is released")))
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if !self.given_back {
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
